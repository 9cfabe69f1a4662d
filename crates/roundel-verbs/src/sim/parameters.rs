//! What the simulated hardware can do. One set per generation of hardware, none per experiment.
//!
//! Sources: *perftest* are public logs of that program; *ATC* is Kalia, Kaminsky and Andersen, "Design
//! Guidelines for High Performance RDMA Systems", USENIX ATC 2016; *rdma_bench* is the data published with its
//! code; *UCX* are the priors in its `ib_iface.c`; *IB* is the InfiniBand specification; *ib_model* is
//! Mellanox' OMNeT++ model of a switch.

use super::time::{Rate, Span};

/// Bytes of the headers of every packet: local route, base transport, and two checksums (IB).
pub(super) const HEADER_BYTES: usize = 26;
/// More of them in the first packet of a WRITE and in a READ request (IB).
pub(super) const REMOTE_ADDRESS_BYTES: usize = 16;
/// In acknowledgements and in answers to READs (IB).
pub(super) const ACKNOWLEDGE_BYTES: usize = 4;
/// In datagrams (IB).
pub(super) const DATAGRAM_BYTES: usize = 8;

/// A generation of hardware.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Its name on the command line.
    pub name: &'static str,
    /// Links between NICs and the switch.
    pub link: Link,
    /// NICs.
    pub nic: Nic,
    /// The switch.
    pub switch: Switch,
    /// Processors.
    pub cpu: Processor,
}

/// A link.
#[derive(Clone, Debug)]
pub struct Link {
    /// After encoding.
    pub rate: Rate,
    /// From one end to the other.
    pub latency: Span,
    /// Most bytes of payload in a packet.
    pub packet_bytes: usize,
}

/// A NIC.
#[derive(Clone, Debug)]
pub struct Nic {
    /// From the doorbell to the NIC.
    pub doorbell: Span,
    /// To fetch a request and its payload from memory; saved where both came with the doorbell.
    pub fetch: Span,
    /// What its engine takes for a request to send.
    pub send: Span,
    /// What its engine takes for each packet after the first, and for acknowledgements.
    pub packet: Span,
    /// What its engine takes for a message that comes in.
    pub receive: Span,
    /// From its engine to the host's memory.
    pub deliver: Span,
    /// Packets of one queue pair that it sends before it looks at another.
    pub burst_packets: usize,
    /// Bytes that it can hold before they are in memory.
    pub input_bytes: usize,
    /// Contexts of queue pairs that it can hold as their requester, and what it takes to fetch another.
    pub requesters: usize,
    /// See [`requesters`](Self::requesters).
    pub requester_miss: Span,
    /// The same as their responder.
    pub responders: usize,
    /// See [`responders`](Self::responders).
    pub responder_miss: Span,
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
}

/// A switch.
#[derive(Clone, Debug)]
pub struct Switch {
    /// From its input to its output.
    pub latency: Span,
    /// Bytes that an input can hold; its sender waits for room.
    pub input_bytes: usize,
}

/// A processor.
#[derive(Clone, Debug)]
pub struct Processor {
    /// To post, whatever the number of requests.
    pub post: Span,
    /// To post each request.
    pub post_each: Span,
    /// To look at a completion queue.
    pub poll: Span,
    /// To take each completion.
    pub poll_each: Span,
    /// Handing a lock over to a thread that waits for it.
    pub lock: Span,
    /// To hash, and to copy.
    pub hash: Rate,
    /// See [`hash`](Self::hash).
    pub copy: Rate,
    /// To register memory, whatever its size.
    pub register: Span,
    /// To register each page of 4 KiB.
    pub register_page: Span,
    /// To create and connect a queue pair.
    pub queue_pair: Span,
}

impl Parameters {
    /// EDR InfiniBand, ConnectX-4.
    pub fn edr() -> Self {
        Self {
            name: "edr",
            link: Link {
                // 4 lanes of 25.78 Gb/s, 64b/66b (UCX).
                rate: Rate::bytes_per_second(12_500_000_000),
                latency: Span::nanos(100),
                packet_bytes: 4096,
            },
            nic: Nic {
                // One-way latency of a small WRITE 0.9 to 1.0 µs, port to port 0.6 µs (UCX): the rest
                // is doorbell, fetch and delivery.
                doorbell: Span::nanos(100),
                // Idle PCIe read, 403 ns on average (NeoHost).
                fetch: Span::nanos(400),
                // 101.6 M datagrams per second with batched doorbells (ATC).
                send: Span::picos(9_840),
                packet: Span::picos(9_840),
                // 82 M receives with payload per second (ATC).
                receive: Span::picos(12_200),
                deliver: Span::nanos(200),
                burst_packets: 16,
                input_bytes: 64_000,
                // Fit of the rate of READs against active queue pairs (rdma_bench, 154 to 1386 of them).
                requesters: 345,
                requester_miss: Span::nanos(14),
                // 2240 contexts instead of 140 cost 39 ns for each READ (DCT).
                responders: 345,
                responder_miss: Span::nanos(39),
                // "Outstand reads: 16" (perftest).
                reads_max: 16,
                not_ready_wait: Span::micros(640),
                // 4.096 µs × 2^14 (IB), the usual setting.
                acknowledge_wait: Span::micros(67_109),
                retries: 7,
                inline_bytes_max: 128,
                work_requests_max: 32_768,
                queue_pairs_max: 262_144,
            },
            switch: Switch {
                latency: Span::nanos(90),
                // 1000 credits of 64 bytes (ib_model).
                input_bytes: 64_000,
            },
            cpu: Processor {
                // Some 100 ns for a datagram posted and polled (ATC), of which 40 ns are the doorbell and 20 ns
                // the completion (UCX).
                post: Span::nanos(40),
                post_each: Span::nanos(30),
                poll: Span::nanos(10),
                poll_each: Span::nanos(20),
                lock: Span::nanos(100),
                hash: Rate::bytes_per_second(4_000_000_000),
                copy: Rate::bytes_per_second(10_000_000_000),
                // 16 µs and 0.06 ns for each byte (UCX).
                register: Span::micros(16),
                register_page: Span::nanos(246),
                // 1 to 3 ms (Liu, Yin, Blanas 2017, section 5.1.5).
                queue_pair: Span::micros(2000),
            },
        }
    }
}
