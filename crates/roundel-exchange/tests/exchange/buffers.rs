//! Buffers are as many as the consumer needs at the time.

use crate::cluster::{Node, Options, connect, designs, options, own};
use crate::designs::{batch, feed};
use arrow::array::RecordBatch;
use futures::StreamExt;
use roundel_exchange::{Buffers, Window};
use std::time::Duration;

const BATCHES: i64 = 300;
const ROWS: usize = 4000;

/// Two nodes, one of which sends; the other reads at leisure. Returns by how many bytes the registered memory of both fell
/// most, at any time, below what it had been.
async fn slow_reader(options: &Options) -> usize {
    let cluster = [Node::open(options), Node::open(options)];
    let links = connect(&cluster, |node| own(node, 1));
    let schema = batch(0, 1, 0, 1).schema();
    let target = &links.destinations[0][1];
    let sender = feed(&cluster[0], target, own(1, 1), 0..BATCHES, (0, ROWS));
    let receive = &cluster[1].receive;
    let mut rows = receive.stream(&links.links[1][0], 1, &schema).unwrap();
    let registered =
        || receive.report().registered_bytes + cluster[0].shuffle.report().registered_bytes;
    let (mut most, mut fell, mut number) = (0, 0, 0);
    while let Some(got) = rows.next().await {
        let got: RecordBatch = got.unwrap();
        assert_eq!(got, batch(0, 1, number, ROWS));
        number += 1;
        let now = registered();
        most = most.max(now);
        fell = fell.max(most - now);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(number, BATCHES);
    sender.await.unwrap().unwrap();
    fell
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gives_buffers_back() {
    for design in designs() {
        let mut options = options(design, 1);
        options.window =
            Buffers::Adaptive.window(options.design.transport(), options.message_bytes);
        assert!(slow_reader(&options).await > 0, "{design}");
        options.window = Window::fixed(8);
        assert_eq!(slow_reader(&options).await, 0, "{design}: fixed");
    }
}
