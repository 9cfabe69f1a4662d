//! A task's part in finding the heavy keys of the join that it feeds: it reads first batches, tells the worker at which
//! the join's tasks agree what it saw, and hears what to do with its rows.

use super::agreements::{decision_of, sample_of};
use crate::calls::{Channels, status_error};
use crate::failure::{failed, failed_with};
use crate::key_hashes::KeyHashes;
use crate::protocol::{Agree, Failed, KeySample};
use crate::settings::Role;
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion_distributed::TaskKey;
use futures::future::{BoxFuture, Shared};
use futures::stream::Fuse;
use futures::{FutureExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use roundel_exchange::Spending;
use roundel_exchange::account::waiting_for;
use roundel_exchange::skew::{Decision, Routes, Sample};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How long more rows are waited for once some have come: the join waits meanwhile.
const SAMPLE_WAIT: Duration = Duration::from_millis(100);

/// What all partitions of a task's input share.
pub(crate) struct Sampling {
    side: usize,
    is_of_first_task: bool,
    /// None where no rows of the task may be spread: then it only listens.
    sample: Option<Arc<Told>>,
    agreed: Shared<BoxFuture<'static, Result<Arc<Decision>, Failed>>>,
}

/// A sample that is being taken.
struct Told {
    sample: Mutex<Sample>,
    /// Partitions that have not ended.
    left: AtomicUsize,
    /// Whether the sample is still open, or is complete, or has failed.
    complete: watch::Sender<Completion>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Completion {
    Open,
    Complete,
    Failed,
}

impl Sampling {
    /// The part of a task whose input has `inputs` partitions, for a join with `partitions` of them.
    pub(crate) fn new(
        role: &Role,
        task: TaskKey,
        inputs: usize,
        partitions: usize,
        channels: &Channels,
    ) -> Self {
        let sample = role.spreads.then(|| {
            Arc::new(Told {
                sample: Mutex::default(),
                left: AtomicUsize::new(inputs),
                complete: watch::Sender::new(match inputs {
                    0 => Completion::Complete,
                    _ => Completion::Open,
                }),
            })
        });
        let agreed = agree(
            role.clone(),
            task,
            partitions as u64,
            channels.clone(),
            sample.clone(),
        );
        Self {
            side: role.side,
            is_of_first_task: task.task_number == 0,
            sample,
            agreed: agreed.boxed().shared(),
        }
    }

    /// Whether it reads rows before anybody wants them.
    pub(crate) fn reads_early(&self) -> bool {
        self.sample.is_some()
    }

    /// Whether its task is the first one of its stage.
    pub(crate) fn is_of_first_task(&self) -> bool {
        self.is_of_first_task
    }

    /// The first batches of a partition, read while it is agreed which keys are heavy, and what to do with their rows.
    pub(crate) async fn first_batches(
        &self,
        rows: &mut Fuse<SendableRecordBatchStream>,
        keys: &mut KeyHashes,
    ) -> Result<(Vec<RecordBatch>, Option<Routes>), Failed> {
        let read = async {
            match &self.sample {
                Some(told) => told.read(rows, keys).await,
                // The input has work to do before its first row.
                None => Ok(rows.try_next().await.map_err(failed)?.into_iter().collect()),
            }
        };
        let agreed = waiting_for(Spending::Agreement, self.agreed.clone());
        let (batches, decision) = match &self.sample {
            // A task that failed is not told what was agreed, but it tells that it failed.
            Some(_) => {
                let read = read.await;
                let decision = agreed.await;
                (read?, decision?)
            }
            None => {
                // The rows are polled last: it waits for them while it waits for both.
                let read = waiting_for(Spending::Rows, read);
                let (decision, batches) = futures::try_join!(agreed, read)?;
                (batches, decision)
            }
        };
        Ok((batches, decision.routes(self.side)))
    }
}

/// Waits until the sample is complete, if the task takes one. Then tells it, and asks which keys of the join are heavy.
async fn agree(
    role: Role,
    task: TaskKey,
    partitions: u64,
    channels: Channels,
    sample: Option<Arc<Told>>,
) -> Result<Arc<Decision>, Failed> {
    let sample = match sample {
        Some(told) => Some(told.tell(partitions).await),
        None => None,
    };
    let ask = Agree {
        query: task.query_id.into_bytes().to_vec(),
        join: role.join,
        side: role.side as u32,
        task: task.task_number as u64,
        samplers: role.samplers,
        tasks: role.tasks,
        partitions,
        expected_left: role.expected[0],
        expected_right: role.expected[1],
        sample,
    };
    let exchange = channels.exchange(&role.place).await;
    let mut exchange = exchange.map_err(|error| failed(error.into()))?;
    let agreed = match exchange.agree(ask).await {
        Ok(agreed) => agreed.into_inner(),
        Err(status) if status.code() == tonic::Code::Aborted => {
            return Err(failed_with(status.message().to_owned()));
        }
        Err(status) => return Err(failed(status_error(&role.place, &status).into())),
    };
    let decision = decision_of(agreed).map_err(failed_with)?;
    tracing::debug!(
        join = role.join,
        side = role.side,
        task = task.task_number,
        left = decision.0[0].len(),
        right = decision.0[1].len(),
        "heavy keys"
    );
    Ok(Arc::new(decision))
}

/// Waits until the sample is complete or has failed.
async fn closed(complete: &mut watch::Receiver<Completion>) {
    // Without its sender nobody is left to look.
    let _ = complete.wait_for(|how| *how != Completion::Open).await;
}

impl Told {
    /// The sample, once it is complete or has failed.
    async fn tell(&self, partitions: u64) -> KeySample {
        let mut complete = self.complete.subscribe();
        // The sender is borrowed: it cannot end.
        let how = complete.wait_for(|how| *how != Completion::Open).await;
        let failed = how.is_ok_and(|how| *how == Completion::Failed);
        let sample = std::mem::take(&mut *self.sample.lock());
        sample_of(&sample, partitions, failed)
    }

    /// Ends it for all partitions, if it has not ended.
    fn end(&self, how: Completion) {
        self.complete.send_if_modified(|complete| {
            let first = *complete == Completion::Open;
            if first {
                *complete = how;
            }
            first
        });
    }

    /// Reads a partition until all have seen enough.
    async fn read(
        &self,
        rows: &mut Fuse<SendableRecordBatchStream>,
        keys: &mut KeyHashes,
    ) -> Result<Vec<RecordBatch>, Failed> {
        let mut complete = self.complete.subscribe();
        let mut batches = Vec::new();
        let patience = tokio::time::sleep(Duration::MAX);
        tokio::pin!(patience);
        loop {
            let batch = tokio::select! {
                biased;
                () = closed(&mut complete) => return Ok(batches),
                () = &mut patience => {
                    self.end(Completion::Complete);
                    return Ok(batches);
                }
                batch = rows.try_next() => batch,
            };
            let added = match batch {
                Ok(Some(batch)) if batch.num_rows() == 0 => continue,
                Ok(Some(batch)) => self.add(&batch, keys).map(|()| batch),
                Ok(None) => {
                    if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        self.end(Completion::Complete);
                    }
                    return Ok(batches);
                }
                Err(error) => Err(failed(error)),
            };
            let batch = added.inspect_err(|_| self.end(Completion::Failed))?;
            if batches.is_empty() {
                patience
                    .as_mut()
                    .reset(tokio::time::Instant::now() + SAMPLE_WAIT);
            }
            batches.push(batch);
        }
    }

    fn add(&self, batch: &RecordBatch, keys: &mut KeyHashes) -> Result<(), Failed> {
        let hashes = keys.of(batch).map_err(failed)?;
        let bytes = batch.get_array_memory_size();
        if self.sample.lock().add(hashes, bytes) {
            self.end(Completion::Complete);
        }
        Ok(())
    }
}
