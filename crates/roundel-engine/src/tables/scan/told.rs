//! Errors of files: which file, where in it, and why, in one short line.

use std::any::Any;
use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;

/// Longest error of a file, in bytes, without what DataFusion puts before it.
const LENGTH_MAX: usize = 360;

/// What is wrong in a file, which whoever opened it can name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct FileError(String);

impl FileError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<FileError> for DataFusionError {
    fn from(error: FileError) -> Self {
        Self::External(Box::new(error))
    }
}

/// A file's name, as users know it.
pub(super) fn name_of(store: &ObjectStoreUrl, file: &PartitionedFile) -> String {
    let location = file.object_meta.location.as_ref();
    match store.as_str().strip_prefix("file://") {
        Some(_) => format!("/{location}"),
        None => format!("{}{location}", store.as_str()),
    }
}

/// Who reads files in this process, if it is a worker: part of a session's configuration.
#[derive(Debug)]
pub(crate) struct ReadBy(pub(crate) String);

/// What errors say of a file.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// The file's name.
    pub(super) name: Arc<str>,
    /// The bytes that are read, if not all.
    pub(super) range: Option<(i64, i64)>,
    /// The worker that reads it.
    pub(super) by: Option<Arc<ReadBy>>,
}

impl Told {
    /// That the file is not the one that was planned.
    pub(super) fn changed(&self) -> DataFusionError {
        let told = format!("{} changed while the query ran: run it again", self.name);
        DataFusionError::Execution(format!("{told}{}", self.on_worker()))
    }

    /// The same error, but naming the file, unless it has nothing to do with files.
    pub(super) fn of(&self, error: DataFusionError) -> DataFusionError {
        if is_of_query(error.find_root()) {
            return error;
        }
        let mut reason = reason(&error);
        let is_of_host = matches!(
            error.find_root(),
            DataFusionError::ObjectStore(_) | DataFusionError::IoError(_)
        );
        if is_of_host {
            reason.push_str(&self.on_worker());
        }
        if reason.starts_with(self.name.as_ref()) {
            return DataFusionError::Execution(clip(&reason));
        }
        let place = match self.range {
            Some((start, end)) if !is_own(&error) && !is_of_host => {
                format!(" (bytes {start} to {end})")
            }
            _ => String::new(),
        };
        DataFusionError::Execution(clip(&format!("{}{place}: {reason}", self.name)))
    }

    /// That the file's reader panicked.
    pub(super) fn of_panic(&self, panic: &(dyn Any + Send)) -> DataFusionError {
        let told = panic.downcast_ref::<String>().map(String::as_str);
        let told = told.or_else(|| panic.downcast_ref::<&str>().copied());
        let told = one_line(told.unwrap_or("for no reason that it gave"));
        let reason = format!("{}: cannot be read, its reader stopped: {told}", self.name);
        DataFusionError::Execution(clip(&reason))
    }

    fn on_worker(&self) -> String {
        let on = |by: &Arc<ReadBy>| format!(" (on worker {})", by.0);
        self.by.as_ref().map(on).unwrap_or_default()
    }
}

/// Errors of expressions, of memory, of plans.
fn is_of_query(root: &DataFusionError) -> bool {
    match root {
        DataFusionError::ArrowError(error, _) => matches!(
            error.as_ref(),
            ArrowError::DivideByZero
                | ArrowError::ArithmeticOverflow(_)
                | ArrowError::CastError(_)
                | ArrowError::ComputeError(_)
        ),
        DataFusionError::ResourcesExhausted(_)
        | DataFusionError::Plan(_)
        | DataFusionError::Configuration(_)
        | DataFusionError::SchemaError(..) => true,
        _ => false,
    }
}

fn is_own(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::External(error) => error.is::<FileError>(),
        _ => false,
    }
}

/// What is wrong, without the names of those who passed it on.
fn reason(error: &DataFusionError) -> String {
    if let DataFusionError::ObjectStore(error) = error.find_root()
        && let datafusion::object_store::Error::NotFound { .. } = error.as_ref()
    {
        return "no such file".to_owned();
    }
    let text = one_line(&error.strip_backtrace());
    let mut text = text.as_str();
    const PASSED_ON_BY: [&str; 16] = [
        "Arrow error: ",
        "Avro error: ",
        "Csv error: ",
        "EOF: ",
        "Execution error: ",
        "External error: ",
        "External: ",
        "Generic LocalFileSystem error: ",
        "Io error: ",
        "IO error: ",
        "Ipc error: ",
        "Json error: ",
        "Object Store error: ",
        "Parquet argument error: ",
        "Parquet error: ",
        "Parser error: ",
    ];
    while let Some(rest) = PASSED_ON_BY.iter().find_map(|by| text.strip_prefix(by)) {
        text = rest;
    }
    text.to_owned()
}

fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_control() || c == ' ');
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn clip(text: &str) -> String {
    match text.len() <= LENGTH_MAX {
        true => text.to_owned(),
        false => format!(
            "{}…",
            &text[..text.floor_char_boundary(LENGTH_MAX - '…'.len_utf8())]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, error: DataFusionError) -> DataFusionError {
        let by = Some(Arc::new(ReadBy("http://h:1/".to_owned())));
        let told = Told {
            name: name.into(),
            range: Some((4, 9)),
            by,
        };
        told.of(error)
    }

    #[test]
    fn an_error_names_its_file_in_one_short_line() {
        let long = format!("Parquet argument error: EOF: bad\n\n{}", "ä".repeat(400));
        let error = told("/d/x.parquet", DataFusionError::Execution(long)).strip_backtrace();
        assert!(
            error.starts_with("Execution error: /d/x.parquet (bytes 4 to 9): bad ää"),
            "{error}"
        );
        assert!(error.len() <= 400 && !error.contains('\n'), "{error}");
        let error = told("/d/x.csv", FileError::new("line 7: no number").into());
        assert_eq!(
            error.strip_backtrace(),
            "Execution error: /d/x.csv: line 7: no number"
        );
        let missing = datafusion::object_store::Error::NotFound {
            path: "d/x.csv".to_owned(),
            source: "none".into(),
        };
        assert_eq!(
            told("/d/x.csv", missing.into()).strip_backtrace(),
            "Execution error: /d/x.csv: no such file (on worker http://h:1/)"
        );
    }

    #[test]
    fn what_has_nothing_to_do_with_files_stays_as_it_is() {
        let error = told("/d/x.csv", ArrowError::DivideByZero.into()).strip_backtrace();
        assert!(!error.contains("/d/x.csv"), "{error}");
        let error = DataFusionError::ResourcesExhausted("none left".to_owned());
        assert!(matches!(
            told("/d/x.csv", error),
            DataFusionError::ResourcesExhausted(_)
        ));
    }
}
