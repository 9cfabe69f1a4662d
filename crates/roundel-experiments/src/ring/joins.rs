//! The joins of the paper's sections, and messages without joins that they are compared with.

use super::{Carrier, Keys, Method, RelationRows, RingJoin};
use crate::fabric::{FabricChoice, Simulated};
use crate::setting::{Setting, Transport};

/// Elements that begin on a host: of simulated ones, which keep no rows, and of others.
const ELEMENTS: u64 = 128;
const ELEMENTS_OF_ROWS: u64 = 8;
/// Of virtual time, in which messages are sent: of the largest there are some hundreds.
const SECONDS: f64 = 0.4;
/// Of messages and elements, in bytes.
pub(crate) const SIZES: [usize; 11] = [
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 19,
    1 << 20,
];
/// A share of the highest throughput that is as good as all of it.
pub(crate) const FULL: f64 = 0.95;

/// Messages of a size between two hosts, over and over.
pub(crate) fn raw(fabric: &FabricChoice, bytes: usize) -> Setting {
    let fabric = match fabric {
        // Short messages do not stand for longer ones.
        FabricChoice::Simulated(simulated) => FabricChoice::Simulated(Simulated {
            bytes: true,
            ..simulated.clone()
        }),
        device => device.clone(),
    };
    Setting {
        message_bytes: Some(bytes),
        seconds: SECONDS,
        ..Setting::new(Transport::Qperf, fabric)
    }
}

/// The join that needs most of the network, of as many elements whatever their size.
pub(crate) fn by_element(join: RingJoin, element_bytes: usize) -> RingJoin {
    let elements = match join.fabric.is_simulated() {
        true => ELEMENTS,
        false => ELEMENTS_OF_ROWS,
    };
    let own = elements * (element_bytes / join.row_bytes) as u64;
    RingJoin {
        method: Method::Merge,
        rows: RelationRows::alike(own * join.hosts as u64),
        element_bytes,
        ..join
    }
}

/// Rows of each relation: the 6.7 GB of section V-G, in rows of 12 bytes as in all other sections. It says 160 million rows,
/// which would be of 45 bytes, and would keep a link busier than four threads.
const ROWS_CARRIED: u64 = 600_000_000;

/// The join of section V-G.
pub(crate) fn carried(join: RingJoin, carrier: Carrier, threads: usize) -> RingJoin {
    RingJoin {
        rows: RelationRows::alike(ROWS_CARRIED),
        carrier,
        threads,
        ..join
    }
}

/// Elements that begin on a host: less than in smaller rings, and larger ones, since each goes to all hosts.
const ELEMENTS_OF_LARGE: usize = 16;

/// A join with large elements.
pub(crate) fn large(join: RingJoin) -> RingJoin {
    let own = join.rows.spinning as usize / join.hosts * join.row_bytes;
    RingJoin {
        element_bytes: own / ELEMENTS_OF_LARGE,
        ..join
    }
}

/// Rows of each relation (section V-D).
const ROWS_SKEWED: u64 = 36_000_000;

/// The hash join of the paper with skewed keys.
pub(crate) fn skewed(join: RingJoin, exponent: f64) -> RingJoin {
    RingJoin {
        rows: RelationRows::alike(ROWS_SKEWED),
        keys: Keys::Zipf(exponent),
        ..join
    }
}
