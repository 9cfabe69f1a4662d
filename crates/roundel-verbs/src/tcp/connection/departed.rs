//! What a queue pair leaves behind that ends before its peer's: the connection, or the call that is to become one, so
//! that its end tells the peer of the end of this device and of nothing else. It is closed when the peer's queue pair is
//! gone too.

use super::calling::Call;
use super::meeting::REACHED_WITHIN;
use super::reader::{Filled, Next, Reader};
use super::requests::Response;
use super::responder::Then;
use super::send_side::SendSide;
use super::{READS_AT_A_TIME, Receiving, Stage, StreamPair};
use crate::tcp::events::{Events, Source, now};
use crate::tcp::frame::Frame;
use crate::tcp::hello::Verdict;
use parking_lot::Mutex;
use std::sync::Arc;

struct Departed {
    /// The call that was not answered yet.
    call: Option<Call>,
    reader: Reader<Then>,
    send: SendSide,
}

impl StreamPair {
    /// Leaves the connection, or the call, to the device.
    pub(super) fn depart(&self, receiving: &mut Receiving) {
        let call = match std::mem::replace(&mut receiving.stage, Stage::Closed) {
            Stage::Calling(call) => Some(call),
            _ => None,
        };
        receiving.deadline = None;
        let reader = std::mem::take(&mut receiving.reader);
        let mut nobody = SendSide::new(self.reliable, None);
        (nobody.broken, nobody.peer_gone) = (true, true);
        let mut send = std::mem::replace(&mut *self.send.lock(), nobody);
        // Answers that are not begun go nowhere, but what is begun must be finished.
        if self.reliable {
            send.acknowledge(receiving.done);
        }
        send.drop_answers();
        if !send.told_gone && !matches!(send.responses.back(), Some(Response::Gone)) {
            send.responses.push_back(Response::Gone);
        }
        let called = call.is_some();
        let departed = Arc::new(Mutex::new(Departed { call, reader, send }));
        let token = std::mem::take(&mut receiving.token);
        let events = &self.device.events;
        let mut source = Departed::source(&departed, events);
        if called {
            // It has to be answered in time, also by a process that is stopped.
            source = source.until(now() + REACHED_WITHIN);
        }
        events.replace(token, source);
        if !Departed::tell(&departed, events, token) {
            events.forget(token);
        }
    }
}

impl Departed {
    /// Of its socket.
    fn source(this: &Arc<Mutex<Self>>, events: &Arc<Events>) -> Source {
        let (kept, device) = (this.clone(), Arc::downgrade(events));
        Source::new(move |token, _| {
            let events = device.upgrade();
            events.is_some_and(|events| Self::tell(&kept, &events, token))
        })
    }

    /// Something may have happened on the socket; false when it is of no use any more.
    fn tell(this: &Arc<Mutex<Self>>, events: &Arc<Events>, token: u64) -> bool {
        let mut departed = this.lock();
        let called = departed.call.is_some();
        let is_of_use = departed.ready();
        if is_of_use && called && departed.call.is_none() {
            // Under the lock: a thread that finds it of no use forgets the token after this, and not before.
            events.replace(token, Self::source(this, events));
        }
        is_of_use
    }

    fn ready(&mut self) -> bool {
        if let Some(call) = &mut self.call {
            let Some(socket) = self.reader.socket.clone() else {
                return false;
            };
            match call.go_on(&socket, 0) {
                Ok(None) => return true,
                Ok(Some(Verdict::Accepted { .. })) => {}
                Ok(Some(Verdict::Refused | Verdict::Crossed)) | Err(_) => return false,
            }
            self.call = None;
            self.reader.open(socket.clone());
            self.send.socket = Some(socket);
        }
        let Self { reader, send, .. } = self;
        send.blocked = false;
        if send.transmit().is_err() {
            return false;
        }
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

#[cfg(test)]
mod tests {
    use crate::QueuePair;
    use crate::tcp::frame::Frame;
    use crate::tcp::tests::{Impostor, Node, is_silent, next};
    use std::io::{Read, Write};

    /// Its end would tell of the end of the device.
    #[test]
    fn a_call_outlives_its_queue_pair() {
        let node = Node::open();
        let mut answered = Vec::new();
        for destroyed in [true, false] {
            let impostor = Impostor::new();
            let pair = node.pair();
            pair.connect(&impostor.pair()).unwrap();
            let pair = (!destroyed).then_some(pair);
            pair.iter().for_each(QueuePair::modify_to_error);
            let mut stream = impostor.accept(node.address().secret, 0);
            assert_eq!(next(&mut stream), Frame::Gone);
            assert!(is_silent(&mut stream));
            drop(pair);
            answered.push(stream);
        }
        let unanswered = Impostor::new();
        let pair = node.pair();
        pair.connect(&unanswered.pair()).unwrap();
        let mut stream = unanswered.take();
        drop(pair);
        assert!(is_silent(&mut stream));
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it waits for ever");
        // Those who answered are waited for.
        for mut stream in answered {
            assert!(is_silent(&mut stream));
            stream.write_all(&Frame::Gone.encode()).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
    }
}
