//! Three processes shuffle Arrow batches among one another through shared memory.
use arrow::array::{AsArray, Int64Array, RecordBatch, types::Int64Type};
use futures::{TryStreamExt, future::try_join, stream::select_all};
use roundel_exchange::*;
use roundel_verbs::{Rendezvous, SocketListener, SocketRendezvous, shm};
use std::{env, error::Error, process::Command, sync::Arc};

const NODES: usize = 3;
const ROWS: i64 = 1_000_000; // that each node sends

struct ByRemainder; // of the first column, the number of the node that gets the row
impl Partitioner for ByRemainder {
    fn partitions(&self) -> usize {
        NODES
    }
    fn partition(&mut self, batch: &RecordBatch, targets: &mut Vec<u32>) -> Result<(), String> {
        let keys = batch.column(0).as_primitive::<Int64Type>().values();
        targets.extend(keys.iter().map(|key| (key % NODES as i64) as u32));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The first process is node 0. It starts the others and tells them where to meet.
    let mut rendezvous = if let [_, node, address] = &env::args().collect::<Vec<_>>()[..] {
        let (node, address) = (node.parse()?, address.parse()?);
        SocketRendezvous::join(address, node, NODES, &Default::default()).await?
    } else {
        let listener = SocketListener::bind(([127, 0, 0, 1], 0).into()).await?;
        for node in 1..NODES {
            let told = [node.to_string(), listener.address().to_string()];
            Command::new(env::current_exe()?).args(told).spawn()?;
        }
        listener.gather(NODES, &Default::default()).await?
    };
    let me = rendezvous.rank() as u32;
    let fabric = Fabric::open(shm::open(Default::default())?, Default::default())?;
    let options = ExchangeOptions::new(Design::default(), 1, fabric.device.capabilities());
    let shuffle = Arc::new(Shuffle::open(&fabric, &options, &Route::direct(), 1, me)?);
    let receive = Receive::open(
        &fabric,
        &options,
        &Route::direct(),
        &(Arc::new(Unlimited) as _),
    )?;
    let mesh = Mesh::join(&mut rendezvous, &fabric, &shuffle, &receive, 1).await?;

    let keys = Arc::new(Int64Array::from_iter_values(0..ROWS / 100));
    let batch = RecordBatch::try_from_iter([("key", keys as _)])?;
    let streams = mesh.streams(&receive, me, &batch.schema())?;
    let count = select_all(streams).try_fold(0, async |rows, got| Ok(rows + got.num_rows()));
    let groups = mesh.groups.clone();
    let mut scatter = Scatter::new(shuffle.clone(), groups, Box::new(ByRemainder), 0)?;
    let send = async {
        for _ in 0..100 {
            scatter.send(&batch).await?;
        }
        mesh.finish(&shuffle).await
    };
    let (rows, ()) = try_join(count, send).await?;
    let counts = rendezvous.exchange(rows.to_string().into()).await?;
    let number = |rows: &Vec<u8>| String::from_utf8_lossy(rows).parse::<i64>();
    let total = counts.iter().map(number).sum::<Result<i64, _>>()?;
    println!("node {me} received {rows} of {total} rows");
    assert_eq!(total, NODES as i64 * ROWS);
    Ok(())
}
