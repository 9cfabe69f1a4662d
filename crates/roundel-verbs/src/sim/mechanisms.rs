//! What holds simulated hardware up besides its rates. Each can be left out, which says what comes of it.

use super::parameters::{Handover, Parameters};
use super::time::Span;
use strum::{Display, EnumString, VariantNames};

/// Room in a switch for as many packets as are ever on their way.
const ROOM: usize = 1 << 40;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, EnumString, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Mechanism {
    /// A NIC has room for so many contexts of queue pairs, and fetches others.
    Contexts,
    /// It has room for so many lines of its table of addresses.
    Translations,
    /// It has room for so many READs that wait for their answers.
    Reads,
    /// It takes payload of more than 256 bytes in two pieces.
    Split,
    /// Looking at all buffers for one that is full takes time.
    Looks,
    /// A lock takes time from one thread to another.
    Handover,
    /// The switch has room for so many bytes of each input.
    Switch,
}

impl Parameters {
    /// The same hardware, which one mechanism does not hold up.
    #[must_use]
    pub fn without(mut self, mechanism: Mechanism) -> Self {
        let Self {
            nic, switch, cpu, ..
        } = &mut self;
        match mechanism {
            Mechanism::Contexts => nic.contexts = usize::MAX,
            Mechanism::Translations => nic.translations = usize::MAX,
            Mechanism::Reads => nic.reads = usize::MAX,
            Mechanism::Split => nic.split = Span::ZERO,
            Mechanism::Looks => cpu.look = Span::ZERO,
            Mechanism::Handover => {
                cpu.handover = Handover {
                    within: Span::ZERO,
                    across: Span::ZERO,
                }
            }
            Mechanism::Switch => switch.input_bytes = ROOM,
        }
        self
    }
}
