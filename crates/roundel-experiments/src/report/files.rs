//! The files of a report: `report.json`, `report.csv`, `report.html`, and one SVG for each figure.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::check::{CheckError, check};
use super::{to_csv, to_html, to_json, to_svg};
use crate::outcome::Report;

/// Why the files were not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The report cannot be shown.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The system does not let it be written.
    #[error("cannot write {}: {source}; name a directory that can be written to", path.display())]
    File {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes `report.json`, `report.csv`, `report.html` and `ID.svg` for each figure to `directory`, which is
/// made where it does not exist. Each file is replaced as a whole: who reads it at the same time sees
/// what was there before, or all that there is after.
///
/// # Errors
/// When the report cannot be shown, with nothing written; or when a file cannot be written.
pub fn write(report: &Report, directory: &Path) -> Result<(), WriteError> {
    check(report)?;
    fs::create_dir_all(directory).map_err(|source| WriteError::File {
        path: directory.to_owned(),
        source,
    })?;
    for figure in report.figures() {
        replace(directory, &format!("{}.svg", figure.id), &to_svg(figure))?;
    }
    replace(directory, "report.json", &to_json(report))?;
    replace(directory, "report.csv", &to_csv(report))?;
    replace(directory, "report.html", &to_html(report))
}

/// Writes a file, of which nobody ever sees a part.
pub(crate) fn replace(directory: &Path, name: &str, content: &str) -> Result<(), WriteError> {
    let path = directory.join(name);
    let written = || -> io::Result<()> {
        // Others may read it, as they may any file that is made here; the process' mask is kept.
        let permissions = Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new()
            .permissions(permissions)
            .tempfile_in(directory)?;
        file.write_all(content.as_bytes())?;
        file.persist(&path)?;
        Ok(())
    };
    written().map_err(|source| WriteError::File {
        path: path.clone(),
        source,
    })
}
