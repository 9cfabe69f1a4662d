//! The shards of memory tables that one process holds. It must not know where they come from.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use parking_lot::RwLock;

/// Which shard of which table, and which part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShardKey {
    /// The set that the table was loaded with.
    pub table_set: String,
    /// The table's name.
    pub table: String,
    /// Which shard; 0 for a replicated table.
    pub shard: usize,
    /// Which partition of the shard, where it is divided by a key; else 0, which is all of it.
    pub partition: usize,
}

/// Rows of a shard.
pub(crate) type Shard = Arc<[RecordBatch]>;

/// All shards that this process holds, for all sessions.
#[derive(Debug, Default)]
pub(crate) struct ShardCatalog {
    shards: RwLock<HashMap<ShardKey, Shard>>,
}

impl ShardCatalog {
    pub(crate) fn insert(&self, key: ShardKey, batches: Vec<RecordBatch>) {
        self.shards.write().insert(key, batches.into());
    }

    pub(crate) fn get(&self, key: &ShardKey) -> Option<Shard> {
        self.shards.read().get(key).cloned()
    }

    /// Forgets all tables of a set. Queries that read them keep what they hold.
    pub(crate) fn remove_set(&self, table_set: &str) {
        self.shards
            .write()
            .retain(|key, _| key.table_set != table_set);
    }
}
