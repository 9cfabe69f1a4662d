//! What tasks spend their time on, by every design on virtual time: it adds up to the time that they took, and names who is slow.

use crate::cluster::{Way, connect, own};
use crate::designs::batch;
use crate::simulated::{every, open};
use futures::StreamExt as _;
use roundel_exchange::{Account, Spending, Spent};
use roundel_verbs::Context;
use roundel_verbs::sim::{Parameters, Simulation};
use std::sync::Arc;
use std::time::Duration;

/// More than any exchange here takes.
const LIMIT: Duration = Duration::from_secs(5);
const BATCHES: i64 = 40;
/// Several batches are more than a link has under way, and than waits for a reader.
const ROWS: usize = 20_000;
const PAUSE: Duration = Duration::from_millis(2);

/// Which end of a link pauses at each batch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Slow {
    Source,
    Reader,
}

/// What one end spent, and how long it took.
#[derive(Debug)]
struct End {
    spent: Spent,
    took: Duration,
}

impl End {
    fn share(&self, on: &[Spending]) -> f64 {
        let part: Duration = on.iter().map(|on| self.spent[*on]).sum();
        part.as_secs_f64() / self.took.as_secs_f64()
    }
}

/// A node sends to another one.
fn run(way: Way, slow: Slow) -> [End; 2] {
    let simulation = Simulation::new(Parameters::edr(), 1);
    let (hosts, cluster, _) = open(&simulation, way, 2, 1);
    let links = connect(&cluster, |node| own(node, 1));
    let schema = batch(0, 0, 0, 1).schema();
    let (destination, group) = links.destinations[0][1].clone();
    let (link, shuffle) = (&links.links[1][0], cluster[0].shuffle.clone());
    let pause = move |at: Slow, context: &Arc<dyn Context>| match at == slow {
        true => context.sleep(PAUSE),
        false => Box::pin(std::future::ready(())),
    };
    let (tell, told) = futures::channel::oneshot::channel();
    let context = hosts[0].context();
    let account = Account::new(context.clone());
    shuffle.account(account.clone());
    let sending = shuffle.clone();
    let send = async move {
        let begun = context.now();
        let send = async {
            for number in 0..BATCHES {
                pause(Slow::Source, &context).await;
                let batch = batch(0, 1, number, ROWS);
                sending.send(&group, 1, &batch).await.unwrap();
            }
        };
        account.measure(send).await;
        let took = context.now() - begun;
        sending.finish(&destination).await.unwrap();
        tell.send(took).unwrap();
    };
    hosts[0].spawn(0, Box::pin(send));
    let mut rows = cluster[1].receive.stream(link, 1, &schema).unwrap();
    let context = hosts[1].context();
    let (tell_read, told_read) = futures::channel::oneshot::channel();
    let read = async move {
        let begun = context.now();
        while let Some(batch) = rows.next().await {
            batch.unwrap();
            pause(Slow::Reader, &context).await;
        }
        tell_read.send(context.now() - begun).unwrap();
    };
    hosts[1].spawn(0, Box::pin(read));
    let took = simulation.run(&hosts[0], LIMIT, async move {
        (told.await.unwrap(), told_read.await.unwrap())
    });
    let (sent, read) = took.unwrap_or_else(|why| panic!("{way}, slow {slow:?}: {why:?}"));
    [
        End {
            spent: shuffle.spent_since().into_iter().sum(),
            took: sent,
        },
        End {
            spent: link.spent().into_iter().sum(),
            took: read,
        },
    ]
}

#[test]
fn parts_add_up_and_name_who_is_slow() {
    for way in every() {
        for slow in [Slow::Source, Slow::Reader] {
            let ends = run(way, slow);
            for end in &ends {
                let apart = end.spent.total().abs_diff(end.took);
                assert!(apart <= end.took / 20, "{way}, slow {slow:?}: {end:?}");
            }
            let [sender, reader] = &ends;
            let (sent, read): (&[Spending], _) = match slow {
                Slow::Source => (&[Spending::Rows], Spending::Rows),
                Slow::Reader => {
                    let sending = &[Spending::Credit, Spending::Buffer, Spending::Turn];
                    (sending, Spending::Reader)
                }
            };
            assert!(sender.share(sent) > 0.6, "{way}, slow {slow:?}: {sender:?}");
            assert!(
                reader.share(&[read]) > 0.6,
                "{way}, slow {slow:?}: {reader:?}"
            );
        }
    }
}
