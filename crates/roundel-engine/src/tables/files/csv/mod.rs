//! What a CSV file looks like: its dialect, header and types, guessed where nobody says.
//!
//! This module must not know of tables or plans.

mod dialect;
mod infer;
mod records;

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Read as _;
use std::path::Path;

use arrow::datatypes::DataType;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;

use self::dialect::{Fit, guess, has_header};
pub(super) use self::infer::Seen;
pub(super) use self::records::Dialect;
use self::records::{Record, split};
use super::compression::open;
use super::wrong;
use crate::Result;
use crate::tables::scan::find;

/// Settings of CSV files that a user gave. The rest is guessed.
#[derive(Debug, Clone, Default)]
pub(super) struct CsvSettings {
    pub(super) delimiter: Option<u8>,
    pub(super) quote: Option<u8>,
    pub(super) escape: Option<u8>,
    pub(super) comment: Option<u8>,
    pub(super) terminator: Option<u8>,
    pub(super) header: Option<bool>,
    /// Whether records may have fewer fields than there are columns.
    pub(super) ragged: bool,
    pub(super) nulls: NullText,
    /// Of how many records types are inferred; 0 makes everything text.
    pub(super) sample_records: Option<usize>,
}

impl CsvSettings {
    pub(super) fn dialect(&self) -> Dialect {
        let default = Dialect::default();
        Dialect {
            delimiter: self.delimiter.unwrap_or(default.delimiter),
            quote: self.quote.unwrap_or(default.quote),
            escape: self.escape,
            comment: self.comment,
            terminator: self.terminator,
        }
    }
}

/// Which values are NULL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum NullText {
    /// Empty ones.
    #[default]
    Empty,
    /// Those that are one of these texts.
    Any(Vec<String>),
    /// Those that match: nobody but the reader can tell.
    Regex(String),
}

impl NullText {
    fn is_null(&self, value: &str) -> bool {
        match self {
            Self::Empty => value.is_empty(),
            Self::Any(texts) => texts.iter().any(|text| text == value),
            Self::Regex(_) => value.is_empty(),
        }
    }

    /// As the regular expression that a reader takes.
    pub(super) fn to_regex(&self) -> Option<String> {
        match self {
            Self::Empty => None,
            Self::Regex(regex) => Some(regex.clone()),
            Self::Any(texts) => {
                let escape = |text: &String| {
                    let special = |c: char| "\\.+*?()|[]{}^$#&-~".contains(c);
                    let escaped = text.chars().flat_map(|c| {
                        let slash = special(c).then_some('\\');
                        slash.into_iter().chain([c])
                    });
                    escaped.collect::<String>()
                };
                let texts: Vec<String> = texts.iter().map(escape).collect();
                Some(format!("^(?:{})$", texts.join("|")))
            }
        }
    }
}

/// How all files of a table are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) dialect: Dialect,
    pub(super) header: bool,
}

/// What was seen in a file.
#[derive(Debug, Clone)]
pub(super) struct Sampled {
    /// The columns' names, each different.
    pub(super) names: Vec<String>,
    pub(super) seen: Vec<Seen>,
}

/// The begin of a file.
pub(super) struct Sample {
    text: Vec<u8>,
    /// Whether it is the whole file.
    whole: bool,
}

impl Sample {
    /// Reads the first bytes, and more if not one record is among them.
    pub(super) fn read(
        path: &Path,
        compression: FileCompressionType,
        bytes: usize,
        settings: &CsvSettings,
    ) -> Result<Self> {
        let mut reader = open(path, compression)?;
        let mut text = Vec::new();
        let mut wanted = bytes;
        loop {
            let more = (wanted - text.len()) as u64;
            let got = (&mut reader)
                .take(more)
                .read_to_end(&mut text)
                .map_err(|e| wrong(&path.display().to_string(), e))?;
            let whole = (got as u64) < more;
            if whole || has_records(&text, settings) {
                if text.starts_with(b"\xef\xbb\xbf") {
                    text.drain(..3);
                }
                if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
                    return Err(wrong(
                        &path.display().to_string(),
                        "is UTF-16; convert it to UTF-8",
                    ));
                }
                return Ok(Self { text, whole });
            }
            wanted *= 4;
        }
    }

    /// Whether there is no record.
    pub(super) fn is_empty(&self, dialect: Dialect) -> bool {
        let (text, whole) = head(&self.text, self.whole);
        let none = |text, whole| split(text, whole, dialect).records.is_empty();
        none(text, whole) && none(&self.text, self.whole)
    }
}

