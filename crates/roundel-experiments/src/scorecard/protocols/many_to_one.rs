//! M:1: many ask one (section 4.1, figures 10 and 11).

use super::super::{Judge, Lab, Seen};
use super::{
    AHEAD, ALIKE, ALL, ASK_BY_SEND, ASK_BY_WRITE, Curves, OTHERS, Read, SAME, SendSend, SendWrite,
    WriteSend, WriteWrite, falls, gigabits, is_ahead, is_same, mean, spread,
};
use crate::conversation::{FIG_10A, FIG_10B, FIG_10C, FIG_11, NODES, VALUE};
use crate::error::Result;

pub(super) const JUDGES: &[Judge] = &[
    ("MP02a", read_peak),
    ("MP02b", read_factor),
    ("MP03a", writes_plateau),
    ("MP03b", sends_slower),
    ("MP03c", responses_alike),
    ("MP04a", read_threads),
    ("MP04b", write_threads),
    ("MP04c", all_fall),
    ("MP05a", one_node),
    ("MP05b", read_nodes),
    ("MP05c", write_nodes),
    ("MP05d", send_nodes),
    ("MP06a", read_values),
    ("MP06b", other_values),
    ("MP06c", read_first),
    ("MP06d", more_for_small),
    ("MP06e", less_for_1k),
    ("MP06f", as_much_for_large),
];

fn read_peak(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10A)?;
    let at = curves.at(Read, 16);
    let grows = is_ahead(at, curves.at(Read, 1));
    let seen = Seen::new(
        curves.all_told(&[Read]),
        grows && at >= (1.0 - SAME) * curves.most(Read),
        "with some READs of a queue pair pending their answers share its context, and the bus to the host's \
             memory is all that holds up the NIC",
        "more calls than that are needed before the NIC that answers is busy, or it answers fewer when more are \
             pending",
    )?;
    Ok(seen.beside(&[(at, 43.0)]))
}

fn read_factor(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10A)?;
    let read = curves.at(Read, 16);
    let (least, most) = (
        read / curves.best(&OTHERS, 16),
        read / curves.worst(&OTHERS, 16),
    );
    let seen = Seen::new(
        format!(
            "{least:.2} to {most:.2} times: {}",
            curves.told_at(&ALL, 16)
        ),
        least >= 0.75 * 2.0,
        "READs need a context at the NIC that answers which is soon fetched; responses need one that takes long, \
             and requests by SEND receives as well",
        "a READ costs the NIC that answers little less than a request and a response",
    )?;
    Ok(seen.beside(&[(least, 2.0), (most, 6.0)]))
}

fn writes_plateau(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10A)?;
    let ends = |protocol| {
        let [before, at, after] = [64, 128, 256].map(|pending| curves.at(protocol, pending));
        (at >= before * (1.0 - SAME)) && after <= at * (1.0 + SAME)
    };
    let seen = Seen::new(
        curves.all_told(&ASK_BY_WRITE),
        ASK_BY_WRITE.into_iter().all(ends),
        "the NIC that answers fetches a context for each turn of a queue pair, and with 16 calls pending turns \
             have as many responses as they can",
        "the more calls are pending the more responses share a context that is fetched",
    )?;
    Ok(seen.beside(&ASK_BY_WRITE.map(|protocol| (curves.at(protocol, 128), 28.0))))
}

fn sends_slower(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10A)?;
    let seen = Seen::new(
        curves.told_at(&OTHERS, 256),
        curves.ahead(&ASK_BY_WRITE, &ASK_BY_SEND, 256),
        "receives are fetched with each context that the NIC that answers does not hold",
        "contexts for responses hold up both alike, and take longer than receives",
    )?;
    let at = |protocol| curves.at(protocol, 256);
    Ok(seen.beside(&[(at(SendSend), 24.0), (at(SendWrite), 22.0)]))
}

fn responses_alike(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10A)?;
    let apart = |pair: [_; 2]| {
        let each = FIG_10A.told.iter().map(|x| spread(&curves.each(&pair, *x)));
        each.fold(0.0, f64::max)
    };
    let (send, write) = (apart(ASK_BY_SEND), apart(ASK_BY_WRITE));
    Seen::new(
        format!(
            "up to {:.0} % apart where requests go by SEND, and {:.0} % where they go by WRITE",
            100.0 * send,
            100.0 * write
        ),
        send.max(write) <= ALIKE,
        "a response costs the NIC that answers the same by either verb, and those that ask have time for receives",
        "receives of responses hold up those that ask",
    )
}

