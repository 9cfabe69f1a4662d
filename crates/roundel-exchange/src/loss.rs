//! What becomes of messages that the network loses: the one place with the names.

use strum::{Display, EnumString, IntoStaticStr};

/// What an exchange does about lost messages. Only datagrams are lost; over Reliable Connection
/// there is nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", ascii_case_insensitive)]
#[strum(parse_err_ty = UnknownOnLoss, parse_err_fn = unknown)]
pub enum OnLoss {
    /// The receiver asks for exactly those again, and the source keeps what it has sent until it
    /// has arrived.
    #[default]
    Repair,
    /// The query fails and is run again (Liu, Yin, Blanas 2019, section 5.2.2).
    Restart,
    /// The query fails.
    Fail,
}

impl OnLoss {
    /// Everything that can be done.
    pub const ALL: [Self; 3] = [Self::Repair, Self::Restart, Self::Fail];

    /// The name: `repair`, …
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The name is not one of what can be done about lost messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown treatment of lost messages '{0}': use one of repair, restart, fail")]
pub struct UnknownOnLoss(String);

fn unknown(name: &str) -> UnknownOnLoss {
    UnknownOnLoss(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for on_loss in OnLoss::ALL {
            assert_eq!(on_loss.name().parse(), Ok(on_loss));
            assert_eq!(on_loss.to_string().to_uppercase().parse(), Ok(on_loss));
        }
        let error = "ignore".parse::<OnLoss>().unwrap_err().to_string();
        for on_loss in OnLoss::ALL {
            assert!(error.contains(on_loss.name()), "{error}");
        }
    }
}
