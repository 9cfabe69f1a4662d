//! How many registered buffers the two ends of a link keep (Liu et al. 2019, section 6). Knows no
//! endpoints: those ask a `Circulation` whether they have too many.

use crate::error::Result;
use roundel_verbs::Transport;
use std::fmt;
use std::str::FromStr;

/// Bytes of a message over Reliable Connection, header included.
pub const RC_MESSAGE_BYTES: usize = 64 << 10;
/// Bytes of a message that its reader copies from where it lies: only its source has buffers for it,
/// of twice the bytes.
pub const READ_AT_ONCE_MESSAGE_BYTES: usize = 2 * RC_MESSAGE_BYTES;
/// Bytes that every link may have in flight: two messages of Reliable Connection, so that one is
/// filled while the other travels. Datagrams are smaller, and as many more; what is read at once is
/// larger, and two all the same.
pub const WINDOW_BYTES: usize = 2 * RC_MESSAGE_BYTES;
/// Bytes that a link may have in flight at most, which is what it starts with where there is memory to
/// spare: a receiver that computes for some milliseconds between two looks at the network shall not
/// hold its sources up, and most links end before they could grow.
pub const WINDOW_BYTES_MAX: usize = 64 * RC_MESSAGE_BYTES;
/// Bytes of datagrams that each side of an exchange registers in a node, as far as its threads look at the network all the time:
/// both sides take less than 1 MiB then, headers and receives for control messages included, with 8 nodes of 14 threads
/// (section 7.1.3).
pub const DATAGRAM_BYTES: usize = 448 << 10;
/// Most buffers that can be asked for: those of a link are posted to one queue.
pub const FIXED_MAX: usize = 4096;
/// Rounds without want after which buffers are given back.
const CALM_ROUNDS: u32 = 4;

/// Which buffers an exchange keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Buffers {
    /// So many at each end of a link, at least 2.
    Fixed(usize),
    /// As many as production and consumption need at the time.
    #[default]
    Adaptive,
    /// The same by the paper's rule (section 6.2).
    AdaptivePaper,
}

/// By which rule buffers are taken and given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Their number stays.
    Fixed,
    /// It doubles while its source waits for it, and buffers go back that were not wanted in several rounds.
    Calm,
    /// The paper's AdaptiveAcquire and AdaptiveGetData: who looks for buffers and finds none takes one more, and who finds
    /// several keeps one (section 6.2).
    Paper,
}

/// Which buffers an exchange is to keep, as users ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuffersChoice {
    /// The buffers that are given.
    Of(Buffers),
    /// As many as the bandwidth-delay product of the device holds (section 6.1).
    BandwidthDelay,
}

/// How many messages a link may have in flight: the buffers at each of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Those that every link has: at least 2, or 1 over datagrams.
    pub least: usize,
    /// The number that it starts with, as far as that is a small part of what the arena lacks to be half full.
    pub first: usize,
    /// The number that it may grow to while the arena is at most half full, doubling whenever the source has
    /// used up its credit and the receiver had nothing to do; to half of it where lost messages
    /// are repaired.
    pub most: usize,
    /// Over datagrams, the buffers that all links of a node share on each side, as far as each has one. Beyond it a link takes
    /// more only when its receiver had not looked for long, and a source only when nothing is on its way.
    pub budget: usize,
    /// How the number changes.
    pub rule: Rule,
}

impl Buffers {
    /// The window of an exchange over a transport, with messages of so many bytes.
    pub fn window(self, transport: Transport, message_bytes: usize) -> Window {
        match (self, transport) {
            (Self::Fixed(messages), _) => Window::fixed(messages),
            (Self::Adaptive, Transport::ReliableConnection) => Window::adaptive(message_bytes),
            (Self::Adaptive, _) => Window::of_datagrams(message_bytes),
            (Self::AdaptivePaper, _) => Window {
                least: 2,
                first: 2,
                rule: Rule::Paper,
                ..Window::adaptive(message_bytes)
            },
        }
    }
}

