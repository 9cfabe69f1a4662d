//! What a queue pair leaves behind that is destroyed before its peer's: the connection, so that its
//! end tells the peer of the end of this device and of nothing else. It is closed when the peer's
//! queue pair is gone too.

use super::reader::{Filled, Next, Reader};
use super::requests::Response;
use super::responder::Then;
use super::send_side::SendSide;
use super::{READS_AT_A_TIME, Receiving, Stage, StreamPair};
use crate::tcp::events::Source;
use crate::tcp::frame::Frame;
use parking_lot::Mutex;
use std::sync::Arc;

struct Departed {
    reader: Mutex<Reader<Then>>,
    send: Mutex<SendSide>,
}

impl StreamPair {
    /// Leaves the connection to the device.
    pub(super) fn depart(&self, receiving: &mut Receiving) {
        receiving.stage = Stage::Closed;
        let reader = std::mem::take(&mut receiving.reader);
        let mut send =
            std::mem::replace(&mut *self.send.lock(), SendSide::new(self.reliable, None));
        self.send.lock().broken = true;
        // Answers that are not begun go nowhere, but what is begun must be finished.
        if self.reliable {
            send.acknowledge(receiving.done);
        }
        send.drop_answers();
        if !send.told_gone && !matches!(send.responses.back(), Some(Response::Gone)) {
            send.responses.push_back(Response::Gone);
        }
        let departed = Arc::new(Departed {
            reader: Mutex::new(reader),
            send: Mutex::new(send),
        });
        let events = &self.device.events;
        let kept = departed.clone();
        events.replace(receiving.token, Source::new(move |_, _| kept.ready()));
        if !departed.ready() {
            self.device.forget(receiving.token);
        }
    }
}

impl Departed {
    /// Something happened on the socket; false when it is of no use any more.
    fn ready(&self) -> bool {
        let mut send = self.send.lock();
        send.blocked = false;
        if send.transmit().is_err() {
            return false;
        }
        drop(send);
        let mut reader = self.reader.lock();
        for _ in 0..READS_AT_A_TIME {
            let Ok(filled) = reader.fill() else {
                return false;
            };
            loop {
                match reader.next() {
                    Ok(Some(Next::Frame(Frame::Gone))) | Err(_) => return false,
                    Ok(Some(Next::Frame(frame))) => reader.ignore(frame.payload()),
                    Ok(Some(Next::Payload(_))) => {}
                    Ok(None) => break,
                }
            }
            match filled {
                Filled::More | Filled::All => {}
                Filled::None => return true,
                Filled::End => return false,
            }
        }
        // A peer that goes on sending for so long has requests under way, which fail at the end too.
        false
    }
}
