//! The designs of the shuffle: their endpoints behind the seam. A thread has endpoints of its own, or all
//! threads of a node share one pair.

use super::runtime::ThreadRuntime;
use super::{Ends, Message, MessageBuffer, Opened, Receiver, Sender};
use crate::error::{Error, Result};
use crate::measured::Endpoints;
use crate::meeting::Meeting;
use crate::setting::{Setting, Transport, Wait};
use arrow::buffer::Buffer;
use futures::future::try_join_all;
use parking_lot::Mutex;
use roundel_exchange::endpoint::{
    self, DestinationId, GroupId, LinkId, ReceiveEndpoint, SendBuffer, SendEndpoint,
};
use roundel_exchange::frame::RowSource;
use roundel_exchange::wire::{Data, HEADER_LENGTH};
use roundel_exchange::{
    Buffers, Design, ExchangeError, ExchangeOptions, Fabric, LinkAddress, Selection,
};
use roundel_verbs::completion_queue::{WaitPolicy, until_ready};
use roundel_verbs::rendezvous::{pack_list, unpack_list};
use roundel_verbs::{Arena, ArenaOptions, CompletionQueue, CompletionStatus, Opcode};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Messages taken from an endpoint at a time.
const MESSAGE_BATCH: usize = 16;
/// Most buffers of a link whose messages are small.
const BUFFERS_MAX: usize = 512;
/// The number of the one exchange there is.
const EXCHANGE: u64 = 1;

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
}

/// A buffer that a message of the endpoint is written to.
pub struct VerbsBuffer {
    buffer: SendBuffer,
    capacity: usize,
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
        Ok(VerbsBuffer {
            buffer: self
                .shared
                .endpoint
                .acquire(self.shared.groups[group])
                .await?,
            capacity: self.capacity,
        })
    }

    async fn put(
        &mut self,
        buffer: VerbsBuffer,
        group: usize,
        length: usize,
        rows: u32,
    ) -> Result<()> {
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
        try_join_all(all.map(|to| self.shared.endpoint.finish(*to))).await?;
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
    lane: Mutex<Lane>,
}

