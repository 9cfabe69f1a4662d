//! TPC-H in the memory of workers.

use roundel_engine::tpch::TpchLayout;
use roundel_engine::{Cluster, ClusterOptions, Session};

pub const SCALE: f64 = 0.01;

/// A cluster, and a session of it that has the tables.
pub async fn start(options: ClusterOptions) -> (Cluster, Session) {
    let cluster = Cluster::start(options).await.expect("starts");
    let session = cluster.session().expect("a session");
    load(&session).await;
    (cluster, session)
}

/// Gives a session the tables.
pub async fn load(session: &Session) {
    let loaded = session.load_tpch_memory(SCALE, TpchLayout::Random, &());
    loaded.await.expect("loads");
}
