//! The two operators of a thread with all bytes of real rows.

use super::cost::Costly;
use super::flow::Flow;
use crate::error::Result;
use crate::measured::Rows;
use crate::setting::Setting;
use crate::transport::verbs::{VerbsReceiver, VerbsSender};
use crate::workload::{
    Consumer, Relation, RowsFromMessages, RowsIn as _, RowsToMessages, send_until,
};

/// Scans and sends while there is time; what went to each node.
pub(super) async fn send(
    setting: &Setting,
    node: usize,
    thread: usize,
    flow: &Flow,
    sender: Costly<VerbsSender>,
) -> Result<Vec<Rows>> {
    let relation = Relation::generate(setting, node, thread);
    let context = sender.cost.context.clone();
    let over = || context.now() >= flow.times.until();
    let mut out = RowsToMessages::new(sender, flow.groups);
    send_until(setting, node + thread, &relation, &mut out, None, over).await
}

/// Takes what comes, to the end, and works on it; what came, and the bytes of what was counted.
pub(super) async fn receive(
    setting: &Setting,
    flow: &Flow,
    receiver: Costly<VerbsReceiver>,
) -> Result<(Rows, u64)> {
    let cost = receiver.cost.clone();
    let counted = flow.times.counted();
    let mut input = RowsFromMessages::new(receiver, Relation::schema(setting))?;
    // What its work takes is charged.
    let mut consumer = Consumer::new(0);
    let mut bytes = 0;
    while let Some(batch) = input.next().await? {
        if counted.contains(&cost.context.now()) {
            bytes += (batch.num_rows() * setting.tuple_bytes) as u64;
        }
        consumer.take(&batch);
        let work = flow.work_at(cost.context.now());
        cost.work(batch.num_rows() as u64, work).await;
    }
    Ok((consumer.rows(), bytes))
}
