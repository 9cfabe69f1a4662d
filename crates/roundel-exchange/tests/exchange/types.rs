//! Every type of Arrow crosses an exchange of every design.

use crate::arrays::{Random, array, flat_types, nested_types};
use crate::cluster::{Node, Way, connect, options, ways};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use futures::TryStreamExt;
use futures::future::join_all;
use std::sync::Arc;

fn batches(data_type: &DataType) -> Vec<RecordBatch> {
    let schema = Schema::new(vec![Field::new("column", data_type.clone(), true)]);
    let schema = Arc::new(schema);
    let mut random = Random(7);
    [1, 0, 100, 3000]
        .map(|rows| {
            let column = array(data_type, rows, &mut random);
            RecordBatch::try_new(schema.clone(), vec![column]).unwrap()
        })
        .to_vec()
}

async fn journey(design: Way) {
    let types = [flat_types(), nested_types()].concat();
    let cluster = [Node::open(&options(design, 2))];
    let links = connect(&cluster, |_| 0..types.len() as u32);
    let (destination, group) = &links.destinations[0][0];
    let (link, node) = (&links.links[0][0], &cluster[0]);
    let send = async {
        for (partition, data_type) in types.iter().enumerate() {
            for batch in batches(data_type) {
                let partition = partition as u32;
                node.shuffle.send(group, partition, &batch).await.unwrap();
            }
        }
        node.shuffle.finish(destination).await.unwrap();
    };
    let read = types
        .iter()
        .enumerate()
        .map(async |(partition, data_type)| {
            let sent = batches(data_type);
            let stream = node
                .receive
                .stream(link, partition as u32, &sent[0].schema())
                .unwrap();
            let got: Vec<RecordBatch> = stream.try_collect().await.unwrap();
            assert_eq!(got, sent, "{design} {data_type}");
        });
    futures::join!(send, join_all(read));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_on_every_design() {
    for design in ways() {
        journey(design).await;
    }
}
