//! Generations of hardware: one set of numbers for each, none for an experiment. They are frozen: a change
//! of one names a source, and every scorecard is run again.
//!
//! Sources: *perftest* are public logs of that program; *ATC* is Kalia, Kaminsky and Andersen, "Design
//! Guidelines for High Performance RDMA Systems", USENIX ATC 2016; *HERD* is theirs of SIGCOMM 2014, "Using RDMA
//! Efficiently for Key-Value Services", and *ScaleRPC* is Chen, Lu and Shu, "Scalable RDMA RPC on Reliable Connection
//! with Efficient Resource Sharing", EuroSys 2019, and *LITE* is Tsai and Zhang, "LITE Kernel RDMA Support for Datacenter
//! Applications", SOSP 2017: what is told of these three is remembered from their figures; *DCT* are the
//! notes of the authors of ATC on dynamically connected transport; *rdma_bench* is the data published with their
//! code; *UCX* are the priors in its `ib_iface.c`; *IB* is the InfiniBand specification; *ib_model* is Mellanox' OMNeT++
//! model of a switch; *rdma-core* is the history of that library, whose programs were timed there; *NeoHost* are dumps of counters; *mlx4* is the driver of ConnectX-3; *core-to-core-latency* is the
//! program of that name and the results published with it. A number that is *assumed* has no source, and was chosen
//! without a look at the scorecard's claims.
//!
//! `calibration` compares what `fdr` gives with these sources. None of its numbers is from Huang and
//! Ghandeharizadeh, whose claims it judges.

use super::parameters::{Handover, Link, Nic, Parameters, Processor, Switch};
use super::time::{Rate, Span};
use crate::queue_pair::Transport;

const RELIABLE: &[Transport] = &[Transport::ReliableConnection];

impl Parameters {
    /// The names of all sets.
    pub const NAMES: [&str; 9] = [
        "fdr",
        "edr",
        "qdr",
        "ddr",
        "sdr",
        "roce100",
        "iwarp10",
        "10gbe-tcp",
        "1gbe-tcp",
    ];

