//! The designs of the shuffle: how many endpoints, over which transport. The one place with their
//! names.

use roundel_verbs::Transport;
use std::fmt;
use std::str::FromStr;

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
}

impl Design {
    /// Every design.
    pub const ALL: [Design; 4] = [
        Design::MesqSr,
        Design::SesqSr,
        Design::MemqSr,
        Design::SemqSr,
    ];

    /// The name in the papers: `MESQ/SR`, …
    pub fn name(self) -> &'static str {
        match self {
            Self::MesqSr => "MESQ/SR",
            Self::SesqSr => "SESQ/SR",
            Self::MemqSr => "MEMQ/SR",
            Self::SemqSr => "SEMQ/SR",
        }
    }

    /// The transport service its data goes over.
    pub fn transport(self) -> Transport {
        match self {
            Self::MesqSr | Self::SesqSr => Transport::UnreliableDatagram,
            Self::MemqSr | Self::SemqSr => Transport::ReliableConnection,
        }
    }

    /// Endpoints per operator and node, given its threads.
    pub fn endpoints(self, threads: usize) -> usize {
        match self {
            Self::MesqSr | Self::MemqSr => threads.max(1),
            Self::SesqSr | Self::SemqSr => 1,
        }
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not one of a design.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown design '{0}': use one of MESQ/SR, SESQ/SR, MEMQ/SR, SEMQ/SR")]
pub struct UnknownDesign(String);

impl FromStr for Design {
    type Err = UnknownDesign;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|design| design.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownDesign(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for design in Design::ALL {
            assert_eq!(design.name().parse(), Ok(design));
            assert_eq!(design.name().to_lowercase().parse(), Ok(design));
        }
        assert!("MEMQ/XX".parse::<Design>().is_err());
    }

    #[test]
    fn endpoints_and_queue_pairs_are_those_of_table_1() {
        let (nodes, threads) = (3, 2);
        let queue_pairs = |design: Design| {
            design.endpoints(threads)
                * match design.transport() {
                    Transport::ReliableConnection => nodes,
                    _ => 1,
                }
        };
        assert_eq!(Design::ALL.map(queue_pairs), [2, 1, 6, 3]);
    }
}
