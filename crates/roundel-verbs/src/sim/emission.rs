//! When a NIC sends: whose turn it is, what its engine and its link take, and what goes ahead of requests.

use super::events::Event;
use super::faults::Fate;
use super::packet::{Content, Packet, PairId};
use super::parameters::{ACKNOWLEDGE_BYTES, DATAGRAM_BYTES, REMOTE_ADDRESS_BYTES};
use super::requester::IMMEDIATE_BYTES;
use super::state::State;
use super::time::{Span, Time};

impl State {
    /// A queue pair may have something to send.
    pub(super) fn activate(&mut self, id: PairId) {
        let Some(pair) = self.pair(id) else { return };
        if !std::mem::replace(&mut pair.active, true) {
            self.nodes[id.node].nic.active.push_back(id.number);
        }
        self.wake_nic(id.node);
    }

    fn wake_nic(&mut self, node: usize) {
        let nic = &mut self.nodes[node].nic;
        if !nic.waits_for_room && !std::mem::replace(&mut nic.emitting, true) {
            let at = self.clock.max(nic.engine_free);
            self.events.add(at, Event::Emit(node));
        }
    }

    /// The switch has passed a packet on, and has room for another of its input.
    pub(super) fn passed(&mut self, input: usize, packet: Box<Packet>) {
        self.switch
            .passed(input, &packet, self.clock, &mut self.events);
        self.room_for(input);
        let at = self.clock + self.parameters.switch.latency + self.parameters.link.latency;
        self.take_in(at, packet);
    }

    /// The switch has room for packets of a node again.
    pub(super) fn room_for(&mut self, node: usize) {
        if std::mem::take(&mut self.nodes[node].nic.waits_for_room) {
            self.wake_nic(node);
        }
    }

    /// Says something to the other end, ahead of requests.
    pub(super) fn answer(&mut self, from: PairId, to: PairId, content: Content) {
        let packet = Packet {
            from,
            to,
            wire_bytes: self.parameters.link.header_bytes + ACKNOWLEDGE_BYTES,
            payload_bytes: 0,
            spoilt: false,
            content,
        };
        let node = from.node;
        self.nodes[node].nic.control.push_back(Box::new(packet));
        self.wake_nic(node);
    }

    /// Acknowledges what has come to a queue pair. Requests that come until the NIC sends it are acknowledged with it,
    /// as all before its number are (IB).
    pub(super) fn acknowledge(&mut self, from: PairId, to: PairId) {
        let Some(pair) = self.pair(from) else { return };
        let expected = pair.receiving.expected;
        if !std::mem::replace(&mut pair.receiving.acknowledges, true) {
            self.answer(from, to, Content::Acknowledge(expected));
        }
    }

    /// A queue pair is going to be destroyed: the acknowledgement that waits says how far requests have come.
    pub(super) fn acknowledge_at_last(&mut self, id: PairId) {
        let Some(pair) = self.pair(id).filter(|pair| pair.receiving.acknowledges) else {
            return;
        };
        let expected = pair.receiving.expected;
        for packet in &mut self.nodes[id.node].nic.control {
            if let (true, Content::Acknowledge(before)) = (packet.from == id, &mut packet.content) {
                *before = expected;
            }
        }
    }

    /// An acknowledgement that is being sent says how far requests have come by now.
    fn bring_up_to_date(&mut self, packet: &mut Packet) {
        if let Content::Acknowledge(before) = &mut packet.content
            && let Some(pair) = self.pair(packet.from)
        {
            pair.receiving.acknowledges = false;
            *before = pair.receiving.expected;
        }
    }

    /// A NIC sends its next packet.
    pub(super) fn emit(&mut self, node: usize) {
        self.nodes[node].nic.emitting = false;
        // It may come twice.
        let most = 2
            * (self.parameters.link.packet_bytes
                + self.parameters.link.header_bytes
                + REMOTE_ADDRESS_BYTES
                + DATAGRAM_BYTES
                + IMMEDIATE_BYTES);
        if !self.switch.has_room(node, most) {
            self.nodes[node].nic.waits_for_room = true;
            return;
        }
        let Some((packet, cost)) = self.next_packet(node) else {
            return;
        };
        let bytes = packet.wire_bytes;
        let cost = self.as_slow_as(node, cost);
        let on_link = self.parameters.link.rate.time(bytes);
        let from_host = self.parameters.nic.host.time(bytes);
        let nic = &mut self.nodes[node].nic;
        let start = (self.clock + cost).max(nic.link_free);
        nic.link_free = start + on_link.max(from_host);
        // The engine works on one packet while the one before it is on the link.
        nic.engine_free = start;
        let left = nic.link_free;
        self.forget_when_left(&packet, left);
        if packet.to.node == node {
            self.take_in(left, packet);
        } else {
            // Its head is there while its tail has not left.
            self.send_off(node, start + self.parameters.link.latency, packet);
        }
        self.wake_nic(node);
    }

