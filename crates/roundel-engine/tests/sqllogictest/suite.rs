//! Where DataFusion's suite is, and the directory that its statements run in.
//!
//! This module must not know how a file is run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use datafusion_sqllogictest::read_dir_recursive;
use tempfile::TempDir;

/// The package that ships the files.
const PACKAGE: &str = "datafusion-sqllogictest";

/// Files that the suite's own runner leaves out unless it is asked for them: tables for these are generated elsewhere, or
/// a feature is off.
const LEFT_OUT: [&str; 2] = ["tpch/", "encrypted_parquet.slt"];

/// A directory of DataFusion's repository, `testing` and `parquet-testing`, for the statements that read data which the
/// package does not ship.
const MORE_DATA: &str = "ROUNDEL_SLT_DATA";

/// The suite's files, and a directory in which the relative paths of its statements lead somewhere.
pub struct Suite {
    /// Removed in the end.
    _root: TempDir,
    /// The paths of the test files, below `test_files`, sorted.
    pub files: Vec<PathBuf>,
}

impl Suite {
    /// Finds the suite and makes a directory for it the current one of this process.
    pub fn enter() -> Self {
        let package = package_dir();
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        // The paths in the suite are relative to this directory of DataFusion's repository.
        let here = root.path().join("datafusion/sqllogictest");
        let test_files = here.join("test_files");
        fs::create_dir_all(test_files.join("scratch")).expect("a directory");
        for entry in fs::read_dir(package.join("test_files")).expect("the suite's files") {
            let entry = entry.expect("an entry");
            if entry.file_name() != "scratch" {
                symlink(entry.path(), test_files.join(entry.file_name())).expect("a link");
            }
        }
        symlink(package.join("data"), here.join("data")).expect("a link");
        if let Some(more) = std::env::var_os(MORE_DATA) {
            let more = fs::canonicalize(more).expect("the directory that the variable names");
            for dir in ["testing", "parquet-testing"] {
                symlink(more.join(dir), root.path().join(dir)).expect("a link");
            }
            for dir in ["core", "datasource-arrow"] {
                let link = root.path().join("datafusion").join(dir);
                symlink(more.join("datafusion").join(dir), link).expect("a link");
            }
        }
        std::env::set_current_dir(&here).expect("an own directory");
        Self {
            files: files(&package.join("test_files")),
            _root: root,
        }
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let all = read_dir_recursive(dir).expect("the suite's files");
    let mut files: Vec<PathBuf> = all
        .iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "slt"))
        .filter_map(|path| path.strip_prefix(dir).ok().map(Path::to_owned))
        .filter(|path| !LEFT_OUT.iter().any(|out| path.starts_with(out)))
        .collect();
    files.sort();
    files
}

/// Cargo knows where the package is unpacked, on any machine that has built this test; such a machine need not have the packages of
/// other platforms.
fn package_dir() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        .args(["--filter-platform", "host-tuple"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {told}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == PACKAGE);
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = Path::new(manifest.expect("the suite is among the packages"));
    manifest.parent().expect("a directory").to_owned()
}
