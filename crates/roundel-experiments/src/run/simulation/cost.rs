//! What moving a message costs the processor of a simulated node: the ends of a transport that charge it for
//! hashing and copying, and the models of TCP and of MPI, which are no more than costs.
//!
//! * TCP: what the designs' endpoints do over reliable connections with messages of 128 KiB, where each byte passes
//!   the kernel on the thread that sends it, once for each node that it goes to, and on the one thread of a node that
//!   receives.
//! * MPI: the same with messages of 64 KiB, each of which is announced, admitted, written and confirmed (rendezvous),
//!   under one lock that all threads of a process share: of four calls of the sender for each node and three of the
//!   receiver. Threads that wait for a message poll under that lock too, so that handing it over takes longer the more
//!   of them there are (MPICH, pull request 3068): 16 threads get 0.62 million messages per second out of it by this
//!   model, and got 0.56 million (MPICH, pull request 3917).

use crate::error::Result;
use crate::setting::ROUND_CYCLES;
use crate::transport::{Receiver, Sender};
use parking_lot::Mutex;
use roundel_exchange::wire::HEADER_LENGTH;
use roundel_verbs::sim::{Parameters, SimNode};
use roundel_verbs::{Context, Guarded, Work, settle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Cycles of a call of MPI: 3.8 million messages per second of a pair (Open MPI, issue 1831), of two calls each.
const MPI_CALL_CYCLES: u64 = 315;
/// Calls for a message.
const MPI_CALLS_TO_SEND: usize = 4;
const MPI_CALLS_TO_RECEIVE: usize = 3;

/// The processor of a thread.
#[derive(Clone)]
pub(super) struct Cost {
    pub context: Arc<dyn Context>,
    pub parameters: Arc<Parameters>,
    pub path: Path,
    /// What all threads of a node spent so far.
    pub spent: Arc<Mutex<Spent>>,
    /// Whether tuples are copied into messages and out of them.
    pub copies: bool,
    /// Nodes that each message goes to.
    pub members: usize,
}

/// Time of threads.
#[derive(Clone, Copy, Default)]
pub(super) struct Spent {
    /// In which they waited for buffers.
    pub for_buffers: Duration,
    /// In which the kernel moved bytes for them.
    pub in_kernel: Duration,
}

/// What is between the operators and the device.
#[derive(Clone)]
pub(super) enum Path {
    Verbs,
    Tcp,
    Mpi {
        lock: Arc<Guarded<()>>,
        /// Threads that wait.
        waiting: Arc<AtomicU64>,
        /// From announcing a message to learning that it may be written.
        handshake: Duration,
    },
}

impl Path {
    /// What a process of MPI shares.
    pub(super) fn mpi(node: &SimNode, parameters: &Parameters) -> Self {
        Self::Mpi {
            lock: Arc::new(Guarded::new((), &*node.context())),
            waiting: Arc::default(),
            handshake: parameters.round_trip(),
        }
    }
}

impl Cost {
    /// Bytes of payload that a message with so many stands for.
    pub(super) fn length(&self, bytes: usize) -> usize {
        self.parameters.length_of(HEADER_LENGTH + bytes) - HEADER_LENGTH
    }

    async fn calls(&self, lock: &Guarded<()>, waiting: &AtomicU64, count: usize) {
        let cpu = &self.parameters.cpu;
        // Half of those that wait are on the other processor.
        let looks = cpu.handover.within + cpu.handover.across;
        let handed_over = looks.as_picos() / 2 / cpu.cycle.as_picos().max(1);
        for _ in 0..count {
            {
                let _held = lock.lock();
                let disturbed = waiting.load(Ordering::Relaxed) * handed_over;
                self.context
                    .charge(Work::Cycles(MPI_CALL_CYCLES + disturbed));
            }
            settle(&*self.context).await;
        }
    }

    /// Waits for something of the transport.
    async fn wait<T>(&self, something: impl Future<Output = T>) -> T {
        match &self.path {
            Path::Verbs | Path::Tcp => something.await,
            Path::Mpi { waiting, .. } => {
                waiting.fetch_add(1, Ordering::Relaxed);
                let result = something.await;
                waiting.fetch_sub(1, Ordering::Relaxed);
                result
            }
        }
    }

    /// Everything that takes long is over when this returns: what is posted next is posted then.
    async fn to_send(&self, length: usize) {
        self.context.charge(Work::Hash(length));
        self.copy(length);
        match &self.path {
            Path::Verbs => {}
            Path::Tcp => self.kernel(length * self.members),
            Path::Mpi {
                lock,
                waiting,
                handshake,
            } => {
                settle(&*self.context).await;
                let calls = MPI_CALLS_TO_SEND * self.members;
                self.calls(lock, waiting, calls).await;
                self.context.sleep(*handshake).await;
            }
        }
        settle(&*self.context).await;
    }

    async fn to_receive(&self, length: usize) {
        match &self.path {
            Path::Verbs => {}
            Path::Tcp => self.kernel(length),
            Path::Mpi { lock, waiting, .. } => {
                self.calls(lock, waiting, MPI_CALLS_TO_RECEIVE).await;
            }
        }
        self.copy(length);
        settle(&*self.context).await;
    }

    fn kernel(&self, length: usize) {
        self.context.charge(Work::Tcp(length));
        self.spent.lock().in_kernel += Duration::from(self.parameters.cpu.tcp.time(length));
    }

    fn copy(&self, length: usize) {
        if self.copies {
            self.context.charge(Work::Copy(length));
        }
    }

    /// A consumer's rounds of work on each of so many tuples.
    pub(super) async fn work(&self, tuples: u64, rounds: u32) {
        if rounds > 0 {
            let cycles = tuples * u64::from(rounds) * ROUND_CYCLES;
            self.context.charge(Work::Cycles(cycles));
            settle(&*self.context).await;
        }
    }
}

/// A sender whose messages cost what they cost.
pub(super) struct Costly<E> {
    pub end: E,
    pub cost: Cost,
}

impl<S: Sender> Sender for Costly<S> {
    type Buffer = S::Buffer;

    async fn acquire(&mut self, group: usize) -> Result<S::Buffer> {
        let before = self.cost.context.now();
        let buffer = self.cost.wait(self.end.acquire(group)).await;
        let waited = self.cost.context.now().saturating_sub(before);
        self.cost.spent.lock().for_buffers += waited;
        buffer
    }

    async fn put(
        &mut self,
        buffer: S::Buffer,
        group: usize,
        length: usize,
        rows: u32,
    ) -> Result<()> {
        self.cost.to_send(self.cost.length(length)).await;
        self.end.put(buffer, group, length, rows).await
    }

    async fn finish(&mut self) -> Result<()> {
        self.end.finish().await
    }
}

impl<R: Receiver> Receiver for Costly<R> {
    type Message = R::Message;

    async fn get(&mut self) -> Result<Option<R::Message>> {
        let got = self.cost.wait(self.end.get()).await?;
        if let Some(message) = &got {
            let length = crate::transport::Message::length(message);
            self.cost.to_receive(self.cost.length(length)).await;
        }
        Ok(got)
    }

    fn release(&mut self, message: R::Message) {
        self.end.release(message);
    }
}
