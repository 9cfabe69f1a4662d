//! Tables of a cluster: memory tables in shards, and files.

pub(crate) mod catalog;
pub(crate) mod codec;
pub(crate) mod column_stats;
pub(crate) mod files;
pub(crate) mod memory_shard;
pub(crate) mod scan;
