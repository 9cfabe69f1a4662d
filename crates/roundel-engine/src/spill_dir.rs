//! Where a process spills what does not fit in memory. Nothing stays after the process.
//!
//! A directory's name tells which process made it, down to the process's start, so that the next
//! process on the host can remove what a killed one left.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{EngineError, Result};

const PREFIX: &str = "roundel-spill-";
/// How often a directory is tried to be removed, and how long between two tries.
const REMOVALS_MAX: usize = 20;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(20);

/// A directory for temporary files that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SpillDir {
    path: PathBuf,
}

impl SpillDir {
    /// Makes a new directory, and removes those of processes that are gone.
    pub(crate) fn create() -> Result<Self> {
        let parent = std::env::temp_dir();
        remove_stale(&parent);
        let pid = std::process::id();
        let started = start_time(pid).unwrap_or_default();
        let unique = uuid::Uuid::new_v4().simple();
        let path = parent.join(format!("{PREFIX}{pid}-{started}-{unique}"));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .create(&path)
            .map_err(|e| EngineError::io(format!("make {} to spill to", path.display()), e))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpillDir {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes a directory, also while queries still make files in it, or while another thread removes it.
pub(crate) fn remove(path: &Path) {
    // Nobody makes a file under this name, which could come between the last entry's removal and the directory's.
    let removed = path.with_extension("removed");
    let _ = std::fs::rename(path, &removed);
    for _ in 0..REMOVALS_MAX {
        // Another thread that removes it would not come to its end if this one ended the process now.
        if std::fs::remove_dir_all(&removed).is_ok() || !removed.exists() {
            return;
        }
        std::thread::sleep(REMOVAL_INTERVAL);
    }
    // The next process that starts removes what is left.
}

fn remove_stale(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(is_stale) {
            // Another user's directory, or one that a second process removes at this moment.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a name is that of a spill directory whose process is gone.
fn is_stale(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return false;
    };
    let mut parts = rest.splitn(3, '-').map(str::parse::<u64>);
    let (Some(Ok(pid)), Some(Ok(started))) = (parts.next(), parts.next()) else {
        return false;
    };
    u32::try_from(pid).is_ok_and(|pid| start_time(pid) != Some(started))
}

/// When a process started, in clock ticks since boot; `None` when there is no such process, or
/// nothing left of it but its exit code.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may itself hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_gone_with_its_owner() {
        let dir = SpillDir::create().expect("the temporary directory is writable");
        let path = dir.path().to_owned();
        assert!(path.is_dir());
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_in_which_files_are_made_is_removed() {
        for _ in 0..100 {
            let dir = SpillDir::create().expect("the temporary directory is writable");
            let path = dir.path().to_owned();
            let writer = std::thread::spawn({
                let path = path.clone();
                // As a query does that is not told of the end: until its directory is gone.
                move || (0..).find(|n| std::fs::write(path.join(n.to_string()), "").is_err())
            });
            while std::fs::read_dir(&path).expect("it is there").count() < 10 {
                std::thread::yield_now();
            }
            drop(dir);
            assert!(!path.exists() && !path.with_extension("removed").exists());
            writer.join().expect("no panic");
        }
    }

    #[test]
    fn a_process_that_was_not_reaped_is_gone() {
        let mut child = std::process::Command::new("true")
            .spawn()
            .expect("true is there");
        // Until it has ended: it stays as a zombie, because nobody waits for it.
        for _ in 0..1000 {
            if start_time(child.id()).is_none() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(start_time(child.id()), None);
        child.wait().expect("it ended");
    }

    #[test]
    fn only_directories_of_dead_processes_are_stale() {
        let pid = std::process::id();
        let started = start_time(pid).expect("this process runs");
        assert!(!is_stale(&format!("{PREFIX}{pid}-{started}-x")));
        assert!(is_stale(&format!("{PREFIX}{pid}-{}-x", started + 1)));
        assert!(is_stale(&format!("{PREFIX}4294967295-1-x")));
        assert!(!is_stale("roundel-spill-whatever"));
        assert!(!is_stale("something-else"));
    }
}