    /// A packet goes to the switch, unless something happens to it.
    fn send_off(&mut self, node: usize, at: Time, mut packet: Box<Packet>) {
        let fate = match self.is_cut_off(packet.from.node) || self.is_cut_off(packet.to.node) {
            true => Fate::Lost,
            false => self.faults.fate(&packet.content, &mut self.random),
        };
        let (at, copies) = match fate {
            Fate::Lost => return,
            Fate::Late(span) => (at + span, 1),
            Fate::Twice => (at, 2),
            Fate::Spoilt | Fate::Arrives => (at, 1),
        };
        packet.spoilt = matches!(fate, Fate::Spoilt);
        for _ in 1..copies {
            self.switch.reserve(node, packet.wire_bytes);
            self.events.add(at, Event::Arrive(node, packet.clone()));
        }
        self.switch.reserve(node, packet.wire_bytes);
        self.events.add(at, Event::Arrive(node, packet));
    }

    /// What nobody acknowledges completes when it has left.
    fn forget_when_left(&mut self, packet: &Packet, left: Time) {
        let message = match &packet.content {
            Content::Unreliable(part, _) if part.last => part.message,
            Content::Datagram(message, _) => *message,
            _ => return,
        };
        self.events.add(left, Event::Left(packet.from, message));
    }

