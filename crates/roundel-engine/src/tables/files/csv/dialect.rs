//! Guesses what separates and quotes the fields of a CSV file, and whether it has a header, as
//! DuckDB's sniffer does: the delimiter that gives all records the same number of fields, the more
//! the better; a header where the first record is not of the types of the rest.

use std::borrow::Cow;

use super::infer::{Seen, reads_as};
use super::records::{Dialect, Record, Records, split};
use super::{CsvSettings, NullText};
use arrow::datatypes::DataType;

/// In the order in which they win where all else is equal.
const DELIMITERS: [u8; 4] = [b',', b'|', b';', b'\t'];

/// What a file's text looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Guess {
    pub(super) dialect: Dialect,
    /// How well the text fits.
    pub(super) fits: Fit,
}

/// How well a text fits a dialect; the greatest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// Few records agree on the number of fields.
    Poor,
    /// All records are one field.
    Single,
    /// Most records have the same number of fields, but not all.
    Ragged(usize),
    /// All records have the same number of fields, which are several.
    Even(usize),
}

/// The dialect that a text fits best, among those that the settings leave open.
pub(super) fn guess(text: &[u8], whole: bool, settings: &CsvSettings) -> Guess {
    let fixed = settings.dialect();
    let delimiters = match settings.delimiter {
        Some(delimiter) => vec![delimiter],
        None => DELIMITERS.to_vec(),
    };
    let quotes = match settings.quote {
        Some(quote) => vec![quote],
        None => vec![b'"', b'\''],
    };
    let mut best: Option<((bool, bool, Fit), Guess)> = None;
    for quote in quotes {
        for delimiter in &delimiters {
            let mut dialect = Dialect {
                delimiter: *delimiter,
                quote,
                ..fixed
            };
            let mut found = split(text, whole, dialect);
            if found.misquoted > 0 && settings.escape.is_none() {
                let escaped = Dialect {
                    escape: Some(b'\\'),
                    ..dialect
                };
                let again = split(text, whole, escaped);
                if again.misquoted == 0 {
                    (dialect, found) = (escaped, again);
                }
            }
            // An apostrophe is a quote only if it quotes whole fields and nothing else does.
            if quote == b'\'' && settings.quote.is_none() && !is_quoted(text, &found, dialect) {
                continue;
            }
            let clean = found.misquoted == 0 && found.open_quote.is_none();
            let fits = fit(&found, settings.ragged);
            // A mistake in several columns is to be told; in one column it would be a part of a text.
            let rank = (fits > Fit::Single, clean, fits);
            if best.as_ref().is_none_or(|(had, _)| rank > *had) {
                best = Some((rank, Guess { dialect, fits }));
            }
        }
    }
    best.map_or(
        Guess {
            dialect: fixed,
            fits: Fit::Poor,
        },
        |(_, guess)| guess,
    )
}

/// How well records fit, of which those may be short that are `ragged`.
fn fit(found: &Records<'_>, ragged: bool) -> Fit {
    let counts: Vec<usize> = found.records.iter().map(|r| r.fields.len()).collect();
    let Some(most) = counts.iter().copied().max() else {
        return Fit::Single;
    };
    if ragged || counts.iter().all(|count| *count == most) {
        return match most {
            1 => Fit::Single,
            _ => Fit::Even(most),
        };
    }
    // Where most records agree with the first, the rest are mistakes that a reader has to tell of.
    let first = counts[0];
    let agree = counts.iter().filter(|count| **count == first).count();
    match first > 1 && agree * 3 > counts.len() * 2 {
        true => Fit::Ragged(first),
        false => Fit::Poor,
    }
}

fn is_quoted(text: &[u8], found: &Records<'_>, dialect: Dialect) -> bool {
    let quoted = |quote: u8| {
        let around = |pair: &[u8]| {
            let outer = |byte: u8| byte == dialect.delimiter || byte == b'\n' || byte == b'\r';
            (outer(pair[0]) && pair[1] == quote) || (pair[0] == quote && outer(pair[1]))
        };
        text.first() == Some(&quote) || text.windows(2).any(around)
    };
    found.misquoted == 0 && found.open_quote.is_none() && quoted(b'\'') && !quoted(b'"')
}

