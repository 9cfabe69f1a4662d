//! Results as JSON for machines and as text for people, side by side.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;

/// Writes a report as JSON to a file, or to standard output for `-`.
pub fn write_json(report: &impl Serialize, path: &Path) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(report)
        .map_err(|e| Failure::Run(format!("cannot write the report as JSON: {e}")))?;
    text.push('\n');
    if path == Path::new("-") {
        let mut out = std::io::stdout().lock();
        return out
            .write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(Failure::output);
    }
    std::fs::write(path, text)
        .map_err(|e| Failure::Run(format!("cannot write {}: {e}", path.display())))
}

/// The text for people, written line by line as results come.
pub struct Text(Box<dyn Write>);

impl Text {
    /// Goes to standard output, or to standard error where JSON needs the former.
    pub fn new(to_stderr: bool) -> Self {
        Self(if to_stderr {
            Box::new(std::io::stderr())
        } else {
            Box::new(std::io::stdout())
        })
    }

    /// Writes a line.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.0, "{text}")
            .and_then(|()| self.0.flush())
            .map_err(Failure::output)
    }
}
