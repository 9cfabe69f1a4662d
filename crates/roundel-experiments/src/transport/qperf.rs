//! What the network can do: one registered buffer is sent over and over, over reliable connections and
//! without credit, and nobody looks at it (section 7.1, qperf). Or a few bytes of it go back and forth.

use super::runtime::ThreadRuntime;
use crate::error::{Error, Result};
use crate::measured::Rows;
use crate::meeting::Meeting;
use crate::setting::{MESSAGE_BYTES, Setting};
use parking_lot::Mutex;
use roundel_exchange::Fabric;
use roundel_verbs::completion_queue::until_ready;
use roundel_verbs::rendezvous::{pack_list, unpack_list};
use roundel_verbs::{
    ArenaOptions, Completion, CompletionQueue, CompletionStatus, Opcode, Payload, QueuePair,
    QueuePairAddress, QueuePairOptions, ReceiveRequest, SendOperation, SendRequest, SharedBuffer,
    Transport,
};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Sends in flight to each node, and receives posted for each.
const DEPTH: usize = 32;
/// Completions taken at a time.
const POLL_BATCH: usize = 64;
/// Bytes that go back and forth.
const PING_BYTES: usize = 8;
/// Immediate data of the last message.
const LAST: u32 = 1;

/// The queue pairs of a thread.
pub struct Pairs {
    queue: CompletionQueue,
    outgoing: Vec<Outgoing>,
    incoming: Vec<QueuePair>,
    buffer: SharedBuffer,
    message_bytes: usize,
    completions: Vec<Completion>,
    received: u64,
    /// Messages that came from each node, when they are answered.
    came: Vec<u64>,
    /// Seconds of each round trip.
    pub round_trips: Arc<Mutex<Vec<f64>>>,
    ended: usize,
    // What completions are waited for with.
    _fabric: Fabric,
}

struct Outgoing {
    node: u64,
    queue_pair: QueuePair,
    in_flight: usize,
    sent: u64,
    last_sent: bool,
}

/// Opens the queue pairs of a node: one for each pair of threads of the same number, in each direction.
pub async fn open(setting: &Setting, meeting: &mut Meeting) -> Result<Vec<(Pairs, ThreadRuntime)>> {
    let device = setting.fabric.open(meeting.address())?;
    let message_bytes = setting.message_bytes.unwrap_or(MESSAGE_BYTES);
    let mut threads = Vec::new();
    let mut own = vec![Vec::new(); setting.nodes];
    for _ in 0..setting.threads {
        let runtime = ThreadRuntime::new()?;
        let inside = runtime.enter();
        let fabric = Fabric::open(device.clone(), ArenaOptions::default())?;
        fabric.channel.set_wait_policy(setting.wait.into());
        let (pairs, said) = Pairs::open(fabric, setting.nodes, message_bytes)?;
        drop(inside);
        own.iter_mut()
            .zip(said)
            .for_each(|(own, said)| own.extend(said));
        threads.push((pairs, runtime));
    }
    let theirs = meeting
        .each(own.iter().map(|list| pack_list(list)).collect())
        .await?;
    for (node, said) in theirs.iter().enumerate() {
        let wrong = || Error::Wrong(format!("node {node} has other queue pairs"));
        let list = unpack_list(said).filter(|list| list.len() == 2 * setting.threads);
        let list = list.ok_or_else(wrong)?;
        for ((pairs, _), addresses) in threads.iter().zip(list.chunks(2)) {
            pairs.connect(node, addresses)?;
        }
    }
    meeting.barrier().await?;
    Ok(threads)
}

impl Pairs {
    /// Those of a thread with all nodes, and the addresses of the two for each.
    ///
    /// # Errors
    /// When the device refuses something.
    pub fn open(
        fabric: Fabric,
        nodes: usize,
        message_bytes: usize,
    ) -> Result<(Self, Vec<[Vec<u8>; 2]>)> {
        let device = &fabric.device;
        let queue = device.create_completion_queue(2 * DEPTH * nodes, Some(&fabric.channel))?;
        let mut buffer = fabric.arena.allocate(message_bytes)?;
        buffer.write(0, &vec![0x5a; message_bytes]);
        let pair = |receive_depth| {
            let options = QueuePairOptions {
                transport: Transport::ReliableConnection,
                send_depth: DEPTH,
                receive_depth,
                rnr_retry: 7,
                queue_key: 0,
            };
            device.create_queue_pair(&options, &queue, &queue)
        };
        let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
        let mut said = Vec::new();
        for node in 0..nodes as u64 {
            let to = pair(1)?;
            let from = pair(DEPTH)?;
            let receive = |_| {
                Ok(ReceiveRequest {
                    id: node,
                    buffer: Some(fabric.arena.allocate(message_bytes)?),
                })
            };
            let mut receives = (0..DEPTH).map(receive).collect::<Result<Vec<_>>>()?;
            from.post_receive(&mut receives)?;
            said.push([to.address().to_bytes(), from.address().to_bytes()]);
            outgoing.push(Outgoing {
                node,
                queue_pair: to,
                in_flight: 0,
                sent: 0,
                last_sent: false,
            });
            incoming.push(from);
        }
        let pairs = Self {
            queue,
            outgoing,
            incoming,
            buffer: buffer.share(),
            message_bytes,
            completions: Vec::new(),
            received: 0,
            came: vec![0; nodes],
            round_trips: Arc::default(),
            ended: 0,
            _fabric: fabric,
        };
        Ok((pairs, said))
    }

