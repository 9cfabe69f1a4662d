//! Which design suits an exchange: the paper's findings (Liu et al. 2019, sections 5.1.3, 7.1.3 to
//! 7.1.6 and 7.3.2) as rules.

use crate::buffers::WINDOW_BYTES;
use crate::designs::{Design, UnknownDesign};
use roundel_verbs::Capabilities;
use std::fmt;
use std::str::FromStr;

/// A node that moves at most so many bytes spends more time on making queue pairs than on sending.
const SHORT_BYTES: u64 = 1 << 20;
/// So many connections of an exchange and node fit the caches of a network card, with others of the
/// same query beside them.
const CONNECTIONS_MAX: usize = 128;

/// Which design is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DesignChoice {
    /// What suits each exchange.
    #[default]
    Auto,
    /// This one for all.
    Of(Design),
}

impl fmt::Display for DesignChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Of(design) => design.fmt(f),
        }
    }
}

impl FromStr for DesignChoice {
    type Err = UnknownDesign;

    fn from_str(name: &str) -> Result<Self, UnknownDesign> {
        match name {
            "auto" => Ok(Self::Auto),
            _ => name.parse().map(Self::Of),
        }
    }
}

/// What is known of an exchange before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Whether its rows must come out in their order.
    pub ordered: bool,
    /// Nodes that each node sends to or receives from, whichever are more.
    pub nodes: usize,
    /// Threads of each node.
    pub threads: usize,
    /// Bytes that each node moves, as far as they can be estimated.
    pub bytes: Option<u64>,
    /// Registered memory that it may use in each node, in bytes.
    pub registered_bytes: usize,
}

/// A design and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The design.
    pub design: Design,
    /// Why, in words that end a sentence.
    pub reason: String,
}

/// Chooses among the designs that move rows by SEND, which do best throughout the paper; over memory that
/// is shared, among those that read, which then copy a row once less.
pub fn choose(circumstances: &Circumstances, capabilities: &Capabilities) -> Choice {
    let Circumstances { nodes, threads, .. } = *circumstances;
    let connections = Design::MemqSr.queue_pairs(nodes, threads);
    // Either end of each link has a window.
    let windows = 2 * WINDOW_BYTES;
    let fits = |design: Design| {
        let memory = design.queue_pairs(nodes, threads).saturating_mul(windows);
        memory <= circumstances.registered_bytes
    };
    let choice = |design: Design, reason: String| Choice { design, reason };
    let (several, single, virtue) = match capabilities.reads_at_once {
        true => (
            Design::MemqRd,
            Design::SemqRd,
            "rows are read where they lie",
        ),
        false => (Design::MemqSr, Design::SemqSr, "carry long messages"),
    };
    let connected = |why: String| match fits(several) && connections <= CONNECTIONS_MAX {
        true => choice(several, why),
        false => choice(
            single,
            format!("{why}, and {connections} connections per node would be too many"),
        ),
    };
    if Design::MesqSr.lacks(capabilities).is_some() {
        return connected("the device has no datagrams".into());
    }
    if Design::MemqSr.lacks(capabilities).is_some() {
        return choice(Design::MesqSr, "the device has no connections".into());
    }
    if circumstances.ordered {
        return connected("its rows are sorted, and connections keep their order".into());
    }
    match circumstances.bytes {
        // Within a host a queue pair is a piece of memory, and made sooner than lost datagrams are ruled out.
        Some(bytes) if bytes <= SHORT_BYTES && !capabilities.same_host_only => choice(
            Design::SesqSr,
            format!(
                "about {} KiB per node, for which one queue pair is enough",
                bytes.div_ceil(1024)
            ),
        ),
        _ if connections > CONNECTIONS_MAX => choice(
            Design::MesqSr,
            format!(
                "{connections} connections per node would be too many, {threads} queue pairs are not"
            ),
        ),
        _ if !fits(several) => choice(
            Design::MesqSr,
            format!("buffers for {connections} connections per node would not fit into memory"),
        ),
        _ => choice(
            several,
            format!("{connections} connections per node are few, and {virtue}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundel_verbs::{Transport, shm};

    const USUAL: Circumstances = Circumstances {
        ordered: false,
        nodes: 3,
        threads: 2,
        bytes: None,
        registered_bytes: 256 << 20,
    };

    fn design(circumstances: Circumstances) -> Design {
        let device = shm::open(shm::ShmOptions::default()).unwrap();
        let mut capabilities = device.capabilities().clone();
        capabilities.same_host_only = false;
        capabilities.reads_at_once = false;
        choose(&circumstances, &capabilities).design
    }

    #[test]
    fn every_circumstance_counts() {
        assert_eq!(design(USUAL), Design::MemqSr);
        let short = Some(10_000);
        for (circumstances, expected) in [
            (
                Circumstances {
                    bytes: short,
                    ..USUAL
                },
                Design::SesqSr,
            ),
            (
                Circumstances {
                    ordered: true,
                    bytes: short,
                    ..USUAL
                },
                Design::MemqSr,
            ),
            (
                Circumstances {
                    nodes: 100,
                    ..USUAL
                },
                Design::MesqSr,
            ),
            (
                Circumstances {
                    threads: 64,
                    ..USUAL
                },
                Design::MesqSr,
            ),
            (
                Circumstances {
                    ordered: true,
                    nodes: 100,
                    ..USUAL
                },
                Design::SemqSr,
            ),
            (
                Circumstances {
                    registered_bytes: 1 << 20,
                    ..USUAL
                },
                Design::MesqSr,
            ),
        ] {
            assert_eq!(design(circumstances), expected, "{circumstances:?}");
        }
    }

    #[test]
    fn within_a_host_even_short_exchanges_take_connections() {
        let device = shm::open(shm::ShmOptions::default()).unwrap();
        let short = Circumstances {
            bytes: Some(10_000),
            ..USUAL
        };
        let choice = choose(&short, device.capabilities());
        assert_eq!(choice.design, Design::MemqRd, "{}", choice.reason);
    }

    #[test]
    fn a_device_without_datagrams_gets_connections() {
        let device = shm::open(shm::ShmOptions::default()).unwrap();
        let mut capabilities = device.capabilities().clone();
        capabilities.transports = vec![Transport::ReliableConnection];
        let choice = choose(&USUAL, &capabilities);
        assert_eq!(choice.design, Design::MemqRd);
        assert!(choice.reason.contains("datagrams"), "{}", choice.reason);
    }
}