/// Whether the first record names the columns.
pub(super) fn has_header(
    records: &[Record<'_>],
    nulls: &NullText,
    declared: Option<&[(String, DataType)]>,
) -> bool {
    let Some((first, rest)) = records.split_first() else {
        return true;
    };
    let first: Vec<Cow<'_, str>> = first
        .fields
        .iter()
        .map(|field| String::from_utf8_lossy(field))
        .collect();
    let named = |(value, (name, _)): (&Cow<'_, str>, &(String, DataType))| {
        value.trim().eq_ignore_ascii_case(name)
    };
    let types: Vec<Option<DataType>> = match declared {
        Some(columns) if first.iter().zip(columns).all(named) => return true,
        Some(columns) => columns.iter().map(|(_, t)| Some(t.clone())).collect(),
        None => {
            let mut seen = vec![Seen::default(); first.len()];
            for record in rest {
                for (seen, field) in seen.iter_mut().zip(&record.fields) {
                    let value = String::from_utf8_lossy(field);
                    if !nulls.is_null(&value) {
                        seen.add(&value);
                    }
                }
            }
            seen.iter().map(|seen| seen.data_type()).collect()
        }
    };
    let is_text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::Utf8View);
    let typed = || {
        let known = first.iter().zip(&types);
        known.filter_map(|(value, t)| Some((value, t.as_ref().filter(|t| !is_text(t))?)))
    };
    if typed().next().is_some() {
        return typed().any(|(value, t)| !nulls.is_null(value) && !reads_as(value, t));
    }
    // All is text, or there is nothing else: names are there, differ, and are no numbers.
    let mut names: Vec<&str> = first.iter().map(|name| name.trim()).collect();
    let are_words = names.iter().all(|name| {
        let mut seen = Seen::default();
        seen.add(name);
        seen.is_text()
    });
    names.sort_unstable();
    are_words && names.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(text: &str) -> (char, Fit, bool) {
        let settings = CsvSettings::default();
        let guess = guess(text.as_bytes(), true, &settings);
        let split = split(text.as_bytes(), true, guess.dialect);
        let header = has_header(&split.records, &settings.nulls, None);
        (char::from(guess.dialect.delimiter), guess.fits, header)
    }

    #[test]
    fn the_delimiter_that_gives_the_most_even_columns_wins() {
        assert_eq!(guessed("a|b\n1|2\n"), ('|', Fit::Even(2), true));
        assert_eq!(guessed("a;b\n1,5;2,5\n"), (';', Fit::Even(2), true));
        assert_eq!(guessed("a\tb\tc\n1,1\t2\t3\n"), ('\t', Fit::Even(3), true));
        assert_eq!(guessed("a,b\n\"x|y\",1\n"), (',', Fit::Even(2), true));
        assert_eq!(guessed("a,b,c\n1,2,3\n"), (',', Fit::Even(3), true));
    }

    #[test]
    fn one_column_of_text_is_not_cut_at_its_commas() {
        assert_eq!(guessed("text\nhello, world\nfoo\nbar\n").1, Fit::Single);
        assert_eq!(guessed("n\n1\n2\n"), (',', Fit::Single, true));
    }

    #[test]
    fn a_record_too_short_is_a_mistake_and_no_reason_for_one_column() {
        let text = "a,b\n1,2\n3,4\n5\n6,7\n8,9\n";
        assert_eq!(guessed(text), (',', Fit::Ragged(2), true));
    }

    #[test]
    fn headers() {
        for (text, header) in [
            ("1,2\n3,4\n", false),
            ("a,b\n", true),
            ("1,2\n", false),
            ("id,name\n1,x\n2,y\n", true),
            ("7,x\n1,x\n2,y\n", false),
            ("name,town\nana,rome\n", true),
            ("ana,ana\nbob,rome\n", false),
            ("ana,\nbob,rome\n", false),
            ("day,n\n2024-01-01,1\n", true),
            ("2024-01-02,2\n2024-01-01,1\n", false),
            (",n\nx,1\n", true),
        ] {
            assert_eq!(guessed(text).2, header, "{text:?}");
        }
    }

    #[test]
    fn declared_columns_say_more() {
        let settings = CsvSettings::default();
        let header = |text: &str, columns: &[(&str, DataType)]| {
            let split = split(text.as_bytes(), true, Dialect::default());
            let columns: Vec<_> = columns
                .iter()
                .map(|(name, t)| ((*name).to_owned(), t.clone()))
                .collect();
            has_header(&split.records, &settings.nulls, Some(&columns))
        };
        let numbers = [("a", DataType::Int64), ("b", DataType::Utf8)];
        assert!(header("A,B\n1,x\n", &numbers));
        assert!(header("x,y\n1,x\n", &numbers));
        assert!(!header("1,y\n1,x\n", &numbers));
        let texts = [("a", DataType::Utf8), ("b", DataType::Utf8)];
        assert!(header("a,b\n1,2\n", &texts));
        assert!(!header("1,2\n3,4\n", &texts));
    }

    #[test]
    fn quotes_and_escapes() {
        let settings = CsvSettings::default();
        let text = b"a,b\n'x,1',2\n'y',3\n";
        assert_eq!(guess(text, true, &settings).dialect.quote, b'\'');
        let text = b"a,b\nit's,2\nthat's,3\n";
        assert_eq!(guess(text, true, &settings).dialect.quote, b'"');
        let text = b"a,b\n\"x \\\"y\\\"\",2\n";
        assert_eq!(guess(text, true, &settings).dialect.escape, Some(b'\\'));
    }
}
