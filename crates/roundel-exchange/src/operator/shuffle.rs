//! SHUFFLE: batches become frames, frames become messages to the members of a group.

use super::frames::{self, Gathered};
use super::local::{LocalLink, LocalLinks};
use super::outgoing::Outgoing;
use super::route::Route;
use crate::account::{Account, Spent};
use crate::designs::Design;
use crate::endpoint::{DestinationId, Fabric, GroupId, LinkAddress, Origin};
use crate::error::{ExchangeError, Result};
use crate::frame::{FrameReader, FrameSource, RowSource};
use crate::options::ExchangeOptions;
use crate::report::{DestinationReport, EndpointReport};
use crate::selection::Selection;
use crate::wire::Data;
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use futures::future::try_join_all;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sending side of an exchange in one node. Every method may be called by any thread.
pub struct Shuffle {
    endpoints: Vec<Outgoing>,
    payload_bytes: usize,
    design: Design,
    exchange: u64,
    source: u32,
    local: Option<Arc<LocalLinks>>,
    /// Links to each endpoint of a destination: one for each unit, if this node has any.
    units: usize,
    /// Frames sent so far, per unit and partition.
    frames: Mutex<HashMap<(usize, u32), u32>>,
    /// Bytes of rows that messages were filled with.
    filled: AtomicU64,
    /// Of these, those that somebody has taken note of.
    noted: AtomicU64,
    /// Of the tasks that send, each with what somebody has taken note of.
    accounts: Mutex<Vec<(Account, Spent)>>,
}

/// A node that this one sends to.
#[derive(Clone, Debug)]
pub struct Destination {
    /// Links: for each lane, one of each unit.
    links: Vec<DestinationId>,
    /// Which of this side's endpoints serves each link.
    endpoints: Vec<usize>,
    peer: String,
    /// In this process: then there are no endpoints.
    local: Option<LocalLink>,
    lane_count: usize,
}

/// A transmission group: the nodes that get the same rows.
#[derive(Clone, Debug)]
pub struct Group {
    /// For each lane, one of each unit.
    links: Vec<GroupId>,
    endpoints: Vec<usize>,
    peers: String,
    /// Those of its members that are in this process; the links lead to the others.
    local: Vec<LocalLink>,
    /// Which unit sends.
    unit: usize,
}

/// Messages at least so long are frames of their own.
const FRAME_MESSAGE_BYTES: usize = 16 << 10;

impl Origin for FrameSource {
    fn read(&self, range: Range<usize>, write: &mut dyn FnMut(usize, &[u8])) {
        self.read(range, write);
    }
}

/// Hands a frame to the members that are in this process.
async fn hand_over(group: &Group, partition: u32, frame: &Buffer) -> Result<()> {
    for local in &group.local {
        local.deliver(partition, frame.clone()).await?;
    }
    Ok(())
}

impl Group {
    /// The same group as a unit of this node sends to it, in a classic exchange: what two units send to a partition
    /// comes in any order. Elsewhere all threads are one unit.
    pub fn by(&self, unit: usize) -> Self {
        Self {
            unit,
            ..self.clone()
        }
    }
}

impl Destination {
    /// The way to it within this process, if it is here.
    pub(super) fn local(&self) -> Option<&LocalLink> {
        self.local.as_ref()
    }

    /// How many lanes lead there: the receiver's endpoints.
    pub fn lanes(&self) -> usize {
        self.lane_count
    }

    /// The lane that carries a partition.
    pub fn lane_of(&self, partition: u32) -> usize {
        partition as usize % self.lane_count
    }
}

impl Shuffle {
    /// Opens the sending endpoints of node `source` of an exchange.
    pub fn open(
        fabric: &Fabric,
        options: &ExchangeOptions,
        route: &Route,
        exchange: u64,
        source: u32,
    ) -> Result<Self> {
        let options = route.options(options);
        Ok(Self {
            endpoints: Outgoing::open(fabric, &options, route, exchange, source)?,
            payload_bytes: options.payload_bytes(),
            design: options.design,
            exchange,
            source,
            local: route.local.clone(),
            units: options.units(),
            frames: Mutex::default(),
            filled: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            accounts: Mutex::default(),
        })
    }

