//! Opens the endpoints of a node and connects them with those of all others, step by step: whoever runs it
//! carries what the nodes say to each other.

use super::{Lane, Receiving, Returns, Sending, VerbsReceiver, VerbsSender};
use crate::error::{Error, Result};
use crate::measured::Endpoints;
use crate::setting::{Setting, Transport};
use crate::transport::AskEndpoints;
use roundel_exchange::buffers::Rule;
use roundel_exchange::endpoint::{DestinationId, LinkId, ReceiveEndpoint, SendEndpoint};
use roundel_exchange::wire::HEADER_LENGTH;
use roundel_exchange::{Buffers, CreditBy, Design, ExchangeOptions, Fabric, LinkAddress};
use roundel_verbs::rendezvous::{pack_list, unpack_list};
use roundel_verbs::sim::Parameters;
use roundel_verbs::{Capabilities, Guarded, Opcode};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Most buffers of a link whose messages are small.
const BUFFERS_MAX: usize = 512;
/// Receives that a link over datagrams may have besides those of its messages.
const RECEIVES_MORE: usize = 16;
/// The number of the one exchange there is.
const EXCHANGE: u64 = 1;

/// The endpoints of a node, which are being connected.
pub struct Opening {
    options: ExchangeOptions,
    receiving: Vec<(ReceiveEndpoint, Vec<LinkId>, Fabric)>,
    sending: Vec<(SendEndpoint, Option<Returns>)>,
    /// By endpoint: those of all nodes.
    destinations: Vec<Vec<DestinationId>>,
}

impl Opening {
    /// Opens an endpoint of each kind on each fabric. Returns what is to be said to each node.
    ///
    /// # Errors
    /// When the device refuses something.
    pub fn new(
        setting: &Setting,
        node: usize,
        fabrics: Vec<Fabric>,
        options: &ExchangeOptions,
    ) -> Result<(Self, Vec<Vec<u8>>)> {
        let mut opening = Self {
            options: options.clone(),
            receiving: Vec::new(),
            sending: Vec::new(),
            destinations: vec![Vec::new(); fabrics.len()],
        };
        let mut offers = vec![Vec::new(); setting.nodes];
        for fabric in fabrics {
            let mut receiver = ReceiveEndpoint::open(&fabric, options)?;
            let sender = SendEndpoint::open(&fabric, options, EXCHANGE, node as u32)?;
            fabric.context.spawn(Box::pin(sender.attend()));
            let mut links = Vec::new();
            for (source, offers) in offers.iter_mut().enumerate() {
                let (link, offer) = receiver.offer(&name(source))?;
                links.push(link);
                offers.push(offer.to_bytes());
            }
            let returns = (setting.watch_buffers).then(|| Returns::new(fabric.context.clone()));
            opening.sending.push((sender, returns));
            opening.receiving.push((receiver, links, fabric));
        }
        Ok((opening, offers.iter().map(|list| pack_list(list)).collect()))
    }

    /// Takes what a node said; returns the answer.
    ///
    /// # Errors
    /// When it is not what a node says, or the device refuses something.
    pub fn accept(&mut self, target: usize, offers: &[u8]) -> Result<Vec<u8>> {
        let offers = addresses(offers, target, self.sending.len())?;
        let mut answers = Vec::new();
        for (((sender, _), destinations), offer) in
            self.sending.iter().zip(&mut self.destinations).zip(&offers)
        {
            let (destination, answer) = sender.accept(offer, &name(target))?;
            destinations.push(destination);
            answers.push(answer.to_bytes());
        }
        Ok(pack_list(&answers))
    }

    /// Takes the answer of a node.
    ///
    /// # Errors
    /// When it is not one, or the device refuses something.
    pub fn connect(&mut self, source: usize, answers: &[u8]) -> Result<()> {
        let answers = addresses(answers, source, self.receiving.len())?;
        for ((receiver, links, _), answer) in self.receiving.iter_mut().zip(&answers) {
            receiver.connect(links[source], answer)?;
        }
        Ok(())
    }

