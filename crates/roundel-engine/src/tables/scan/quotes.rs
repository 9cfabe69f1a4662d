//! Where a CSV file's records end: which line breaks are within quotes.
//!
//! The rules are those of `csv-core`, which reads the fields: a quote opens only at the start of a field, two of
//! them within quotes are one, and what follows a closing quote is taken as it is. This must not know of files.

use datafusion::common::config::CsvOptions;
use memchr::{memchr, memchr2};

/// The bytes that say where fields and records end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Marks {
    delimiter: u8,
    quote: u8,
    /// Carriage return and line feed when `None`.
    terminator: Option<u8>,
    escape: Option<u8>,
    comment: Option<u8>,
}

impl Marks {
    pub(super) fn of(options: &CsvOptions) -> Self {
        Self {
            delimiter: options.delimiter,
            quote: options.quote,
            terminator: options.terminator,
            escape: options.escape,
            comment: options.comment,
        }
    }

    /// A line without anything, which is no record.
    pub(super) fn empty_line(self) -> u8 {
        self.terminator.unwrap_or(b'\n')
    }

    fn ends_record(self, byte: u8) -> bool {
        match self.terminator {
            Some(terminator) => byte == terminator,
            None => byte == b'\n' || byte == b'\r',
        }
    }

    fn find_end(self, bytes: &[u8]) -> Option<usize> {
        match self.terminator {
            Some(terminator) => memchr(terminator, bytes),
            None => memchr2(b'\n', b'\r', bytes),
        }
    }
}

/// What is known after some bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A record ended, or the file begins.
    Record,
    /// A field may begin with the next byte.
    FieldStart,
    /// Within a field without quotes, or behind its closing quote.
    Field,
    /// Within quotes.
    Quoted,
    /// Within quotes, behind an escape character.
    Escaped,
    /// Behind a quote that closes, unless another one follows.
    QuoteInQuoted,
    /// Within a line that is a comment.
    Comment,
}

/// Follows the bytes of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanner {
    marks: Marks,
    pub(super) state: State,
}

impl Scanner {
    pub(super) fn new(marks: Marks, state: State) -> Self {
        Self { marks, state }
    }