    /// Connects those with a node, by the addresses of its two.
    ///
    /// # Errors
    /// When they are none.
    pub fn connect(&self, node: usize, addresses: &[Vec<u8>]) -> Result<()> {
        let address = |at: usize| QueuePairAddress::from_bytes(&addresses[at]);
        self.incoming[node].connect(&address(0)?)?;
        self.outgoing[node].queue_pair.connect(&address(1)?)?;
        Ok(())
    }

    /// Sends until it is over and takes what comes, to the end; says how many came whenever it has looked. Returns what went to each node, and what came; a
    /// message counts as a row.
    ///
    /// # Errors
    /// When a message failed.
    pub async fn run(
        &mut self,
        over: impl Fn() -> bool,
        mut heard: impl FnMut(u64),
    ) -> Result<(Vec<Rows>, Rows)> {
        let queue = self.queue.clone();
        until_ready(&[&queue], |_| self.step(&over, &mut heard)).await?;
        Ok(self.rows())
    }

    /// Sends a few bytes to the other node of a pair, or answers it, until a moment. Returns the same.
    ///
    /// # Errors
    /// When a message failed.
    pub async fn ping_pong(
        &mut self,
        node: usize,
        until: Duration,
        now: impl Fn() -> Duration,
    ) -> Result<(Vec<Rows>, Rows)> {
        let other = node ^ 1;
        let asks = node < other;
        let mut turns = 0;
        while self.ended == 0 {
            turns += 1;
            let before = now();
            if asks {
                let over = before >= until;
                self.outgoing[other].post_one(&self.buffer, PING_BYTES, over)?;
            }
            self.wait_for(other, turns).await?;
            if asks {
                let took = now().saturating_sub(before);
                self.round_trips.lock().push(took.as_secs_f64());
            } else {
                let over = self.ended > 0;
                self.outgoing[other].post_one(&self.buffer, PING_BYTES, over)?;
            }
        }
        Ok(self.rows())
    }

    /// Seconds of a round trip: their median, 0 of none.
    pub fn round_trip(round_trips: &Mutex<Vec<f64>>) -> f64 {
        let mut all = round_trips.lock();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    }

    /// What went to each node, and what came.
    fn rows(&self) -> (Vec<Rows>, Rows) {
        let rows = |count| Rows { count, keys: 0 };
        let sent = self.outgoing.iter().map(|to| rows(to.sent)).collect();
        (sent, rows(self.received))
    }

    /// Bytes of a message.
    pub fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// Goes on as far as possible.
    fn step(&mut self, over: impl Fn() -> bool, mut heard: impl FnMut(u64)) -> Poll<Result<()>> {
        loop {
            let over = over();
            for to in &mut self.outgoing {
                to.post(&self.buffer, self.message_bytes, over)?;
            }
            let before = self.received;
            let found = self.take_all()?;
            heard(self.received - before);
            let done = |to: &Outgoing| to.last_sent && to.in_flight == 0;
            if self.ended == self.incoming.len() && self.outgoing.iter().all(done) {
                return Poll::Ready(Ok(()));
            }
            if found == 0 {
                return Poll::Pending;
            }
        }
    }

    fn take_all(&mut self) -> Result<usize> {
        let mut completions = std::mem::take(&mut self.completions);
        let found = self.queue.poll(&mut completions, POLL_BATCH);
        for completion in completions.drain(..) {
            self.take(completion)?;
        }
        self.completions = completions;
        Ok(found)
    }

    /// Waits until so many messages have come from a node.
    async fn wait_for(&mut self, node: usize, count: u64) -> Result<()> {
        let queue = self.queue.clone();
        until_ready(&[&queue], |_| {
            if let Err(error) = self.take_all() {
                return Poll::Ready(Err(error));
            }
            match self.came[node] >= count {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            }
        })
        .await
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let number = completion.id as usize;
        if completion.status != CompletionStatus::Success {
            return Err(Error::Wrong(format!(
                "a message with node {number} failed: {:?}",
                completion.status
            )));
        }
        if completion.opcode != Opcode::Receive {
            self.outgoing[number].in_flight -= 1;
            return Ok(());
        }
        self.received += 1;
        self.came[number] += 1;
        if completion.immediate == Some(LAST) {
            self.ended += 1;
        }
        let mut again = vec![ReceiveRequest {
            id: completion.id,
            buffer: completion.buffer,
        }];
        self.incoming[number].post_receive(&mut again)?;
        Ok(())
    }
}

impl Outgoing {
    /// Posts as many sends as there is room for.
    fn post(&mut self, buffer: &SharedBuffer, length: usize, over: bool) -> Result<()> {
        while self.in_flight < DEPTH && !self.last_sent {
            self.post_one(buffer, length, over)?;
        }
        Ok(())
    }

    fn post_one(&mut self, buffer: &SharedBuffer, length: usize, last: bool) -> Result<()> {
        let operation = match last {
            true => SendOperation::SendWithImmediate(LAST),
            false => SendOperation::Send,
        };
        let mut request = vec![SendRequest {
            id: self.node,
            operation,
            payload: Payload::Shared {
                buffer: buffer.clone(),
                length,
            },
            destination: None,
        }];
        self.queue_pair.post_send(&mut request)?;
        self.last_sent = last;
        self.in_flight += 1;
        self.sent += 1;
        Ok(())
    }
}
