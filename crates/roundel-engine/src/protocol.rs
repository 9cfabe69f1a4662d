//! What a coordinator and its workers, and the workers among each other, say besides plans and rows: the messages and
//! services of `proto/`.

/// A worker tells who it is and that it lives, and loads shards of tables.
#[allow(missing_docs)]
pub(crate) mod control {
    tonic::include_proto!("roundel.control");
}

/// How the tasks of a ring find each other.
#[allow(missing_docs)]
pub(crate) mod ring {
    tonic::include_proto!("roundel.ring");
}

/// What a worker's line on standard output begins with, before its `HOST:PORT`.
pub(crate) const LISTENING: &str = "roundel worker listening on ";

/// The version that every member of a cluster must have.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
