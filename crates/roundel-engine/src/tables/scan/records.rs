//! Reads the records of a range of a CSV file: those whose first byte is in it.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

use arrow::array::RecordBatch;
use arrow::csv::reader::{Decoder, Format};
use arrow::error::ArrowError;
use bytes::{Buf as _, Bytes};
use datafusion::common::config::CsvOptions;
use datafusion::error::{DataFusionError, Result};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use super::checkpoints::BYTE_ORDER_MARK;
use super::layout::Layout;
use super::quotes::{Marks, Scanner, State};
use super::told::FileError;

/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;

/// What a file's bytes come from, decompressed.
pub(super) enum Input {
    /// A file of this host.
    Read(Box<dyn Read + Send>),
    /// An object of a store.
    Stream(BoxStream<'static, Result<Bytes>>),
}

/// The records of a range, as they come.
pub(super) struct Records {
    input: Input,
    layout: Layout,
    decoder: Decoder,
    scanner: Scanner,
    chunk: Bytes,
    /// Where the next chunk begins in the file.
    position: u64,
    /// The range ends with the first record that begins here or behind.
    end: Option<u64>,
    /// There is no other chunk.
    ended: bool,
}

impl Records {
    /// Those that begin at `start`, where a record does, and before `end`; all that follow, if that is `None`.
    pub(super) fn new(
        input: Input,
        layout: Layout,
        decoder: Decoder,
        marks: Marks,
        start: u64,
        end: Option<u64>,
    ) -> Self {
        // An empty line, which is no record: a file may begin with a byte order mark, but a later part may not.
        let chunk = match start {
            0 => Bytes::new(),
            _ => Bytes::copy_from_slice(&[marks.empty_line()]),
        };
        let mut records = Self {
            input,
            layout,
            decoder,
            scanner: Scanner::new(marks, State::Record),
            chunk,
            position: start,
            end,
            ended: false,
        };
        records.end_between();
        records
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The next rows.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.chunk.is_empty() && !self.ended {
                self.fill().await?;
            }
            let decoded = self.decoder.decode(&self.chunk)?;
            self.chunk.advance(decoded);
            if decoded > 0 && self.decoder.capacity() > 0 {
                continue;
            }
            if let Some(records) = self.decoder.flush()? {
                return Ok(Some(self.layout.rows(&records)?));
            }
            if self.ended && self.chunk.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Whether the range ended with the last chunk.
    fn end_between(&mut self) {
        let is_behind = self.end.is_some_and(|end| end <= self.position);
        self.ended |= is_behind && self.scanner.state == State::Record;
    }

    async fn fill(&mut self) -> Result<()> {
        let mut chunk = match &mut self.input {
            Input::Read(read) => read_chunk(read.as_mut(), CHUNK)?,
            Input::Stream(stream) => stream.next().await.transpose()?.unwrap_or_default(),
        };
        if chunk.is_empty() {
            self.ended = true;
            return match self.scanner.is_open() {
                true => Err(FileError::new(
                    "a quote is opened, but not closed before the file ends",
                )
                .into()),
                false => Ok(()),
            };
        }
        let read = chunk.len() as u64;
        if self.position == 0 && chunk.starts_with(BYTE_ORDER_MARK) {
            chunk.advance(BYTE_ORDER_MARK.len());
        }
        let begin = self.position + read - chunk.len() as u64;
        self.position += read;
        match self.end {
            Some(end) if end <= self.position => {
                let from = usize::try_from(end.saturating_sub(begin)).unwrap_or(usize::MAX);
                if let Some(cut) = self.scanner.find_record(&chunk, from.max(1)) {
                    chunk.truncate(cut);
                    self.ended = true;
                }
            }
            _ => self.scanner.advance(&chunk),
        }
        self.chunk = chunk;
        Ok(())
    }
}

/// As many bytes as there are, up to `most`.
fn read_chunk(read: &mut dyn Read, most: usize) -> io::Result<Bytes> {
    let mut chunk = Vec::with_capacity(most);
    read.take(most as u64).read_to_end(&mut chunk)?;
    Ok(chunk.into())
}

/// The names in the first line of a file.
pub(crate) fn header(options: &CsvOptions, begin: impl Read) -> Result<Vec<String>, ArrowError> {
    let (schema, _) = format(options)
        .with_header(true)
        .infer_schema(begin, Some(0))?;
    let names = schema.fields().iter().map(|field| field.name().clone());
    Ok(names.collect())
}

/// The rules that separate fields.
pub(super) fn format(options: &CsvOptions) -> Format {
    let mut format = Format::default()
        .with_delimiter(options.delimiter)
        .with_quote(options.quote)
        .with_truncated_rows(options.truncated_rows.unwrap_or(false));
    if let Some(terminator) = options.terminator {
        format = format.with_terminator(terminator);
    }
    if let Some(escape) = options.escape {
        format = format.with_escape(escape);
    }
    if let Some(comment) = options.comment {
        format = format.with_comment(comment);
    }
    format
}

/// Where a record is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first byte.
    pub(super) byte: u64,
    /// Its first line, from 1.
    pub(super) line: u64,
}

/// Where record `number`, from 1, of those at and behind `start` is, in a file that is read from its beginning.
pub(super) fn place_of(
    mut file: impl Read,
    marks: Marks,
    start: u64,
    number: u64,
) -> io::Result<Option<Place>> {
    let (mut at, mut lines, mut returns, mut records) = (0, 0, 0, 0);
    let mut scanner = Scanner::new(marks, State::Record);
    loop {
        let chunk = read_chunk(&mut file, CHUNK)?;
        if chunk.is_empty() {
            return Ok(None);
        }
        let skipped = match at {
            0 if chunk.starts_with(BYTE_ORDER_MARK) => BYTE_ORDER_MARK.len(),
            _ => 0,
        };
        for (index, byte) in chunk.iter().enumerate().skip(skipped) {
            let place = at + index as u64;
            if place >= start && scanner.step(*byte) {
                records += 1;
                if records == number {
                    // Files of old have no line feeds.
                    let ended = if lines == 0 { returns } else { lines };
                    let line = ended + 1;
                    return Ok(Some(Place { byte: place, line }));
                }
            }
            lines += u64::from(*byte == b'\n');
            returns += u64::from(*byte == b'\r');
        }
        at += chunk.len() as u64;
    }
}

/// What `arrow` says about a record, and which of those that a decoder was given it is, from 1.
pub(super) fn wrong_record(error: &DataFusionError, layout: &Layout) -> Option<(u64, String)> {
    let DataFusionError::ArrowError(error, _) = error else {
        return None;
    };
    let text = match error.as_ref() {
        ArrowError::CsvError(text) | ArrowError::ParseError(text) => text,
        _ => return None,
    };
    // Those of a whole record are counted from 1, those of values from 0.
    let (mark, first) = match text.contains(" for line ") {
        true => (" for line ", 0),
        false => (" at line ", 1),
    };
    let (what, rest) = text.split_once(mark)?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let number: u64 = rest[..digits].parse().ok()?;
    let rest = match what.starts_with("Error") {
        // The text of the whole row, which may be long.
        true => "",
        false => &rest[digits..],
    };
    let mut what = what.replace("Error while parsing value", "cannot read");
    if let Some((before, column)) = what.clone().split_once(" for column ")
        && let Ok(column) = column.parse::<usize>()
        && let Some(field) = layout.file.fields().get(column)
    {
        what = format!("{before} in column {}", field.name());
    }
    let rest = rest.replace(" and field ", " in field ");
    Some((number + first, format!("{what}{rest}")))
}

/// A file from a place on.
pub(super) fn from(mut file: &File, start: u64) -> io::Result<&File> {
    file.seek(SeekFrom::Start(start))?;
    Ok(file)
}
