//! The control service of a worker: who it is, whether it lives, which shards of tables it holds.
//!
//! Messages and paths are here, [`client`] and [`server`] speak them. The service is written by
//! hand because it is small and needs no protocol compiler. It must not know how rows travel.

pub(crate) mod client;
pub(crate) mod loader;
pub(crate) mod server;

use roundel_datafusion::engine::Offer;

use crate::tables::column_stats::ColumnStats;

/// Path prefix of the service, its gRPC name.
pub(crate) const SERVICE_NAME: &str = "roundel.Control";
pub(crate) const WATCH_PATH: &str = "/roundel.Control/Watch";
pub(crate) const LOAD_PATH: &str = "/roundel.Control/Load";

/// What a worker's line on standard output begins with, before its `HOST:PORT`.
pub(crate) const LISTENING: &str = "roundel worker listening on ";

/// The version that every member of a cluster must have.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Asks a worker who it is, and to keep saying that it lives.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchRequest {}

/// A heartbeat, which says who the worker is. The first one is sent at once, and then one every
/// [`server::BEAT_INTERVAL`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Beat {
    /// The worker's version.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Which boot of which machine it runs on, to tell whether memory can be shared.
    #[prost(string, tag = "2")]
    pub host: String,
    /// Differs for each start of the worker, so that a restart is noticed.
    #[prost(string, tag = "3")]
    pub incarnation: String,
    /// What it can carry rows over.
    #[prost(message, repeated, tag = "4")]
    pub fabrics: Vec<Offer>,
    /// What its application added to DataFusion.
    #[prost(string, repeated, tag = "5")]
    pub extensions: Vec<String>,
}

/// Asks a worker to generate its shards of the TPC-H tables. It holds them for as long as the
/// response stream is open.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LoadRequest {
    /// Names the tables of this load among all that the worker holds.
    #[prost(string, tag = "1")]
    pub table_set: String,
    /// The scale factor.
    #[prost(double, tag = "2")]
    pub scale: f64,
    /// Into how many shards the tables are dealt.
    #[prost(uint32, tag = "3")]
    pub shard_count: u32,
    /// Which of these shards the worker is to hold.
    #[prost(uint32, repeated, tag = "4")]
    pub shards: Vec<u32>,
    /// Into how many partitions a shard is divided by the hash of its table's key, where rows are dealt by
    /// it; 0 where they are dealt at random.
    #[prost(uint32, tag = "5")]
    pub key_partitions: u32,
}

/// How far a load has come.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LoadReport {
    /// Rows so far, for each table that is being loaded.
    #[prost(message, repeated, tag = "1")]
    pub tables: Vec<TableRows>,
    /// Set on the last report of a load; the stream then stays open, silent, as the lease.
    #[prost(bool, tag = "2")]
    pub complete: bool,
}

/// Rows of one table on one worker.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TableRows {
    /// The table's name.
    #[prost(string, tag = "1")]
    pub table: String,
    /// Rows of the table that the worker holds.
    #[prost(uint64, tag = "2")]
    pub rows: u64,
    /// Statistics of each column, in the schema's order; empty until the load is complete.
    #[prost(message, repeated, tag = "3")]
    pub columns: Vec<ColumnStats>,
}
