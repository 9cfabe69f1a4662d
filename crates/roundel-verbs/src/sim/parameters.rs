//! The numbers that describe simulated hardware. Their values are in `presets`.

use super::time::{Rate, Span};
use crate::capabilities::GRH_BYTES;
use crate::queue_pair::Transport;
use std::time::Duration;

/// Bytes of a message that are always simulated as they are: as many as headers of exchanges have.
const PLAIN_BYTES: usize = 64;
/// More of them in the first packet of a WRITE and in a READ request (IB).
pub(super) const REMOTE_ADDRESS_BYTES: usize = 16;
/// In acknowledgements and in answers to READs (IB).
pub(super) const ACKNOWLEDGE_BYTES: usize = 4;
/// In datagrams (IB).
pub(super) const DATAGRAM_BYTES: usize = 8;

/// Payload that is moved in one piece.
const SPLIT_BYTES: usize = 256;

/// A generation of hardware.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Its name on the command line.
    pub name: &'static str,
    /// Links between NICs and the switch.
    pub link: Link,
    /// The NIC of each node.
    pub nic: Nic,
    /// The switch between all nodes.
    pub switch: Switch,
    /// The processor of each node.
    pub cpu: Processor,
    /// For how many bytes on the link each byte of a message stands after its first 64: 1, unless only lengths are
    /// to be simulated.
    pub payload_times: usize,
    /// For how many bytes of memory each registered byte stands.
    pub memory_times: usize,
}

/// A link between a NIC and the switch.
#[derive(Clone, Debug)]
pub struct Link {
    /// Bytes that it carries in a second, after encoding.
    pub rate: Rate,
    /// Time from one end to the other.
    pub latency: Span,
    /// Most bytes of payload in a packet.
    pub packet_bytes: usize,
    /// Bytes of the headers of every packet.
    pub header_bytes: usize,
}

/// A NIC: the time of each of its steps, and how much it holds.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Time from the doorbell to the NIC.
    pub doorbell: Span,
    /// Time to fetch a request and its payload from memory. It is saved where both came with the doorbell.
    pub fetch: Span,
    /// Time of its engine to send a request, other than a READ or an atomic.
    pub send: Span,
    /// Time of its engine to send a READ or an atomic, or the first packet of the answer to a READ.
    pub read: Span,
    /// Time of its engine for a message that comes in for a receive. Receives are held with the context with which a
    /// queue pair is asked. Where that is fetched they are fetched too, which takes as long as `fetch`.
    pub receive: Span,
    /// Time of its engines for any other packet, in each direction.
    pub packet: Span,
    /// Additional time of the receiving engine for a packet whose payload is longer than 256 bytes: the host takes it in
    /// two pieces.
    pub split: Span,
    /// Bytes in a second between it and the host's memory, in each direction.
    pub host: Rate,
    /// Time from its engine to the host's memory.
    pub deliver: Span,
    /// Bytes that it can hold before they are in memory.
    pub input_bytes: usize,
    /// Contexts of queue pairs that it can hold. A queue pair has two: one for what it asks, and one for what it is asked.
    pub contexts: usize,
    /// Lines of its table of addresses that it can hold, each of which translates those of 32 KiB of memory.
    pub translations: usize,
    /// Time to fetch the context with which a queue pair asks, or a line of the table for what it sends.
    pub requester_miss: Span,
    /// Time to fetch the context with which it is asked, or a line of the table for what it answers or gets.
    pub responder_miss: Span,
    /// Additional time of a READ when the context of its queue pair is not held.
    pub read_miss: Span,
    /// READs whose requests it can hold until they are answered. Others are fetched once more, as `fetch`. It has taken up
    /// of each queue pair as many as can be outstanding.
    pub reads: usize,
    /// Most requests of a queue pair that it sends in turn, as far as they are not longer than one packet. READs take
    /// turns one by one.
    pub turn: usize,
    /// Most READs that a queue pair can have outstanding.
    pub reads_max: usize,
    /// How long a requester waits when its peer has no receive.
    pub not_ready_wait: Span,
    /// How long it waits for an acknowledgement.
    pub acknowledge_wait: Span,
    /// How often it tries again.
    pub retries: u32,
    /// Most bytes of an inline payload.
    pub inline_bytes_max: usize,
    /// Most requests in a queue.
    pub work_requests_max: usize,
    /// Most queue pairs.
    pub queue_pairs_max: usize,
    /// Transport services of its queue pairs.
    pub transports: &'static [Transport],
}

