//! Partitioning alone: the rows of the relation into messages that go nowhere.

use super::messages::{RowsToMessages, decode};
use super::relation::{Partitioning, rows_of};
use super::run::{Job, Scan, send};
use super::{Relation, RowsOut};
use crate::error::{Error, Result};
use crate::measured::Rows;
use crate::setting::{MESSAGE_BYTES, Pattern, Setting};
use crate::transport::Sender;
use crate::transport::memory::Memory;
use parking_lot::Mutex;
use roundel_exchange::frame::FrameDecoder;
use std::sync::Arc;

/// Takes messages and forgets them, or looks into them first.
pub struct Forgetful {
    message_bytes: usize,
    /// By group: two, as where one is filled while the other travels.
    spare: Vec<Vec<Memory>>,
    /// What decodes them, and what they had, where they are looked into.
    checks: Option<(FrameDecoder, Arc<Mutex<Rows>>)>,
}

impl Forgetful {
    fn new(setting: &Setting, groups: usize) -> Self {
        let message_bytes = setting.message_bytes.unwrap_or(MESSAGE_BYTES);
        let pair = || vec![Memory::new(message_bytes), Memory::new(message_bytes)];
        Self {
            message_bytes,
            spare: (0..groups).map(|_| pair()).collect(),
            checks: None,
        }
    }
}

impl Sender for Forgetful {
    type Buffer = Memory;

    async fn acquire(&mut self, group: usize) -> Result<Memory> {
        let spare = self.spare[group].pop();
        Ok(spare.unwrap_or_else(|| Memory::new(self.message_bytes)))
    }

    async fn put(&mut self, buffer: Memory, group: usize, length: usize, _: u32) -> Result<()> {
        if let Some((decoder, rows)) = &self.checks {
            // Into memory that is aligned as frames need it.
            let message = buffer.filled(length).into();
            decode(decoder, message, |batch| rows.lock().add(rows_of(&batch)))?;
        }
        self.spare[group].insert(0, buffer);
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Partitions until the time is over. All that it partitioned counts as received.
pub async fn partition_alone(job: &Job, _: &mut ()) -> Result<(Vec<Rows>, Rows)> {
    let groups = Partitioning::new(&job.setting).groups;
    let forgetful = Forgetful::new(&job.setting, groups);
    let sent = send(job, &mut RowsToMessages::new(forgetful, groups), None).await?;
    let mut received = Rows::default();
    match job.setting.pattern {
        Pattern::Repartition => sent.iter().for_each(|rows| received.add(*rows)),
        Pattern::Broadcast => received = sent[0],
    }
    Ok((Vec::new(), received))
}

/// Looks into the messages of one scan: whether they have the rows of the relation.
///
/// # Errors
/// When the messages have other rows than the relation.
pub async fn check_partitioning(setting: &Setting, relation: &Relation) -> Result<()> {
    let partitioning = Partitioning::new(setting);
    let (groups, seen) = (partitioning.groups, Arc::default());
    let mut forgetful = Forgetful::new(setting, groups);
    let decoder = FrameDecoder::try_new(relation.schema.clone())?;
    forgetful.checks = Some((decoder, Arc::clone(&seen)));
    let mut out = RowsToMessages::new(forgetful, groups);
    Scan::new(partitioning, 0)
        .run(relation, &mut out, None)
        .await?;
    out.finish().await?;
    let mut expected = Rows::default();
    partitioning
        .rows(relation)
        .into_iter()
        .for_each(|rows| expected.add(rows));
    match *seen.lock() {
        seen if seen == expected => Ok(()),
        seen => Err(Error::Wrong(format!(
            "messages have {seen:?} instead of {expected:?}"
        ))),
    }
}