impl BuffersChoice {
    /// The buffers of an exchange with messages of so many bytes, on a device whose bandwidth-delay
    /// product can be [measured](roundel_verbs::loopback::pipe).
    ///
    /// # Errors
    /// When the bandwidth-delay product cannot be measured.
    pub fn resolve(
        self,
        message_bytes: usize,
        bandwidth_delay_bytes: impl FnOnce() -> Result<usize>,
    ) -> Result<Buffers> {
        Ok(match self {
            Self::Of(buffers) => buffers,
            Self::BandwidthDelay => {
                let messages = bandwidth_delay_bytes()?.div_ceil(message_bytes);
                Buffers::Fixed(messages.clamp(2, FIXED_MAX))
            }
        })
    }
}

impl Window {
    /// The same number of messages throughout, at least 2.
    pub fn fixed(messages: usize) -> Self {
        let messages = messages.max(2);
        Self {
            least: messages,
            first: messages,
            most: messages,
            budget: usize::MAX,
            rule: Rule::Fixed,
        }
    }

    /// The one that adapts, for messages of so many bytes.
    pub fn adaptive(message_bytes: usize) -> Self {
        let messages = |bytes: usize| (bytes / message_bytes).max(2);
        Self {
            least: messages(WINDOW_BYTES),
            first: messages(WINDOW_BYTES_MAX),
            most: messages(WINDOW_BYTES_MAX),
            budget: usize::MAX,
            rule: Rule::Calm,
        }
    }

    /// The one of datagrams that adapts, for messages of so many bytes. It begins as small as it can be.
    pub fn of_datagrams(message_bytes: usize) -> Self {
        Self {
            least: 1,
            budget: (DATAGRAM_BYTES / message_bytes).max(1),
            ..Self::adaptive(message_bytes)
        }
    }
}

/// A text that names no setting of buffers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown buffers {0:?}: use fixed:N with at least 2, bdp, adaptive or adaptive:paper")]
pub struct UnknownBuffers(String);

impl fmt::Display for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(messages) => write!(f, "fixed:{messages}"),
            Self::Adaptive => f.pad("adaptive"),
            Self::AdaptivePaper => f.pad("adaptive:paper"),
        }
    }
}

impl fmt::Display for BuffersChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(buffers) => buffers.fmt(f),
            Self::BandwidthDelay => f.pad("bdp"),
        }
    }
}

impl Default for BuffersChoice {
    fn default() -> Self {
        Self::Of(Buffers::default())
    }
}

impl FromStr for BuffersChoice {
    type Err = UnknownBuffers;

    fn from_str(text: &str) -> Result<Self, UnknownBuffers> {
        match text {
            "bdp" => Ok(Self::BandwidthDelay),
            _ => text.parse().map(Self::Of),
        }
    }
}

impl FromStr for Buffers {
    type Err = UnknownBuffers;