fn read_threads(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10B)?;
    let first = |x: &usize| curves.ahead(&[Read], &OTHERS, *x);
    let seen = Seen::new(
        curves.all_told(&ALL),
        FIG_10B.told.iter().all(first) && curves.peak(Read) == 1,
        "few queue pairs keep the bus to the memory of the one that answers busy; with many, contexts that READs \
             need are fetched, which takes little time",
        "READs cost the NIC as much as messages, or gain from more queue pairs",
    )?;
    Ok(seen.beside(&[(curves.at(Read, 1), 40.0)]))
}

fn write_threads(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10B)?;
    let second = |x: &usize| curves.ahead(&ASK_BY_WRITE, &ASK_BY_SEND, *x);
    let most = ASK_BY_WRITE
        .into_iter()
        .all(|protocol| curves.peak(protocol) == 1);
    let seen = Seen::new(
        curves.all_told(&OTHERS),
        FIG_10B.told.iter().all(second) && most,
        "receives cost more than WRITEs that come in, and more queue pairs do not fit into the NIC",
        "with 1 and 2 threads all contexts are held, and sending responses and acknowledgements is what the NIC \
             is busy with: how requests come does not matter, and responses by WRITE are longer by an address. With \
             more threads requests by WRITE are ahead",
    )?;
    Ok(seen.beside(&ASK_BY_WRITE.map(|protocol| (curves.at(protocol, 1), 33.0))))
}

fn all_fall(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10B)?;
    let fall = |protocol| falls(&curves.from(protocol, 1));
    let left = |protocol| curves.at(protocol, 16) / curves.at(protocol, 1);
    let most = ASK_BY_SEND.map(left).into_iter().fold(0.0, f64::max);
    let others = [Read, WriteSend, WriteWrite].map(left);
    let told = ALL.map(|protocol| format!("{protocol} {:.2}", left(protocol)));
    Seen::new(
        format!(
            "with 16 threads what there is with one, times {}",
            told.join(", ")
        ),
        ALL.into_iter().all(fall) && others.iter().all(|left| is_ahead(*left, most)),
        "contexts of more queue pairs do not fit into the NIC, and receives are fetched with them",
        "what is lost with more queue pairs is time for contexts of responses, which requests by WRITE have as well",
    )
}

fn one_node(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10C)?;
    let each = curves.each(&ALL, 1);
    let seen = Seen::new(
        curves.told_at(&ALL, 1),
        spread(&each) <= ALIKE,
        "the NIC that asks is what all have to pass",
        "contexts and READs all fit into the NIC that asks, which is busy taking in packets: one of a READ, but a \
             response and an acknowledgement of others, and a receive costs more than a WRITE that comes in",
    )?;
    let numbers: Vec<_> = each.into_iter().map(|value| (value, 20.0)).collect();
    Ok(seen.beside(&numbers))
}

fn read_nodes(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10C)?;
    let rest = curves.from(Read, 8);
    let first = |x: &usize| curves.ahead(&[Read], &OTHERS, *x);
    let many = FIG_10C.told.iter().filter(|x| **x > 1);
    let seen = Seen::new(
        curves.all_told(&ALL),
        many.clone().all(first) && spread(&rest) <= ALIKE,
        "with 4 nodes the bus to the memory of the one that answers is full, and contexts that do not fit cost \
             READs little",
        "contexts hold up READs, too",
    )?;
    Ok(seen.beside(&[(mean(&rest), 36.0)]))
}

fn write_nodes(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10C)?;
    let rest = ASK_BY_WRITE.map(|protocol| curves.from(protocol, 4));
    let seen = Seen::new(
        curves.all_told(&ASK_BY_WRITE),
        rest.iter().all(|rest| spread(rest) <= ALIKE),
        "the NIC that answers is busy with four nodes",
        "contexts of 4 nodes fit into the NIC; from 8 on they do not, and it fetches one for each turn of a queue \
             pair that responds",
    )?;
    Ok(seen.beside(&rest.map(|rest| (mean(&rest), 30.0))))
}