    /// Accepts the offer of the node `peer`, one address per link; the answers go back to it.
    pub fn accept(
        &self,
        offers: &[LinkAddress],
        peer: &str,
    ) -> Result<(Destination, Vec<LinkAddress>)> {
        if offers.is_empty() || !offers.len().is_multiple_of(self.units) {
            return Err(ExchangeError::Protocol {
                peer: peer.into(),
                reason: format!("it offers {} links to {} units", offers.len(), self.units),
            });
        }
        let mut destination = Destination {
            links: Vec::with_capacity(offers.len()),
            endpoints: Vec::with_capacity(offers.len()),
            peer: peer.into(),
            local: self.find_local(offers),
            lane_count: offers.len() / self.units,
        };
        if destination.local.is_some() {
            let answer = |offer: &LinkAddress| LinkAddress {
                exchange: self.exchange,
                source: self.source,
                credit: 0,
                queue: None,
                ..offer.clone()
            };
            return Ok((destination, offers.iter().map(answer).collect()));
        }
        let mut answers = Vec::with_capacity(offers.len());
        for (number, offer) in offers.iter().enumerate() {
            // In a classic exchange, each unit's own.
            let endpoint = number % self.endpoints.len();
            let (id, answer) = self.endpoints[endpoint]
                .accept(offer, peer)
                .inspect_err(|error| self.close(&destination, Some(error.clone())))?;
            destination.links.push(id);
            destination.endpoints.push(endpoint);
            answers.push(answer);
        }
        Ok((destination, answers))
    }

    /// The receiver that made an offer, if it is in this process.
    fn find_local(&self, offers: &[LinkAddress]) -> Option<LocalLink> {
        let number = offers.first()?.local;
        self.local.as_ref()?.find(number)
    }

