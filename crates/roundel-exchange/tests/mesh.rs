//! Nodes joined through a rendezvous: every design, and a node that goes away.

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, types::Int64Type};
use futures::{StreamExt, TryStreamExt, stream::select_all};
use roundel_exchange::{
    Design, ExchangeError, ExchangeOptions, Fabric, Mesh, Partitioner, Receive, Route, Scatter,
    Shuffle, Unlimited,
};
use roundel_verbs::{Rendezvous, SocketListener, SocketOptions, SocketRendezvous, VerbsError, shm};
use std::sync::Arc;
use std::time::Duration;

const NODES: usize = 3;
/// One for each thread.
const PER_NODE: u32 = 2;
const PARTITIONS: usize = NODES * PER_NODE as usize;
/// Nothing that these tests wait for takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

struct ByKey;

impl Partitioner for ByKey {
    fn partitions(&self) -> usize {
        PARTITIONS
    }

    fn partition(&mut self, batch: &RecordBatch, targets: &mut Vec<u32>) -> Result<(), String> {
        let keys = batch.column(0).as_primitive::<Int64Type>().values();
        targets.extend(keys.iter().map(|key| (key % PARTITIONS as i64) as u32));
        Ok(())
    }
}

fn batch() -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..6000));
    RecordBatch::try_from_iter([("key", keys)]).unwrap()
}

struct Node {
    /// Its end is this node's end, to the others.
    _rendezvous: SocketRendezvous,
    shuffle: Arc<Shuffle>,
    receive: Receive,
    mesh: Mesh,
}

impl Node {
    async fn open(mut rendezvous: SocketRendezvous, design: Design) -> Self {
        let device = shm::open(shm::ShmOptions::default()).unwrap();
        let fabric = Fabric::open(device, Default::default()).unwrap();
        let options = ExchangeOptions::new(design, PER_NODE as usize, fabric.device.capabilities());
        let me = rendezvous.rank() as u32;
        let shuffle = Arc::new(Shuffle::open(&fabric, &options, &Route::direct(), 1, me).unwrap());
        let receive = Receive::open(
            &fabric,
            &options,
            &Route::direct(),
            &(Arc::new(Unlimited) as _),
        )
        .unwrap();
        let mesh = Mesh::join(&mut rendezvous, &fabric, &shuffle, &receive, PER_NODE);
        Self {
            mesh: mesh.await.unwrap(),
            _rendezvous: rendezvous,
            shuffle,
            receive,
        }
    }

    /// Sends and receives; returns the rows received.
    async fn shuffle_all(&self) -> Result<usize, ExchangeError> {
        let batch = batch();
        let groups = self.mesh.groups.clone();
        let mut scatter = Scatter::new(self.shuffle.clone(), groups, Box::new(ByKey), 0)?;
        let send = async {
            for _ in 0..20 {
                assert!(scatter.send(&batch).await?);
            }
            self.mesh.finish(&self.shuffle).await
        };
        let mut streams = Vec::new();
        for partition in self.mesh.partitions.clone() {
            for stream in self
                .mesh
                .streams(&self.receive, partition, &batch.schema())?
            {
                streams.push(stream.map_ok(move |batch| (partition, batch)));
            }
        }
        let count = select_all(streams).try_fold(0, async |rows, (partition, batch)| {
            let mut targets = Vec::new();
            ByKey.partition(&batch, &mut targets).unwrap();
            assert!(targets.iter().all(|target| *target == partition));
            Ok(rows + batch.num_rows())
        });
        let (rows, ()) = futures::future::try_join(count, send).await?;
        Ok(rows)
    }
}

async fn cluster(design: Design) -> Vec<Node> {
    let listener = SocketListener::bind(([127, 0, 0, 1], 0).into())
        .await
        .unwrap();
    let address = listener.address();
    let first = async move { listener.gather(NODES, &SocketOptions::new("t")).await };
    let others = (1..NODES).map(|rank| {
        tokio::spawn(async move {
            let options = SocketOptions::new("t");
            SocketRendezvous::join(address, rank, NODES, &options).await
        })
    });
    let mut tasks = vec![tokio::spawn(first)];
    tasks.extend(others);
    let nodes = tasks.into_iter().map(|task| async move {
        let rendezvous: Result<_, VerbsError> = task.await.unwrap();
        Node::open(rendezvous.unwrap(), design).await
    });
    let nodes = futures::future::join_all(nodes);
    tokio::time::timeout(PATIENCE, nodes).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_gets_its_rows() {
    for design in Design::ALL {
        let cluster = cluster(design).await;
        let all = futures::future::try_join_all(cluster.iter().map(Node::shuffle_all));
        let rows = tokio::time::timeout(PATIENCE, all).await.unwrap();
        assert_eq!(rows.unwrap(), [20 * 6000; NODES], "{design}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_goes_away_is_an_error_that_names_it() {
    for design in Design::ALL {
        let mut cluster = cluster(design).await;
        let gone = cluster.pop().unwrap();
        let schema = batch().schema();
        let mut streams = cluster[0]
            .mesh
            .streams(&cluster[0].receive, 0, &schema)
            .unwrap();
        drop(gone);
        let lost = tokio::time::timeout(PATIENCE, streams[2].next()).await;
        let error = lost.expect("nothing hangs").unwrap().unwrap_err();
        assert!(error.to_string().contains("node 2"), "{design}: {error}");
        let finish = cluster[0].mesh.finish(&cluster[0].shuffle);
        let finished = tokio::time::timeout(PATIENCE, finish).await;
        let error = finished.expect("nothing hangs").unwrap_err();
        assert!(error.to_string().contains("node 2"), "{design}: {error}");
    }
}
