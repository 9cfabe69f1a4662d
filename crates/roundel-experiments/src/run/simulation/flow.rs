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

/// What a thread sends and receives.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub tuple_bytes: usize,
    /// Rounds of work for each tuple.
    pub work: u32,
    /// The same in the middle half of the time, where it is another.
    pub work_midway: Option<u32>,
    /// When it begins, and for how long there is sent.
    pub time: (Duration, Duration),
    pub groups: usize,
    pub seed: u64,
}

impl Flow {
    /// Sends messages to all groups until a moment, each time around in another order. As where rows come in no order,
    /// a buffer of each group is taken at once, and all of them are full at about the same time. Returns what went to
    /// each group.
    pub(super) async fn send(
        &self,
        sender: &mut Costly<impl Sender>,
        until: Duration,
    ) -> Result<Vec<Rows>> {
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

    fn work_at(&self, now: Duration) -> u32 {
        let (begin, length) = self.time;
        let midway = begin + length / 4..begin + length * 3 / 4;
        match self.work_midway {
            Some(work) if midway.contains(&now) => work,
            _ => self.work,
        }
    }

    /// Takes what comes, to the end, and works on it; what came, and the bytes of what came in a time.
    pub(super) async fn receive(
        &self,
        receiver: &mut impl Receiver,
        cost: &Cost,
        counted: &Range<Duration>,
    ) -> Result<(Rows, u64)> {
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