struct Lane {
    endpoint: ReceiveEndpoint,
    links: Vec<LinkId>,
    arrived: Vec<endpoint::Message>,
    messages: VecDeque<endpoint::Message>,
    /// Something has come since the attendant last looked.
    heard: bool,
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
        let mut all = true;
        for link in &self.links {
            match self.endpoint.ended(*link) {
                None => all = false,
                Some(Ok(())) => {}
                Some(Err(error)) => return Poll::Ready(Err(error.into())),
            }
        }
        match all {
            true => Poll::Ready(Ok(None)),
            false => Poll::Pending,
        }
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

/// Does for a receiving endpoint what nobody does who reads: repeats what may be lost, asks those that
/// are silent, and tells readers that sleep.
async fn attend(receiving: std::sync::Weak<Receiving>, fabric: Fabric, interval: Duration) {
    loop {
        fabric.context.sleep(interval).await;
        let Some(receiving) = receiving.upgrade() else {
            return;
        };
        let mut lane = receiving.lane.lock();
        lane.endpoint.attend();
        if !std::mem::take(&mut lane.heard) {
            while lane.take() {}
            lane.endpoint.on_silence();
            drop(lane);
            receiving.queue.wake();
        }
    }
}

/// The options of an exchange.
fn options(setting: &Setting, design: Design, fabric: &Fabric) -> Result<ExchangeOptions> {
    let capabilities = fabric.device.capabilities();
    if let Some(reason) = design.lacks(capabilities) {
        return Err(Error::Setting(format!(
            "{design} cannot run on this device: {reason}"
        )));
    }
    let mut options = ExchangeOptions::new(design, setting.threads, capabilities);
    if let Some(bytes) = message_bytes(setting) {
        let most = match design.transport() {
            roundel_verbs::Transport::ReliableConnection => capabilities.rc_message_bytes_max,
            _ => capabilities.ud_message_bytes_max,
        };
        options.message_bytes = bytes.min(most);
    }
    options.window = setting.buffers.window(options.message_bytes);
    if let Buffers::Adaptive = setting.buffers {
        // As many messages of a tuple as windows have bytes would not fit into queues.
        let window = &mut options.window;
        for count in [&mut window.least, &mut window.first, &mut window.most] {
            *count = (*count).min(BUFFERS_MAX);
        }
    }
    if let Some(frequency) = setting.credit_frequency {
        options.credit_frequency = frequency;
    }
    Ok(options)
}

/// Bytes of a message, where they are not the default ones.
fn message_bytes(setting: &Setting) -> Option<usize> {
    match setting.transport {
        Transport::ZeroCopy(_) => Some(HEADER_LENGTH + setting.tuple_bytes),
        _ => setting.message_bytes,
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
    let device = setting.fabric.open()?;
    let arena = device.arena(ArenaOptions::default());
    let node = meeting.node();
    let runtimes = (0..setting.threads)
        .map(|_| ThreadRuntime::new())
        .collect::<Result<Vec<_>>>()?;
    let endpoints = design.endpoints(setting.threads);
    let per_thread = endpoints == setting.threads;
    let mut receiving = Vec::new();
    let mut sending = Vec::new();
    let mut offers = vec![Vec::new(); setting.nodes];
    for runtime in &runtimes[..endpoints] {
        // An endpoint that threads share is served beside them all.
        let _inside = per_thread.then(|| runtime.enter());
        let fabric = fabric(setting, &device, &arena)?;
        let options = options(setting, design, &fabric)?;
        let mut receiver = ReceiveEndpoint::open(&fabric, &options)?;
        let sender = SendEndpoint::open(&fabric, &options, EXCHANGE, node as u32)?;
        fabric.context.spawn(Box::pin(sender.attend()));
        let mut links = Vec::new();
        for (source, offers) in offers.iter_mut().enumerate() {
            let (link, offer) = receiver.offer(&name(source))?;
            links.push(link);
            offers.push(offer.to_bytes());
        }
        receiving.push((receiver, links, fabric, options));
        sending.push(sender);
    }
    let offers = meeting
        .each(offers.iter().map(|list| pack_list(list)).collect())
        .await?;
    let mut destinations = vec![Vec::new(); endpoints];
    let mut answers = vec![Vec::new(); setting.nodes];
    for (target, offers) in offers.iter().enumerate() {
        let offers = addresses(offers, target, endpoints)?;
        for (number, offer) in offers.iter().enumerate() {
            let _inside = per_thread.then(|| runtimes[number].enter());
            let (destination, answer) = sending[number].accept(offer, &name(target))?;
            destinations[number].push(destination);
            answers[target].push(answer.to_bytes());
        }
    }
    let answers = meeting
        .each(answers.iter().map(|list| pack_list(list)).collect())
        .await?;
    for (source, answers) in answers.iter().enumerate() {
        let answers = addresses(answers, source, endpoints)?;
        for (number, answer) in answers.iter().enumerate() {
            let (receiver, links, ..) = &mut receiving[number];
            receiver.connect(links[source], answer)?;
        }
    }
    let capacity = receiving[0].3.message_bytes - HEADER_LENGTH;
    let mut receivers = Vec::new();
    for (number, (endpoint, links, fabric, options)) in receiving.into_iter().enumerate() {
        let _inside = per_thread.then(|| runtimes[number].enter());
        let receiving = Arc::new(Receiving {
            queue: endpoint.queue().clone(),
            lane: Mutex::new(Lane {
                endpoint,
                links,
                arrived: Vec::new(),
                messages: VecDeque::new(),
                heard: true,
            }),
        });
        let attendant = attend(
            Arc::downgrade(&receiving),
            fabric.clone(),
            options.repeat_interval,
        );
        fabric.context.spawn(Box::pin(attendant));
        receivers.push(receiving);
    }
    let mut senders = Vec::new();
    for (endpoint, destinations) in sending.into_iter().zip(destinations) {
        let group = |nodes: &Vec<usize>| {
            let members: Vec<_> = nodes.iter().map(|node| destinations[*node]).collect();
            endpoint.group(&members)
        };
        let groups: Result<Vec<_>, _> = setting.groups().iter().map(group).collect();
        let groups = groups?;
        senders.push(Arc::new(Sending {
            endpoint,
            destinations,
            groups,
            unfinished: AtomicUsize::new(setting.threads / endpoints),
        }));
    }
    let thread = |(number, runtime): (usize, ThreadRuntime)| Ends {
        sender: VerbsSender {
            shared: senders[number % endpoints].clone(),
            capacity,
            sequence: vec![0; senders[0].groups.len()],
        },
        receiver: VerbsReceiver {
            shared: receivers[number % endpoints].clone(),
        },
        runtime: Some(runtime),
    };
    let threads = runtimes.into_iter().enumerate().map(thread).collect();
    let endpoints = Box::new(move || {
        let mut sum = Endpoints::default();
        senders.iter().for_each(|one| sum.add(&of_sender(one)));
        receivers
            .iter()
            .for_each(|one| sum.add(&of_receiver(&one.lane.lock())));
        sum
    });
    Ok(Opened { threads, endpoints })
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

fn name(node: usize) -> String {
    format!("node {node}")
}

/// The addresses in what a node handed over, one for each endpoint.
fn addresses(bytes: &[u8], node: usize, endpoints: usize) -> Result<Vec<LinkAddress>> {
    let list = unpack_list(bytes).filter(|list| list.len() == endpoints);
    let list = list.ok_or_else(|| Error::Wrong(format!("node {node} has other endpoints")))?;
    let read = |one: &Vec<u8>| Ok(LinkAddress::from_bytes(one, &name(node))?);
    list.iter().map(read).collect()
}

fn of_sender(sending: &Sending) -> Endpoints {
    let report = sending.endpoint.report();
    let to = sending.destinations.iter();
    let to = to.map(|to| sending.endpoint.destination_report(*to));
    Endpoints {
        queue_pairs: report.queue_pairs as u64,
        registered_bytes: report.registered_bytes as u64,
        messages: to.map(|to| to.messages).sum(),
        blocked_for_credit: report.blocked_for_credit.as_secs_f64(),
        writes: writes(&report),
        ..Endpoints::default()
    }
}

fn of_receiver(lane: &Lane) -> Endpoints {
    let report = lane.endpoint.report();
    let counters = &report.counters;
    Endpoints {
        registered_bytes: report.registered_bytes as u64,
        // With immediate data over connections, by datagrams elsewhere: each of both is nothing else.
        credit_messages: counters.messages(Opcode::WriteWithImmediate)
            + counters.messages(Opcode::Send),
        writes: writes(&report),
        window: {
            let windows = lane.links.iter().map(|link| lane.endpoint.window(*link));
            windows.sum::<usize>() as f64 / lane.links.len() as f64
        },
        crediting: report.crediting.as_secs_f64(),
        ..Endpoints::default()
    }
}

fn writes(report: &roundel_exchange::EndpointReport) -> u64 {
    let of = |opcode| report.counters.messages(opcode);
    of(Opcode::Write) + of(Opcode::WriteWithImmediate)
}
