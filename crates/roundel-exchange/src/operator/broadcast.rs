//! Rows that several destinations get alike, over whatever carries them: each message is filled once and posted to all.
//! A destination that fails, or has what it wants, is left out from the next message on. The others miss nothing: that
//! message begins where they are. This module knows no endpoints and no credit; all destinations wait for the slowest.

use super::frames::{self, copied};
use super::shuffle::{Destination, Group, Shuffle};
use crate::error::{ExchangeError, Result};
use crate::frame::FrameSource;
use arrow::array::RecordBatch;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// What goes to several destinations of a [`Shuffle`], under the same numbers of partitions. A partition is sent by one
/// task at a time.
pub struct Broadcast {
    shuffle: Arc<Shuffle>,
    left: Mutex<Left>,
    /// Frames sent so far, per unit and partition: of one shuffle there may be several broadcasts.
    frames: Mutex<HashMap<(usize, u32), u32>>,
}

/// Those who get more.
struct Left {
    members: Vec<Destination>,
    /// Those of them that are not in this process.
    group: Option<Group>,
    /// How many groups there were before.
    round: usize,
}

impl Broadcast {
    /// To these destinations, which have the same number of lanes.
    ///
    /// # Errors
    /// When they have not, or there is no memory for messages to all of them.
    pub fn new(shuffle: Arc<Shuffle>, members: Vec<Destination>) -> Result<Self> {
        let group = group(&shuffle, &members)?;
        Ok(Self {
            shuffle,
            left: Mutex::new(Left {
                members,
                group,
                round: 0,
            }),
            frames: Mutex::default(),
        })
    }

    /// Sends a batch to a partition of everybody who is left, by one unit of this node. Whether anybody is.
    ///
    /// # Errors
    /// When the batch cannot be sent to anybody. A destination that fails is told so when it is
    /// [finished](Shuffle::finish).
    pub async fn send(&self, unit: usize, partition: u32, batch: &RecordBatch) -> Result<bool> {
        let source = frames::whole("several destinations", batch)?;
        self.hand_over(partition, &source).await;
        let number = self.next_frame(unit, partition);
        let mut reader = source.into_reader();
        while reader.remaining() > 0 {
            let Some((round, group)) = self.group() else {
                break;
            };
            let group = group.by(unit);
            let mut next = reader.clone();
            let sent = self
                .shuffle
                .send_fragment(&group, partition, number, &mut next)
                .await;
            match sent {
                Ok(()) => reader = next,
                // It has gone to nobody.
                Err(error) => self.go_on_without(round, error)?,
            }
        }
        Ok(!self.left.lock().members.is_empty())
    }

    /// Hands a frame to those who are in this process.
    async fn hand_over(&self, partition: u32, source: &FrameSource) {
        let here = |member: &Destination| member.local().cloned();
        let local: Vec<_> = self.left.lock().members.iter().filter_map(here).collect();
        if local.is_empty() {
            return;
        }
        let frame = copied(source);
        for link in local {
            // Who fails knows why: it is in this process.
            if link.deliver(partition, frame.clone()).await.is_err() {
                let other = |member: &Destination| !member.local().is_some_and(|own| own.is(&link));
                self.left.lock().members.retain(other);
            }
        }
    }

    fn next_frame(&self, unit: usize, partition: u32) -> u32 {
        let mut frames = self.frames.lock();
        let next = frames.entry((unit, partition)).or_default();
        let number = *next;
        *next = next.wrapping_add(1);
        number
    }

    fn group(&self) -> Option<(usize, Group)> {
        let left = self.left.lock();
        left.group.clone().map(|group| (left.round, group))
    }

    /// Sending to the group of a round has failed: leaves those out who have, if another task has not done so already.
    ///
    /// # Errors
    /// Returns `error` itself when no destination has failed.
    fn go_on_without(&self, round: usize, error: ExchangeError) -> Result<()> {
        let mut left = self.left.lock();
        if left.round > round {
            return Ok(());
        }
        let before = left.members.len();
        left.members
            .retain(|member| !self.shuffle.has_failed(member));
        if left.members.len() == before {
            return Err(error);
        }
        left.round += 1;
        left.group = group(&self.shuffle, &left.members)?;
        Ok(())
    }
}

/// A transmission group of those who are not in this process.
fn group(shuffle: &Shuffle, members: &[Destination]) -> Result<Option<Group>> {
    let remote = |member: &&Destination| member.local().is_none();
    let remote: Vec<_> = members.iter().filter(remote).cloned().collect();
    match remote.is_empty() {
        true => Ok(None),
        false => shuffle.group(&remote).map(Some),
    }
}