/// Enough of a text to see what it looks like.
fn head(text: &[u8], whole: bool) -> (&[u8], bool) {
    const BYTES: usize = 64 << 10;
    match text.len() > BYTES {
        true => (&text[..BYTES], false),
        false => (text, whole),
    }
}

/// Whether a text holds at least the end of two records, whatever their dialect.
fn has_records(text: &[u8], settings: &CsvSettings) -> bool {
    let dialect = guess(head(text, false).0, false, settings).dialect;
    let several = |text| split(text, false, dialect).records.len() >= 2;
    several(head(text, false).0) || several(text)
}

/// How to read a file that looks like this, and whether that was a guess worth a notice.
pub(super) fn form_of(
    sample: &Sample,
    settings: &CsvSettings,
    declared: Option<&[(String, DataType)]>,
) -> (Form, Option<String>) {
    let (text, whole) = head(&sample.text, sample.whole);
    let guess = guess(text, whole, settings);
    let dialect = guess.dialect;
    let mut records = split(text, whole, dialect).records;
    if records.len() < 2 && !whole {
        records = split(&sample.text, sample.whole, dialect).records;
    }
    let header = settings
        .header
        .unwrap_or_else(|| has_header(&records, &settings.nulls, declared));
    let mut notes = Vec::new();
    if settings.delimiter.is_none() && guess.fits <= Fit::Single {
        notes.push("one column".to_owned());
    } else if settings.delimiter.is_none() && dialect.delimiter != b',' {
        notes.push(format!("delimiter '{}'", dialect.delimiter.escape_ascii()));
    }
    if settings.quote.is_none() && dialect.quote != b'"' {
        notes.push(format!("quote {}", char::from(dialect.quote)));
    }
    if settings.escape.is_none()
        && let Some(escape) = dialect.escape
    {
        notes.push(format!("escape {}", char::from(escape)));
    }
    if settings.header.is_none() && !header {
        notes.push("no header".to_owned());
    }
    let notice = (!notes.is_empty()).then(|| notes.join(", "));
    (Form { dialect, header }, notice)
}

/// How a table without a record is written and, one day, read.
pub(super) fn form_of_none(settings: &CsvSettings) -> Form {
    Form {
        dialect: settings.dialect(),
        header: settings.header.unwrap_or(true),
    }
}

/// Which of a table's columns a file's column is: none that another of the file's is by its very name.
pub(super) fn place(columns: &[(String, Seen)], of_file: &[String], name: &str) -> Option<usize> {
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let place = find(&names, name)?;
    (names[place] == name || of_file.iter().all(|other| other != names[place])).then_some(place)
}

/// The names of a file's columns and the kinds of their values.
pub(super) fn sampled(
    path: &Path,
    sample: &Sample,
    form: Form,
    settings: &CsvSettings,
    declared: Option<&[(String, DataType)]>,
) -> Result<Sampled> {
    let shown = path.display().to_string();
    let found = split(&sample.text, sample.whole, form.dialect);
    if let Some(line) = found.open_quote {
        return Err(wrong(
            &shown,
            format!("line {line}: the quote that opens there is never closed"),
        ));
    }
    let mut records = &found.records[..];
    let names = match records.split_first() {
        Some((first, rest)) if form.header => {
            records = rest;
            let names = first.fields.iter().map(|field| text(&shown, first, field));
            distinct(names.collect::<Result<_>>()?)
        }
        first => {
            let fields = first.map_or(0, |(first, _)| first.fields.len());
            match declared {
                Some(columns) => columns.iter().map(|(name, _)| name.clone()).collect(),
                None => (1..=fields).map(|i| format!("column_{i}")).collect(),
            }
        }
    };
    if let Some(sample) = settings.sample_records {
        records = &records[..sample.min(records.len())];
    }
    let mut seen = vec![Seen::default(); names.len()];
    for record in records {
        let fields = record.fields.len();
        if fields > names.len() || (fields < names.len() && !settings.ragged) {
            let of = match (form.header, declared) {
                (true, _) => "the header",
                (false, Some(_)) => "the table",
                (false, None) => "the first line",
            };
            return Err(wrong(
                &shown,
                format!(
                    "line {} has {fields} fields, but {of} has {}; if '{}' is not the delimiter, say \
                     OPTIONS ('delimiter' '…')",
                    record.line,
                    names.len(),
                    form.dialect.delimiter.escape_ascii()
                ),
            ));
        }
        for (seen, field) in seen.iter_mut().zip(&record.fields) {
            let value = text(&shown, record, field)?;
            if !settings.nulls.is_null(&value) {
                seen.add(&value);
            }
        }
    }
    Ok(Sampled { names, seen })
}

