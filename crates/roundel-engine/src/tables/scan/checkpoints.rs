//! What this process knows of the quotes in CSV files: whether a byte is within quotes depends on all bytes before it.
//!
//! Each file's bytes are gone over once, as far as somebody asks; what was found is kept in steps of [`STEP`] bytes.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, LazyLock};

use datafusion::object_store::ObjectMeta;
use parking_lot::Mutex;

use super::quotes::{Marks, Scanner, State};

/// Bytes between two states that are kept.
const STEP: usize = 1 << 20;

/// Most files that are remembered.
const FILES_MAX: usize = 1024;

/// The first bytes of some UTF-8 files, which are no part of their text.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file at one time, read by one set of rules.
type Key = (String, u64, i64, Marks);

static KNOWN: LazyLock<Mutex<HashMap<Key, Arc<Mutex<Progress>>>>> = LazyLock::new(Mutex::default);

/// How far a file is known.
#[derive(Debug, Default)]
struct Progress {
    /// Places, ascending, and the state behind the bytes before each.
    states: Vec<(u64, State)>,
    /// Bytes that were gone over, counted again where they were again.
    scanned: u64,
}

/// The quotes of one file.
#[derive(Debug, Clone)]
pub(super) struct Quotes {
    marks: Marks,
    progress: Arc<Mutex<Progress>>,
}

impl Quotes {
    /// What is known of a file.
    pub(super) fn of(meta: &ObjectMeta, marks: Marks) -> Self {
        let time = meta.last_modified.timestamp_nanos_opt().unwrap_or_default();
        let key = (meta.location.to_string(), meta.size, time, marks);
        let mut known = KNOWN.lock();
        if known.len() >= FILES_MAX && !known.contains_key(&key) {
            known.retain(|_, progress| Arc::strong_count(progress) > 1);
        }
        let progress = Arc::clone(known.entry(key).or_default());
        Self { marks, progress }
    }

    /// Where the first record begins at or behind `from`, if there is one. Reads the file up to there, as far as
    /// this process did not before.
    pub(super) fn first_record(&self, file: &File, from: u64) -> io::Result<Option<u64>> {
        if from == 0 {
            return Ok(Some(0));
        }
        let (mut at, state) = self.state_at(file, from - 1)?;
        let mut scanner = Scanner::new(self.marks, state);
        let mut bytes = vec![0; STEP / 16];
        loop {
            let read = file.read_at(&mut bytes, at)?;
            if read == 0 {
                return Ok(None);
            }
            if let Some(record) = scanner.find_record(&bytes[..read], 1) {
                return Ok(Some(at + record as u64));
            }
            at += read as u64;
        }
    }

    /// `at`, or where the text begins if that is behind it, and the state there.
    fn state_at(&self, file: &File, at: u64) -> io::Result<(u64, State)> {
        let mut bytes = vec![0; STEP];
        loop {
            // Let go after each step: whoever asks for an earlier place need not wait for a later one.
            let mut progress = self.progress.lock();
            if progress.states.is_empty() {
                let mut first = [0; BYTE_ORDER_MARK.len()];
                let read = file.read_at(&mut first, 0)?;
                let begin = match first[..read] == *BYTE_ORDER_MARK {
                    true => BYTE_ORDER_MARK.len() as u64,
                    false => 0,
                };
                progress.states.push((begin, State::Record));
            }
            let next = progress.states.partition_point(|(place, _)| *place <= at);
            let Some(last) = next.checked_sub(1) else {
                return Ok(progress.states[0]);
            };
            let (place, state) = progress.states[last];
            let is_last = next == progress.states.len();
            let wanted = usize::try_from(at - place).unwrap_or(STEP).min(STEP);
            if wanted < STEP || !is_last {
                drop(progress);
                let mut scanner = Scanner::new(self.marks, state);
                file.read_exact_at(&mut bytes[..wanted], place)?;
                scanner.advance(&bytes[..wanted]);
                self.progress.lock().scanned += wanted as u64;
                return Ok((at, scanner.state));
            }
            let mut scanner = Scanner::new(self.marks, state);
            file.read_exact_at(&mut bytes, place)?;
            scanner.advance(&bytes);
            progress.scanned += STEP as u64;
            progress.states.push((place + STEP as u64, scanner.state));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::common::config::CsvOptions;
    use datafusion::object_store::path::Path;
    use std::io::Write as _;

    fn quotes(text: &[u8]) -> (Quotes, File, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text).expect("writes");
        let metadata = file.as_file().metadata().expect("metadata");
        let meta = ObjectMeta {
            location: Path::from_filesystem_path(file.path()).expect("a path"),
            last_modified: metadata.modified().expect("a time").into(),
            size: metadata.len(),
            e_tag: None,
            version: None,
        };
        let opened = file.reopen().expect("opens");
        (
            Quotes::of(&meta, Marks::of(&CsvOptions::default())),
            opened,
            file,
        )
    }

    #[test]
    fn a_file_is_gone_over_once_whoever_asks() {
        let row = b"1,\"a\nb\"\n2,c\n";
        let text = row.repeat(4 * STEP / row.len());
        let (known, file, _kept) = quotes(&text);
        std::thread::scope(|scope| {
            for part in 1..8_u64 {
                let (known, file, text) = (&known, &file, &text);
                scope.spawn(move || {
                    let from = part * text.len() as u64 / 8;
                    let record = known.first_record(file, from).expect("reads").expect("one");
                    assert!(record >= from && record < from + row.len() as u64);
                    let within = record as usize % row.len();
                    assert!(within == 0 || within == 8, "{within}");
                });
            }
        });
        let scanned = known.progress.lock().scanned;
        // The whole file once, and less than a step for each who asked.
        assert!(scanned <= text.len() as u64 + 7 * STEP as u64, "{scanned}");
    }

    #[test]
    fn what_is_behind_a_byte_order_mark_may_be_quoted() {
        let (known, file, _kept) = quotes(b"\xef\xbb\xbf\"a\nb\",c\n1,2\n");
        assert_eq!(known.first_record(&file, 1).expect("reads"), Some(11));
        assert_eq!(known.first_record(&file, 12).expect("reads"), Some(15));
        assert_eq!(known.first_record(&file, 16).expect("reads"), None);
    }
}
