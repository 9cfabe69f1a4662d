//! Has datafusion-distributed let go of the tasks of queries that have ended.
//!
//! Version 4.0.0 takes an ended task out of its cache and leaves it to the cache's housekeeping to
//! drop it, which happens when the cache is next used: without another query never. Until then
//! the task's plan, and whatever it had started in the background, lives on; a cancelled
//! aggregation over a join would go on joining.

use std::time::Duration;

use datafusion_distributed::{ExecuteTaskRequest, ProducerHead, TaskKey, Worker};
use futures::FutureExt as _;
use uuid::Uuid;

/// The cache's own interval of housekeeping is 300 ms.
const INTERVAL: Duration = Duration::from_millis(350);

/// Uses the worker's cache now and then. Never returns.
pub(super) async fn forget_ended_tasks(worker: Worker) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        // A task that no query has; to ask for it is to use the cache.
        let nobody = ExecuteTaskRequest {
            task_key: TaskKey {
                query_id: Uuid::nil(),
                stage_id: 0,
                task_number: 0,
            },
            target_partition_start: 0,
            target_partition_end: 0,
            producer_head: ProducerHead::None,
        };
        // It would wait for the task to be planned.
        let _ = worker.execute_task(nobody).now_or_never();
    }
}
