//! Finds the files of a table: those of one format among what is at its locations.

use std::path::Path;

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;

use super::format::{Format, Named, Shape};
use super::location::{FoundFile, Location};
use super::parquet::check_footer;
use super::wrong;
use crate::Result;

/// Which of the files at a table's locations are its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    /// The format of the files, by their names or by a statement.
    pub(super) named: Named,
    /// Whether files count whose names say nothing.
    unnamed: bool,
}

/// All files at the locations, hidden ones aside.
pub(super) fn list(locations: &[Location], subdirectories: bool) -> Result<Vec<FoundFile>> {
    let mut files = Vec::new();
    for location in locations {
        files.extend(location.list(subdirectories)?);
    }
    let mut seen = std::collections::HashSet::new();
    files.retain(|file| seen.insert(file.path.clone()));
    Ok(files)
}

/// Whether a user chose files rather than a directory.
fn chosen(locations: &[Location]) -> bool {
    locations
        .iter()
        .all(|location| location.is_file() || location.is_pattern())
}

impl Choice {
    /// Finds out which files are the table's.
    pub(super) fn of(
        asked: &str,
        locations: &[Location],
        files: &[FoundFile],
        stated: Option<Named>,
    ) -> Result<Option<Self>> {
        let chosen = chosen(locations);
        let named = |file: &FoundFile| Named::from_path(&file.path, chosen);
        if let Some(stated) = stated {
            // Where a user chose files and says what they are, their names do not matter.
            let is_stated = |file: &FoundFile| same(named(file), stated);
            let unnamed = chosen || !files.iter().any(is_stated);
            return Ok(Some(Self {
                named: stated,
                unnamed,
            }));
        }
        let mut first: Option<(&FoundFile, Named)> = None;
        for file in files {
            let Some(named) = named(file) else { continue };
            match first {
                None => first = Some((file, named)),
                Some((_, had)) if had == named => {}
                Some((other, had)) => {
                    return Err(wrong(
                        asked,
                        format!(
                            "mixes formats: {} is {}, {} is {}; name those of one format, as in 'dir/*.csv'",
                            other.path.display(),
                            had.text(),
                            file.path.display(),
                            named.text()
                        ),
                    ));
                }
            }
        }
        if let Some((_, named)) = first {
            return Ok(Some(Self {
                named,
                unnamed: false,
            }));
        }
        for file in files.iter().filter(|file| file.bytes > 0) {
            if let Some(named) = Named::from_content(&file.path)? {
                return Ok(Some(Self {
                    named,
                    unnamed: true,
                }));
            }
        }
        Ok(None)
    }

    /// The table's own files.
    pub(super) fn select(self, locations: &[Location], files: Vec<FoundFile>) -> Vec<FoundFile> {
        let chosen = chosen(locations);
        let is_own = |file: &FoundFile| match Named::from_path(&file.path, chosen) {
            Some(named) => chosen && self.unnamed || same(Some(named), self.named),
            None => self.unnamed,
        };
        files.into_iter().filter(is_own).collect()
    }

    /// Checks a file that the table has, and drops it if it is empty and may be.
    pub(super) fn check(
        self,
        file: &FoundFile,
        declared: Option<FileCompressionType>,
    ) -> Result<Option<Shape>> {
        if file.bytes == 0 {
            return match self.named {
                Named::Csv | Named::Tsv | Named::Json => Ok(None),
                named => Err(wrong(
                    &file.path.display().to_string(),
                    format!("has 0 bytes, which is no {} file", named.text()),
                )),
            };
        }
        let shape = Shape::of(&file.path, self.named, declared)?;
        if shape.format == Format::Parquet {
            check_footer(&file.path)?;
        }
        Ok(Some(shape))
    }
}

/// TSV is CSV when somebody says so.
fn same(named: Option<Named>, wanted: Named) -> bool {
    match (named, wanted) {
        (Some(Named::Csv | Named::Tsv), Named::Csv) => true,
        (named, wanted) => named == Some(wanted),
    }
}

/// Refuses a file that is unlike the first one.
pub(super) fn same_shape(
    asked: &str,
    first: Option<(&Path, Shape)>,
    path: &Path,
    shape: Shape,
) -> Result<()> {
    match first {
        Some((other, had)) if had != shape => Err(wrong(
            asked,
            format!(
                "mixes formats: {} is {}, {} is {}; make a table of each",
                other.display(),
                had.text(),
                path.display(),
                shape.text()
            ),
        )),
        _ => Ok(()),
    }
}
