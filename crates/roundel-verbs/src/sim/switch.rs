//! A switch whose inputs are queues, first in, first out: a packet whose output is busy holds up those
//! behind it. It loses nothing: who has no room makes its sender wait.

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
    packets: VecDeque<Box<Packet>>,
    /// Whether one of its packets is on its way through.
    passing: bool,
    /// Bytes that the node may still send.
    room: usize,
}

struct Output {
    busy: bool,
    /// Inputs whose first packet goes here, in the order in which it became the first.
    waiting: VecDeque<usize>,
    /// Bytes that the node's NIC still takes.
    room: usize,
}

impl Switch {
    pub(super) fn add_port(&mut self, parameters: &Parameters) {
        self.inputs.push(Input {
            packets: VecDeque::new(),
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
        let port = &mut self.switch.inputs[input];
        port.packets.push_back(packet);
        if port.packets.len() == 1 && !port.passing {
            self.switch.outputs[output].waiting.push_back(input);
            self.pass(output);
        }
    }

    /// Begins to pass the next packet for an output on.
    fn pass(&mut self, output: usize) {
        let port = &mut self.switch.outputs[output];
        let Some(&input) = port.waiting.front().filter(|_| !port.busy) else {
            return;
        };
        let source = &mut self.switch.inputs[input];
        let room = port.room;
        let Some(packet) = source
            .packets
            .pop_front_if(|packet| packet.wire_bytes <= room)
        else {
            return;
        };
        source.passing = true;
        port.room -= packet.wire_bytes;
        port.busy = true;
        port.waiting.pop_front();
        let at = self.clock + self.parameters.link.rate.time(packet.wire_bytes);
        self.events.add(at, Event::Passed(input, packet));
    }

    pub(super) fn passed(&mut self, input: usize, packet: Box<Packet>) {
        let output = packet.to.node;
        self.switch.outputs[output].busy = false;
        let port = &mut self.switch.inputs[input];
        port.room += packet.wire_bytes;
        port.passing = false;
        if let Some(next) = port.packets.front() {
            let wanted = next.to.node;
            self.switch.outputs[wanted].waiting.push_back(input);
            self.pass(wanted);
        }
        self.pass(output);
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
