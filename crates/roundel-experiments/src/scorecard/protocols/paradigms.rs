//! What the paper says of all three paradigms together (section 1.1, figures 3 to 6, and 14c).

use super::super::{Judge, Lab, Seen};
use super::{ALL, ANSWER_BY_WRITE, ASK_BY_WRITE, Curves, OTHERS, Read, SAME, gigabits, is_ahead};
use crate::conversation::{
    FIG_10A, FIG_10B, FIG_10C, FIG_11, FIG_12A, FIG_12B, FIG_12C, FIG_13, FIG_14A, FIG_14B,
    FIG_14C, FIG_15, NODES, Sweep, VALUE,
};
use crate::error::Result;
use roundel_protocols::Protocol;

pub(super) const JUDGES: &[Judge] = &[
    ("MP01a", |lab| {
        best_of(
            lab,
            &M1,
            &[Read],
            [
                "the NIC that answers sends a packet for a READ, and a response and an acknowledgement \
                             for others",
                "a READ costs the NIC that answers as much as a request and a response",
            ],
        )
    }),
    ("MP01b", |lab| {
        let write: Vec<_> = ALL.into_iter().filter(writes).collect();
        best_of(
            lab,
            &ONE_M,
            &write,
            [
                "with as many pending as were tried the NIC that asks has taken up more READs than it holds, and \
                         fetches them once more",
                "while contexts and READs fit into the NIC that asks, a READ costs it less than a request and a \
                         response",
            ],
        )
    }),
    ("MP01c", |lab| {
        best_of(
            lab,
            &MM,
            &[Read],
            [
                "with one thread and few calls pending the NIC holds contexts and READs, and two packets come \
                             in for a READ, but four for others",
                "contexts cost READs more than messages cost others",
            ],
        )
    }),
    ("MP01d", best_of_both),
    ("MP13c", scaling),
    ("MP15a", |lab| values(lab, &FIG_11[1], [35.0, 50.0])),
    ("MP15b", |lab| values(lab, &FIG_13[1], [2.0, 16.0])),
    ("MP15c", |lab| values(lab, &FIG_15[1], [10.0, 20.0])),
    ("MP16a", others_gain_from_threads),
    ("MP16b", read_loses_by_threads),
];

/// Threads of a node in figure 4, which it compares with one.
const FIGURE_4: usize = 8;

/// What was tried of each paradigm with values of 365 bytes on 28 nodes.
const M1: [&Sweep; 2] = [&FIG_10A, &FIG_10B];
const ONE_M: [&Sweep; 2] = [&FIG_12A, &FIG_12B];
const MM: [&Sweep; 2] = [&FIG_14A, &FIG_14B];

fn writes(protocol: &Protocol) -> bool {
    ASK_BY_WRITE.contains(protocol) || ANSWER_BY_WRITE.contains(protocol)
}

