//! Tables in Parquet and CSV files.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionContext};

use crate::{EngineError, Result};

/// What a file holds, by its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Parquet,
    Csv,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "parquet" => Some(Self::Parquet),
            "csv" => Some(Self::Csv),
            _ => None,
        }
    }
}

/// Registers a file, or a directory of files of one format, as a table.
pub(crate) async fn register(context: &SessionContext, name: &str, path: &str) -> Result<()> {
    let wrong = |reason: String| EngineError::Usage(format!("table {name}: {path}: {reason}"));
    // The workers may run in another directory.
    let absolute = std::fs::canonicalize(path).map_err(|e| wrong(e.to_string()))?;
    let format = format(&absolute).map_err(wrong)?;
    if format == Format::Parquet {
        check_footers(&absolute).map_err(wrong)?;
    }
    let absolute = absolute
        .to_str()
        .ok_or_else(|| wrong("the path is not UTF-8".to_owned()))?;
    context.deregister_table(name)?;
    match format {
        Format::Parquet => {
            let options = ParquetReadOptions::default();
            context.register_parquet(name, absolute, options).await
        }
        Format::Csv => {
            context
                .register_csv(name, absolute, CsvReadOptions::default())
                .await
        }
    }
    .map_err(|e| EngineError::Query(format!("table {name}: {path}: {}", EngineError::from(e))))
}

/// Refuses Parquet files whose footer cannot be: the `parquet` crate panics on a length that is
/// larger than the file.
fn check_footers(path: &Path) -> Result<(), String> {
    if !path.is_dir() {
        return check_footer(path);
    }
    for entry in std::fs::read_dir(path)
        .map_err(|e| e.to_string())?
        .flatten()
    {
        let file = entry.path();
        if Format::of(&file) == Some(Format::Parquet) {
            check_footer(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
    }
    Ok(())
}

fn check_footer(path: &Path) -> Result<(), String> {
    // Metadata length, 4 bytes, and the magic bytes; the file also starts with the latter.
    const FOOTER_BYTES: u64 = 8;
    const MAGIC_BYTES: u64 = 4;
    let read = || -> std::io::Result<(u64, [u8; FOOTER_BYTES as usize])> {
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut footer = [0; FOOTER_BYTES as usize];
        if bytes >= FOOTER_BYTES + MAGIC_BYTES {
            file.seek(SeekFrom::End(-(FOOTER_BYTES as i64)))?;
            file.read_exact(&mut footer)?;
        }
        Ok((bytes, footer))
    };
    let (file_bytes, [a, b, c, d, magic @ ..]) = read().map_err(|e| e.to_string())?;
    if &magic != b"PAR1" && &magic != b"PARE" {
        return Err("is no Parquet file, or was cut short".to_owned());
    }
    if u64::from(u32::from_le_bytes([a, b, c, d])) > file_bytes - FOOTER_BYTES - MAGIC_BYTES {
        return Err("is a corrupt Parquet file: its footer is longer than itself".to_owned());
    }
    Ok(())
}

fn format(path: &Path) -> Result<Format, String> {
    if !path.is_dir() {
        return Format::of(path).ok_or_else(|| "is neither .parquet nor .csv".to_owned());
    }
    let entries = std::fs::read_dir(path).map_err(|e| e.to_string())?;
    let mut formats: Vec<Format> = entries
        .flatten()
        .filter_map(|entry| Format::of(&entry.path()))
        .collect();
    formats.dedup();
    match formats[..] {
        [] => Err("the directory holds neither .parquet nor .csv files".to_owned()),
        [format] => Ok(format),
        _ => Err("the directory mixes .parquet and .csv files".to_owned()),
    }
}
