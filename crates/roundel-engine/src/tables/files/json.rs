//! What a JSON file is, and which columns an array of objects has, wherever its lines end.
//!
//! DataFusion looks for the columns of an array line by line, and its objects may go on over several lines.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use arrow::datatypes::Schema;
use arrow::json::reader::infer_json_schema_from_iterator;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use serde::Deserialize as _;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::de::Deserializer;

use super::compression::open;
use super::wrong;
use crate::Result;

/// Most bytes of a file's first line that are looked at.
const LINE_BYTES_MAX: u64 = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether a file has one array of JSON objects; otherwise, it has an object a line.
///
/// # Errors
/// When it has neither.
pub(super) fn is_array(path: &Path, compression: FileCompressionType) -> Result<bool> {
    let shown = path.display().to_string();
    let mut reader = BufReader::new(open(path, compression)?);
    let marked = skip_mark(&mut reader, &shown)?;
    match first_letter(&mut reader, &shown)? {
        Some(b'[') => {
            check_array(reader, &shown)?;
            Ok(true)
        }
        Some(b'{') if marked => Err(wrong(
            &shown,
            "begins with a byte order mark, which a file with a JSON object a line cannot have: remove it",
        )),
        // White space only: no rows.
        Some(b'{') | None => Ok(false),
        Some(other) => Err(wrong(
            &shown,
            format!(
                "begins with '{}', not with a JSON object or an array of them",
                other.escape_ascii()
            ),
        )),
    }
}

/// Refuses a file that is not one array: its reader takes no notice of what comes after one.
fn check_array(reader: impl Read, shown: &str) -> Result<()> {
    let mut deserializer = Deserializer::from_reader(reader);
    let read = IgnoredAny::deserialize(&mut deserializer);
    let read = read.and_then(|_| deserializer.end());
    read.map_err(|e| wrong(shown, format!("is no JSON array: {e}")))
}

/// Refuses a file whose first object goes on over several lines: its columns are looked for line by line.
pub(super) fn check_lines(path: &Path, compression: FileCompressionType) -> Result<()> {
    let shown = path.display().to_string();
    let mut reader = BufReader::new(open(path, compression)?);
    first_letter(&mut reader, &shown)?;
    let mut line = Vec::new();
    let read = reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
    read.map_err(|e| wrong(&shown, e))?;
    match serde_json::from_slice::<IgnoredAny>(&line) {
        Err(e) if e.is_eof() && line.ends_with(b"\n") => Err(wrong(
            &shown,
            "has an object that goes on over several lines: write each on one line, or all of them as one array",
        )),
        // Any other mistake is told with its place when it is read.
        _ => Ok(()),
    }
}

/// The first letter that is no white space, which is not taken out; none if there is none.
fn first_letter(reader: &mut impl BufRead, shown: &str) -> Result<Option<u8>> {
    loop {
        let bytes = reader.fill_buf().map_err(|e| wrong(shown, e))?;
        let blank = bytes.len() - bytes.trim_ascii_start().len();
        let (letter, is_end) = (bytes.get(blank).copied(), bytes.is_empty());
        reader.consume(blank);
        if letter.is_some() || is_end {
            return Ok(letter);
        }
    }
}

/// The columns of the first objects of an array, `sample` at most.
pub(super) fn array_schema(
    path: &Path,
    compression: FileCompressionType,
    sample: usize,
) -> Result<Schema> {
    let shown = path.display().to_string();
    let mut reader = BufReader::new(open(path, compression)?);
    skip_mark(&mut reader, &shown)?;
    let mut deserializer = Deserializer::from_reader(reader);
    let mut first = First {
        values: Vec::new(),
        most: sample,
        is_full: false,
    };
    let read = deserializer.deserialize_seq(&mut first);
    if !first.is_full {
        read.map_err(|e| wrong(&shown, format!("is no JSON array of objects: {e}")))?;
    }
    infer_json_schema_from_iterator(first.values.iter().map(Ok)).map_err(|e| wrong(&shown, e))
}

fn skip_mark(reader: &mut impl BufRead, shown: &str) -> Result<bool> {
    let begin = reader.fill_buf().map_err(|e| wrong(shown, e))?;
    let marked = begin.starts_with(BYTE_ORDER_MARK);
    if marked {
        reader.consume(BYTE_ORDER_MARK.len());
    }
    Ok(marked)
}

/// The first values of an array.
struct First {
    values: Vec<Value>,
    most: usize,
    is_full: bool,
}

impl<'a> Visitor<'a> for &mut First {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut values: A) -> std::result::Result<(), A::Error> {
        while let Some(value) = values.next_element::<Value>()? {
            self.values.push(value);
            if self.values.len() >= self.most {
                self.is_full = true;
                return Err(A::Error::custom("enough"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: FileCompressionType = FileCompressionType::UNCOMPRESSED;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("writes");
        file
    }

    #[test]
    fn arrays_are_told_from_lines() {
        for (bytes, expected) in [
            (&b"\n {\"a\":1}\n"[..], false),
            (b"\n[ {\"a\":1}]", true),
            (b"\xef\xbb\xbf[{\"a\":1}]", true),
            (b" \n\n", false),
            (b"", false),
            (b"{\"a\":1", false),
        ] {
            let file = file(bytes);
            let array = is_array(file.path(), PLAIN).expect("JSON");
            assert_eq!(array, expected, "{}", bytes.escape_ascii());
        }
        for (bytes, reason) in [
            (&b"\xef\xbb\xbf{\"a\":1}"[..], "byte order mark"),
            (b"hello", "begins with 'h'"),
            (b"[{\"a\":1}]\n[{\"a\":2}]", "trailing characters at line 2"),
            (b"[{\"a\":1}", "no JSON array: EOF"),
        ] {
            let file = file(bytes);
            let refused = is_array(file.path(), PLAIN).expect_err("no JSON");
            assert!(refused.to_string().contains(reason), "{refused}");
        }
    }

    #[test]
    fn objects_over_several_lines_are_told_of() {
        let pretty = file(b"\n{\n  \"a\": 1\n}\n");
        let refused = check_lines(pretty.path(), PLAIN).expect_err("several lines");
        assert!(refused.to_string().contains("several lines"), "{refused}");
        for bytes in [&b"{\"a\": 1}\n{\n}"[..], b"{\"a\": 1", b"", b"{]\n"] {
            check_lines(file(bytes).path(), PLAIN).expect("is told elsewhere");
        }
    }

    #[test]
    fn arrays_have_columns_wherever_lines_end() {
        let bytes =
            b"[\n  {\n    \"a\": 1,\n    \"b\": [\"x\"]\n  },\n  {\"a\": 1.5,\n \"c\": null}\n]\n";
        let pretty = file(bytes);
        let schema = array_schema(pretty.path(), PLAIN, 100).expect("columns");
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(schema.field(0).data_type().is_floating());
        let first = array_schema(pretty.path(), PLAIN, 1).expect("columns");
        assert_eq!(first.fields().len(), 2);
        let mixed = file(b"[{\"a\":1}, 3]");
        let refused = array_schema(mixed.path(), PLAIN, 100).expect_err("is refused");
        assert!(!refused.to_string().contains('\n'), "{refused}");
    }
}
