//! The message passing protocols by name: which verb carries a request, which its response, and over which
//! transport service (Huang, Ghandeharizadeh 2019, section 3, table 3, and what it leaves for later).

use crate::error::{ProtocolError, Result};
use roundel_verbs::{Capabilities, Transport};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// A message passing protocol: what asks, and what answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[derive(Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(ascii_case_insensitive, parse_err_ty = UnknownProtocol, parse_err_fn = unknown)]
pub enum Protocol {
    /// SEND to a posted receive, there and back, over RC.
    #[strum(serialize = "SEND/SEND")]
    SendSend,
    /// SEND there, WRITE into the requester's memory back, over RC.
    #[strum(serialize = "SEND/WRITE")]
    SendWrite,
    /// WRITE into the responder's memory there, SEND back, over RC.
    #[strum(serialize = "WRITE/SEND")]
    WriteSend,
    /// WRITE there and back, over RC.
    #[strum(serialize = "WRITE/WRITE")]
    WriteWrite,
    /// READ from the responder's memory, over RC: its processor has no part in it.
    #[strum(serialize = "READ")]
    Read,
    /// WRITE with immediate data there and back, over RC: each consumes a receive, whose completion tells of it.
    #[strum(serialize = "WRITE-IMM/WRITE-IMM")]
    WriteImmediate,
    /// SEND there and back over UD: a thread needs one queue pair, whatever the number of its peers.
    #[strum(serialize = "SEND/SEND-UD")]
    DatagramSend,
    /// WRITE over UC there, SEND over UD back (Kalia, Kaminsky, Andersen 2014: HERD).
    #[strum(serialize = "WRITE-UC/SEND-UD")]
    Herd,
    /// WRITE there and back, over UC.
    #[strum(serialize = "WRITE/WRITE-UC")]
    UnreliableWrite,
    /// The same messages over a TCP connection: what the others are compared with.
    #[strum(serialize = "TCP")]
    Tcp,
}

/// The verb that carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Via {
    /// SEND, into a receive that was posted.
    Send,
    /// WRITE, into memory that its owner looks at.
    Write,
    /// WRITE with immediate data, into memory, with a receive that tells of it.
    WriteImmediate,
}

/// How messages go in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    pub via: Via,
    pub transport: Transport,
}

impl Way {
    /// Whether each message takes one of the receiver's posted receives.
    pub(crate) fn consumes_receive(self) -> bool {
        self.via != Via::Write
    }

    /// Whether messages go to memory that the receiver exposes.
    pub(crate) fn goes_to_memory(self) -> bool {
        self.via != Via::Send
    }

    /// Whether messages may be lost, and come twice once they are sent again.
    pub(crate) fn is_lossy(self) -> bool {
        self.transport != Transport::ReliableConnection
    }
}

impl Protocol {
    /// Every protocol, those of the paper first.
    pub const ALL: [Self; 10] = *Self::VARIANTS.as_array().unwrap();

    /// The five of the paper.
    pub const OF_THE_PAPER: [Self; 5] = [
        Self::SendSend,
        Self::SendWrite,
        Self::WriteSend,
        Self::WriteWrite,
        Self::Read,
    ];

    /// The name on the command line and in reports: the verb of requests, and that of responses.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether requests can tell the responder something. READ only fetches.
    pub fn can_write(self) -> bool {
        self != Self::Read
    }

    /// Whether its messages may be lost, and are sent again until they are answered.
    pub fn is_lossy(self) -> bool {
        let ways = [self.requests(), self.responses()];
        ways.into_iter().flatten().any(Way::is_lossy)
    }

    /// How requests go; `None` where nothing is asked of the responder's processor, or not by verbs.
    pub(crate) fn requests(self) -> Option<Way> {
        let (via, transport) = match self {
            Self::SendSend | Self::SendWrite => (Via::Send, Transport::ReliableConnection),
            Self::WriteSend | Self::WriteWrite => (Via::Write, Transport::ReliableConnection),
            Self::WriteImmediate => (Via::WriteImmediate, Transport::ReliableConnection),
            Self::DatagramSend => (Via::Send, Transport::UnreliableDatagram),
            Self::Herd | Self::UnreliableWrite => (Via::Write, Transport::UnreliableConnection),
            Self::Read | Self::Tcp => return None,
        };
        Some(Way { via, transport })
    }

    /// How responses go.
    pub(crate) fn responses(self) -> Option<Way> {
        let (via, transport) = match self {
            Self::SendSend | Self::WriteSend => (Via::Send, Transport::ReliableConnection),
            Self::SendWrite | Self::WriteWrite => (Via::Write, Transport::ReliableConnection),
            Self::WriteImmediate => (Via::WriteImmediate, Transport::ReliableConnection),
            Self::DatagramSend | Self::Herd => (Via::Send, Transport::UnreliableDatagram),
            Self::UnreliableWrite => (Via::Write, Transport::UnreliableConnection),
            Self::Read | Self::Tcp => return None,
        };
        Some(Way { via, transport })
    }

    /// The transport services of its queue pairs.
    pub fn transports(self) -> Vec<Transport> {
        let mut transports = match self {
            Self::Read => vec![Transport::ReliableConnection],
            _ => Vec::new(),
        };
        for way in [self.requests(), self.responses()].into_iter().flatten() {
            if !transports.contains(&way.transport) {
                transports.push(way.transport);
            }
        }
        transports
    }

    /// Whether a device can carry it.
    ///
    /// # Errors
    /// [`ProtocolError::Unsupported`], with the reason.
    pub fn check(self, device: &Capabilities) -> Result<()> {
        let unsupported = |reason: String| Err(ProtocolError::Unsupported(reason));
        for transport in self.transports() {
            if !device.transports.contains(&transport) {
                return unsupported(format!(
                    "{self} needs {} queue pairs, which this {} device has not",
                    transport.name(),
                    device.provider
                ));
            }
        }
        let ways = [self.requests(), self.responses()];
        let polls_memory = ways.into_iter().flatten().any(|way| way.via == Via::Write);
        if polls_memory && !device.write_in_address_order {
            return unsupported(format!(
                "{self} looks for the last byte of a WRITE, and this {} device does not write in \
                 address order: take {}",
                device.provider,
                Self::WriteImmediate
            ));
        }
        Ok(())
    }
}

/// The text names no protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol {0:?}: there are {all}", all = Protocol::ALL.map(Protocol::name).join(", "))]
pub struct UnknownProtocol(String);

fn unknown(text: &str) -> UnknownProtocol {
    UnknownProtocol(text.to_owned())
}

impl TryFrom<String> for Protocol {
    type Error = UnknownProtocol;

    fn try_from(text: String) -> Result<Self, UnknownProtocol> {
        text.parse()
    }
}

impl From<Protocol> for String {
    fn from(protocol: Protocol) -> Self {
        protocol.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().to_lowercase().parse(), Ok(protocol));
        }
        let error = "RING".parse::<Protocol>().unwrap_err().to_string();
        assert!(error.contains("SEND/WRITE"), "{error}");
    }

    #[test]
    fn each_has_the_transports_that_its_ways_need() {
        use Transport::{ReliableConnection, UnreliableConnection, UnreliableDatagram};
        assert_eq!(Protocol::Read.transports(), [ReliableConnection]);
        assert_eq!(
            Protocol::Herd.transports(),
            [UnreliableConnection, UnreliableDatagram]
        );
        assert!(Protocol::Tcp.transports().is_empty());
        let lossy = Protocol::ALL.into_iter().filter(|one| one.is_lossy());
        assert_eq!(lossy.count(), 3);
    }
}
