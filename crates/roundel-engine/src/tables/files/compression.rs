//! The compression of a file, by its first bytes, and reading through it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;

use super::location::reason;
use super::wrong;
use crate::Result;

pub(super) fn text(compression: FileCompressionType) -> &'static str {
    match compression {
        FileCompressionType::GZIP => "compressed with gzip",
        FileCompressionType::ZSTD => "compressed with zstd",
        FileCompressionType::BZIP2 => "compressed with bzip2",
        FileCompressionType::XZ => "compressed with xz",
        _ => "not compressed",
    }
}

pub(super) fn of(bytes: &[u8]) -> FileCompressionType {
    match bytes {
        [0x1f, 0x8b, ..] => FileCompressionType::GZIP,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => FileCompressionType::ZSTD,
        // The fourth is the size of the blocks, and then comes the first block's mark.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => FileCompressionType::BZIP2,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => FileCompressionType::XZ,
        _ => FileCompressionType::UNCOMPRESSED,
    }
}

/// A file's first bytes, which say what it is.
pub(super) fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    const BYTES: u64 = 16;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES).read_to_end(&mut bytes))
        .map_err(|e| wrong(&path.display().to_string(), reason(&e)))?;
    Ok(bytes)
}

/// Opens a file, and reads through its compression.
pub(super) fn open(path: &Path, compression: FileCompressionType) -> Result<Box<dyn Read + Send>> {
    let shown = path.display().to_string();
    let file = File::open(path).map_err(|e| wrong(&shown, reason(&e)))?;
    compression
        .convert_read(file)
        .map_err(|e| wrong(&shown, e.strip_backtrace()))
}