/// A switch: how long a packet takes through it, and how many it holds.
#[derive(Clone, Debug)]
pub struct Switch {
    /// Time from its input to its output.
    pub latency: Span,
    /// Bytes that an input can hold; its sender waits for room.
    pub input_bytes: usize,
}

/// A processor: the time that work takes on a thread.
#[derive(Clone, Debug)]
pub struct Processor {
    /// Time of a call that posts, whatever the number of requests.
    pub post: Span,
    /// Time to post each request.
    pub post_each: Span,
    /// Time to look at a completion queue.
    pub poll: Span,
    /// Time to take each completion.
    pub poll_each: Span,
    /// Time to look at a buffer. The ends of buffers are far apart, and share the few lines of near caches that have their
    /// place there, so that each look goes to the cache of all cores.
    pub look: Span,
    /// Handing a lock over, for each thread that looks at it.
    pub handover: Handover,
    /// A cycle of its clock.
    pub cycle: Span,
    /// Bytes that a thread hashes in a second.
    pub hash: Rate,
    /// Bytes that a thread copies in a second.
    pub copy: Rate,
    /// Bytes in a second that all threads of a node together get of its memory.
    pub memory: Rate,
    /// Time to register memory, whatever its size.
    pub register: Span,
    /// Time to register each page of 4 KiB.
    pub register_page: Span,
    /// Time to create a queue pair.
    pub queue_pair: Span,
    /// Time to connect it with another.
    pub connect: Span,
    /// Bytes in a second that TCP moves on the thread that sends or receives, system call and copy: for models of
    /// the baselines.
    pub tcp: Rate,
}

/// Time that a cache line takes from one thread to another.
#[derive(Clone, Copy, Debug)]
pub struct Handover {
    /// To a thread of the same processor.
    pub within: Span,
    /// To a thread of the node's other processor.
    pub across: Span,
}

impl Parameters {
    /// The same, where each byte of a message after its first 64 stands for so many: the time of large messages
    /// without their bytes.
    pub fn with_payload_times(self, times: usize) -> Self {
        Self {
            payload_times: times.max(1),
            memory_times: times.max(1),
            ..self
        }
    }

    /// The same, where most registered memory is that of datagrams of so many bytes, of which much is plain: the header, and the
    /// routing header before it.
    pub fn with_memory_of_datagrams(self, bytes: usize) -> Self {
        let stands_for = self.length_of(bytes) + GRH_BYTES;
        Self {
            memory_times: stands_for.div_ceil(bytes + GRH_BYTES),
            ..self
        }
    }

    /// Bytes that a message of so many stands for.
    pub fn length_of(&self, bytes: usize) -> usize {
        let plain = bytes.min(PLAIN_BYTES);
        plain + (bytes - plain) * self.payload_times
    }

    /// Bytes of a message that stands for at most so many.
    pub fn bytes_for(&self, length: usize) -> usize {
        let plain = length.min(PLAIN_BYTES);
        plain + (length - plain) / self.payload_times
    }

    /// Time of a short message and its answer, between two nodes with nothing else to do.
    pub fn round_trip(&self) -> Duration {
        let (nic, link) = (&self.nic, &self.link);
        let way = [
            nic.doorbell,
            nic.send,
            link.latency * 2,
            self.switch.latency,
            nic.receive,
            nic.deliver,
        ];
        way.into_iter().map(|span| Duration::from(span * 2)).sum()
    }

    /// Additional time of an engine for a packet with so many bytes of payload.
    pub(super) fn split(&self, payload_bytes: usize) -> Span {
        match payload_bytes > SPLIT_BYTES {
            true => self.nic.split,
            false => Span::ZERO,
        }
    }

    /// Most bytes of a datagram.
    pub(super) fn datagram_bytes_max(&self) -> usize {
        self.bytes_for(self.link.packet_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_stands_for_more_and_headers_for_themselves() {
        let edr = Parameters::edr().with_payload_times(63);
        assert_eq!(edr.length_of(64), 64);
        assert_eq!(edr.length_of(128), 4096);
        assert_eq!(edr.bytes_for(4096), 128);
        assert!(edr.length_of(edr.bytes_for(65536)) <= 65536);
        assert_eq!(Parameters::edr().length_of(5000), 5000);
        let datagrams = edr.with_memory_of_datagrams(128);
        assert_eq!(datagrams.memory_times, 25, "4136 bytes for 168");
        assert_eq!(datagrams.length_of(128), 4096);
    }
}