/// The highest bandwidth of each protocol.
fn highest(lab: &Lab, sweeps: &[&'static Sweep]) -> Result<Vec<(Protocol, f64)>> {
    let curves = sweeps.iter().map(|sweep| Curves::of(lab, sweep));
    let curves = curves.collect::<Result<Vec<_>>>()?;
    let most = |protocol| {
        let of_each = curves.iter().map(|curves| curves.most(protocol));
        (protocol, of_each.fold(0.0, f64::max))
    };
    Ok(ALL.into_iter().map(most).collect())
}

fn best_of(
    lab: &Lab,
    sweeps: &[&'static Sweep],
    wanted: &[Protocol],
    [yes, no]: [&str; 2],
) -> Result<Seen> {
    let highest = highest(lab, sweeps)?;
    let most = |is_wanted: bool| {
        let own = highest.iter();
        own.filter(|(protocol, _)| wanted.contains(protocol) == is_wanted)
            .fold(0.0, |most, (_, value)| f64::max(most, *value))
    };
    let told = highest
        .iter()
        .map(|(one, value)| format!("{one} {}", gigabits(*value)));
    let told: Vec<_> = told.collect();
    Seen::new(
        format!("{} Gb/s", told.join(", ")),
        is_ahead(most(true), most(false)),
        yes,
        no,
    )
}

fn best_of_both(lab: &Lab) -> Result<Seen> {
    let best = |sweeps| -> Result<f64> {
        let highest = highest(lab, sweeps)?;
        Ok(highest
            .into_iter()
            .fold(0.0, |most, (_, value)| most.max(value)))
    };
    let (m1, one_m) = (best(&M1)?, best(&ONE_M)?);
    let seen = Seen::new(
        format!("{} and {} Gb/s", gigabits(m1), gigabits(one_m)),
        is_ahead(m1, one_m),
        "a NIC sends values faster than it takes them in: longer ones than 256 bytes go to the host's memory in \
             two pieces",
        "the one that asks is as fast as the one that answers",
    )?;
    Ok(seen.beside(&[(m1, 42.0), (one_m, 14.0), (m1 / one_m, 3.0)]))
}

fn scaling(lab: &Lab) -> Result<Seen> {
    let (mut told, mut holds) = (Vec::new(), true);
    for sweep in [&FIG_10C, &FIG_12C, &FIG_14C] {
        let curves = Curves::of(lab, sweep)?;
        let ratio = |protocol| curves.at(protocol, NODES) / curves.at(protocol, 4);
        for protocol in ALL {
            // Of each node in M:M, which is as good.
            let ideal = protocol == Read && *sweep == FIG_10C;
            let of = ratio(protocol);
            holds &= if ideal { of >= 1.0 - SAME } else { of < 1.0 };
            told.push(format!("{} {protocol} {of:.2}", sweep.paradigm));
        }
    }
    Seen::new(
        told.join(", "),
        holds,
        "more queue pairs do not fit into NICs",
        "with one thread contexts of 28 nodes fit into the NIC, so that nodes of M:M lose nothing but by READ",
    )
}

/// What a protocol has with many threads, of what it has with one.
fn by_threads(curves: &Curves, protocol: Protocol) -> f64 {
    curves.at(protocol, FIGURE_4) / curves.at(protocol, 1)
}

fn others_gain_from_threads(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_12B)?;
    let gains = OTHERS.map(|protocol| (protocol, by_threads(&curves, protocol)));
    let told = gains.map(|(protocol, gain)| format!("{protocol} {gain:.2}"));
    Seen::new(
        format!("{} times as much", told.join(", ")),
        gains
            .iter()
            .all(|(_, gain)| is_ahead(*gain, 1.0) && *gain < FIGURE_4 as f64),
        "one thread does not keep the NIC busy that asks",
        "one thread posts as much as the NIC that asks takes in, and more threads have more queue pairs than it holds",
    )
}

fn read_loses_by_threads(lab: &Lab) -> Result<Seen> {
    let (mut told, mut holds) = (Vec::new(), true);
    for sweep in [&FIG_10B, &FIG_12B, &FIG_14B] {
        let of = by_threads(&Curves::of(lab, sweep)?, Read);
        holds &= is_ahead(1.0, of);
        told.push(format!("{} {of:.2} times as much", sweep.paradigm));
    }
    Seen::new(
        told.join(", "),
        holds,
        "more queue pairs have contexts that the NIC does not hold, and READs that it fetches once more",
        "in some paradigm the NICs hold the contexts of all threads",
    )
}

fn values(lab: &Lab, sweep: &'static Sweep, paper: [f64; 2]) -> Result<Seen> {
    let curves = Curves::of(lab, sweep)?;
    let [small, large] = [VALUE, 4096].map(|value| curves.at(Read, value));
    let seen = Seen::new(
        format!("{} and {} Gb/s", gigabits(small), gigabits(large)),
        is_ahead(large, small),
        "what a call costs is shared by more bytes",
        "larger values have less",
    )?;
    Ok(seen.beside(&[(small, paper[0]), (large, paper[1])]))
}
