//! The seal of a buffer that is polled (section 5.5.1): the last words of a WRITE say that all of it
//! is there, and how long the message is. Messages end where the buffer ends, so that the seal is
//! always at the same place.

use super::queue::checksum;
use roundel_verbs::work::InlineBytes;
use roundel_verbs::{Buffer, ExposedBuffer, Payload};
use std::sync::atomic::Ordering;

const WORD: usize = 8;
/// Bytes of a seal: the message's length, and a checksum of it.
const SEAL_BYTES: usize = 2 * WORD;

/// Bytes of a message of `length` bytes with its seal.
pub(crate) fn sealed_length(length: usize) -> usize {
    length.next_multiple_of(WORD) + SEAL_BYTES
}

/// The seal of a message, which belongs at the end of its [`sealed_length`].
fn seal(length: usize) -> [u8; SEAL_BYTES] {
    let length = length as u64;
    let mut bytes = [0; SEAL_BYTES];
    bytes[..WORD].copy_from_slice(&length.to_le_bytes());
    bytes[WORD..].copy_from_slice(&checksum(0, &[length, 0, 0]).to_le_bytes());
    bytes
}

/// Puts the seal behind a message of `length` bytes at the start of a buffer.
pub(crate) fn write_seal(buffer: &mut Buffer, length: usize) {
    buffer.write(sealed_length(length) - SEAL_BYTES, &seal(length));
}

/// A message with its seal, which is behind it already where it is in a buffer.
pub(crate) fn with_seal(message: Payload) -> Payload {
    let length = message.len();
    let sealed = sealed_length(length);
    match message {
        Payload::Owned { buffer, .. } => Payload::Owned {
            buffer,
            length: sealed,
        },
        Payload::Shared { buffer, .. } => Payload::Shared {
            buffer,
            length: sealed,
        },
        Payload::Inline(bytes) => {
            let mut message = bytes.as_slice().to_vec();
            let seal = seal(length);
            message.resize(sealed - seal.len(), 0);
            message.extend_from_slice(&seal);
            InlineBytes::new(&message).map_or(Payload::Empty, Payload::Inline)
        }
        Payload::Empty => Payload::Empty,
    }
}

/// Where in a buffer the message is that has arrived in it: its offset and length.
pub(crate) fn arrived(buffer: &ExposedBuffer) -> Option<(usize, usize)> {
    let [length_at, check_at] = words_of(buffer);
    // The checksum is visible last.
    let check = u64::from_le(buffer.word(check_at).load(Ordering::Acquire));
    let length = u64::from_le(buffer.word(length_at).load(Ordering::Acquire));
    if check != checksum(0, &[length, 0, 0]) {
        return None;
    }
    let length = usize::try_from(length).ok()?;
    let at = length
        .checked_next_multiple_of(WORD)
        .and_then(|padded| length_at.checked_sub(padded))?;
    Some((at, length))
}

/// Breaks the seal, before the buffer is given to the sender again.
pub(crate) fn break_seal(buffer: &ExposedBuffer) {
    for at in words_of(buffer) {
        buffer.word(at).store(0, Ordering::Release);
    }
}

fn words_of(buffer: &ExposedBuffer) -> [usize; 2] {
    let end = buffer.len() - buffer.len() % WORD;
    [end - SEAL_BYTES, end - WORD]
}