fn send_nodes(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_10C)?;
    let fall = |protocol| curves.peak(protocol) == 4 && falls(&curves.from(protocol, 4));
    let seen = Seen::new(
        curves.all_told(&ASK_BY_SEND),
        ASK_BY_SEND.into_iter().all(fall),
        "from 8 nodes on contexts do not fit into the NIC, and with 28 it is busy fetching receives with them",
        "contexts and receives that are fetched do not take more time with more nodes",
    )?;
    let numbers = ASK_BY_SEND.map(|protocol| {
        [
            (curves.at(protocol, 4), 28.0),
            (curves.at(protocol, NODES), 19.0),
        ]
    });
    Ok(seen.beside(&numbers.concat()))
}

fn read_values(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_11[0])?;
    let (at, most) = (curves.at(Read, 4096), curves.most(Read));
    let seen = Seen::new(
        curves.all_told(&[Read]),
        is_same(at, most) && is_ahead(at, curves.at(Read, 1024)),
        "the bus to the host's memory, which is slower than the link, is full",
        "that bus is full with other values already, or is not yet",
    )?;
    Ok(seen.beside(&[(at, 52.0)]))
}

fn other_values(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_11[0])?;
    let at = OTHERS.map(|protocol| (curves.at(protocol, 8192), curves.most(protocol)));
    let seen = Seen::new(
        curves.all_told(&OTHERS),
        at.iter().all(|(at, most)| is_same(*at, *most)) && curves.ahead(&[Read], &OTHERS, 8192),
        "the bus to the host's memory is full but for headers and acknowledgements",
        "packets of long values take turns. The context for the next is fetched while one is on the link, unless \
             an acknowledgement of a request goes between, of which larger values have fewer",
    )?;
    Ok(seen.beside(&at.map(|(at, _)| (at, 47.0))))
}

fn read_first(lab: &Lab) -> Result<Seen> {
    let (mut first, mut told) = (true, Vec::new());
    for sweep in &FIG_11 {
        let curves = Curves::of(lab, sweep)?;
        // As good as the best where the link is full.
        first &= sweep.told.iter().all(|x| {
            let read = curves.at(Read, *x);
            read >= (1.0 - AHEAD) * curves.best(&OTHERS, *x)
        });
        told.push(format!(
            "{} pending, {}",
            sweep.pending,
            curves.all_told(&ALL)
        ));
    }
    Seen::new(
        told.join("; "),
        first,
        "READs need no acknowledgements, and a context that is soon fetched",
        "what contexts cost READs outweighs that they are fewer messages",
    )
}

/// What READ has with 4 and with 128 calls pending.
fn few_and_many(lab: &Lab, value: usize) -> Result<[f64; 2]> {
    let [few, many] = &FIG_11;
    Ok([
        Curves::of(lab, few)?.at(Read, value),
        Curves::of(lab, many)?.at(Read, value),
    ])
}

fn told([few, many]: [f64; 2]) -> String {
    format!("{} and {} Gb/s", gigabits(few), gigabits(many))
}

fn more_for_small(lab: &Lab) -> Result<Seen> {
    let [few, many] = few_and_many(lab, VALUE)?;
    let seen = Seen::new(
        told([few, many]),
        is_ahead(many, few),
        "READs of a queue pair that come together share its context; with 4 pending most of them do already",
        "4 calls pending on each queue pair are all that the NIC can answer",
    )?;
    Ok(seen.beside(&[(many - few, 14.0)]))
}

fn less_for_1k(lab: &Lab) -> Result<Seen> {
    let [few, many] = few_and_many(lab, 1024)?;
    let seen = Seen::new(
        told([few, many]),
        is_ahead(few, many),
        "more READs are pending than the NIC holds",
        "each NIC that asks holds all READs that it has taken up, of 16 queue pairs, and the one that answers \
             holds none: their number costs nothing",
    )?;
    Ok(seen.beside(&[(few - many, 5.0)]))
}

fn as_much_for_large(lab: &Lab) -> Result<Seen> {
    let mut same = true;
    let mut each = Vec::new();
    for value in FIG_11[0].told.iter().filter(|value| **value > 4096) {
        let [few, many] = few_and_many(lab, *value)?;
        same &= is_same(few, many);
        each.push(told([few, many]));
    }
    Seen::new(
        each.join(", "),
        same,
        "the bus to the host's memory is full with either",
        "contexts cost more where more calls are pending",
    )
}
