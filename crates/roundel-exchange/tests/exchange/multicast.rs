//! Broadcast by native multicast, on the devices of the VM test bed: each message is sent once, every
//! row arrives once.

use crate::cluster::{Links, Node, connect, options};
use crate::designs::{batch, number};
use futures::TryStreamExt;
use roundel_exchange::{Design, EndpointReport};
use roundel_verbs::Opcode;
use std::time::Duration;

const BATCHES: i64 = 60;
const ROWS: usize = 500;
/// How long the members may take to join.
const PATIENCE: Duration = Duration::from_secs(20);

/// What node 0 sends to the others, on one device each.
struct Broadcast {
    cluster: Vec<Node>,
    links: Links,
}

impl Broadcast {
    fn open(design: Design) -> Self {
        let mut options = options(design, 1);
        options.queue_key = Some(0x1357_9bdf);
        let cluster: Vec<Node> = (0..4).map(|_| Node::open(&options)).collect();
        let links = connect(&cluster, |_| 0..1);
        Self { cluster, links }
    }

    fn sent(&self) -> EndpointReport {
        self.cluster[0].shuffle.report()
    }

    /// Sends batches until they go by multicast, then [`BATCHES`] more; returns how many in all, and
    /// what was sent for the latter.
    async fn send(&self) -> (i64, EndpointReport, EndpointReport) {
        let shuffle = &self.cluster[0].shuffle;
        let members: Vec<_> = self.links.destinations[0][1..]
            .iter()
            .map(|(destination, _)| destination.clone())
            .collect();
        let group = shuffle.group(&members).unwrap();
        let mut next = 0;
        let joined = async {
            while self.sent().multicast_messages == 0 {
                shuffle
                    .send(&group, 0, &batch(0, 0, next, 1))
                    .await
                    .unwrap();
                next += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, joined)
            .await
            .expect("members join");
        let before = self.sent();
        for number in next..next + BATCHES {
            let batch = batch(0, 0, number, ROWS);
            shuffle.send(&group, 0, &batch).await.unwrap();
        }
        let after = self.sent();
        for member in &members {
            shuffle.finish(member).await.unwrap();
        }
        (next + BATCHES, before, after)
    }

    /// The numbers of the batches that a node got, each whole.
    async fn read(&self, node: usize) -> Vec<i64> {
        let link = &self.links.links[node][0];
        let schema = batch(0, 0, 0, 1).schema();
        let stream = self.cluster[node].receive.stream(link, 0, &schema).unwrap();
        let got: Vec<_> = stream.try_collect().await.unwrap();
        got.iter()
            .map(|got| {
                let number = number(got);
                assert_eq!(*got, batch(0, 0, number, got.num_rows()));
                number
            })
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_sent_once_and_arrives_everywhere() {
    for design in [Design::MesqSr, Design::SesqSr] {
        let broadcast = Broadcast::open(design);
        let capabilities = broadcast.cluster[0].fabric.device.capabilities();
        if capabilities.multicast_groups_max == 0 {
            println!("SKIPPED: {} has no multicast", capabilities.provider);
            return;
        }
        let ((count, before, after), one, two, three) = tokio::join!(
            broadcast.send(),
            broadcast.read(1),
            broadcast.read(2),
            broadcast.read(3)
        );
        for mut got in [one, two, three] {
            got.sort_unstable();
            assert_eq!(got, (0..count).collect::<Vec<_>>(), "{design}");
        }
        let sends = |report: &EndpointReport| report.counters.messages(Opcode::Send);
        let multicast = after.multicast_messages - before.multicast_messages;
        let repaired = after.repaired_messages - before.repaired_messages;
        let other = sends(&after) - sends(&before) - multicast - repaired;
        println!(
            "{design}: {multicast} messages by multicast, {repaired} repaired, {other} others"
        );
        // Of a batch there are several messages; to three members apart there would be three times
        // as many. The others are answers to questions, of which there are few.
        assert!(multicast > BATCHES as u64, "{multicast} messages");
        assert!(
            other < multicast / 2,
            "{other} messages besides {multicast}"
        );
    }
}
