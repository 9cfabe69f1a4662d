//! 1:M: one asks many (section 4.2, figures 12 and 13).

use super::super::{Judge, Lab, Seen};
use super::{
    ALIKE, ALL, ANSWER_BY_SEND, ANSWER_BY_WRITE, Curves, OTHERS, Read, SendSend, SendWrite,
    WriteSend, WriteWrite, falls, is_ahead, is_same, spread,
};
use crate::conversation::{FIG_12A, FIG_12B, FIG_12C, FIG_13, Sweep};
use crate::error::Result;
use roundel_protocols::Protocol;

pub(super) const JUDGES: &[Judge] = &[
    ("MP07a", read_pending),
    ("MP07b", read_last),
    ("MP07c", |lab| responses(lab, &FIG_12A, [14.0, 11.0])),
    ("MP07d", |lab| requests(lab, &FIG_12A)),
    ("MP08a", |lab| read_falls(lab, &FIG_12B, [11.0, 2.0])),
    ("MP08b", |lab| responses(lab, &FIG_12B, [13.8, 11.0])),
    ("MP08c", |lab| last_from(lab, &FIG_12B, 2)),
    ("MP09a", |lab| read_falls(lab, &FIG_12C, [17.0, 2.0])),
    ("MP09b", |lab| responses(lab, &FIG_12C, [16.0, 15.0])),
    ("MP09c", |lab| requests(lab, &FIG_12C)),
    ("MP10a", large_values),
    ("MP10b", read_behind),
    ("MP10c", write_first),
];

fn read_pending(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_12A)?;
    let rest = curves.from(Read, 16);
    let (first, stays) = (curves.at(Read, 1), curves.at(Read, 16));
    let seen = Seen::new(
        curves.all_told(&[Read]),
        curves.peak(Read) == 1 && is_ahead(first, stays) && spread(&rest) <= ALIKE,
        "contexts are fetched for nearly every READ; and the more of them are pending, the more often the NIC no \
             longer holds the request of one, and fetches it once more",
        "what more pending READs cost is little beside the contexts that are fetched for nearly every READ",
    )?;
    Ok(seen.beside(&[(first, 4.2), (stays, 2.0)]))
}

fn read_last(lab: &Lab) -> Result<Seen> {
    last_from(lab, &FIG_12A, 16)
}

fn last_from(lab: &Lab, sweep: &'static Sweep, from: usize) -> Result<Seen> {
    let curves = Curves::of(lab, sweep)?;
    let mut places = sweep.told.iter().filter(|x| **x >= from);
    Seen::new(
        curves.all_told(&ALL),
        places.all(|x| curves.ahead(&OTHERS, &[Read], *x)),
        "the NIC that asks has taken up more READs than it holds, and fetches requests once more; and where \
             contexts do not fit, each READ needs one for itself, which messages of a queue pair share",
        "as long as contexts and READs fit into the NIC, a READ costs it less than a request and a response",
    )
}

/// The most that protocols reach whose responses go by WRITE, and by SEND.
fn responses(lab: &Lab, sweep: &'static Sweep, paper: [f64; 2]) -> Result<Seen> {
    let curves = Curves::of(lab, sweep)?;
    let [write, send] =
        [ANSWER_BY_WRITE, ANSWER_BY_SEND].map(|pair| pair.map(|protocol| curves.most(protocol)));
    let holds = write
        .iter()
        .all(|write| send.iter().all(|send| is_ahead(*write, *send)));
    let seen = Seen::new(
        curves.all_told(&OTHERS),
        holds,
        "a receive costs the one that asks more than a WRITE that comes in, most of all where it is fetched with \
             a context",
        "a receive costs the one that asks less than the contexts of its requests, which hold up both verbs alike",
    )?;
    let numbers = [
        write.map(|most| (most, paper[0])),
        send.map(|most| (most, paper[1])),
    ];
    Ok(seen.beside(&numbers.concat()))
}

fn requests(lab: &Lab, sweep: &'static Sweep) -> Result<Seen> {
    let curves = Curves::of(lab, sweep)?;
    let apart = |pair: [Protocol; 2]| {
        let each = sweep.told.iter().map(|x| spread(&curves.each(&pair, *x)));
        each.fold(0.0, f64::max)
    };
    let (send, write) = (apart(ANSWER_BY_SEND), apart(ANSWER_BY_WRITE));
    Seen::new(
        format!(
            "up to {:.0} % apart where responses go by SEND, and {:.0} % where they go by WRITE",
            100.0 * send,
            100.0 * write
        ),
        send.max(write) <= ALIKE,
        "both are one short message that was posted with its bytes, and those that answer have time for receives",
        "requests by SEND wait for receives at those that answer",
    )
}

fn read_falls(lab: &Lab, sweep: &'static Sweep, paper: [f64; 2]) -> Result<Seen> {
    let curves = Curves::of(lab, sweep)?;
    let line = curves.from(Read, 1);
    let seen = Seen::new(
        curves.all_told(&[Read]),
        falls(&line),
        "the more queue pairs there are, the more READs has the NIC taken up that it does not hold, until \
             contexts do not fit either",
        "one thread, or one node that is asked, does not keep the NIC busy that asks",
    )?;
    let last = line[line.len() - 1];
    Ok(seen.beside(&[(line[0], paper[0]), (last, paper[1])]))
}

fn large_values(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_13[1])?;
    let at = |protocol| curves.at(protocol, 16384);
    let ended = OTHERS
        .iter()
        .all(|one| is_same(at(*one), curves.most(*one)));
    let ahead = |x: &usize| curves.ahead(&ANSWER_BY_WRITE, &ANSWER_BY_SEND, *x);
    let mut large = FIG_13[1].told.iter().filter(|x| **x >= 16384);
    let seen = Seen::new(
        curves.all_told(&OTHERS),
        ended && large.all(ahead),
        "receives cost the one that asks more than WRITEs that come in",
        "from 8 KB on the bus to the memory of the one that asks is full by either verb: a message of several \
             packets takes one receive, which is fetched while they come",
    )?;
    Ok(seen.beside(&[
        (at(SendWrite), 49.0),
        (at(WriteWrite), 49.0),
        (at(SendSend), 42.0),
        (at(WriteSend), 42.0),
    ]))
}

fn read_behind(lab: &Lab) -> Result<Seen> {
    let (mut holds, mut told) = (true, Vec::new());
    for sweep in &FIG_13 {
        let curves = Curves::of(lab, sweep)?;
        for x in sweep.told {
            let behind = curves.ahead(&OTHERS, &[Read], *x);
            let caught_up = *x == 65536 && sweep.pending == 128;
            holds &= behind != caught_up;
        }
        told.push(format!(
            "{} pending, {}",
            sweep.pending,
            curves.all_told(&ALL)
        ));
    }
    Seen::new(
        told.join("; "),
        holds,
        "a READ takes the NIC that asks longer than its answer takes the bus to memory",
        "what a READ costs the NIC that asks does not depend on its size: from 8 KB on with 4 calls pending, and \
             from 16 KB on with 128, answers fill the bus to memory",
    )
}

fn write_first(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_13[0])?;
    let others = [Read, SendSend, WriteSend];
    Seen::new(
        curves.all_told(&ALL),
        FIG_13[0]
            .told
            .iter()
            .all(|x| curves.ahead(&ANSWER_BY_WRITE, &others, *x)),
        "receives cost the one that asks more than WRITEs that come in, and it fetches READs once more",
        "they are up to 4 KB; larger values fill the bus to the memory of the one that asks by all protocols",
    )
}
