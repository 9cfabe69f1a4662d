//! What joins cost on the hosts of the paper (section V-A): blades with one quad-core Xeon at 2.33 GHz.
//!
//! Each rate comes from one place of the paper, or from elsewhere; what the paper says of other sizes, hosts, threads and
//! keys is for simulation to find. No rate was changed for a claim.
//!
//! | rate | from |
//! |---|---|
//! | set-up of a hash join | figure 7, one host: 16.2 s for 140 million rows of each relation, side by side, and assumed to be alike |
//! | probing | section V-E: 16.2 s for all of R in the largest join of figure 8, on four threads |
//! | passing a row of two sorted relations | section V-E: 6.4 s for the same join |
//! | a pair | the latency of the cache that partitions and their tables fit into (section IV-C) |
//! | sorting | `qsort` of the C library, counted in cycles by `record_sort.c`: the paper's text has no number |
//! | testing a pair; elements of rows, and rows of elements | Roundel's own code, counted in cycles: the paper has neither |

use roundel_ring::cost::Rates;
use roundel_verbs::sim::Parameters;

/// Cores of a host.
pub const CORES: usize = 4;
/// Threads of a host that set relations up: one for each (section IV-C).
pub const SET_UP_THREADS: usize = 2;
/// Bytes of a row (section V-B).
pub const ROW_BYTES: usize = 12;
/// Rows of each relation that a host has in figures 7, 8, 10 and 11.
pub const ROWS_OF_HOST: u64 = 140_000_000;
/// Hosts of the paper's ring.
pub const HOSTS: usize = 6;

/// Seconds of figure 7, and of section V-E.
const HASH_SET_UP: f64 = 16.2;
const HASH_JOIN: f64 = 16.2;
const MERGE_JOIN: f64 = 6.4;
/// Nanoseconds of a cycle.
const CYCLE: f64 = 1.0 / 2.33;
/// Cycles to read from the second cache of these processors (Intel's optimisation manual, Core microarchitecture).
const CACHE_CYCLES: f64 = 14.0;
/// Cycles of `qsort` for each row and each time that the number of rows doubles: of glibc 2.36 on an AMD EPYC at 3.2 GHz,
/// the least of six runs with 8 million rows of 12 bytes, sorted in place. As glibc of 2008 did with more than a quarter
/// of the host's memory, which 140 million rows are. Its other way, merging, took 34.
const SORT_CYCLES: f64 = 32.5;

/// Cycles to test a pair, and to make a byte of an element of rows and rows of it: 1.32 ns and 0.044 ns of `roundel doctor
/// --calibrate` on an AMD EPYC at 3.2 GHz, the medians of three.
const TEST_CYCLES: f64 = 4.2;
const CODE_CYCLES: f64 = 0.14;

/// The rates of a thread of the paper's program.
pub fn of_paper(parameters: &Parameters) -> Rates {
    let nanoseconds =
        |seconds: f64, threads: usize, rows: f64| seconds * 1e9 * threads as f64 / rows;
    let of_host = ROWS_OF_HOST as f64;
    let all = of_host * HOSTS as f64;
    let of_side = nanoseconds(HASH_SET_UP, 1, of_host);
    Rates {
        build: of_side,
        cluster: of_side,
        probe: nanoseconds(HASH_JOIN, CORES, all),
        sort: SORT_CYCLES * CYCLE,
        // A host passes all of one relation, and its part of the other once for each host.
        pass: nanoseconds(MERGE_JOIN, CORES, 2.0 * all),
        emit: CACHE_CYCLES * CYCLE,
        link: 1e12 / parameters.link.rate.time(1).as_picos() as f64,
        // No experiment of the paper has predicates or nested loops, and elements are sent as they lie in memory.
        test: 0.0,
        code: 0.0,
        // Connections are there before the time is taken.
        open: 0.0,
    }
}

/// Those of a thread that joins by Roundel's code: the paper's, and what the paper has none of.
pub fn of_roundel(parameters: &Parameters) -> Rates {
    Rates {
        test: TEST_CYCLES * CYCLE,
        code: CODE_CYCLES * CYCLE,
        ..of_paper(parameters)
    }
}
