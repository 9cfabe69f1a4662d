//! What tests of files need: a cluster, a session of it, and a directory.

use std::fs;
use std::path::PathBuf;

use roundel_engine::{Cluster, ClusterOptions, Session};
use tempfile::TempDir;

use crate::common;

/// A cluster, a session of it, and a directory of files.
pub struct Trial {
    pub cluster: Cluster,
    pub session: Session,
    dir: TempDir,
}

impl Trial {
    pub async fn with(options: ClusterOptions) -> Self {
        let cluster = Cluster::start(options).await.expect("starts");
        let session = cluster.session().expect("a session");
        Self {
            cluster,
            session,
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    /// Has even small files read by several tasks.
    pub async fn cut_small(&self) {
        let each = "SET distributed.file_scan_config_bytes_per_partition = 1";
        self.rows(each).await;
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn path(&self, name: &str) -> String {
        self.at(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file, and gives its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, bytes).expect("a file");
        self.path(name)
    }

    pub async fn rows(&self, sql: &str) -> Vec<String> {
        let rows = common::run(&self.session, sql).await;
        common::rows(&rows.unwrap_or_else(|e| panic!("{sql}: {e}")))
    }

    /// What is said where a statement fails: one line, which is not long.
    pub async fn error(&self, sql: &str) -> String {
        let error = match common::run(&self.session, sql).await {
            Ok(rows) => panic!("{sql}: {:?}", common::rows(&rows)),
            Err(error) => error.to_string(),
        };
        assert!(!error.contains('\n') && error.len() < 400, "{error}");
        error
    }

    pub async fn stop(self) {
        self.cluster.stop().await.expect("stops");
    }
}
