//! Setting connections up (section 7.1.6).

use super::lab::{Lab, edr, on};
use super::{Judge, Seen};
use crate::error::Result;
use crate::setting::{Setting, Transport};
use roundel_exchange::Design;

/// Bytes that a shuffle has at least in the claim.
const BYTES: f64 = 250e6;

pub(super) const JUDGES: &[Judge] = &[
    ("SH28", by_nodes),
    ("SH29", datagrams),
    ("SH30a", |lab| sooner(lab, Transport::Sockets)),
    ("SH30b", |lab| sooner(lab, Transport::Mpi)),
];

fn setup(lab: &Lab, design: Design, nodes: usize) -> Result<f64> {
    Ok(lab.run(&edr(design, nodes))?.setup_seconds)
}

fn by_nodes(lab: &Lab) -> Result<Seen> {
    let of =
        |design| Ok::<_, crate::error::Error>([setup(lab, design, 4)?, setup(lab, design, 16)?]);
    let (memq, semq) = (of(Design::MemqSr)?, of(Design::SemqSr)?);
    let (mesq, sesq) = (of(Design::MesqSr)?, of(Design::SesqSr)?);
    let linear = |[few, many]: [f64; 2]| (3.0..5.0).contains(&(many / few));
    let flat = |[few, many]: [f64; 2]| many / few < 1.3;
    let ms = |[few, many]: [f64; 2]| format!("{:.0} and {:.0} ms", 1e3 * few, 1e3 * many);
    Seen::new(
        format!(
            "with 4 and 16 nodes: MEMQ/SR {}, SEMQ/SR {}, MESQ/SR {}, SESQ/SR {}",
            ms(memq),
            ms(semq),
            ms(mesq),
            ms(sesq)
        ),
        linear(memq)
            && linear(semq)
            && flat(mesq)
            && flat(sesq)
            && memq[1] > semq[1]
            && mesq[1] > sesq[1],
        "queue pairs take most of it",
        "something else than queue pairs takes a part of it",
    )
}

fn datagrams(lab: &Lab) -> Result<Seen> {
    let times = [2, 4, 8, 16].map(|nodes| setup(lab, Design::MesqSr, nodes));
    let mut most: f64 = 0.0;
    for time in times {
        most = most.max(time?);
    }
    Seen::new(
        format!("{:.0} ms at most, 2 to 16 nodes", 1e3 * most),
        most <= 0.045,
        "two queue pairs for each of 14 threads, which need no connection",
        "it takes longer",
    )
}

fn sooner(lab: &Lab, other: Transport) -> Result<Seen> {
    let mesq: Setting = edr(Design::MesqSr, 8);
    let mesq = setup(lab, Design::MesqSr, 8)? + BYTES / lab.rate(&mesq)?;
    let theirs = BYTES / lab.rate(&on("edr", other, 8))?;
    Seen::new(
        format!("{:.0} ms against {:.0} ms", 1e3 * mesq, 1e3 * theirs),
        mesq < theirs,
        "the faster shuffle makes up for connecting",
        "the model is nearly as fast",
    )
}
