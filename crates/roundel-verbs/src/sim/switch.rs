//! A switch with a buffer for each input, in which packets for each output wait in their own queue; an input sends
//! one packet at a time. It loses nothing: a full buffer makes its sender wait, and since a buffer is shared by
//! all outputs, packets for a busy one hold up those for others when they fill it.

use super::events::{Event, Events};
use super::packet::Packet;
use super::parameters::Parameters;
use super::time::{Rate, Time};
use std::collections::VecDeque;

/// A switch with a port for each node.
#[derive(Default)]
pub(super) struct Switch {
    inputs: Vec<Input>,
    outputs: Vec<Output>,
}

struct Input {
    /// Packets that wait, by output.
    packets: Vec<VecDeque<Box<Packet>>>,
    /// Outputs that there are packets for, which take turns.
    wanted: VecDeque<usize>,
    /// Whether one of its packets is on its way through.
    passing: bool,
    /// Bytes that the node may still send.
    room: usize,
}

struct Output {
    /// That of the link, at which packets leave.
    rate: Rate,
    busy: bool,
    /// Inputs that have packets for it, which take turns.
    waiting: VecDeque<usize>,
    /// Bytes that the node's NIC still takes.
    room: usize,
}

impl Switch {
    pub(super) fn add_port(&mut self, parameters: &Parameters) {
        self.inputs.push(Input {
            packets: Vec::new(),
            wanted: VecDeque::new(),
            passing: false,
            room: parameters.switch.input_bytes,
        });
        self.outputs.push(Output {
            rate: parameters.link.rate,
            busy: false,
            waiting: VecDeque::new(),
            room: parameters.nic.input_bytes,
        });
    }

    /// Whether a node may send so many bytes.
    pub(super) fn has_room(&self, node: usize, bytes: usize) -> bool {
        self.inputs[node].room >= bytes
    }

    /// Takes room for a packet, of which there is enough.
    pub(super) fn reserve(&mut self, node: usize, bytes: usize) {
        self.inputs[node].room -= bytes;
    }

    pub(super) fn arrive(
        &mut self,
        input: usize,
        packet: Box<Packet>,
        now: Time,
        events: &mut Events,
    ) {
        let output = packet.to.node;
        let Input {
            packets, wanted, ..
        } = &mut self.inputs[input];
        if packets.len() <= output {
            packets.resize_with(output + 1, VecDeque::new);
        }
        packets[output].push_back(packet);
        if packets[output].len() == 1 {
            wanted.push_back(output);
            self.outputs[output].waiting.push_back(input);
        }
        self.pass(output, now, events);
    }

    /// Begins to pass the next packet for an output on, of an input that passes none.
    fn pass(&mut self, output: usize, now: Time, events: &mut Events) {
        let Self { inputs, outputs } = self;
        let port = &mut outputs[output];
        if port.busy {
            return;
        }
        let mut waiting = port.waiting.iter();
        let Some(at) = waiting.position(|input| !inputs[*input].passing) else {
            return;
        };
        // Whose turn it is keeps it until there is room: if shorter packets went by, a long one would wait for ever
        // for as much room as it takes.
        let source = &mut inputs[port.waiting[at]];
        let first = source.packets[output].front();
        if first.is_none_or(|packet| packet.wire_bytes > port.room) {
            return;
        }
        let Some(input) = port.waiting.remove(at) else {
            return;
        };
        let Some(packet) = source.packets[output].pop_front() else {
            return;
        };
        source.passing = true;
        port.room -= packet.wire_bytes;
        port.busy = true;
        if let Some(at) = source.wanted.iter().position(|wanted| *wanted == output) {
            source.wanted.remove(at);
        }
        if !source.packets[output].is_empty() {
            source.wanted.push_back(output);
            port.waiting.push_back(input);
        }
        let at = now + port.rate.time(packet.wire_bytes);
        events.add(at, Event::Passed(input, packet));
    }

    pub(super) fn passed(&mut self, input: usize, packet: &Packet, now: Time, events: &mut Events) {
        let output = packet.to.node;
        self.outputs[output].busy = false;
        let port = &mut self.inputs[input];
        port.room += packet.wire_bytes;
        port.passing = false;
        // First the input that waited for the output, then the outputs that waited for the input.
        self.pass(output, now, events);
        let mut turn = 0;
        while let Some(&next) = self.inputs[input].wanted.get(turn) {
            if self.inputs[input].passing {
                break;
            }
            self.pass(next, now, events);
            turn += 1;
        }
    }

    /// A NIC has room again.
    pub(super) fn taken_in(&mut self, node: usize, bytes: usize, now: Time, events: &mut Events) {
        self.outputs[node].room += bytes;
        self.pass(node, now, events);
    }
}
