//! How windows grow and shrink, and what credit does to them.

use super::*;

#[tokio::test]
async fn a_window_doubles_while_its_source_runs_out() {
    for design in BOTH {
        let mut pair = Pair::open(design, 1 << 30);
        let mut windows = Vec::new();
        for _ in 0..4 {
            let sent = pair.send_all();
            assert_eq!(pair.receive(), sent, "{design}");
            windows.push(pair.window());
        }
        assert_eq!(windows, [8, 16, 16, 16], "{design}");
    }
}

#[tokio::test]
async fn a_window_starts_wide_unless_memory_is_short() {
    for (design, short) in [(Design::SesqSr, 8 << 10), (Design::SemqSr, 4 << 10)] {
        let mut pair = Pair::open_at(design, 1 << 30, 12);
        assert_eq!((pair.window(), pair.send_all()), (12, 12), "{design}");
        let mut pair = Pair::open_at(design, short, 12);
        assert_eq!((pair.window(), pair.send_all()), (4, 4), "{design}");
    }
}

#[tokio::test]
async fn a_window_stays_while_its_source_has_credit() {
    for design in BOTH {
        let mut pair = Pair::open(design, 1 << 30);
        for _ in 0..20 {
            assert!(pair.send() && pair.send());
            assert_eq!(pair.receive(), 2);
        }
        assert_eq!(pair.window(), 4, "{design}");
    }
}

/// The messages that a reader takes which has other things to do, too.
fn receive_busily(pair: &mut Pair) -> usize {
    let mut messages = Vec::new();
    pair.receiver.poll(&mut messages, 64);
    let count = messages.len();
    for message in messages {
        pair.receiver.release(message, true);
    }
    count
}

#[tokio::test]
async fn a_window_falls_while_its_reader_is_slow_and_rises_again() {
    for design in Design::every().filter(|design| design.endpoints(2) == 1) {
        let mut pair = Pair::open(design, 1 << 30);
        let mut received = 0;
        for expected in [16, 4, 16] {
            let registered = pair.receiver.report().registered_bytes;
            let before = pair.window();
            for _ in 0..40 {
                pair.send_all();
                received += match expected {
                    4 => receive_busily(&mut pair),
                    _ => pair.receive(),
                };
            }
            assert_eq!(pair.window(), expected, "{design}");
            let now = pair.receiver.report().registered_bytes;
            let bytes = pair.receiver.receive_bytes() as isize;
            assert_eq!(
                now as isize - registered as isize,
                (expected as isize - before as isize) * bytes,
                "{design}"
            );
        }
        received += pair.receive();
        assert_eq!(received, pair.sent as usize, "{design}");
    }
}

#[tokio::test]
async fn a_window_stays_when_memory_is_short() {
    // Half of it is in use at once.
    for (design, quota) in [(Design::SesqSr, 5 << 10), (Design::SemqSr, 4 << 10)] {
        let mut pair = Pair::open(design, quota);
        for _ in 0..4 {
            assert_eq!(pair.send_all(), 4, "{design}");
            assert_eq!(pair.receive(), 4, "{design}");
        }
        assert_eq!(pair.window(), 4, "{design}");
    }
}

#[tokio::test]
async fn what_finds_the_send_queue_full_is_posted_later() {
    for design in [Design::SemqRd, Design::SemqWr(Notification::MessageQueue)] {
        let mut pair = Pair::open(design, 1 << 30);
        let mut received = 0;
        for _ in 0..3 {
            pair.send_all();
            let connection = pair.receiver.links[0].connection().unwrap();
            // Nobody looks at what completes.
            while post(&connection.queue_pair, empty_write(0, None)) {}
            pair.receiver.pump_queues(0);
            received += pair.receive();
        }
        assert_eq!(received, pair.sent as usize, "{design}");
        assert!(received >= 12, "{design}: {received}");
    }
}

#[tokio::test]
async fn credit_wraps_around() {
    for design in BOTH {
        let mut pair = Pair::open(design, 1 << 30);
        for _ in 0..40 {
            pair.send_all();
            pair.receive();
        }
        // No credit is on its way now.
        let sent = pair.send_all();
        // As if 2^32 messages less a few had been sent before.
        let skipped = 0u32.wrapping_sub(pair.sent + 10);
        pair.receiver.links[0].grant.skip(skipped);
        pair.sender.skip_credit(pair.destination, skipped);
        assert_eq!(pair.receive(), sent, "{design}");
        for _ in 0..40 {
            let sent = pair.send_all();
            assert!(sent >= 3, "{design}: {sent}");
            assert_eq!(pair.receive(), sent, "{design}");
        }
    }
}

#[tokio::test]
async fn a_peer_that_grants_too_much_is_sent_what_fits() {
    for design in BOTH {
        let restart = |options: &mut ExchangeOptions| {
            options.on_loss = OnLoss::Restart;
            options.window.most = 16;
        };
        let mut pair = Pair::open_with(design, 1 << 30, restart, |_| ());
        pair.receiver.links[0].grant = Grant::new(200);
        pair.receiver.say_credit(0, 0, 0).unwrap();
        let sent = pair.send_all();
        match design {
            // Those beyond its receives wait in the send queue, as many as there are buffers.
            Design::SemqSr => {
                assert_eq!(sent, 4 + 16);
                let mut received = 0;
                for _ in 0..50 {
                    received += pair.receive();
                    pair.send();
                }
                assert!(received >= 50, "{received}");
                assert!(pair.receiver.ended(pair.link).is_none());
            }
            // Nothing holds them up, and those without a receive are lost.
            _ => {
                assert_eq!(sent, 200);
                let received = pair.receive() as u32;
                assert!(received < pair.sent);
                pair.receiver.on_silence();
                pair.send();
                pair.receive();
                pair.receiver.on_silence();
                let ended = pair.receiver.ended(pair.link);
                let missed = matches!(ended, Some(Err(ExchangeError::MessagesMissing { .. })));
                assert!(missed, "{ended:?}");
            }
        }
    }
}