    /// Makes a transmission group. Its members have the same number of lanes.
    pub fn group(&self, members: &[Destination]) -> Result<Group> {
        let peers = members
            .iter()
            .map(|member| member.peer.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let Some(first) = members.first() else {
            return Err(ExchangeError::own(
                "a transmission group has at least one member".to_owned(),
            ));
        };
        if members
            .iter()
            .any(|member| member.lane_count != first.lane_count)
        {
            return Err(ExchangeError::Protocol {
                peer: peers,
                reason: "members of a group with different numbers of endpoints".into(),
            });
        }
        let mut group = Group {
            links: Vec::new(),
            endpoints: Vec::new(),
            unit: 0,
            peers,
            local: members
                .iter()
                .filter_map(|member| member.local.clone())
                .collect(),
        };
        let remote: Vec<_> = members
            .iter()
            .filter(|member| member.local.is_none())
            .collect();
        if let Some(first) = remote.first() {
            group.endpoints.clone_from(&first.endpoints);
            for (number, endpoint) in first.endpoints.iter().enumerate() {
                let ids: Vec<_> = remote.iter().map(|member| member.links[number]).collect();
                group.links.push(self.endpoints[*endpoint].group(&ids)?);
            }
        }
        Ok(group)
    }

    /// Sends a batch to a partition of every member of the group. A partition belongs to one
    /// group. Waits for buffers and credit; dropping the future mid-way breaks the partition.
    pub async fn send(&self, group: &Group, partition: u32, batch: &RecordBatch) -> Result<()> {
        let source = frames::whole(&group.peers, batch)?;
        if !group.local.is_empty() {
            hand_over(group, partition, &frames::copied(&source)).await?;
        }
        self.send_frame(group, partition, source).await
    }

    /// Sends a frame to those members that are not in this process.
    async fn send_frame(&self, group: &Group, partition: u32, source: FrameSource) -> Result<()> {
        if group.links.is_empty() {
            return Ok(());
        }
        let number = self.next_frame(group, partition);
        let mut reader = source.into_reader();
        while reader.remaining() > 0 {
            self.send_fragment(group, partition, number, &mut reader)
                .await?;
        }
        Ok(())
    }

    /// Sends the next bytes of a frame, as many as a message has room for. Where that fails, no member has got them.
    pub(super) async fn send_fragment(
        &self,
        group: &Group,
        partition: u32,
        frame_sequence: u32,
        reader: &mut FrameReader,
    ) -> Result<()> {
        let (endpoint, lane) = self.way(group, partition);
        let origin: Arc<dyn Origin> = reader.source().clone();
        let frame_length = reader.source().len() as u32;
        let rows = reader.source().rows();
        let mut buffer = endpoint.acquire(lane).await?;
        let offset = reader.position();
        let mut filled = 0;
        loop {
            let chunk = reader.next_chunk(self.payload_bytes - filled);
            if chunk.is_empty() {
                break;
            }
            buffer.write(filled, chunk);
            filled += chunk.len();
        }
        self.filled.fetch_add(filled as u64, Ordering::Relaxed);
        let data = Data {
            frame_sequence,
            rows,
            frame_length,
            offset: offset as u32,
            payload_length: filled as u32,
        };
        // A small batch is best freed at once, by the task that made it: then a copy is kept.
        let origin = (data.payload_length < data.frame_length).then_some(&origin);
        endpoint.put(buffer, partition, data, origin).await
    }

    /// Sends the rows of a batch that go to a partition of every member of the group, as
    /// [`send`](Self::send) would send a batch of them: gathered straight into messages, each of which
    /// is a frame of its own. Where messages are short, as datagrams are, a frame for each would be
    /// mostly preamble: there, and for members in this process, rows are gathered into memory first.
    pub(super) async fn send_rows(
        &self,
        group: &Group,
        partition: u32,
        batch: &RecordBatch,
        source: &RowSource<'_>,
        rows: Selection<'_>,
    ) -> Result<()> {
        let in_messages = self.payload_bytes >= FRAME_MESSAGE_BYTES;
        if !in_messages || !group.local.is_empty() {
            let mut rest = rows;
            while let Some(frame) = frames::next(&group.peers, batch, source, &mut rest)? {
                match in_messages {
                    true => hand_over(group, partition, &frame.bytes).await?,
                    false => self.send_gathered(group, partition, &frame).await?,
                }
            }
        }
        if !in_messages || group.links.is_empty() {
            return Ok(());
        }
        let (endpoint, lane) = self.way(group, partition);
        let mut rest = rows;
        while let Some(first) = rest.first() {
            let count = source.fitting(&rest, self.payload_bytes);
            let (now, later) = rest.split_at(count.max(1));
            rest = later;
            if count == 0 {
                // One row that is longer than a message.
                let frame = frames::whole(&group.peers, &batch.slice(first as usize, 1))?;
                self.send_frame(group, partition, frame).await?;
                continue;
            }
            let mut buffer = endpoint.acquire(lane).await?;
            let length = source.encode(&now, buffer.payload_mut(self.payload_bytes)) as u32;
            self.filled.fetch_add(length.into(), Ordering::Relaxed);
            let data = Data {
                frame_sequence: self.next_frame(group, partition),
                rows: now.len() as u32,
                frame_length: length,
                offset: 0,
                payload_length: length,
            };
            endpoint.put(buffer, partition, data, None).await?;
        }
        Ok(())
    }

    /// Sends rows that were gathered into memory to a partition of every member of the group.
    pub(super) async fn send_gathered(
        &self,
        group: &Group,
        partition: u32,
        frame: &Gathered,
    ) -> Result<()> {
        hand_over(group, partition, &frame.bytes).await?;
        let source = FrameSource::of_frame(frame.bytes.clone(), frame.rows);
        self.send_frame(group, partition, source).await
    }

    /// The endpoint and its group that lead to a partition.
    fn way(&self, group: &Group, partition: u32) -> (&Outgoing, GroupId) {
        let lane = partition as usize % (group.links.len() / self.units);
        let link = lane * self.units + group.unit % self.units;
        (&self.endpoints[group.endpoints[link]], group.links[link])
    }

    /// The number of the next frame of a unit to a partition.
    fn next_frame(&self, group: &Group, partition: u32) -> u32 {
        let mut frames = self.frames.lock();
        let next = frames
            .entry((group.unit % self.units, partition))
            .or_default();
        let sequence = *next;
        *next = next.wrapping_add(1);
        sequence
    }

    /// Tells a destination that no more rows come, and waits until it has everything.
    pub async fn finish(&self, destination: &Destination) -> Result<()> {
        // All at once: the consumer may read its partitions in any order.
        let lanes = (0..destination.lanes()).map(|lane| self.finish_lane(destination, lane));
        try_join_all(lanes).await.map(|_| ())
    }

    /// The same for the partitions of one lane, those whose
    /// [`lane_of`](Destination::lane_of) it is.
    pub async fn finish_lane(&self, destination: &Destination, lane: usize) -> Result<()> {
        if let Some(local) = &destination.local {
            return local.finish_lane(lane);
        }
        let links = lane * self.units..(lane + 1) * self.units;
        let finish = |link: usize| {
            let endpoint = &self.endpoints[destination.endpoints[link]];
            endpoint.finish(destination.links[link])
        };
        try_join_all(links.map(finish)).await.map(|_| ())
    }

    /// Forgets a destination; what waits to be sent to it fails with `error`.
    pub fn close(&self, destination: &Destination, error: Option<ExchangeError>) {
        if let Some(local) = &destination.local {
            local.close(error);
            return;
        }
        for (id, endpoint) in destination.links.iter().zip(&destination.endpoints) {
            self.endpoints[*endpoint].close(*id, error.clone());
        }
    }

    /// The design it runs.
    pub fn design(&self) -> Design {
        self.design
    }

    /// What it sent to one destination so far.
    pub fn destination_report(&self, destination: &Destination) -> DestinationReport {
        let mut sum = DestinationReport::default();
        for (id, endpoint) in destination.links.iter().zip(&destination.endpoints) {
            let one = self.endpoints[*endpoint].destination_report(*id);
            sum.messages += one.messages;
            sum.bytes += one.bytes;
            sum.blocked_for_credit += one.blocked_for_credit;
            sum.delivering += one.delivering;
            sum.repaired_messages += one.repaired_messages;
        }
        sum
    }

    /// What its endpoints did so far.
    pub fn report(&self) -> EndpointReport {
        let mut report = EndpointReport::default();
        for endpoint in &self.endpoints {
            report.merge(&endpoint.report());
        }
        report.filled_bytes = self.filled.load(Ordering::Relaxed);
        report
    }

    /// Bytes of rows that messages were filled with since this was last asked.
    pub fn filled_since(&self) -> u64 {
        let filled = self.filled.load(Ordering::Relaxed);
        let noted = self.noted.fetch_max(filled, Ordering::Relaxed);
        filled.saturating_sub(noted)
    }

    /// Tells from now on also of a task that makes rows and sends them, whose time is accounted for there.
    pub fn account(&self, account: Account) {
        self.accounts.lock().push((account, Spent::default()));
    }

    /// What each task with an [account](Self::account) has spent its time on since this was last asked.
    pub fn spent_since(&self) -> Vec<Spent> {
        let mut accounts = self.accounts.lock();
        let since = accounts.iter_mut().map(|(account, noted)| {
            let spent = account.spent();
            spent.since(&std::mem::replace(noted, spent))
        });
        since.collect()
    }

    /// Whether a destination can be sent no more.
    pub(super) fn has_failed(&self, destination: &Destination) -> bool {
        let links = destination.links.iter().zip(&destination.endpoints);
        let mut failed = links.map(|(id, endpoint)| self.endpoints[*endpoint].has_failed(*id));
        failed.any(|failed| failed)
    }
}
