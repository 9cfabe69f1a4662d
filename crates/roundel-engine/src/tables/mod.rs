//! Tables of a cluster: memory tables in shards, and files.

pub(crate) mod catalog;
pub(crate) mod codec;
pub(crate) mod column_stats;
pub(crate) mod files;
pub(crate) mod load;
pub(crate) mod local_joins;
pub(crate) mod memory_shard;
pub(crate) mod placement;
pub(crate) mod scan;
