//! Refuses Parquet files whose footer cannot be: the `parquet` crate panics on a length that is
//! larger than the file.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::location::reason;
use super::wrong;
use crate::Result;
use crate::tables::scan::footers::{FOOTER_BYTES, fault};

/// Reads the last bytes of a file.
pub(super) fn check_footer(path: &Path) -> Result<()> {
    let shown = path.display().to_string();
    let read = || -> std::io::Result<(u64, Vec<u8>)> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let length = FOOTER_BYTES.min(bytes);
        let mut end = vec![0; length as usize];
        file.read_exact_at(&mut end, bytes - length)?;
        Ok((bytes, end))
    };
    let (bytes, end) = read().map_err(|e| wrong(&shown, reason(&e)))?;
    match fault(bytes, &end) {
        Some(fault) => Err(wrong(&shown, fault)),
        None => Ok(()),
    }
}
