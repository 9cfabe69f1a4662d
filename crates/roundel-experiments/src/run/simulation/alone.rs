//! What a node does when nothing is moved: it partitions, or it consumes.

use super::{Cluster, Done};
use crate::error::Result;
use crate::measured::{Endpoints, Measured, Rows};
use crate::setting::{MESSAGE_BYTES, Transport};
use futures::FutureExt as _;
use futures::channel::mpsc;
use roundel_verbs::{Work, settle};
use std::time::Duration;

impl Cluster {
    /// Partitions into memory, or consumes what lies in memory, which all threads of a node read no faster than it
    /// lets them.
    pub(super) fn run_alone(&self) -> Result<Measured> {
        let setting = &self.setting;
        let times = self.times();
        let (busy, done) = mpsc::unbounded::<Result<Done>>();
        for node in 0..setting.nodes {
            for thread in 0..setting.threads {
                let cost = self.cost(node);
                let cost = self.of_thread(&cost, node, thread);
                let (setting, parameters) = (setting.clone(), self.all.parameters.clone());
                let counted = times.counted();
                let task = async move {
                    let mut counted_tuples = 0;
                    let tuples = (MESSAGE_BYTES / setting.tuple_bytes) as u64;
                    let mut received = Rows::default();
                    while cost.context.now() < times.until() {
                        let shared = parameters.cpu.memory.time(MESSAGE_BYTES * setting.threads);
                        let free = cost.context.now() + Duration::from(shared);
                        match setting.transport {
                            Transport::Partition => {
                                cost.context.charge(Work::Hash(MESSAGE_BYTES));
                                cost.context.charge(Work::Copy(MESSAGE_BYTES));
                            }
                            _ => {
                                cost.context.charge(Work::Copy(MESSAGE_BYTES));
                                cost.work(tuples, setting.work_of(node)).await;
                            }
                        }
                        settle(&*cost.context).await;
                        let left = free.saturating_sub(cost.context.now());
                        if !left.is_zero() {
                            cost.context.sleep(left).await;
                        }
                        received.count += tuples;
                        if counted.contains(&cost.context.now()) {
                            counted_tuples += tuples;
                        }
                    }
                    Ok(Done {
                        node,
                        sent: Vec::new(),
                        received,
                        received_bytes: counted_tuples * setting.tuple_bytes as u64,
                    })
                };
                self.begin(node, thread, &busy, task.boxed());
            }
        }
        drop(busy);
        let ended = self.finish(done)?;
        let nodes =
            (0..setting.nodes).map(|node| self.measured(node, times, &ended, Endpoints::default()));
        Ok(Measured::of(nodes.collect()))
    }
}
