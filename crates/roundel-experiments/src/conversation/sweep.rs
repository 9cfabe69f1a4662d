//! The settings of the paper's figures 10 to 15: what each varies, and what it keeps. What the text leaves open is said.

use roundel_protocols::Protocol;
use roundel_protocols::paradigm::{Paradigm, Setting};

/// The paper's nodes: those that ask the one, those that the one asks, or all.
pub const NODES: usize = 28;
/// Bytes of a value that are typical (Atikoglu et al. 2012).
pub const VALUE: usize = 365;
/// Threads that answer on the one node where several threads of each node ask it, and how many of the others' share one
/// where only one thread of each asks (section 4.1.2).
const RESPONDER_THREADS: usize = 16;
const SHARED_BY: usize = 2;
/// The least that is waited before anything counts, and that is counted.
const SECONDS_MIN: f64 = 1e-4;

/// What a figure varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Varied {
    /// Calls pending on each connection, R.
    Pending,
    /// Threads of each node that ask, S.
    Threads,
    /// Nodes: P, Q or N.
    Nodes,
    /// Bytes of a value, V.
    Value,
}

/// A line of a figure for each protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Who asks whom.
    pub paradigm: Paradigm,
    /// What varies.
    pub varied: Varied,
    /// Over what.
    pub xs: &'static [usize],
    /// Those of them that the text says something about, and few others.
    pub told: &'static [usize],
    /// Threads, where they do not vary.
    pub threads: usize,
    /// Calls pending on each connection, where that does not vary.
    pub pending: usize,
}

const PENDING: &[usize] = &[1, 2, 4, 8, 16, 32, 64, 128, 256];
const THREADS: &[usize] = &[1, 2, 4, 8, 16];
const VALUES: &[usize] = &[VALUE, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
const SIZES: &[usize] = &[VALUE, 1024, 4096, 8192, 16384, 65536];
/// Calls pending where values vary.
const FEW: usize = 4;
const MANY: usize = 128;

/// M:1, pending calls.
pub const FIG_10A: Sweep = Sweep {
    paradigm: Paradigm::ManyToOne,
    varied: Varied::Pending,
    xs: PENDING,
    told: &[1, 8, 16, 64, 128, 256],
    threads: 16,
    pending: 0,
};
/// M:1, threads. The text does not say how many calls are pending: as many as in figure 10c, assumed.
pub const FIG_10B: Sweep = Sweep {
    varied: Varied::Threads,
    xs: THREADS,
    told: &[1, 2, 4, 8, 16],
    pending: MANY,
    ..FIG_10A
};
/// M:1, nodes. The text does not say how many calls are pending: as many as in figure 12c, assumed.
pub const FIG_10C: Sweep = Sweep {
    varied: Varied::Nodes,
    xs: &[1, 2, 4, 8, 16, 28],
    told: &[1, 4, 8, 16, 28],
    ..FIG_10B
};
/// M:1, values, with few and with many calls pending.
pub const FIG_11: [Sweep; 2] = values(&FIG_10B, SIZES);
/// 1:M, pending calls.
pub const FIG_12A: Sweep = Sweep {
    paradigm: Paradigm::OneToMany,
    told: &[1, 4, 16, 64, 256],
    ..FIG_10A
};
/// 1:M, threads. The text does not say how many calls are pending: as many as in figure 12c, assumed.
pub const FIG_12B: Sweep = Sweep {
    paradigm: Paradigm::OneToMany,
    ..FIG_10B
};
/// 1:M, nodes.
pub const FIG_12C: Sweep = Sweep {
    paradigm: Paradigm::OneToMany,
    ..FIG_10C
};
/// 1:M, values, with few and with many calls pending.
pub const FIG_13: [Sweep; 2] = values(&FIG_12C, SIZES);
/// M:M, pending calls. The text does not say how many threads there are: one, assumed, as in figures 14c and 15.
pub const FIG_14A: Sweep = Sweep {
    paradigm: Paradigm::ManyToMany,
    told: &[1, 4, 8, 16, 32, 64, 256],
    threads: 1,
    ..FIG_10A
};
/// M:M, threads. The text does not say how many calls are pending: as many as in figure 14c, assumed.
pub const FIG_14B: Sweep = Sweep {
    varied: Varied::Threads,
    xs: &[1, 2, 4, 8],
    told: &[1, 2, 8],
    pending: MANY,
    ..FIG_14A
};
/// M:M, nodes.
pub const FIG_14C: Sweep = Sweep {
    varied: Varied::Nodes,
    xs: &[2, 4, 8, 12, 20, 28],
    told: &[4, 12, 28],
    ..FIG_14B
};
/// M:M, values, with few and with many calls pending.
pub const FIG_15: [Sweep; 2] = values(&FIG_14C, &[VALUE, 1024, 4096, 8192, 16384]);

const fn values(of: &Sweep, told: &'static [usize]) -> [Sweep; 2] {
    let many = Sweep {
        paradigm: of.paradigm,
        varied: Varied::Value,
        xs: VALUES,
        told,
        threads: of.threads,
        pending: MANY,
    };
    let few = Sweep {
        pending: FEW,
        ..many
    };
    [few, many]
}

impl Sweep {
    /// The setting at a place, on so many nodes where they do not vary.
    pub fn setting(&self, protocol: Protocol, x: usize, nodes: usize) -> Setting {
        let mut setting = Setting {
            threads: self.threads,
            pending: self.pending,
            response_bytes: VALUE,
            warm_up: SECONDS_MIN,
            seconds: SECONDS_MIN,
            ..Setting::new(self.paradigm, protocol, nodes)
        };
        match self.varied {
            Varied::Pending => setting.pending = x,
            Varied::Threads => setting.threads = x,
            Varied::Nodes => setting.nodes = x,
            Varied::Value => setting.response_bytes = x,
        }
        if self.paradigm == Paradigm::ManyToOne {
            setting.responder_threads = Some(match setting.threads {
                1 => setting.nodes.div_ceil(SHARED_BY),
                _ => RESPONDER_THREADS,
            });
        }
        setting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_text() {
        let one = FIG_10B.setting(Protocol::Read, 1, NODES);
        assert_eq!((one.threads, one.responder_threads), (1, Some(14)));
        let many = FIG_10A.setting(Protocol::Read, 256, NODES);
        assert_eq!((many.threads, many.responder_threads), (16, Some(16)));
        // 4096 calls pending for each responding node.
        let asked = FIG_12A.setting(Protocol::Read, 256, NODES);
        assert_eq!(asked.pending * asked.threads, 4096);
        assert_eq!(asked.answering_threads(), 16);
        // 3584 calls of each requesting thread.
        let nodes = FIG_12C.setting(Protocol::Read, 28, NODES);
        assert_eq!(nodes.pending * nodes.nodes, 3584);
        let [few, many] = &FIG_15;
        assert_eq!((few.threads, few.pending, many.pending), (1, 4, 128));
        assert_eq!(
            many.setting(Protocol::WriteWrite, 65536, NODES)
                .response_bytes,
            65536
        );
    }

    #[test]
    fn all_settings_make_sense() {
        let values = [FIG_11, FIG_13, FIG_15];
        let all = [
            FIG_10A, FIG_10B, FIG_10C, FIG_12A, FIG_12B, FIG_12C, FIG_14A, FIG_14B, FIG_14C,
        ];
        for sweep in all.iter().chain(values.iter().flatten()) {
            assert!(sweep.told.iter().all(|x| sweep.xs.contains(x)));
            for x in sweep.xs {
                sweep
                    .setting(Protocol::SendSend, *x, NODES)
                    .check()
                    .unwrap();
            }
        }
    }
}
