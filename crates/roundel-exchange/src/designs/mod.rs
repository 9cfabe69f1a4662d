//! The designs of the shuffle: how many endpoints, over which transport, with which verb (Table 1 of Liu et al. 2019).
//! It is the one place with their names. A file for each transport and verb moves messages, with both ends of a link
//! side by side. Links over datagrams share the receives of an endpoint, so that there only the source has a file here.
//! `carrier` is the interface to endpoints. This module knows no endpoints, groups or operators.

pub(crate) mod carrier;
mod read_rc;
mod send_rc;
pub(crate) mod send_ud;
mod write_rc;

use crate::error::Result;
use crate::fabric::Fabric;
use crate::link::seal::{sealed_length, write_seal};
use carrier::{Allocate, LinkSizes, ReceiverEnd, SourceEnd};
use roundel_verbs::{AddressHandle, Arena, Buffer, Capabilities, QueuePair, Transport};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Receives of a link over which messages are written or read, beyond its window: for bells, or for credit beyond the
/// buffers there are.
const SPARE_RECEIVES: usize = 8;

/// A design of the data shuffle (Liu, Yin, Blanas 2019, section 5.1.3 and Table 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Design {
    /// One endpoint per thread, Send/Receive over Unreliable Datagram: `t` queue pairs per node.
    #[default]
    MesqSr,
    /// One endpoint, Send/Receive over Unreliable Datagram: 1 queue pair per node.
    SesqSr,
    /// One endpoint per thread, Send/Receive over Reliable Connection: `n·t` queue pairs per node.
    MemqSr,
    /// One endpoint, Send/Receive over Reliable Connection: `n` queue pairs per node.
    SemqSr,
    /// One endpoint per thread, the receiver READs: `n·t` queue pairs per node.
    MemqRd,
    /// One endpoint, the receiver READs: `n` queue pairs per node.
    SemqRd,
    /// One endpoint per thread, the sender WRITEs: `n·t` queue pairs per node.
    MemqWr(Notification),
    /// One endpoint, the sender WRITEs: `n` queue pairs per node.
    SemqWr(Notification),
}

/// How the receiver of a WRITE learns of it (section 5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Notification {
    /// The WRITE carries immediate data and uses up a receive: poll the completion queue.
    #[default]
    CompletionQueue,
    /// A second WRITE names the buffer in a queue of the receiver's: poll that queue.
    MessageQueue,
    /// The end of the buffer says that it is full: poll the buffer. Needs a device that makes the
    /// last byte of a WRITE visible last.
    Buffers,
    /// The same, without knowing which buffer is next: poll all those that the sender was given, of every link. The
    /// paper's receivers do so.
    AllBuffers,
}

impl Notification {
    /// Whether the end of a buffer says that it is full.
    pub(crate) fn is_sealed(self) -> bool {
        matches!(self, Self::Buffers | Self::AllBuffers)
    }
}

/// The verb that moves the data of a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// SEND, into receives that the receiver has posted.
    Send,
    /// READ, by the receiver, from buffers of the sender.
    Read,
    /// WRITE, by the sender, into buffers of the receiver.
    Write(Notification),
}

impl Design {
    /// The designs of the paper, the WRITE ones with the notification that it found best.
    pub const ALL: [Design; 8] = [
        Design::MesqSr,
        Design::SesqSr,
        Design::MemqSr,
        Design::SemqSr,
        Design::MemqRd,
        Design::SemqRd,
        Design::MemqWr(Notification::CompletionQueue),
        Design::SemqWr(Notification::CompletionQueue),
    ];
    /// The WRITE designs with the other notifications.
    pub const VARIANTS: [Design; 6] = [
        Design::MemqWr(Notification::MessageQueue),
        Design::SemqWr(Notification::MessageQueue),
        Design::MemqWr(Notification::Buffers),
        Design::SemqWr(Notification::Buffers),
        Design::MemqWr(Notification::AllBuffers),
        Design::SemqWr(Notification::AllBuffers),
    ];

    /// Every design in every variant.
    pub fn every() -> impl Iterator<Item = Design> {
        Self::ALL.into_iter().chain(Self::VARIANTS)
    }

