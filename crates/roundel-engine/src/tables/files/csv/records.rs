//! Splits text into records and fields, as RFC 4180 has them and as the reader will.

use std::borrow::Cow;

/// What separates, quotes and escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tables::files) struct Dialect {
    pub(in crate::tables::files) delimiter: u8,
    pub(in crate::tables::files) quote: u8,
    /// What makes the character after it a plain one; a doubled quote does so too.
    pub(in crate::tables::files) escape: Option<u8>,
    /// Lines that begin with it are no records.
    pub(in crate::tables::files) comment: Option<u8>,
    /// What ends a record, if not a line break.
    pub(in crate::tables::files) terminator: Option<u8>,
}

impl Default for Dialect {
    fn default() -> Self {
        Self {
            delimiter: b',',
            quote: b'"',
            escape: None,
            comment: None,
            terminator: None,
        }
    }
}

/// A record of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) fields: Vec<Cow<'a, [u8]>>,
    /// The line it begins in, counted from 1.
    pub(super) line: usize,
}

/// The records of a sample.
#[derive(Debug)]
pub(super) struct Records<'a> {
    pub(super) records: Vec<Record<'a>>,
    /// How often something followed a closing quote that must not.
    pub(super) misquoted: usize,
    /// The line of a quote that the text never closes.
    pub(super) open_quote: Option<usize>,
}

/// All records of a text. When it is only the begin of one, the last record is left out, for it may be cut.
pub(super) fn split(text: &[u8], whole: bool, dialect: Dialect) -> Records<'_> {
    let mut splitter = Splitter {
        text,
        dialect,
        at: 0,
        line: 1,
        misquoted: 0,
        open_quote: None,
    };
    let mut records = Vec::new();
    while let Some((record, ended)) = splitter.record() {
        if ended || whole {
            records.push(record);
        }
    }
    Records {
        records,
        misquoted: splitter.misquoted,
        open_quote: splitter.open_quote.filter(|_| whole),
    }
}

struct Splitter<'a> {
    text: &'a [u8],
    dialect: Dialect,
    at: usize,
    line: usize,
    misquoted: usize,
    open_quote: Option<usize>,
}

impl<'a> Splitter<'a> {
    fn ends_record(&self, byte: u8) -> bool {
        match self.dialect.terminator {
            Some(terminator) => byte == terminator,
            None => byte == b'\n' || byte == b'\r',
        }
    }

    /// The next record, and whether its end is in the text.
    fn record(&mut self) -> Option<(Record<'a>, bool)> {
        // Empty lines and comments are no records.
        loop {
            let byte = *self.text.get(self.at)?;
            if self.ends_record(byte) {
                self.line += usize::from(byte == b'\n');
                self.at += 1;
            } else if Some(byte) == self.dialect.comment {
                let rest = &self.text[self.at..];
                self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            } else {
                break;
            }
        }
        let line = self.line;
        let mut fields = Vec::new();
        loop {
            fields.push(self.field());
            match self.text.get(self.at) {
                None => return Some((Record { fields, line }, false)),
                Some(byte) if *byte == self.dialect.delimiter => self.at += 1,
                Some(byte) => {
                    self.line += usize::from(*byte == b'\n');
                    self.at += 1;
                    return Some((Record { fields, line }, true));
                }
            }
        }
    }

    /// A field, up to what ends it.
    fn field(&mut self) -> Cow<'a, [u8]> {
        if self.text.get(self.at) == Some(&self.dialect.quote) {
            return self.quoted();
        }
        let start = self.at;
        while let Some(byte) = self.text.get(self.at) {
            if *byte == self.dialect.delimiter || self.ends_record(*byte) {
                break;
            }
            self.at += 1;
        }
        Cow::Borrowed(&self.text[start..self.at])
    }

    fn quoted(&mut self) -> Cow<'a, [u8]> {
        let (quote, opened) = (self.dialect.quote, self.line);
        self.at += 1;
        let mut value = Vec::new();
        let mut inside = true;
        while let Some(byte) = self.text.get(self.at).copied() {
            if inside {
                self.line += usize::from(byte == b'\n');
                let next = self.text.get(self.at + 1).copied();
                if Some(byte) == self.dialect.escape && next.is_some() && byte != quote {
                    value.extend(next);
                    self.at += 2;
                    continue;
                }
                match byte == quote {
                    true => inside = false,
                    false => value.push(byte),
                }
            } else if byte == quote {
                // A doubled quote.
                value.push(byte);
                inside = true;
            } else if byte == self.dialect.delimiter || self.ends_record(byte) {
                break;
            } else {
                self.misquoted += 1;
                value.push(byte);
            }
            self.at += 1;
        }
        if inside {
            self.open_quote.get_or_insert(opened);
        }
        Cow::Owned(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, whole: bool, dialect: Dialect) -> Vec<Vec<String>> {
        let split = split(text.as_bytes(), whole, dialect);
        let field = |field: &Cow<'_, [u8]>| String::from_utf8_lossy(field).into_owned();
        let fields = |record: &Record<'_>| record.fields.iter().map(field).collect();
        split.records.iter().map(fields).collect()
    }

    #[test]
    fn quotes_hold_delimiters_line_breaks_and_doubled_quotes() {
        let text = "a,b\r\n\"1,\n2\",\"say \"\"hi\"\"\"\n\n,x\n";
        assert_eq!(
            texts(text, true, Dialect::default()),
            [vec!["a", "b"], vec!["1,\n2", "say \"hi\""], vec!["", "x"]]
        );
        let split = split(text.as_bytes(), true, Dialect::default());
        let lines: Vec<usize> = split.records.iter().map(|record| record.line).collect();
        assert_eq!(lines, [1, 2, 5]);
    }

    #[test]
    fn a_record_that_may_be_cut_is_left_out() {
        assert_eq!(texts("a,b\n1,\"x", false, Dialect::default()), [["a", "b"]]);
        assert_eq!(
            texts("a,b\n1,2", true, Dialect::default()),
            [["a", "b"], ["1", "2"]]
        );
        let open = split(b"a,b\n1,\"x\n", true, Dialect::default());
        assert_eq!(open.open_quote, Some(2));
    }

    #[test]
    fn escapes_comments_and_other_terminators() {
        let dialect = Dialect {
            escape: Some(b'\\'),
            comment: Some(b'#'),
            ..Dialect::default()
        };
        let text = "# no record\na,\"x\\\"y\"\n";
        assert_eq!(texts(text, true, dialect), [["a", "x\"y"]]);
        let dialect = Dialect {
            terminator: Some(b';'),
            ..Dialect::default()
        };
        assert_eq!(
            texts("a,b;c,\nd;", true, dialect),
            [["a", "b"], ["c", "\nd"]]
        );
    }
}
