//! The designs of the shuffle: their endpoints behind the seam. A thread has endpoints of its own, or all
//! threads of a node share one pair.

mod opening;
mod returns;
mod simulated;

use super::runtime::ThreadRuntime;
use super::{Ends, Message, MessageBuffer, Opened, Receiver, Sender};
use crate::error::{Error, Result};
use crate::meeting::Meeting;
use crate::setting::{Setting, Wait};
use arrow::buffer::Buffer;
use futures::future::try_join_all;
pub use opening::{Opening, options};
use returns::Returns;
use roundel_exchange::account::waiting_for;
use roundel_exchange::endpoint::{
    self, DestinationId, GroupId, LinkId, ReceiveEndpoint, SendBuffer, SendEndpoint,
};
use roundel_exchange::frame::RowSource;
use roundel_exchange::wire::Data;
use roundel_exchange::{Design, ExchangeError, Fabric, Selection, Spending};
use roundel_verbs::completion_queue::{WaitPolicy, until_ready};
use roundel_verbs::{Arena, ArenaOptions, CompletionQueue, CompletionStatus, Guarded};
pub(crate) use simulated::SimulatedNodes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Messages taken from an endpoint at a time.
const MESSAGE_BATCH: usize = 16;

/// The sending side of a thread.
pub struct VerbsSender {
    shared: Arc<Sending>,
    capacity: usize,
    /// Messages so far, to each group.
    sequence: Vec<u32>,
}

/// A sending endpoint, of one thread or several.
struct Sending {
    endpoint: SendEndpoint,
    destinations: Vec<DestinationId>,
    groups: Vec<GroupId>,
    /// Threads that have not finished: the last of them says the end.
    unfinished: AtomicUsize,
    /// Where it is watched.
    returns: Option<Returns>,
}

/// A buffer that a message of the endpoint is written to.
pub struct VerbsBuffer {
    buffer: SendBuffer,
    capacity: usize,
}

impl VerbsBuffer {
    /// Where it lies.
    fn address(&mut self) -> usize {
        self.buffer.payload_mut(0).as_ptr().addr()
    }
}

impl MessageBuffer for VerbsBuffer {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.buffer.write(at, bytes);
    }

    fn encode(&mut self, at: usize, source: &RowSource<'_>, rows: &Selection<'_>) -> usize {
        source.encode(rows, &mut self.buffer.payload_mut(self.capacity)[at..])
    }
}

impl Sender for VerbsSender {
    type Buffer = VerbsBuffer;

    async fn acquire(&mut self, group: usize) -> Result<VerbsBuffer> {
        let shared = &self.shared;
        let mut buffer = VerbsBuffer {
            buffer: shared.endpoint.acquire(shared.groups[group]).await?,
            capacity: self.capacity,
        };
        if let Some(returns) = &shared.returns {
            returns.acquired(buffer.address());
        }
        Ok(buffer)
    }

    async fn put(
        &mut self,
        mut buffer: VerbsBuffer,
        group: usize,
        length: usize,
        rows: u32,
    ) -> Result<()> {
        if let Some(returns) = &self.shared.returns {
            returns.sent(buffer.address());
        }
        let sequence = &mut self.sequence[group];
        let data = Data {
            frame_sequence: *sequence,
            rows,
            frame_length: length as u32,
            offset: 0,
            payload_length: length as u32,
        };
        *sequence = sequence.wrapping_add(1);
        let put = self
            .shared
            .endpoint
            .put(buffer.buffer, group as u32, data, None);
        Ok(put.await?)
    }

    async fn finish(&mut self) -> Result<()> {
        if self.shared.unfinished.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        let all = self.shared.destinations.iter();
        let all = try_join_all(all.map(|to| self.shared.endpoint.finish(*to)));
        // Until all buffers have been taken.
        waiting_for(Spending::Buffer, all).await?;
        Ok(())
    }
}

/// The receiving side of a thread.
pub struct VerbsReceiver {
    shared: Arc<Receiving>,
}

/// A receiving endpoint, of one thread or several.
struct Receiving {
    queue: CompletionQueue,
    lane: Guarded<Lane>,
}

struct Lane {
    endpoint: ReceiveEndpoint,
    links: Vec<LinkId>,
    arrived: Vec<endpoint::Message>,
    messages: VecDeque<endpoint::Message>,
    /// Something has come since the attendant last looked.
    heard: bool,
    /// Links that have ended, of the first ones.
    ended: usize,
    /// Whether another one may have failed.
    look_at_all: bool,
}

impl Message for endpoint::Message {
    fn length(&self) -> usize {
        self.data.payload_length as usize
    }

    fn copy_to(&self, target: &mut [u8]) -> Result<()> {
        self.copy_payload(target)
            .map_err(|status| lost(self, status))
    }