    /// The name in the paper: `MESQ/SR`, …, and for what it calls variants `MEMQ/WR:mq`, ….
    pub fn name(self) -> &'static str {
        use Notification::{AllBuffers, Buffers, CompletionQueue, MessageQueue};
        match self {
            Self::MesqSr => "MESQ/SR",
            Self::SesqSr => "SESQ/SR",
            Self::MemqSr => "MEMQ/SR",
            Self::SemqSr => "SEMQ/SR",
            Self::MemqRd => "MEMQ/RD",
            Self::SemqRd => "SEMQ/RD",
            Self::MemqWr(CompletionQueue) => "MEMQ/WR",
            Self::SemqWr(CompletionQueue) => "SEMQ/WR",
            Self::MemqWr(MessageQueue) => "MEMQ/WR:mq",
            Self::SemqWr(MessageQueue) => "SEMQ/WR:mq",
            Self::MemqWr(Buffers) => "MEMQ/WR:buffers",
            Self::SemqWr(Buffers) => "SEMQ/WR:buffers",
            Self::MemqWr(AllBuffers) => "MEMQ/WR:buffers-all",
            Self::SemqWr(AllBuffers) => "SEMQ/WR:buffers-all",
        }
    }

    /// The transport service its data goes over.
    pub fn transport(self) -> Transport {
        match self {
            Self::MesqSr | Self::SesqSr => Transport::UnreliableDatagram,
            _ => Transport::ReliableConnection,
        }
    }

    /// The verb that moves its data.
    pub fn verb(self) -> Verb {
        match self {
            Self::MesqSr | Self::SesqSr | Self::MemqSr | Self::SemqSr => Verb::Send,
            Self::MemqRd | Self::SemqRd => Verb::Read,
            Self::MemqWr(notification) | Self::SemqWr(notification) => Verb::Write(notification),
        }
    }

    /// Endpoints per operator and node, given its threads.
    pub fn endpoints(self, threads: usize) -> usize {
        match self {
            Self::MesqSr | Self::MemqSr | Self::MemqRd | Self::MemqWr(_) => threads.max(1),
            Self::SesqSr | Self::SemqSr | Self::SemqRd | Self::SemqWr(_) => 1,
        }
    }

    /// Queue pairs per operator and node, given the nodes that it sends to or receives from and its
    /// threads (Table 1).
    pub fn queue_pairs(self, nodes: usize, threads: usize) -> usize {
        match self.transport() {
            Transport::UnreliableDatagram => self.endpoints(threads),
            _ => self.endpoints(threads) * nodes,
        }
    }

    /// The design with one endpoint over Reliable Connection that moves its data by the same verb: what a
    /// [multiplexer](crate::multiplexer) can do, which has one connection to each other node for all threads.
    pub fn multiplexed(self) -> Design {
        match self.verb() {
            Verb::Send => Self::SemqSr,
            Verb::Read => Self::SemqRd,
            Verb::Write(notification) => Self::SemqWr(notification),
        }
    }

    /// Whether a multiplexer can move rows so.
    ///
    /// # Errors
    /// When it cannot: why, and which design it could have.
    pub fn check_multiplexed(self) -> Result<(), NotMultiplexed> {
        match self == self.multiplexed() {
            true => Ok(()),
            false => Err(NotMultiplexed(self)),
        }
    }

    /// What a device lacks that this design needs; `None` when it can run there.
    pub fn lacks(self, capabilities: &Capabilities) -> Option<&'static str> {
        if !capabilities.transports.contains(&self.transport()) {
            return Some(match self.transport() {
                Transport::UnreliableDatagram => "it has no Unreliable Datagram",
                _ => "it has no Reliable Connection",
            });
        }
        let is_told = self.verb() == Verb::Write(Notification::CompletionQueue);
        if is_told && !capabilities.immediate_data {
            return Some("it has no WRITE with immediate data; :mq after WR needs none");
        }
        if self.is_sealed() && !capabilities.write_in_address_order {
            return Some("it does not promise that the last byte of a WRITE is visible last");
        }
        None
    }
}

/// What a design needs of whoever uses it.
impl Design {
    /// Bytes of a source's buffer for a message of so many.
    pub(crate) fn buffer_bytes(self, message_bytes: usize) -> usize {
        match self.is_sealed() {
            true => sealed_length(message_bytes),
            false => message_bytes,
        }
    }

    fn is_sealed(self) -> bool {
        matches!(self.verb(), Verb::Write(notification) if notification.is_sealed())
    }

    /// Puts what belongs there behind a message in a source's buffer.
    pub(crate) fn seal(self, buffer: &mut Buffer, length: usize) {
        if self.is_sealed() {
            write_seal(buffer, length);
        }
    }

    /// Whether receivers read sources' buffers.
    pub(crate) fn reads(self) -> bool {
        self.verb() == Verb::Read
    }

    /// Whether an end tells the other one of messages or buffers by a queue in memory, which somebody has to look at.
    pub(crate) fn has_queues(self) -> bool {
        self.verb() != Verb::Send
    }

    /// Requests that a message takes.
    pub(crate) fn requests_each(self) -> usize {
        match self.verb() {
            Verb::Write(Notification::MessageQueue) => 2,
            _ => 1,
        }
    }

    /// Receives that a connected link may have posted. Where messages are written or read, they need no memory, so that
    /// there may be more of them than buffers.
    pub(crate) fn receives(self, window_most: usize) -> usize {
        match self.has_queues() {
            true => window_most + SPARE_RECEIVES,
            false => window_most,
        }
    }

