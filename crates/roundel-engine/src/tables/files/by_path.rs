//! `FROM 'path'`: a table that nobody registered. Catalogs around others have such tables, too.

use std::path::Path;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, DynamicFileSchemaProvider, SchemaProvider, TableProvider,
    UrlTableFactory,
};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use parking_lot::RwLock;

use super::describe::{Request, describe, into_table, no_session};
use super::format::Named;

/// Catalogs around others.
#[derive(Debug)]
pub(super) struct CatalogsWithPaths {
    inner: Arc<dyn CatalogProviderList>,
    tables: Arc<TablesByPath>,
}

impl CatalogsWithPaths {
    pub(super) fn new(context: &SessionContext) -> Self {
        let state = context.state_ref();
        let inner = Arc::clone(state.read().catalog_list());
        let state = context.state_weak_ref();
        Self {
            inner,
            tables: Arc::new(TablesByPath { state }),
        }
    }
}

impl CatalogProviderList for CatalogsWithPaths {
    fn register_catalog(
        &self,
        name: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        self.inner.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.inner.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        let inner = self.inner.catalog(name)?;
        let tables = Arc::clone(&self.tables);
        Some(Arc::new(CatalogWithPaths { inner, tables }))
    }
}

/// A catalog around another. DataFusion's own cannot drop a schema.
#[derive(Debug)]
struct CatalogWithPaths {
    inner: Arc<dyn CatalogProvider>,
    tables: Arc<TablesByPath>,
}

impl CatalogProvider for CatalogWithPaths {
    fn schema_names(&self) -> Vec<String> {
        self.inner.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let inner = self.inner.schema(name)?;
        let tables = Arc::clone(&self.tables);
        Some(Arc::new(DynamicFileSchemaProvider::new(inner, tables)))
    }

    fn register_schema(
        &self,
        name: &str,
        schema: Arc<dyn SchemaProvider>,
    ) -> DataFusionResult<Option<Arc<dyn SchemaProvider>>> {
        self.inner.register_schema(name, schema)
    }

    fn deregister_schema(
        &self,
        name: &str,
        cascade: bool,
    ) -> DataFusionResult<Option<Arc<dyn SchemaProvider>>> {
        self.inner.deregister_schema(name, cascade)
    }
}

/// Makes tables of the names that are paths.
struct TablesByPath {
    state: Weak<RwLock<SessionState>>,
}

impl std::fmt::Debug for TablesByPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TablesByPath")
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