    fn copy(&self) -> Result<Buffer> {
        self.payload().map_err(|status| lost(self, status))
    }
}

fn lost(message: &endpoint::Message, status: CompletionStatus) -> Error {
    let peer = format!("the source of link {}", message.link.0);
    ExchangeError::PeerLost { peer, status }.into()
}

impl Lane {
    /// Takes what has arrived; whether there was anything.
    fn take(&mut self) -> bool {
        let any = self.endpoint.poll(&mut self.arrived, MESSAGE_BATCH);
        self.heard |= any;
        self.messages.extend(self.arrived.drain(..));
        any
    }

    fn arrived(&mut self) -> Option<endpoint::Message> {
        while self.messages.is_empty() && self.take() {}
        self.messages.pop_front()
    }

    fn next(&mut self) -> Poll<Result<Option<endpoint::Message>>> {
        if let Some(message) = self.arrived() {
            return Poll::Ready(Ok(Some(message)));
        }
        // There may be a thousand of them: all are looked at now and then, else only the first that has not ended.
        if std::mem::take(&mut self.look_at_all) {
            for link in &self.links[self.ended..] {
                if let Some(Err(error)) = self.endpoint.ended(*link) {
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
        while let Some(link) = self.links.get(self.ended) {
            match self.endpoint.ended(*link) {
                None => return Poll::Pending,
                Some(Ok(())) => self.ended += 1,
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Ready(Ok(None))
    }
}

impl Receiver for VerbsReceiver {
    type Message = endpoint::Message;

    async fn get(&mut self) -> Result<Option<endpoint::Message>> {
        let queue = &self.shared.queue;
        until_ready(&[queue], |_| self.shared.lane.lock().next()).await
    }

    fn take(&mut self) -> Result<Option<endpoint::Message>> {
        Ok(self.shared.lane.lock().arrived())
    }

    fn release(&mut self, message: endpoint::Message) {
        let mut lane = self.shared.lane.lock();
        let link = message.link;
        lane.endpoint.release(message, true);
        if lane.endpoint.ended(link).is_some() {
            drop(lane);
            // Others may wait for the end that this message was missing for.
            self.shared.queue.wake();
        }
    }
}

impl From<Wait> for WaitPolicy {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Events => Self::Events,
            Wait::Spin(microseconds) => Self::SpinThenSleep(Duration::from_micros(microseconds)),
            Wait::Poll => Self::Poll,
        }
    }
}

/// Opens the endpoints of a node and connects them with all others.
pub async fn open(
    setting: &Setting,
    design: Design,
    meeting: &mut Meeting,
) -> Result<Opened<VerbsSender, VerbsReceiver>> {
    let device = setting.fabric.open(meeting.address())?;
    let arena = device.arena(ArenaOptions::default());
    let runtimes = (0..setting.threads)
        .map(|_| ThreadRuntime::new())
        .collect::<Result<Vec<_>>>()?;
    let endpoints = design.endpoints(setting.threads);
    // An endpoint that threads share is served beside them all.
    let per_thread = endpoints == setting.threads;
    let fabrics = runtimes[..endpoints].iter().map(|runtime| {
        let _inside = per_thread.then(|| runtime.enter());
        fabric(setting, &device, &arena)
    });
    let fabrics = fabrics.collect::<Result<Vec<_>>>()?;
    let options = options(setting, design, device.capabilities(), None)?;
    let (mut opening, offers) = Opening::new(setting, meeting.node(), fabrics, &options)?;
    let offers = meeting.each(offers).await?;
    let mut answers = Vec::new();
    for (target, offers) in offers.iter().enumerate() {
        answers.push(opening.accept(target, offers)?);
    }
    for (source, answers) in meeting.each(answers).await?.iter().enumerate() {
        opening.connect(source, answers)?;
    }
    let (ends, endpoints) = opening.open(setting.threads, &setting.groups())?;
    let thread = |((sender, receiver), runtime)| Ends {
        sender,
        receiver,
        runtime: Some(runtime),
    };
    Ok(Opened {
        threads: ends.into_iter().zip(runtimes).map(thread).collect(),
        endpoints,
    })
}

/// The fabric of an endpoint, on the runtime that this is called in.
fn fabric(setting: &Setting, device: &roundel_verbs::Device, arena: &Arena) -> Result<Fabric> {
    let channel = device.create_channel()?;
    channel.set_wait_policy(setting.wait.into());
    let context = Arc::new(roundel_verbs::TokioContext::current());
    roundel_verbs::Context::spawn(&*context, Box::pin(channel.drive()?));
    Ok(Fabric {
        device: device.clone(),
        arena: arena.clone(),
        channel,
        context,
    })
}
