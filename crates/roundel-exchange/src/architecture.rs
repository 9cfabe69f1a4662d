//! Who talks to other nodes: the one place with the names.

use std::fmt;
use std::str::FromStr;

/// Which connections the exchanges of a node use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Endpoints of every operator's own, as its [design](crate::Design) has them.
    #[default]
    Endpoint,
    /// The node's [multiplexer](crate::multiplexer), which has one connection to each other node.
    Multiplexer,
    /// Every thread is a unit of its own, with a connection to each unit of the other nodes, for every operator
    /// (Rödiger et al. 2015, section 3.1): what the others are compared with.
    Classic,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Architecture; 3] = [
        Architecture::Endpoint,
        Architecture::Multiplexer,
        Architecture::Classic,
    ];

    /// The name: `endpoint`, …
    pub fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Multiplexer => "multiplexer",
            Self::Classic => "classic",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name is not one of an architecture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown exchange '{0}': use one of endpoint, multiplexer, classic")]
pub struct UnknownArchitecture(String);

impl FromStr for Architecture {
    type Err = UnknownArchitecture;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|architecture| architecture.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownArchitecture(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written() {
        for architecture in Architecture::ALL {
            assert_eq!(architecture.to_string().parse(), Ok(architecture));
            let error = "nonsense".parse::<Architecture>().unwrap_err();
            assert!(error.to_string().contains(architecture.name()), "{error}");
        }
    }
}
