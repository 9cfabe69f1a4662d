//! What a path names: a file, a directory, or the files that a pattern matches.
//!
//! This module must not know what is in the files.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use datafusion::datasource::listing::ListingTableUrl;
use url::Url;

use super::wrong;
use crate::Result;

/// A file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
    /// The directories named `key=value` between the table's root and the file.
    pub(super) keys: Vec<(String, String)>,
}

/// Where the files of a table are, by an absolute path: the workers may run in another directory.
#[derive(Debug)]
pub(super) struct Location {
    /// As the user wrote it, for messages.
    asked: String,
    /// The file, the directory, or the directory in which the pattern starts.
    root: PathBuf,
    /// What each name below the root must match; empty without a pattern.
    pattern: Vec<Segment>,
}

/// One name of a pattern.
#[derive(Debug)]
struct Segment {
    text: String,
    /// DataFusion's patterns are those of the `glob` crate, but come as part of a URL only.
    matcher: ListingTableUrl,
}

impl Segment {
    fn new(text: &str) -> Result<Self> {
        let matcher = ListingTableUrl::parse("file:///")
            .and_then(|url| url.with_glob(text))
            .map_err(|_| wrong(text, "is no valid pattern"))?;
        Ok(Self {
            text: text.to_owned(),
            matcher,
        })
    }

    /// Any number of directories.
    fn is_deep(&self) -> bool {
        self.text == "**"
    }

    fn matches(&self, name: &str) -> bool {
        let glob = self.matcher.get_glob();
        let shown = !is_hidden(name) || self.text.starts_with(['.', '_']);
        shown && glob.as_ref().is_some_and(|glob| glob.matches(name))
    }
}

/// Files and directories without data, which writers leave beside it.
fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_']) || name.ends_with(".crc")
}

fn has_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

impl Location {
    /// Understands a path, a pattern or a `file:` URL.
    pub(super) fn parse(asked: &str) -> Result<Self> {
        let path = match asked.starts_with("file:") {
            true => Url::parse(asked)
                .ok()
                .and_then(|url| url.to_file_path().ok())
                .ok_or_else(|| wrong(asked, "is no valid URL of a local file"))?,
            false => PathBuf::from(asked),
        };
        let text = path
            .to_str()
            .ok_or_else(|| wrong(asked, "the path is not UTF-8"))?;
        // A file whose very name has such characters comes before a pattern.
        if !has_pattern(text) || fs::symlink_metadata(&path).is_ok() {
            return Ok(Self {
                asked: asked.to_owned(),
                root: absolute(&path).map_err(|e| wrong(asked, e))?,
                pattern: Vec::new(),
            });
        }
        let names: Vec<&str> = text.split('/').collect();
        let fixed = names.iter().take_while(|name| !has_pattern(name)).count();
        let root = match names[..fixed].join("/") {
            empty if empty.is_empty() && text.starts_with('/') => "/".to_owned(),
            empty if empty.is_empty() => ".".to_owned(),
            root => root,
        };
        let pattern = names[fixed..].iter().filter(|name| !name.is_empty());
        Ok(Self {
            asked: asked.to_owned(),
            root: fs::canonicalize(&root)
                .map_err(|e| wrong(asked, format!("{root}: {}", reason(&e))))?,
            pattern: pattern
                .map(|name| Segment::new(name))
                .collect::<Result<_>>()?,
        })
    }

    /// As the user wrote it.
    pub(super) fn asked(&self) -> &str {
        &self.asked
    }

    /// The directory that a writer of the table adds files to, or its only file.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the path names one file.
    pub(super) fn is_file(&self) -> bool {
        self.pattern.is_empty() && !self.root.is_dir() && !self.asked.ends_with('/')
    }

    pub(super) fn is_pattern(&self) -> bool {
        !self.pattern.is_empty()
    }

    /// Whether there is nothing at the path yet, or an empty directory, which rows may be written to.
    pub(super) fn is_vacant(&self) -> bool {
        let names_directory = self.asked.ends_with('/') && !self.root.exists();
        let is_empty = || fs::read_dir(&self.root).is_ok_and(|mut all| all.next().is_none());
        self.pattern.is_empty() && (names_directory || is_empty())
    }