    fn from_str(text: &str) -> Result<Self, UnknownBuffers> {
        let unknown = || UnknownBuffers(text.to_owned());
        match text.split_once(':') {
            None if text == "adaptive" => Ok(Self::Adaptive),
            Some(("adaptive", "paper")) => Ok(Self::AdaptivePaper),
            Some(("fixed", number)) => match number.parse() {
                Ok(messages) if (2..=FIXED_MAX).contains(&messages) => Ok(Self::Fixed(messages)),
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}

/// The buffers of one end of a link that are in circulation, seen from its state Wait (section 6.2).
///
/// The paper's functions give back all but one of the buffers that a call finds ready, and take one
/// from the pool when there is none. Calls come in bursts here, as a thread both sends and receives:
/// a buffer goes back only after rounds in which it was never wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circulation {
    /// Fewest buffers beyond the one that was needed, at any look of this round.
    surplus: usize,
    /// Buffers taken in this round, and rounds since there was none.
    found: usize,
    calm: u32,
}

impl Circulation {
    pub(crate) fn new() -> Self {
        Self {
            surplus: usize::MAX,
            found: 0,
            calm: 0,
        }
    }

    /// The caller looks for buffers, finds so many, and takes some of them.
    pub(crate) fn look(&mut self, ready: usize, taken: usize) {
        self.found += taken;
        self.surplus = self.surplus.min(ready.saturating_sub(1));
        if ready == 0 {
            self.calm = 0;
        }
    }

    /// How many of `buffers` should go back to the pool, of which `least` stay: asked after each
    /// look, answered once a round, in which each buffer is taken once on average.
    pub(crate) fn surplus(&mut self, buffers: usize, least: usize) -> usize {
        if self.found < buffers {
            return 0;
        }
        let surplus = std::mem::replace(&mut self.surplus, usize::MAX);
        self.found = 0;
        self.calm += 1;
        if self.calm <= CALM_ROUNDS {
            return 0;
        }
        surplus.min(buffers.saturating_sub(least))
    }

    /// The same where a look finds all that are not needed: as many as were needed stay once more, for
    /// bursts are not alike in all rounds.
    pub(crate) fn excess(&mut self, buffers: usize, least: usize) -> usize {
        let surplus = self.surplus(buffers, least);
        surplus.saturating_sub(buffers - surplus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_written() {
        for text in ["fixed:2", "fixed:4096", "bdp", "adaptive", "adaptive:paper"] {
            let choice: BuffersChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
        }
        for wrong in [
            "",
            "fixed",
            "fixed:",
            "fixed:1",
            "fixed:4097",
            "fixed:x",
            "BDP",
        ] {
            assert!(wrong.parse::<BuffersChoice>().is_err(), "{wrong}");
        }
    }

    /// The largest surplus that a circulation tells, in rounds in which it finds so many ready.
    fn rounds(circulation: &mut Circulation, buffers: usize, ready: usize, count: u32) -> usize {
        let mut surplus = 0;
        for _ in 0..count as usize * buffers.div_ceil(ready) {
            circulation.look(ready, ready);
            surplus = surplus.max(circulation.surplus(buffers, 2));
        }
        surplus
    }

    #[test]
    fn what_is_never_wanted_goes_back_after_calm_rounds() {
        let mut circulation = Circulation::new();
        assert_eq!(rounds(&mut circulation, 16, 9, CALM_ROUNDS), 0);
        assert_eq!(rounds(&mut circulation, 16, 9, 1), 8);
        assert_eq!(rounds(&mut circulation, 8, 8, 1), 6, "two stay");
        assert_eq!(rounds(&mut circulation, 2, 2, 4), 0, "two stay");
    }

    #[test]
    fn one_buffer_in_want_ends_the_calm() {
        let mut circulation = Circulation::new();
        rounds(&mut circulation, 16, 9, 2 * CALM_ROUNDS);
        circulation.look(0, 0);
        assert_eq!(rounds(&mut circulation, 16, 9, CALM_ROUNDS), 0);
    }

    #[test]
    fn twice_what_is_needed_stays_where_all_is_seen() {
        let excess = |ready: usize| {
            let mut circulation = Circulation::new();
            let looks = 16 * (CALM_ROUNDS + 1);
            let excess = (0..looks).map(|_| {
                circulation.look(ready, 1);
                circulation.excess(16, 2)
            });
            excess.max().unwrap()
        };
        assert_eq!(excess(13), 16 - 8, "four are needed");
        assert_eq!(excess(9), 0, "eight are");
        assert_eq!(excess(16), 16 - 4, "two stay always, and two more");
    }

    #[test]
    fn a_buffer_that_is_used_each_time_is_no_surplus() {
        let mut circulation = Circulation::new();
        assert_eq!(rounds(&mut circulation, 4, 1, 3 * CALM_ROUNDS), 0);
    }
}
