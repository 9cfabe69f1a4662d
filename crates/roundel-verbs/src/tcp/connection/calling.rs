//! A call: hello and answer over a connection that this end makes. A queue pair makes calls, and one that ends meanwhile
//! leaves its call to the device. Knows nothing of what becomes of the connection.

use super::Remote;
use crate::tcp::address::Identity;
use crate::tcp::hello::{ANSWER_BYTES, Answer, Hello, Verdict, same_secret};
use crate::tcp::socket;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// A call that is under way.
pub(super) struct Call {
    hello: Hello,
    /// The secret of this device, which proves who answers.
    secret: [u8; 16],
    /// Whether the hello was sent.
    pub greeted: bool,
    answer: [u8; ANSWER_BYTES],
    have: usize,
}

impl Call {
    pub(super) fn new(from: Identity, secret: [u8; 16], remote: &Remote, reliable: bool) -> Self {
        Self {
            hello: Hello {
                secret: remote.address.secret,
                number: remote.identity.number,
                incarnation: remote.identity.incarnation,
                from,
                reliable,
                posted: 0,
            },
            secret,
            greeted: false,
            answer: [0; ANSWER_BYTES],
            have: 0,
        }
    }

    /// Says hello once the connection is there, and that so many receives are posted; then listens for the answer.
    pub(super) fn go_on(
        &mut self,
        socket: &OwnedFd,
        posted: u64,
    ) -> Result<Option<Verdict>, &'static str> {
        if !self.greeted {
            socket::take_error(socket).map_err(|_| "the device does not answer")?;
            self.hello.posted = posted;
            let hello = self.hello.encode();
            match rustix::net::send(socket, &hello, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) if count == hello.len() => {}
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(None),
                _ => return Err("the hello was not sent"),
            }
            self.greeted = true;
        }
        while self.have < ANSWER_BYTES {
            match rustix::io::read(socket, &mut self.answer[self.have..]) {
                Ok(0) => return Err("the device closed the connection"),
                Ok(count) => self.have += count,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(_) => return Err("the connection broke"),
            }
        }
        let answer =
            Answer::decode(&self.answer).map_err(|_| "the answer is of another protocol")?;
        let accepted = matches!(answer.verdict, Verdict::Accepted { .. });
        if accepted && !same_secret(&answer.secret, &self.secret) {
            return Err("another device answered");
        }
        Ok(Some(answer.verdict))
    }
}