    /// The end of a source that sends datagrams.
    pub(crate) fn datagram_source(to: AddressHandle) -> Box<dyn SourceEnd> {
        Box::new(send_ud::Source(to))
    }

    /// The end of a source over a connection.
    pub(crate) fn connected_source(
        self,
        arena: &Arena,
        sizes: &LinkSizes,
    ) -> Result<Box<dyn SourceEnd>> {
        Ok(match self.verb() {
            Verb::Send => Box::new(send_rc::Source::open(arena, sizes)?),
            Verb::Write(notification) => {
                Box::new(write_rc::Source::open(notification, arena, sizes)?)
            }
            Verb::Read => Box::new(read_rc::Source::open(arena, sizes)?),
        })
    }

    /// The end of a receiver over a connection. Where messages are read, it is done at once over a queue pair that is given.
    pub(crate) fn connected_receiver(
        self,
        fabric: &Fabric,
        sizes: &LinkSizes,
        allocate: Allocate<'_>,
        at_once: Option<&Arc<QueuePair>>,
    ) -> Result<Box<dyn ReceiverEnd>> {
        let receives = self.receives(sizes.most);
        Ok(match self.verb() {
            Verb::Send => Box::new(send_rc::Receiver::open(&fabric.arena, sizes, allocate)?),
            Verb::Write(notification) => Box::new(write_rc::Receiver::open(
                notification,
                fabric,
                sizes,
                allocate,
                receives,
            )?),
            Verb::Read => Box::new(read_rc::Receiver::open(fabric, sizes, allocate, at_once)?),
        })
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A multiplexer cannot have the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotMultiplexed(Design);

impl fmt::Display for NotMultiplexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(design) = self;
        let has = match design.transport() {
            Transport::UnreliableDatagram => "a reliable connection to each other node",
            _ => "one endpoint for all threads of its node",
        };
        let instead = design.multiplexed();
        write!(
            f,
            "a multiplexer cannot use {design}: it has {has}; use {instead}"
        )
    }
}

impl std::error::Error for NotMultiplexed {}

/// The name is not one of a design.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown design '{0}': use auto or one of MESQ/SR, SESQ/SR, MEMQ/SR, SEMQ/SR, MEMQ/RD, SEMQ/RD, MEMQ/WR, \
     SEMQ/WR; :cq, :mq, :buffers or :buffers-all after WR says how its receiver is notified"
)]
pub struct UnknownDesign(String);

impl FromStr for Design {
    type Err = UnknownDesign;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let upper = name.to_ascii_uppercase();
        let plain = match upper.strip_suffix(":CQ") {
            Some(plain) if plain.ends_with("/WR") => plain,
            _ => &upper,
        };
        Self::every()
            .find(|design| design.name().eq_ignore_ascii_case(plain))
            .ok_or_else(|| UnknownDesign(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for design in Design::every() {
            assert_eq!(design.name().parse(), Ok(design));
            assert_eq!(design.name().to_lowercase().parse(), Ok(design));
        }
        let by_completion_queue = Design::MemqWr(Notification::CompletionQueue);
        assert_eq!("MEMQ/WR:cq".parse(), Ok(by_completion_queue));
        for wrong in ["MEMQ/XX", "MESQ/SR:cq", "MEMQ/WR:", "MEMQ/RD:mq"] {
            assert!(wrong.parse::<Design>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_multiplexer_has_one_endpoint_and_reliable_connections() {
        for design in Design::every() {
            let own = design.multiplexed();
            assert_eq!(own.verb(), design.verb());
            assert_eq!(own.endpoints(7), 1);
            assert_eq!(own.transport(), Transport::ReliableConnection);
            assert_eq!(own.check_multiplexed(), Ok(()));
        }
        for (design, why) in [
            (
                Design::SesqSr,
                "a reliable connection to each other node; use SEMQ/SR",
            ),
            (
                Design::MesqSr,
                "a reliable connection to each other node; use SEMQ/SR",
            ),
            (
                Design::MemqWr(Notification::MessageQueue),
                "one endpoint for all threads of its node; use SEMQ/WR:mq",
            ),
        ] {
            let error = design.check_multiplexed().unwrap_err().to_string();
            assert!(
                error.contains(design.name()) && error.ends_with(why),
                "{error}"
            );
        }
    }

    #[test]
    fn endpoints_and_queue_pairs_are_those_of_table_1() {
        let (nodes, threads) = (3, 2);
        let queue_pairs = Design::ALL.map(|design| design.queue_pairs(nodes, threads));
        assert_eq!(queue_pairs, [2, 1, 6, 3, 6, 3, 6, 3]);
    }
}