    /// The two sides of each thread, once all are connected, and who knows what they did. What is sent goes to these
    /// groups of nodes.
    ///
    /// # Errors
    /// When there is no memory for the groups.
    pub fn open(
        self,
        threads: usize,
        groups: &[Vec<usize>],
    ) -> Result<(Vec<(VerbsSender, VerbsReceiver)>, AskEndpoints)> {
        let (options, endpoints) = (self.options, self.sending.len());
        let mut receivers = Vec::new();
        for (endpoint, links, fabric) in self.receiving {
            let receiving = Arc::new(Receiving {
                queue: endpoint.queue().clone(),
                lane: Guarded::new(
                    Lane {
                        endpoint,
                        links,
                        arrived: Vec::new(),
                        messages: VecDeque::new(),
                        heard: true,
                        ended: 0,
                        look_at_all: false,
                    },
                    &*fabric.context,
                ),
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
        for ((endpoint, returns), destinations) in self.sending.into_iter().zip(self.destinations) {
            let group = |nodes: &Vec<usize>| {
                let members: Vec<_> = nodes.iter().map(|node| destinations[*node]).collect();
                endpoint.group(&members)
            };
            let groups: Result<Vec<_>, _> = groups.iter().map(group).collect();
            let groups = groups?;
            senders.push(Arc::new(Sending {
                endpoint,
                destinations,
                groups,
                unfinished: AtomicUsize::new(threads / endpoints),
                returns,
            }));
        }
        let thread = |number: usize| {
            let sender = VerbsSender {
                shared: senders[number % endpoints].clone(),
                capacity: options.message_bytes - HEADER_LENGTH,
                sequence: vec![0; senders[0].groups.len()],
            };
            let shared = receivers[number % endpoints].clone();
            (sender, VerbsReceiver { shared })
        };
        let threads = (0..threads).map(thread).collect();
        let ask = Box::new(move || {
            let mut sum = Endpoints::default();
            senders.iter().for_each(|one| sum.add(&of_sender(one)));
            receivers
                .iter()
                .for_each(|one| sum.add(&of_receiver(&one.lane.lock())));
            sum
        });
        Ok((threads, ask))
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
        lane.look_at_all = true;
        if !std::mem::take(&mut lane.heard) {
            while lane.take() {}
            lane.endpoint.on_silence();
            drop(lane);
            receiving.queue.wake();
        }
    }
}

/// The options of an exchange. On simulated hardware messages may stand for longer ones.
///
/// # Errors
/// When the device has not what the design needs.
pub fn options(
    setting: &Setting,
    design: Design,
    capabilities: &Capabilities,
    simulated: Option<&Parameters>,
) -> Result<ExchangeOptions> {
    if let Some(reason) = design.lacks(capabilities) {
        return Err(Error::Setting(format!(
            "{design} cannot run on this device: {reason}"
        )));
    }
    let mut options = ExchangeOptions::new(design, setting.threads, capabilities);
    let connected = design.transport() == roundel_verbs::Transport::ReliableConnection;
    let asked = message_bytes(setting);
    let fit = |length| simulated.map_or(length, |parameters| parameters.bytes_for(length));
    let length = match (connected, asked, simulated) {
        (_, Some(asked), _) => asked,
        (false, None, Some(parameters)) => parameters.length_of(options.message_bytes),
        (_, None, _) => options.message_bytes,
    };
    options.message_bytes = match (connected, asked) {
        (true, _) => fit(length.min(capabilities.rc_message_bytes_max)),
        (false, Some(_)) => fit(length).min(capabilities.ud_message_bytes_max),
        (false, None) => options.message_bytes,
    };
    // So many are each thread's, also where threads share an endpoint.
    let buffers = match setting.buffers {
        Buffers::Fixed(each) => Buffers::Fixed(each * setting.threads / options.endpoints),
        adaptive => adaptive,
    };
    options.window = buffers.window(design.transport(), length);
    if options.window.rule != Rule::Fixed {
        // As many messages of a tuple as windows have bytes would not fit into queues.
        let window = &mut options.window;
        for count in [&mut window.least, &mut window.first, &mut window.most] {
            *count = (*count).min(BUFFERS_MAX);
        }
    }
    // Each link has a few receives more than messages.
    let datagrams = setting.nodes * (options.window.least + RECEIVES_MORE);
    options.datagrams_max =
        (options.datagrams_max.max(datagrams)).min(capabilities.work_requests_max);
    if let Some(frequency) = setting.credit_frequency {
        options.credit_frequency = frequency;
    }
    if setting.credit_in_memory {
        options.credit_by = CreditBy::Memory;
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
    let (returned, away) = sending
        .returns
        .as_ref()
        .map(Returns::so_far)
        .unwrap_or_default();
    Endpoints {
        queue_pairs: report.queue_pairs as u64,
        buffers: report.buffers as u64,
        registered_bytes: report.registered_bytes as u64,
        messages: to.map(|to| to.messages).sum(),
        blocked_for_credit: report.blocked_for_credit.as_secs_f64(),
        returned,
        away: away.as_secs_f64(),
        writes: writes(&report),
        ..Endpoints::default()
    }
}

fn of_receiver(lane: &Lane) -> Endpoints {
    let report = lane.endpoint.report();
    Endpoints {
        buffers: report.buffers as u64,
        registered_bytes: report.registered_bytes as u64,
        credit_messages: report.credit_messages,
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