    /// All files, in the order of their paths.
    pub(super) fn list(&self, subdirectories: bool) -> Result<Vec<FoundFile>> {
        let mut walk = Walk {
            asked: &self.asked,
            subdirectories,
            open: Vec::new(),
            keys: Vec::new(),
            found: Vec::new(),
        };
        if self.pattern.is_empty() {
            let metadata = fs::metadata(&self.root)
                .map_err(|e| wrong(&self.root.display().to_string(), reason(&e)))?;
            match metadata.is_dir() {
                true => walk.directory(&self.root, &metadata)?,
                false => walk.file(&self.root, &metadata)?,
            }
        } else {
            walk.matching(&self.root, &self.pattern)?;
        }
        walk.found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        walk.found.dedup_by(|a, b| a.path == b.path);
        Ok(walk.found)
    }
}

/// A walk through the directories of a table.
struct Walk<'a> {
    asked: &'a str,
    /// Whether to enter directories that are not named `key=value`.
    subdirectories: bool,
    /// The directories that the walk is in, by device and inode.
    open: Vec<(u64, u64)>,
    keys: Vec<(String, String)>,
    found: Vec<FoundFile>,
}

impl Walk<'_> {
    fn file(&mut self, path: &Path, metadata: &Metadata) -> Result<()> {
        let shown = path.display().to_string();
        let kind = metadata.file_type();
        let other = match () {
            () if kind.is_fifo() => Some("a FIFO"),
            () if kind.is_socket() => Some("a socket"),
            () if kind.is_char_device() || kind.is_block_device() => Some("a device"),
            () => None,
        };
        if let Some(other) = other {
            return Err(wrong(
                &shown,
                format!(
                    "is {other}, which cannot be read twice or by several workers; give a file"
                ),
            ));
        }
        self.found.push(FoundFile {
            path: path.to_owned(),
            bytes: metadata.len(),
            modified: metadata.modified().map_err(|e| wrong(&shown, reason(&e)))?,
            keys: self.keys.clone(),
        });
        Ok(())
    }

    /// What is in a directory, but for what is hidden.
    fn entries(&self, path: &Path) -> Result<Vec<(PathBuf, String, Metadata)>> {
        let failed = |at: &Path, e: &std::io::Error| wrong(&at.display().to_string(), reason(e));
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(|e| failed(path, &e))? {
            let path = entry.map_err(|e| failed(path, &e))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(wrong(&path.display().to_string(), "the name is not UTF-8"));
            };
            let name = name.to_owned();
            let metadata = match fs::metadata(&path) {
                Ok(metadata) => metadata,
                Err(_) if is_hidden(&name) => continue,
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                    return Err(self.loops(&path));
                }
                Err(e) => return Err(failed(&path, &e)),
            };
            entries.push((path, name, metadata));
        }
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    fn loops(&self, path: &Path) -> crate::EngineError {
        wrong(
            self.asked,
            format!("the directory {} leads back to itself", path.display()),
        )
    }

    fn enter(&mut self, path: &Path, metadata: &Metadata) -> Result<()> {
        let identity = (metadata.dev(), metadata.ino());
        if self.open.contains(&identity) {
            return Err(self.loops(path));
        }
        self.open.push(identity);
        Ok(())
    }

    fn directory(&mut self, path: &Path, metadata: &Metadata) -> Result<()> {
        self.enter(path, metadata)?;
        for (path, name, metadata) in self.entries(path)? {
            if name == "_delta_log" {
                return Err(wrong(
                    self.asked,
                    "is a Delta Lake table, whose log says which of its files count; Roundel cannot \
                     read that log: give a pattern such as 'dir/*.parquet' to read all files",
                ));
            }
            if is_hidden(&name) {
                continue;
            }
            if !metadata.is_dir() {
                self.file(&path, &metadata)?;
                continue;
            }
            let key = key_of(&name);
            if key.is_none() && !self.subdirectories {
                continue;
            }
            let depth = self.keys.len();
            self.keys.extend(key);
            self.directory(&path, &metadata)?;
            self.keys.truncate(depth);
        }
        self.open.pop();
        Ok(())
    }

    fn matching(&mut self, path: &Path, pattern: &[Segment]) -> Result<()> {
        let Some((first, rest)) = pattern.split_first() else {
            return Ok(());
        };
        let metadata =
            fs::metadata(path).map_err(|e| wrong(&path.display().to_string(), reason(&e)))?;
        self.enter(path, &metadata)?;
        for (path, name, metadata) in self.entries(path)? {
            let depth = self.keys.len();
            if metadata.is_dir() {
                self.keys.extend(key_of(&name));
                if first.is_deep() && !is_hidden(&name) {
                    self.matching(&path, pattern)?;
                } else if first.matches(&name) && !rest.is_empty() {
                    self.matching(&path, rest)?;
                }
                self.keys.truncate(depth);
            } else if rest.is_empty() && first.matches(&name) {
                self.file(&path, &metadata)?;
            }
        }
        self.open.pop();
        // No directory at all is any number, too.
        if first.is_deep() && !rest.is_empty() {
            self.matching(path, rest)?;
        }
        Ok(())
    }
}

