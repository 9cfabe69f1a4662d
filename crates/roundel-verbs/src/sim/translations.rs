//! The translations of addresses that a NIC holds: of each page of registered memory, where it is in the host's. It fetches
//! them by lines of its table, has room for so many lines, and drops any of them for another. What it keeps of each
//! registered region besides is not modelled, as a node has few regions. When a NIC needs one, `translating` says.

/// Bytes of memory that a line translates: 8 pages of 4 KiB. Each has 8 bytes in the table (mlx4), and the host's memory is
/// read by 64 bytes.
pub(super) const LINE_BYTES: usize = 8 * 4096;

/// A line of a NIC's table: the number of its segment, and which of the segment's lines it is.
type Line = (usize, usize);

/// The lines that a NIC holds.
#[derive(Default)]
pub(super) struct Translations {
    held: Vec<Line>,
    /// Where each line is among them, or was, by segment.
    at: Vec<Vec<usize>>,
}

impl Translations {
    /// Has it hold a line, if need be in the place of another, which `drop` names. Returns whether it did already.
    pub(super) fn hold(&mut self, line: Line, most: usize, drop: impl FnOnce() -> usize) -> bool {
        let (segment, number) = line;
        if self.at.len() <= segment {
            self.at.resize_with(segment + 1, Vec::new);
        }
        let lines = &mut self.at[segment];
        if lines.len() <= number {
            lines.resize(number + 1, usize::MAX);
        }
        if self.held.get(lines[number]) == Some(&line) {
            return true;
        }
        lines[number] = match self.held.len() < most {
            true => {
                self.held.push(line);
                self.held.len() - 1
            }
            false => drop(),
        };
        self.held[lines[number]] = line;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_held_until_others_take_their_places() {
        let mut held = Translations::default();
        let never = || panic!("there is room");
        assert!(!held.hold((0, 3), 2, never));
        assert!(!held.hold((4, 0), 2, never));
        assert!(held.hold((0, 3), 2, never));
        assert!(!held.hold((1, 1), 2, || 0));
        assert!(held.hold((4, 0), 2, never));
        assert!(!held.hold((0, 3), 2, || 1));
        assert!(held.hold((1, 1), 2, never));
    }
}
