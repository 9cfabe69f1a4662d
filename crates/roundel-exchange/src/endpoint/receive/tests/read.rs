//! Messages that are read at once.

use super::*;

#[tokio::test]
async fn what_is_read_at_once_waits_at_its_source() {
    let device = || shm::open(shm::ShmOptions::default()).unwrap();
    let fabrics = (fabric_on(device(), 1 << 30), fabric_on(device(), 1 << 30));
    let mut pair = Pair::open_on(fabrics, Design::SemqRd, |_| (), |_| ());
    let queue = pair.receiver.report().registered_bytes;
    for window in [4, 8, 16, 16] {
        assert_eq!(pair.send_all(), window);
        let mut messages = Vec::new();
        while pair.receiver.poll(&mut messages, 64) {}
        assert_eq!(messages.len(), window);
        assert!(!pair.send(), "they are read and not released");
        for message in messages {
            let payload = message.payload().unwrap();
            let number = u64::from(message.data.frame_sequence);
            assert_eq!(payload.as_slice(), number.to_le_bytes());
            pair.receiver.release(message, true);
        }
    }
    assert_eq!(pair.receiver.report().registered_bytes, queue, "no buffer");
}

#[tokio::test]
async fn what_cannot_be_read_at_once_any_more_is_an_error() {
    let device = || shm::open(shm::ShmOptions::default()).unwrap();
    let fabrics = (fabric_on(device(), 1 << 30), fabric_on(device(), 1 << 30));
    let mut pair = Pair::open_on(fabrics, Design::SemqRd, |_| (), |_| ());
    assert!(pair.send());
    let mut messages = Vec::new();
    while pair.receiver.poll(&mut messages, 64) {}
    pair.sender.close(pair.destination, None);
    for message in messages {
        assert!(message.payload().is_err());
        assert!(message.copy_payload(&mut [0; 8]).is_err());
        pair.receiver.release(message, true);
    }
}