    /// The set of this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "fdr" => Self::fdr(),
            "edr" => Self::edr(),
            "qdr" => Self::qdr(),
            "ddr" => Self::ddr(),
            "sdr" => Self::sdr(),
            "roce100" => Self::roce100(),
            "iwarp10" => Self::iwarp10(),
            "10gbe-tcp" => Self::ethernet10(),
            "1gbe-tcp" => Self::ethernet1(),
            _ => return None,
        })
    }

    /// EDR InfiniBand, ConnectX-4, and two processors of 14 cores at 2.4 GHz.
    pub fn edr() -> Self {
        Self {
            name: "edr",
            link: Link {
                // 4 lanes of 25.78 Gb/s, 64b/66b (UCX).
                rate: Rate::bytes_per_second(12_500_000_000),
                latency: Span::nanos(100),
                packet_bytes: 4096,
                // Local route, base transport, and two checksums (IB).
                header_bytes: 26,
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
                // 50.3 M small READs asked for and answered per second (rdma_bench).
                read: Span::picos(9_940),
                // 82 M receives with payload per second (ATC).
                receive: Span::picos(12_200),
                // None seen.
                split: Span::ZERO,
                // What DMA reads get of PCIe 3.0 x16 (ATC).
                host: Rate::bytes_per_second(13_440_000_000),
                deliver: Span::nanos(200),
                input_bytes: 64_000,
                // Fit of the rate of READs against active queue pairs, each of which asks and is asked (rdma_bench, 154 to
                // 1386 of them): room for 345, and 14 ns, of which as much is the READ's own as of FDR's (assumed).
                contexts: 690,
                // As many times those of FDR as it has contexts (assumed).
                translations: 566,
                requester_miss: Span::nanos(9),
                read_miss: Span::nanos(5),
                // 2240 contexts instead of 140 cost 39 ns for each READ (DCT).
                responder_miss: Span::nanos(39),
                // 512 READs of each of 28 threads are best (ATC).
                reads: 14_336,
                // Work requests of a queue pair are fetched ahead, up to 2 KiB of them (mlx4): short ones with their
                // bytes are of 128.
                turn: 16,
                // "Outstand reads: 16" (perftest).
                reads_max: 16,
                not_ready_wait: Span::micros(640),
                // 4.096 µs × 2^14 (IB), the usual setting.
                acknowledge_wait: Span::micros(67_109),
                retries: 7,
                inline_bytes_max: 128,
                work_requests_max: 32_768,
                queue_pairs_max: 262_144,
                transports: &Transport::ALL,
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
                // 38 to 51 cycles of the third cache of a Xeon E5-2699 v4 (AnandTech).
                look: Span::picos(18_500),
                // Compare and exchange of a line that another core had, of two Xeon E5-2695 v4 (core-to-core-latency).
                handover: Handover {
                    within: Span::nanos(44),
                    across: Span::nanos(118),
                },
                cycle: Span::picos(417),
                // What one core does of both in `peers/instructions` and `experiment run designs`, partitioning alone.
                hash: Rate::bytes_per_second(4_000_000_000),
                copy: Rate::bytes_per_second(10_000_000_000),
                // 4 channels of DDR4-2400 of one of the two (Xeon E5-2680 v4).
                memory: Rate::bytes_per_second(76_800_000_000),
                // 16 µs and 0.06 ns for each byte (UCX).
                register: Span::micros(16),
                register_page: Span::nanos(246),
                // 402 and 333 µs of each of 10,000 connections to create it, and 698 and 631 µs to connect it, on two ports
                // (rdma-core, `cmtime`, commit 05fc15b). Those that connect with the connection manager exchange its messages
                // meanwhile, so that this is more than it takes here.
                queue_pair: Span::micros(368),
                connect: Span::micros(665),
                // 20 Gb/s of a process over IPoIB (Open MPI, issue 9087).
                tcp: Rate::bytes_per_second(2_500_000_000),
            },
            payload_times: 1,
            memory_times: 1,
        }
    }

    /// FDR InfiniBand, ConnectX-3, and two processors of 10 cores at 2.5 GHz.
    pub fn fdr() -> Self {
        let edr = Self::edr();
        Self {
            name: "fdr",
            link: Link {
                // 4 lanes of 14.0625 Gb/s, 64b/66b (UCX).
                rate: Rate::bytes_per_second(6_820_000_000),
                ..edr.link
            },
            nic: Nic {
                // 0.89 to 0.98 µs for a small WRITE, one way (perftest): what the network does not take.
                doorbell: Span::nanos(150),
                deliver: Span::nanos(300),
                // 0.5 µs more for a payload that is not inline (perftest).
                fetch: Span::nanos(500),
                // 34 M small WRITEs per second go out (HERD, figure 6).
                send: Span::nanos(29),
                // 35 M of them come in (HERD).
                packet: Span::picos(28_500),
                // 11 M small READs per second asked for and as many answered, 48 queue pairs (rdma_bench): 22 M packets. As
                // many are asked for alone (HERD).
                read: Span::nanos(45),
                // 22 M receives per second (ATC).
                receive: Span::nanos(45),
                // 9.7 M READs per second of 232 bytes, 6.95 M of 264 (rdma_bench), asked for and answered: 144 ns, of which a
                // request and an answer that come in take 57. That it is the engine that receives is assumed: hosts take
                // payload in pieces of 256 bytes (PCIe), and hand it out in one.
                split: Span::nanos(87),
                // 56 Gb/s of READs of 256 bytes were reached (ATC): PCIe 3.0 x8, less its headers.
                host: Rate::bytes_per_second(6_550_000_000),
                // Fit as for EDR, to those queue pairs of 48 to 792 that are not a node's own with itself: 78 of them, each
                // of which asks and is asked (rdma_bench).
                contexts: 156,
                // 4 MB of pages of 4 KiB are reached before WRITEs take longer (LITE).
                translations: 128,
                // A read of the host's memory, as `fetch`. A fifth of the rate of WRITEs is left of 256 queue pairs (HERD,
                // figure 6), and 2 M per second of 800 (ScaleRPC).
                requester_miss: Span::nanos(500),
                // The rest of the fit.
                read_miss: Span::nanos(350),
                // As for EDR.
                responder_miss: Span::nanos(39),
                // 16 READs of each of 16 threads are best (ATC).
                reads: 256,
                work_requests_max: 16_351,
                queue_pairs_max: 131_000,
                ..edr.nic
            },
            switch: Switch {
                // 170 to 200 ns (SX6036).
                latency: Span::nanos(170),
                ..edr.switch
            },
            cpu: Processor {
                cycle: Span::picos(400),
                // 4 channels of DDR3-1866 of one of the two (Xeon E5-2670 v2).
                memory: Rate::bytes_per_second(59_700_000_000),
                // 3.96 GB/s of a stream over IPoIB (perftest).
                tcp: Rate::bytes_per_second(3_960_000_000),
                ..edr.cpu
            },
            payload_times: 1,
            memory_times: 1,
        }
    }

    /// QDR InfiniBand, ConnectX-2.
    pub fn qdr() -> Self {
        let fdr = Self::fdr();
        Self {
            name: "qdr",
            link: Link {
                // 4 lanes of 10 Gb/s, 8b/10b (UCX).
                rate: Rate::bytes_per_second(4_000_000_000),
                ..fdr.link
            },
            nic: Nic {
                // 1.07 µs for a small SEND, one way (perftest).
                deliver: Span::nanos(400),
                // 3662 MiB/s of large messages (perftest).
                host: Rate::bytes_per_second(3_840_000_000),
                ..fdr.nic
            },
            cpu: Processor {
                // Assumed to be as for FDR, less the difference of the links.
                tcp: Rate::bytes_per_second(2_300_000_000),
                ..fdr.cpu
            },
            ..fdr
        }
    }

    /// DDR InfiniBand: the NICs of QDR, whose links are set to the lower rate.
    pub fn ddr() -> Self {
        let qdr = Self::qdr();
        Self {
            name: "ddr",
            link: Link {
                // 4 lanes of 5 Gb/s, 8b/10b (UCX).
                rate: Rate::bytes_per_second(2_000_000_000),
                ..qdr.link
            },
            ..qdr
        }
    }

    /// SDR InfiniBand: the NICs of QDR, whose links are set to the lowest rate.
    pub fn sdr() -> Self {
        let qdr = Self::qdr();
        Self {
            name: "sdr",
            link: Link {
                // 4 lanes of 2.5 Gb/s, 8b/10b (UCX).
                rate: Rate::bytes_per_second(1_000_000_000),
                ..qdr.link
            },
            ..qdr
        }
    }

    /// RoCE v2 at 100 Gb/s: ConnectX-4 on Ethernet with priority flow control.
    pub fn roce100() -> Self {
        let edr = Self::edr();
        Self {
            name: "roce100",
            link: Link {
                // Ethernet with its gap 38, IP 20, UDP 8, base transport 12, checksum 4 (IB, annex 17).
                header_bytes: 82,
                ..edr.link
            },
            switch: Switch {
                // Of a cut-through Ethernet switch, assumed.
                latency: Span::nanos(300),
                ..edr.switch
            },
            ..edr
        }
    }

    /// iWARP at 10 Gb/s: Chelsio T3. It has no WRITE with immediate data, which RFC 7306 added later; here it does,
    /// as designs return credit with them.
    pub fn iwarp10() -> Self {
        let fdr = Self::fdr();
        Self {
            name: "iwarp10",
            link: Link {
                rate: Rate::bytes_per_second(1_250_000_000),
                latency: Span::nanos(100),
                // 1500 bytes, less IP 20, TCP 20 and framing 24, which are headers as Ethernet's 38 are.
                packet_bytes: 1436,
                header_bytes: 102,
            },
            nic: Nic {
                // 6 µs for a small WRITE, one way (assumed: half of what its maker says of the next but one).
                doorbell: Span::nanos(1000),
                fetch: Span::nanos(1000),
                deliver: Span::nanos(3000),
                // 1 to 2 M messages per second (assumed).
                send: Span::nanos(700),
                read: Span::nanos(700),
                receive: Span::nanos(700),
                packet: Span::nanos(200),
                split: Span::ZERO,
                // PCIe 1.0 x8.
                host: Rate::bytes_per_second(2_000_000_000),
                // Contexts are in the card's memory.
                contexts: 65_536,
                requester_miss: Span::ZERO,
                responder_miss: Span::ZERO,
                reads: 32_768,
                read_miss: Span::ZERO,
                // Nothing is known of more (assumed).
                turn: 1,
                // Of the driver (iw_cxgb3).
                reads_max: 8,
                inline_bytes_max: 64,
                queue_pairs_max: 32_768,
                transports: RELIABLE,
                ..fdr.nic
            },
            switch: Switch {
                // Of a 10 Gb/s Ethernet switch, assumed.
                latency: Span::nanos(500),
                ..fdr.switch
            },
            cpu: Processor {
                // At 1 GHz for each Gb/s (Foong et al. 2003), which is too much for these processors: half of it.
                tcp: Rate::bytes_per_second(625_000_000),
                ..fdr.cpu
            },
            ..fdr
        }
    }

    /// Ethernet at 10 Gb/s with TCP, and no RDMA: for what the designs are compared with.
    pub fn ethernet10() -> Self {
        let iwarp = Self::iwarp10();
        Self {
            name: "10gbe-tcp",
            nic: Nic {
                // Of the path through the kernel, assumed.
                doorbell: Span::nanos(3000),
                deliver: Span::nanos(7000),
                transports: &[],
                ..iwarp.nic
            },
            ..iwarp
        }
    }

    /// Ethernet at 1 Gb/s with TCP, and no RDMA: that of 10 Gb/s with slower links.
    pub fn ethernet1() -> Self {
        let ten = Self::ethernet10();
        Self {
            name: "1gbe-tcp",
            link: Link {
                rate: Rate::bytes_per_second(125_000_000),
                ..ten.link
            },
            ..ten
        }
    }
}