    /// Whether the bytes so far end within quotes that were never closed.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Quoted | State::Escaped)
    }

    /// Goes over all bytes.
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        self.run(bytes, usize::MAX);
    }

    /// Goes over the bytes until the first record that begins at or behind `from`, and says where that is. A byte
    /// that begins a record follows one that ends a record.
    pub(super) fn find_record(&mut self, bytes: &[u8], from: usize) -> Option<usize> {
        self.run(bytes, from)
    }

    fn run(&mut self, bytes: &[u8], from: usize) -> Option<usize> {
        match self.marks.escape.is_some() || self.marks.comment.is_some() {
            true => self.step_all(bytes, from),
            false => self.jump(bytes, from),
        }
    }

    /// From quote to quote: without escapes and comments nothing else matters.
    fn jump(&mut self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Quoted | State::Escaped => match memchr(self.marks.quote, &bytes[at..]) {
                    Some(quote) => {
                        at += quote + 1;
                        self.state = State::QuoteInQuoted;
                    }
                    None => return None,
                },
                State::QuoteInQuoted if bytes[at] == self.marks.quote => {
                    at += 1;
                    self.state = State::Quoted;
                }
                State::QuoteInQuoted => self.state = State::Field,
                State::Record | State::FieldStart | State::Field | State::Comment => {
                    let quote = memchr(self.marks.quote, &bytes[at..]);
                    let plain = quote.map_or(bytes.len(), |quote| at + quote);
                    // The terminator at `end` makes `end + 1` the beginning of a record.
                    let search = from.saturating_sub(1).max(at);
                    if search < plain
                        && let Some(end) = self.marks.find_end(&bytes[search..plain])
                    {
                        self.state = State::Record;
                        return Some(search + end + 1);
                    }
                    if plain > at {
                        self.state = self.behind(bytes[plain - 1]);
                    }
                    if quote.is_some() {
                        self.state = match self.state {
                            State::Record | State::FieldStart => State::Quoted,
                            _ => State::Field,
                        };
                    }
                    at = plain + 1;
                }
            }
        }
        None
    }

    /// The state behind a byte that is outside quotes and no quote itself.
    fn behind(&self, byte: u8) -> State {
        match byte {
            _ if self.marks.ends_record(byte) => State::Record,
            _ if byte == self.marks.delimiter => State::FieldStart,
            _ => State::Field,
        }
    }

    fn step_all(&mut self, bytes: &[u8], from: usize) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            self.step(*byte);
            if self.state == State::Record && at + 1 >= from {
                return Some(at + 1);
            }
        }
        None
    }

    /// Goes over one byte, and says whether it is the first of a record.
    pub(super) fn step(&mut self, byte: u8) -> bool {
        let marks = self.marks;
        let mut begins = false;
        self.state = match self.state {
            State::Comment if byte == b'\n' => State::Record,
            State::Comment => State::Comment,
            State::Escaped => State::Quoted,
            State::Quoted if byte == marks.quote => State::QuoteInQuoted,
            State::Quoted if marks.escape == Some(byte) => State::Escaped,
            State::Quoted => State::Quoted,
            State::QuoteInQuoted if byte == marks.quote => State::Quoted,
            State::Record if marks.ends_record(byte) => State::Record,
            State::Record if marks.comment == Some(byte) => State::Comment,
            State::Record | State::FieldStart if byte == marks.quote => {
                begins = self.state == State::Record;
                State::Quoted
            }
            _ => {
                begins = self.state == State::Record;
                self.behind(byte)
            }
        };
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    fn marks(escape: Option<u8>, comment: Option<u8>, terminator: Option<u8>) -> Marks {
        Marks {
            delimiter: b',',
            quote: b'"',
            terminator,
            escape,
            comment,
        }
    }

    /// Where records begin, by `csv-core` through the `arrow` crate: the text is cut there and both parts are read.
    fn rows(text: &[u8], marks: Marks, columns: usize) -> Vec<Vec<String>> {
        use arrow::array::AsArray as _;
        use arrow::datatypes::{DataType, Field, Schema};
        let fields = (0..columns).map(|i| Field::new(i.to_string(), DataType::Utf8, true));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let mut builder = arrow::csv::ReaderBuilder::new(schema.into())
            .with_delimiter(marks.delimiter)
            .with_quote(marks.quote)
            .with_truncated_rows(true);
        if let Some(byte) = marks.terminator {
            builder = builder.with_terminator(byte);
        }
        if let Some(byte) = marks.escape {
            builder = builder.with_escape(byte);
        }
        if let Some(byte) = marks.comment {
            builder = builder.with_comment(byte);
        }
        let mut rows = Vec::new();
        for batch in builder.build(text).expect("a reader") {
            let batch = batch.expect("reads");
            for row in 0..batch.num_rows() {
                let values = batch.columns().iter();
                rows.push(
                    values
                        .map(|c| c.as_string::<i32>().value(row).to_owned())
                        .collect(),
                );
            }
        }
        rows
    }

    fn random(seed: u64, alphabet: &[u8]) -> Vec<u8> {
        let mut random = StdRng::seed_from_u64(seed);
        let length = random.random_range(0..60);
        (0..length)
            .map(|_| alphabet[random.random_range(0..alphabet.len())])
            .collect()
    }

    #[test]
    fn a_text_that_is_cut_anywhere_gives_the_rows_of_the_whole() {
        let kinds = [
            (marks(None, None, None), &b"ab,\"\"\"\n\r"[..]),
            (marks(None, None, Some(b';')), &b"ab,\"\"\n;"[..]),
            (marks(Some(b'\\'), None, None), &b"a,\"\"\\\n\r"[..]),
            (marks(None, Some(b'#'), None), &b"a#,\"\"\n\r"[..]),
            (marks(Some(b'\\'), Some(b'#'), None), &b"a#,\"\\\n"[..]),
        ];
        let mut cuts = 0;
        for seed in 0..3000 {
            let (marks, alphabet) = kinds[seed as usize % kinds.len()];
            let text = random(seed, alphabet);
            let whole = rows(&text, marks, 70);
            for from in 1..=text.len() {
                let mut scanner = Scanner::new(marks, State::Record);
                let Some(cut) = scanner.find_record(&text, from) else {
                    continue;
                };
                assert!(cut >= from, "{cut} < {from}");
                let mut parts = rows(&text[..cut], marks, 70);
                // As a reader in the middle of a file does, which must not take a mark of the byte order there.
                let rest = [&[marks.empty_line()], &text[cut..]].concat();
                parts.extend(rows(&rest, marks, 70));
                let shown = String::from_utf8_lossy(&text);
                assert_eq!(parts, whole, "{shown:?} cut at {cut}");
                cuts += 1;
            }
        }
        assert!(cuts > 10_000, "{cuts}");
    }

    #[test]
    fn jumping_equals_stepping_whatever_the_pieces() {
        let marks = marks(None, None, None);
        for seed in 0..5000 {
            let text = random(seed, b"a,\"\"\"\n\r");
            let mut stepped = Scanner::new(marks, State::Record);
            let states: Vec<State> = text
                .iter()
                .map(|byte| {
                    stepped.step(*byte);
                    stepped.state
                })
                .collect();
            for piece in [1, 2, 3, 7, 100] {
                let mut jumped = Scanner::new(marks, State::Record);
                let mut at = 0;
                for part in text.chunks(piece) {
                    jumped.advance(part);
                    at += part.len();
                    assert_eq!(jumped.state, states[at - 1], "{text:?} at {at} by {piece}");
                }
            }
        }
    }

    #[test]
    fn the_first_record_at_or_behind_a_place_is_found() {
        let text = b"a,\"x\ny\"\nb,\"\"\"\n\"\nc,d\n";
        let find =
            |from| Scanner::new(marks(None, None, None), State::Record).find_record(text, from);
        assert_eq!(find(1), Some(8));
        assert_eq!(find(8), Some(8));
        assert_eq!(find(9), Some(16));
        assert_eq!(find(17), Some(20));
        assert_eq!(find(21), None);
    }
}
