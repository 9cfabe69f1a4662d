//! The two operators of a thread with all bytes of real rows.

use super::cost::Costly;
use crate::error::Result;
use crate::measured::Rows;
use crate::setting::Setting;
use crate::transport::verbs::{VerbsReceiver, VerbsSender};
use crate::workload::{
    Consumer, Partitioning, Relation, RowsFromMessages, RowsIn as _, RowsOut as _, RowsToMessages,
    Scan,
};
use std::ops::Range;
use std::time::Duration;

/// Scans and sends until a moment; what went to each group.
pub(super) async fn send(
    setting: &Setting,
    node: usize,
    thread: usize,
    sender: Costly<VerbsSender>,
    until: Duration,
) -> Result<Vec<Rows>> {
    let partitioning = Partitioning::new(setting);
    let relation = Relation::generate(setting, node, thread);
    let context = sender.cost.context.clone();
    let mut out = RowsToMessages::new(sender, partitioning.groups);
    let mut scan = Scan::new(partitioning, node + thread);
    let mut scans = 0;
    while scans == 0 || context.now() < until {
        scan.run(&relation, &mut out, None).await?;
        scans += 1;
    }
    out.finish().await?;
    let times = |rows: &Rows| Rows {
        count: rows.count * scans,
        keys: rows.keys.wrapping_mul(scans),
    };
    Ok(partitioning.rows(&relation).iter().map(times).collect())
}

/// Takes what comes, to the end; what came, and the bytes of what came in a time.
pub(super) async fn receive(
    setting: &Setting,
    work: u32,
    receiver: Costly<VerbsReceiver>,
    counted: &Range<Duration>,
) -> Result<(Rows, u64)> {
    let cost = receiver.cost.clone();
    let mut input = RowsFromMessages::new(receiver, Relation::schema(setting))?;
    // What its work takes is charged.
    let mut consumer = Consumer::new(0);
    let mut bytes = 0;
    while let Some(batch) = input.next().await? {
        if counted.contains(&cost.context.now()) {
            bytes += (batch.num_rows() * setting.tuple_bytes) as u64;
        }
        consumer.take(&batch);
        cost.work(batch.num_rows() as u64, work).await;
    }
    Ok((consumer.rows(), bytes))
}