    /// What a NIC sends next, and what its engine takes for it. Queue pairs take turns: long messages packet by packet,
    /// as in the simulators that the authors of DCQCN and of HPCC published, and short ones several at a time, since
    /// a NIC fetches several requests of a queue pair at once.
    fn next_packet(&mut self, node: usize) -> Option<(Box<Packet>, Span)> {
        if let Some(mut packet) = self.nodes[node].nic.control.pop_front() {
            self.bring_up_to_date(&mut packet);
            return Some((packet, self.parameters.nic.packet));
        }
        loop {
            let nic = &self.nodes[node].nic;
            let number = *nic.active.front()?;
            let found = self.packet_of(node, number);
            let nic = &mut self.nodes[node].nic;
            match found {
                Some((packet, cost, alone)) => {
                    let (packets, bytes) = nic.turn;
                    nic.turn = (packets + 1, bytes + packet.wire_bytes);
                    if alone
                        || nic.turn.0 >= self.parameters.nic.turn
                        || nic.turn.1 >= self.parameters.link.packet_bytes
                    {
                        nic.turn = (0, 0);
                        nic.active.rotate_left(1);
                    }
                    return Some((packet, cost));
                }
                None => {
                    nic.turn = (0, 0);
                    nic.active.pop_front();
                    if let Some(pair) = &mut self.nodes[node].pairs[number as usize] {
                        pair.active = false;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Parameters, Simulation};
    use crate::completion_queue::CompletionQueue;
    use crate::memory::{Arena, RemoteAddress};
    use crate::queue_pair::{QueuePair, QueuePairOptions, Transport};
    use crate::work::{InlineBytes, Payload, SendOperation, SendRequest};
    use std::collections::VecDeque;
    use std::time::Duration;

    const BYTES: usize = 1 << 20;

    struct End {
        arena: Arena,
        queue: CompletionQueue,
        pair: QueuePair,
    }

    /// Two nodes with a connection, and memory of the second that the first may reach.
    fn connected(simulation: &Simulation) -> ([End; 2], RemoteAddress) {
        let options = QueuePairOptions {
            transport: Transport::ReliableConnection,
            send_depth: 64,
            receive_depth: 1,
            rnr_retry: 7,
            queue_key: 0,
        };
        let ends = [0, 1].map(|_| {
            let device = simulation.add_node(1).device();
            let queue = device.create_completion_queue(64, None).unwrap();
            End {
                arena: device.arena(Default::default()),
                pair: device.create_queue_pair(&options, &queue, &queue).unwrap(),
                queue,
            }
        });
        for (one, other) in [(0, 1), (1, 0)] {
            ends[one].pair.connect(ends[other].pair.address()).unwrap();
        }
        // It is registered for as long as its arena is.
        let exposed = ends[1].arena.allocate_exposed(BYTES).unwrap();
        (ends, exposed.remote_address())
    }

    fn post(end: &End, operation: SendOperation, payload: Payload) {
        let request = SendRequest {
            id: 0,
            operation,
            payload,
            destination: None,
        };
        assert_eq!(end.pair.post_send(&mut vec![request]).unwrap(), 1);
    }

    #[test]
    fn acknowledgements_that_wait_become_one() {
        const WRITES: usize = 8;
        let simulation = Simulation::new(Parameters::fdr(), 1);
        let ([one, other], target) = connected(&simulation);
        // Its engine waits for the link, packet by packet.
        let mut buffer = other.arena.allocate_exposable(BYTES).unwrap();
        buffer.write(0, &vec![1; BYTES]);
        let theirs = one.arena.allocate_exposed(BYTES).unwrap();
        post(
            &other,
            SendOperation::Write(theirs.remote_address()),
            Payload::Owned {
                buffer,
                length: BYTES,
            },
        );
        simulation.advance(Duration::from_micros(10));
        for _ in 0..WRITES {
            let word = InlineBytes::new(&[1; 8]).unwrap();
            post(&one, SendOperation::Write(target), Payload::Inline(word));
        }
        let (mut waiting_max, mut ended) = (0, Vec::new());
        while ended.len() < WRITES {
            assert!(simulation.step());
            waiting_max = waiting_max.max(simulation.world.lock().nodes[1].nic.control.len());
            one.queue.poll(&mut ended, WRITES);
        }
        assert_eq!(waiting_max, 1);
    }

    #[test]
    fn reads_are_outstanding_from_when_they_are_sent_until_they_are_over() {
        let simulation = Simulation::new(Parameters::fdr(), 1);
        let ([one, _other], from) = connected(&simulation);
        let outstanding = || simulation.world.lock().nodes[0].nic.reads;
        for _ in 0..40 {
            let buffer = one.arena.allocate(8).unwrap();
            post(
                &one,
                SendOperation::Read(from),
                Payload::Owned { buffer, length: 8 },
            );
        }
        assert_eq!(outstanding(), 0);
        let (mut most, mut ended) = (0, Vec::new());
        while ended.len() < 20 {
            assert!(simulation.step());
            most = most.max(outstanding());
            one.queue.poll(&mut ended, 1);
        }
        assert_eq!(most, Parameters::fdr().nic.reads_max as u64);
        one.pair.modify_to_error();
        assert_eq!(outstanding(), 0);
    }

    #[test]
    fn what_is_sent_from_more_memory_than_a_nic_translates_takes_longer() {
        const WRITES: usize = 2048;
        /// Of what each WRITE is sent from.
        const PLACE: usize = 32 << 10;
        let took = |places: usize| {
            let simulation = Simulation::new(Parameters::fdr(), 1);
            let ([one, _other], target) = connected(&simulation);
            let spare = (0..places).map(|_| one.arena.allocate(PLACE).unwrap());
            let mut spare: VecDeque<_> = spare.collect();
            let (begin, mut ended) = (simulation.now(), Vec::new());
            for number in 0..WRITES {
                let buffer = spare.pop_front().unwrap();
                post(
                    &one,
                    SendOperation::Write(target),
                    Payload::Owned { buffer, length: 8 },
                );
                // A few are outstanding.
                while number - ended.len() >= 16 {
                    assert!(simulation.step());
                    let before = ended.len();
                    one.queue.poll(&mut ended, 16);
                    let given_back = ended[before..].iter_mut();
                    spare.extend(given_back.filter_map(|completion| completion.buffer.take()));
                }
            }
            simulation.now() - begin
        };
        // As many places as lines in the table, and more than there is room for.
        let (few, many) = (took(64), took(1024));
        assert!(many > 3 * few, "{few:?} {many:?}");
        let nic = Parameters::fdr().nic;
        let missed = Duration::from(nic.requester_miss) * WRITES as u32;
        assert!(many > missed * 8 / 10, "{many:?}");
    }
}
