//! Setting connections up (section 7.1.6).

use super::lab::{Lab, edr, on};
use super::{Claim, Seen};
use crate::error::Result;
use crate::setting::{Setting, Transport};
use roundel_exchange::Design;

/// Bytes that a shuffle has at least in the claim.
const BYTES: f64 = 250e6;

pub(super) fn claims() -> Vec<Claim> {
    vec![
        Claim::partly(
            "SH28",
            "Set-up time is linear in the nodes with MQ and flat with SQ, and ME takes longer than SE",
            by_nodes,
        ),
        Claim::partly(
            "SH29",
            "MESQ/SR is set up in about 40 ms or less, for any number of nodes",
            datagrams,
        ),
        Claim::fully(
            "SH30a",
            "From 250 MB on, connecting first and then shuffling with MESQ/SR is faster than IPoIB alone",
            |lab| sooner(lab, Transport::Sockets),
        ),
        Claim::fully(
            "SH30b",
            "From 250 MB on, connecting first and then shuffling with MESQ/SR is faster than MPI alone",
            |lab| sooner(lab, Transport::Mpi),
        ),
    ]
}

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
