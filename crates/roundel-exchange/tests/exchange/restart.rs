//! On a device that may lose datagrams, with `OnLoss::Restart`: a run is right, or it says that
//! messages are missing, and one of the next is right. Shared memory loses none; the machine's
//! devices do (see `machine`).

use crate::cluster::{Node, Options, connect, options, own};
use crate::designs::sent;
use arrow::array::RecordBatch;
use futures::TryStreamExt;
use roundel_exchange::{Design, ExchangeError, OnLoss};
use std::time::Duration;

/// Some eighty messages: with a loss of a hundredth nearly half of the runs are right.
const BATCHES: i64 = 12;
const ROWS: usize = 700;
/// That not one of so many is right does not happen.
const RUNS_MAX: usize = 50;
const HANG: Duration = Duration::from_secs(60);

/// Sends rows from one node to the other; fails when some are missing, and panics when any is wrong.
async fn run(options: &Options) -> Result<(), ExchangeError> {
    let cluster = [Node::open(options), Node::open(options)];
    let links = connect(&cluster, |node| own(node, 1));
    let sent = sent(0, 1, BATCHES, ROWS);
    let (destination, group) = &links.destinations[0][1];
    let shuffle = &cluster[0].shuffle;
    let send = async {
        for batch in &sent {
            shuffle.send(group, 1, batch).await?;
        }
        shuffle.finish(destination).await
    };
    let receive = async {
        let link = &links.links[1][0];
        let stream = cluster[1].receive.stream(link, 1, &sent[0].schema())?;
        stream.try_collect::<Vec<RecordBatch>>().await
    };
    let both = async { futures::join!(send, receive) };
    let (sending, received) = tokio::time::timeout(HANG, both)
        .await
        .expect("no exchange hangs");
    assert!(received? == sent, "wrong rows");
    sending
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_messages_are_told_until_a_run_is_right() {
    for design in [Design::MesqSr, Design::SesqSr] {
        let mut options = options(design, 1);
        options.on_loss = OnLoss::Restart;
        options.ordered = true;
        let mut failed = 0;
        while let Err(error) = run(&options).await {
            assert!(error.is_transient(), "{error}");
            failed += 1;
            assert!(failed < RUNS_MAX, "{error}");
        }
        println!("{}: {failed} runs missed messages", design.name());
    }
}
