//! Refuses Parquet files whose footer cannot be: the `parquet` crate panics on a length that is
//! larger than the file.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::location::reason;
use super::wrong;
use crate::Result;

/// Metadata length, 4 bytes, and the magic bytes; the file also starts with the latter.
const FOOTER_BYTES: u64 = 8;
const MAGIC_BYTES: u64 = 4;

/// Reads the last bytes of a file.
pub(super) fn check_footer(path: &Path) -> Result<()> {
    let shown = path.display().to_string();
    let read = || -> std::io::Result<(u64, [u8; FOOTER_BYTES as usize])> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut footer = [0; FOOTER_BYTES as usize];
        if bytes >= FOOTER_BYTES + MAGIC_BYTES {
            file.read_exact_at(&mut footer, bytes - FOOTER_BYTES)?;
        }
        Ok((bytes, footer))
    };
    let (bytes, [a, b, c, d, magic @ ..]) = read().map_err(|e| wrong(&shown, reason(&e)))?;
    if &magic != b"PAR1" && &magic != b"PARE" {
        return Err(wrong(&shown, "is no Parquet file, or was cut short"));
    }
    if u64::from(u32::from_le_bytes([a, b, c, d])) > bytes - FOOTER_BYTES - MAGIC_BYTES {
        return Err(wrong(
            &shown,
            "is a corrupt Parquet file: its footer is longer than itself",
        ));
    }
    Ok(())
}
