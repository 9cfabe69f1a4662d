//! `FROM 'path'`: a table that nobody registered.

use std::path::Path;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::{TableProvider, UrlTableFactory};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use parking_lot::RwLock;

use super::describe::{Request, describe, into_table, no_session};
use super::format::Named;

/// Makes tables of the names that are paths.
pub(super) struct TablesByPath {
    state: Weak<RwLock<SessionState>>,
}

impl std::fmt::Debug for TablesByPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TablesByPath")
    }
}

impl TablesByPath {
    pub(super) fn new(context: &SessionContext) -> Self {
        Self {
            state: context.state_weak_ref(),
        }
    }
}

/// Whether a name in FROM is meant as a path: it has directories, or ends as data files do.
fn is_path(name: &str) -> bool {
    name.contains('/') || Named::from_path(Path::new(name), true).is_some()
}

#[async_trait]
impl UrlTableFactory for TablesByPath {
    async fn try_new(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        if !is_path(name) {
            return Ok(None);
        }
        let state = self.state.upgrade().ok_or_else(no_session)?;
        let state = state.read().clone();
        let request = Request {
            name: name.to_owned(),
            paths: vec![name.to_owned()],
            ..Request::default()
        };
        let table = into_table(describe(&state, request).await)?;
        Ok(Some(table))
    }
}

#[cfg(test)]
mod tests {
    use super::is_path;

    #[test]
    fn names_of_tables_are_no_paths() {
        for path in [
            "x.parquet",
            "dir/x",
            "/d/*.csv",
            "dir/",
            "x.csv.gz",
            "*.tsv",
        ] {
            assert!(is_path(path), "{path}");
        }
        for name in ["orders", "x.y", "a*b", "information_schema"] {
            assert!(!is_path(name), "{name}");
        }
    }
}
