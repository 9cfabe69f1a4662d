//! The format of a file, by its name and its first bytes.

use std::path::Path;

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;

use super::compression::{self, first_bytes};
use super::json::is_array;
use super::wrong;
use crate::Result;

/// What a file's name, or a statement, says about its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Parquet,
    Csv,
    Tsv,
    /// Lines of JSON, or an array: its content says which.
    Json,
    Arrow,
    Avro,
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Format {
    Parquet,
    Csv,
    /// An object a line.
    Ndjson,
    /// One array of objects.
    JsonArray,
    ArrowFile,
    ArrowStream,
    Avro,
}

impl Named {
    /// By the words that statements use.
    pub(super) fn from_statement(word: &str) -> Option<Self> {
        Some(match word.to_ascii_uppercase().as_str() {
            "PARQUET" => Self::Parquet,
            "CSV" => Self::Csv,
            "TSV" => Self::Tsv,
            "JSON" | "NDJSON" | "JSONL" => Self::Json,
            "ARROW" => Self::Arrow,
            "AVRO" => Self::Avro,
            _ => return None,
        })
    }

    /// By a file's name. Some names say so only of a file that a user chose, not of one that lies
    /// in a directory.
    pub(super) fn from_path(path: &Path, chosen: bool) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let plain = match name.rsplit_once('.')? {
            (plain, "gz" | "gzip" | "zst" | "zstd" | "bz2" | "xz") => plain,
            _ => &name,
        };
        Some(match plain.rsplit_once('.')?.1 {
            "parquet" | "parq" | "pq" => Self::Parquet,
            "csv" => Self::Csv,
            "tsv" | "tab" => Self::Tsv,
            "json" | "ndjson" | "jsonl" => Self::Json,
            "arrow" | "arrows" | "ipc" | "feather" => Self::Arrow,
            "avro" => Self::Avro,
            "txt" | "tbl" | "psv" | "dat" if chosen => Self::Csv,
            _ => return None,
        })
    }

    /// By a file's first bytes, for formats that have some of their own.
    pub(super) fn from_content(path: &Path) -> Result<Option<Self>> {
        Ok(match &first_bytes(path)?[..] {
            [b'P', b'A', b'R', b'1', ..] => Some(Self::Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Some(Self::Arrow),
            [b'O', b'b', b'j', 1, ..] => Some(Self::Avro),
            _ => None,
        })
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
            Self::Tsv => "TSV",
            Self::Json => "JSON",
            Self::Arrow => "Arrow IPC",
            Self::Avro => "Avro",
        }
    }
}

/// The format and compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) format: Format,
    pub(super) compression: FileCompressionType,
}

impl Shape {
    /// Looks into a file that is not empty. A compression that a statement declares is taken as said.
    pub(super) fn of(
        path: &Path,
        named: Named,
        declared: Option<FileCompressionType>,
    ) -> Result<Self> {
        let shown = path.display().to_string();
        let compression = compression::of(&first_bytes(path)?);
        let compression = match declared {
            Some(declared) if declared != compression => {
                return Err(wrong(
                    &shown,
                    format!(
                        "is {}, not {}",
                        compression::text(compression),
                        compression::text(declared)
                    ),
                ));
            }
            _ => compression,
        };
        let is_text = matches!(named, Named::Csv | Named::Tsv | Named::Json);
        if compression.is_compressed() && !is_text {
            return Err(wrong(
                &shown,
                format!(
                    "is {}; of compressed files only CSV and JSON can be read",
                    compression::text(compression)
                ),
            ));
        }
        let format = match named {
            Named::Parquet => Format::Parquet,
            Named::Csv | Named::Tsv => Format::Csv,
            Named::Avro => match Named::from_content(path)? {
                Some(Named::Avro) => Format::Avro,
                _ => return Err(wrong(&shown, "is no Avro file, or was cut short")),
            },
            Named::Arrow => arrow_format(path)?,
            Named::Json => match is_array(path, compression)? {
                true => Format::JsonArray,
                false => Format::Ndjson,
            },
        };
        Ok(Self {
            format,
            compression,
        })
    }

    /// Of a table without a file, to which rows may be written.
    pub(super) fn of_none(named: Named, declared: Option<FileCompressionType>) -> Self {
        Self {
            format: match named {
                Named::Parquet => Format::Parquet,
                Named::Csv | Named::Tsv => Format::Csv,
                Named::Json => Format::Ndjson,
                Named::Arrow => Format::ArrowFile,
                Named::Avro => Format::Avro,
            },
            compression: declared.unwrap_or(FileCompressionType::UNCOMPRESSED),
        }
    }

    pub(super) fn text(self) -> String {
        let format = match self.format {
            Format::Parquet => "Parquet",
            Format::Csv => "CSV",
            Format::Ndjson => "JSON with an object a line",
            Format::JsonArray => "a JSON array",
            Format::ArrowFile => "an Arrow IPC file",
            Format::ArrowStream => "an Arrow IPC stream",
            Format::Avro => "Avro",
        };
        match self.compression.is_compressed() {
            true => format!("{format}, {}", compression::text(self.compression)),
            false => format.to_owned(),
        }
    }
}

fn arrow_format(path: &Path) -> Result<Format> {
    Ok(match &first_bytes(path)?[..] {
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Format::ArrowFile,
        // A message's continuation mark.
        [0xff, 0xff, 0xff, 0xff, ..] => Format::ArrowStream,
        _ => {
            return Err(wrong(
                &path.display().to_string(),
                "is no Arrow IPC file or stream, or was cut short",
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_files_hold() {
        let named = |name: &str| Named::from_path(Path::new(name), false);
        assert_eq!(named("/d/x.parquet"), Some(Named::Parquet));
        assert_eq!(named("/d/X.CSV.GZ"), Some(Named::Csv));
        assert_eq!(named("x.tsv.zst"), Some(Named::Tsv));
        assert_eq!(named("x.jsonl.bz2"), Some(Named::Json));
        assert_eq!(named("x.feather"), Some(Named::Arrow));
        assert_eq!(named("x.gz"), None);
        assert_eq!(named("README.md"), None);
        assert_eq!(named("x.tbl"), None);
        assert_eq!(Named::from_path(Path::new("x.tbl"), true), Some(Named::Csv));
    }

    #[test]
    fn content_says_how_files_are_compressed_and_what_json_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).expect("writes");
            path
        };
        let lines = write("a.json", b"\n {\"a\":1}\n");
        let shape = Shape::of(&lines, Named::Json, None).expect("JSON");
        assert_eq!(shape.format, Format::Ndjson);
        let array = write("b.json", b"\n[ {\"a\":1}]");
        let shape = Shape::of(&array, Named::Json, None).expect("JSON");
        assert_eq!(shape.format, Format::JsonArray);
        let gzip = write("d.csv", &[0x1f, 0x8b, 8, 0]);
        let shape = Shape::of(&gzip, Named::Csv, None).expect("CSV");
        assert_eq!(shape.compression, FileCompressionType::GZIP);
        let declared = Some(FileCompressionType::GZIP);
        let refused = Shape::of(&lines, Named::Csv, declared).expect_err("another");
        assert!(
            refused
                .to_string()
                .contains("is not compressed, not compressed with gzip")
        );
    }
}