fn text<'a>(shown: &str, record: &Record<'_>, field: &'a [u8]) -> Result<Cow<'a, str>> {
    let text = std::str::from_utf8(field).map_err(|_| {
        wrong(
            shown,
            format!(
                "line {} is not UTF-8; convert the file, for instance with iconv",
                record.line
            ),
        )
    })?;
    Ok(Cow::Borrowed(text))
}

/// Names that are there twice get numbers, and those that are missing one too, as DuckDB does.
pub(super) fn distinct(names: Vec<Cow<'_, str>>) -> Vec<String> {
    let all: HashSet<String> = names.iter().map(|name| name.to_string()).collect();
    let mut taken = HashSet::new();
    let mut unique = Vec::with_capacity(names.len());
    for (index, name) in names.into_iter().enumerate() {
        let name = match name.trim() {
            "" => format!("column_{}", index + 1),
            _ => name.into_owned(),
        };
        let mut candidate = name.clone();
        let mut number = 0;
        while taken.contains(&candidate) || (number > 0 && all.contains(&candidate)) {
            number += 1;
            candidate = format!("{name}_{number}");
        }
        taken.insert(candidate.clone());
        unique.push(candidate);
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_distinct() {
        let names =
            |names: &[&'static str]| distinct(names.iter().map(|n| Cow::Borrowed(*n)).collect());
        assert_eq!(names(&["a", "a", "a"]), ["a", "a_1", "a_2"]);
        assert_eq!(names(&["a", "a_1", "a"]), ["a", "a_1", "a_2"]);
        assert_eq!(names(&["", "x", ""]), ["column_1", "x", "column_3"]);
    }

    #[test]
    fn null_texts_are_plain_in_a_regular_expression() {
        let nulls = NullText::Any(vec!["N/A".to_owned(), "\\N".to_owned(), String::new()]);
        assert_eq!(nulls.to_regex().expect("one"), r"^(?:N/A|\\N|)$");
        assert!(nulls.is_null("N/A") && nulls.is_null("") && !nulls.is_null("N"));
    }

    fn look(text: &str, bytes: usize) -> Result<Sampled> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.csv");
        std::fs::write(&path, text).expect("writes");
        let settings = CsvSettings::default();
        let sample = Sample::read(&path, FileCompressionType::UNCOMPRESSED, bytes, &settings)?;
        let (form, _) = form_of(&sample, &settings, None);
        sampled(&path, &sample, form, &settings, None)
    }

    #[test]
    fn a_sample_is_never_cut_inside_a_record() {
        let mut text = "id,note,n\n".to_owned();
        for i in 0..300 {
            text.push_str(&format!("{i},\"one\ntwo, {i}\",{i}\n"));
        }
        for bytes in [16, 64, 100, 1000, 4096, 1 << 20] {
            let seen = look(&text, bytes).expect("its columns");
            assert_eq!(seen.names, ["id", "note", "n"]);
            let types: Vec<_> = seen.seen.iter().map(|seen| seen.data_type()).collect();
            assert_eq!(types[0], Some(DataType::Int64), "{bytes}");
            assert_eq!(types[1], Some(DataType::Utf8), "{bytes}");
        }
    }

    #[test]
    fn marks_line_ends_and_mistakes() {
        let seen = look("\u{feff}a,b\r\n1,2\r\n", 1 << 20).expect("its columns");
        assert_eq!(seen.names, ["a", "b"]);
        assert_eq!(seen.seen[1].data_type(), Some(DataType::Int64));
        let error = look("a,b\n1,2\n3,4\n5,6\n7\n", 1 << 20).expect_err("a short line");
        let error = error.to_string();
        assert!(
            error.contains("x.csv: line 5 has 1 fields, but the header has 2"),
            "{error}"
        );
        let error = look("a,b\n1,\"2\n", 1 << 20).expect_err("an open quote");
        assert!(error.to_string().contains("line 2: the quote"), "{error}");
    }
}
