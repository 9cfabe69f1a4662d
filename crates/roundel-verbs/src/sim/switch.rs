//! A switch with a buffer for each input, in which packets for each output wait in their own queue; an input sends
//! one packet at a time. It loses nothing: a full buffer makes its sender wait, and since a buffer is shared by
//! all outputs, packets for a busy one hold up those for others when they fill it.

use super::events::Event;
use super::packet::Packet;
use super::parameters::Parameters;
use super::state::State;
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
}

impl State {
    pub(super) fn arrive(&mut self, input: usize, packet: Box<Packet>) {
        let output = packet.to.node;
        let Input {
            packets, wanted, ..
        } = &mut self.switch.inputs[input];
        if packets.len() <= output {
            packets.resize_with(output + 1, VecDeque::new);
        }
        packets[output].push_back(packet);
        if packets[output].len() == 1 {
            wanted.push_back(output);
            self.switch.outputs[output].waiting.push_back(input);
        }
        self.pass(output);
    }

    /// Begins to pass the next packet for an output on, of an input that passes none.
    fn pass(&mut self, output: usize) {
        let Switch { inputs, outputs } = &mut self.switch;
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
        let at = self.clock + self.parameters.link.rate.time(packet.wire_bytes);
        self.events.add(at, Event::Passed(input, packet));
    }

    pub(super) fn passed(&mut self, input: usize, packet: Box<Packet>) {
        let output = packet.to.node;
        self.switch.outputs[output].busy = false;
        let port = &mut self.switch.inputs[input];
        port.room += packet.wire_bytes;
        port.passing = false;
        // First the input that waited for the output, then the outputs that waited for the input.
        self.pass(output);
        let mut turn = 0;
        while let Some(&next) = self.switch.inputs[input].wanted.get(turn) {
            if self.switch.inputs[input].passing {
                break;
            }
            self.pass(next);
            turn += 1;
        }
        self.room_for(input);
        let at = self.clock + self.parameters.switch.latency + self.parameters.link.latency;
        self.take_in(at, packet);
    }

    /// A NIC has room again.
    pub(super) fn taken_in(&mut self, node: usize, bytes: usize) {
        self.switch.outputs[node].room += bytes;
        self.pass(node);
    }
}