/// What `key=value` says.
fn key_of(name: &str) -> Option<(String, String)> {
    let (key, value) = name.split_once('=')?;
    (!key.is_empty()).then(|| (decoded(key), decoded(value)))
}

/// Writers write characters that a name must not have as `%` and two hexadecimal digits.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(plain).unwrap_or_else(|_| text.to_owned())
}

/// An absolute path whose last name is the given one: it says what the file holds, and a link's target may not.
fn absolute(path: &Path) -> std::result::Result<PathBuf, String> {
    if path.is_dir() {
        return fs::canonicalize(path).map_err(|e| reason(&e));
    }
    let (parent, name) = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
        (Some(parent), Some(name)) => (parent, name),
        _ => return Err("is no path of a file".to_owned()),
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(parent.join(name)),
        // A directory that is to be written to need not be there, nor its parents.
        Err(_) => std::path::absolute(path).map_err(|e| reason(&e)),
    }
}

/// The system's reason, without its number.
pub(super) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(location: &str, subdirectories: bool) -> Vec<String> {
        let found = Location::parse(location).expect("a location");
        let found = found.list(subdirectories).expect("files");
        let name = |file: &FoundFile| file.path.file_name().expect("a name").to_owned();
        let names = found.iter().map(name);
        names
            .map(|name| name.into_string().expect("UTF-8"))
            .collect()
    }

    #[test]
    fn directories_patterns_and_keys() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for sub in ["y=1", "y=2", "other"] {
            fs::create_dir(at(sub)).expect("a directory");
        }
        for name in [
            "a.csv",
            "b.csv",
            "c.json",
            "_SUCCESS",
            ".hidden.csv",
            ".a.csv.crc",
            "y=1/d.csv",
            "y=2/e.csv",
            "other/f.csv",
        ] {
            fs::write(at(name), "x").expect("a file");
        }
        let root = dir.path().to_str().expect("UTF-8");
        assert_eq!(
            names(root, false),
            ["a.csv", "b.csv", "c.json", "d.csv", "e.csv"]
        );
        assert_eq!(
            names(root, true),
            ["a.csv", "b.csv", "c.json", "f.csv", "d.csv", "e.csv"]
        );
        assert_eq!(names(&format!("{root}/*.csv"), false), ["a.csv", "b.csv"]);
        assert_eq!(names(&format!("{root}/[bc].*"), false), ["b.csv", "c.json"]);
        assert_eq!(
            names(&format!("{root}/y=*/?.csv"), false),
            ["d.csv", "e.csv"]
        );
        assert_eq!(
            names(&format!("{root}/**/*.csv"), false),
            ["a.csv", "b.csv", "f.csv", "d.csv", "e.csv"]
        );
        let keyed = Location::parse(&format!("{root}/**/e.csv")).expect("a location");
        let keyed = keyed.list(false).expect("files");
        assert_eq!(keyed[0].keys, [("y".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().to_str().expect("UTF-8").to_owned();
        let refusal = |path: &str| {
            let listed = Location::parse(path).and_then(|found| found.list(true));
            listed.expect_err("a refusal").to_string()
        };
        let missing = refusal(&format!("{root}/none.csv"));
        assert!(
            missing.contains("none.csv: there is no such file"),
            "{missing}"
        );
        assert!(missing.starts_with('/'), "{missing}");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("y=1")).expect("a link");
        assert!(refusal(&root).contains("leads back to itself"));
        assert!(refusal(&format!("{root}/**/*.csv")).contains("leads back to itself"));
        fs::remove_file(dir.path().join("y=1")).expect("removes");
        let fifo = dir.path().join("p.csv");
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        );
        made.expect("a FIFO");
        assert!(refusal(&root).contains("is a FIFO"));
    }

    #[test]
    fn percent_codes_are_read() {
        assert_eq!(decoded("a%2Fb%20c"), "a/b c");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("Größe%zz"), "Größe%zz");
    }
}
