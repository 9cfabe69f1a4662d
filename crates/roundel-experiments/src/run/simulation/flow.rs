//! The two operators of a thread where messages have lengths only: as many tuples as fit stand in each, of which
//! there is a number to check it by.

use super::cost::{Cost, Costly};
use crate::error::{Error, Result};
use crate::measured::Rows;
use crate::transport::{Message, MessageBuffer, Receiver, Sender};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use std::time::Duration;

/// The moments of a run.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub begin: Duration,
    /// For how long there is sent.
    pub length: Duration,
}

impl Times {
    /// When no more is sent.
    pub(super) fn until(&self) -> Duration {
        self.begin + self.length
    }

    /// When what arrives is counted: neither while buffers are first filled nor while the last ones are emptied.
    pub(super) fn counted(&self) -> Range<Duration> {
        self.begin + self.length / 4..self.until()
    }

    /// The middle half.
    fn midway(&self) -> Range<Duration> {
        self.begin + self.length / 4..self.begin + self.length * 3 / 4
    }
}

/// What a thread sends and receives.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub tuple_bytes: usize,
    /// Rounds of work for each tuple.
    pub work: u32,
    /// The same in the middle half of the time, where it is another.
    pub work_midway: Option<u32>,
    pub times: Times,
    pub groups: usize,
    pub seed: u64,
}

impl Flow {
    /// Sends messages to all groups while there is time, each time around in another order. As where rows come in no order,
    /// a buffer of each group is taken at once, and all of them are full at about the same time. Returns what went to
    /// each group.
    pub(super) async fn send(&self, sender: &mut Costly<impl Sender>) -> Result<Vec<Rows>> {
        let until = self.times.until();
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let mut order: Vec<usize> = (0..self.groups).collect();
        let mut sent = vec![Rows::default(); self.groups];
        let mut open = Vec::new();
        while sent[0].count == 0 || sender.cost.context.now() < until {
            order.shuffle(&mut random);
            for &group in &order {
                open.push((group, sender.acquire(group).await?));
            }
            for (group, mut buffer) in open.drain(..) {
                let capacity = buffer.capacity();
                let tuples = (sender.cost.length(capacity) / self.tuple_bytes) as u64;
                let number = self.seed.wrapping_add(sent[group].count);
                buffer.write(0, &number.to_le_bytes());
                sent[group].add(Rows {
                    count: tuples,
                    keys: number,
                });
                sender.put(buffer, group, capacity, tuples as u32).await?;
            }
        }
        sender.finish().await?;
        Ok(sent)
    }

    /// Rounds of work for a tuple at a moment.
    pub(super) fn work_at(&self, now: Duration) -> u32 {
        match self.work_midway {
            Some(work) if self.times.midway().contains(&now) => work,
            _ => self.work,
        }
    }

    /// Takes what comes, to the end, and works on it; what came, and the bytes of what was counted.
    pub(super) async fn receive(
        &self,
        receiver: &mut impl Receiver,
        cost: &Cost,
    ) -> Result<(Rows, u64)> {
        let counted = self.times.counted();
        let (mut received, mut bytes) = (Rows::default(), 0);
        let mut copy = Vec::new();
        while let Some(message) = receiver.get().await? {
            copy.resize(message.length(), 0);
            message.copy_to(&mut copy)?;
            receiver.release(message);
            let length = cost.length(copy.len());
            let tuples = (length / self.tuple_bytes) as u64;
            let number = copy.first_chunk::<8>();
            let number = number.ok_or_else(|| Error::Wrong("a message is too short".into()))?;
            received.add(Rows {
                count: tuples,
                keys: u64::from_le_bytes(*number),
            });
            if counted.contains(&cost.context.now()) {
                bytes += length as u64;
            }
            cost.work(tuples, self.work_at(cost.context.now())).await;
        }
        Ok((received, bytes))
    }
}
