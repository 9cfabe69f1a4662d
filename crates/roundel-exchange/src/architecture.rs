//! Who talks to other nodes: the one place with the names.

use strum::{Display, EnumString, IntoStaticStr};

/// Which connections the exchanges of a node use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", ascii_case_insensitive)]
#[strum(parse_err_ty = UnknownArchitecture, parse_err_fn = unknown)]
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
    pub const ALL: [Self; 3] = [Self::Endpoint, Self::Multiplexer, Self::Classic];

    /// The name: `endpoint`, …
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The name is not one of an architecture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown exchange '{0}': use one of endpoint, multiplexer, classic")]
pub struct UnknownArchitecture(String);

fn unknown(name: &str) -> UnknownArchitecture {
    UnknownArchitecture(name.into())
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
