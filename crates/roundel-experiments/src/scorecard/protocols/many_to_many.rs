//! M:M: all ask each other (section 4.3, figures 14 and 15).

use super::super::{Judge, Lab, Seen};
use super::{
    ALIKE, ALL, Curves, OTHERS, Read, SendSend, SendWrite, WriteSend, WriteWrite, falls, is_ahead,
    is_same, mean, spread,
};
use crate::conversation::{FIG_14A, FIG_14B, FIG_14C, FIG_15, VALUE};
use crate::error::Result;

/// Others than READ and SEND/SEND, which figure 14a tells of together.
const REST: [roundel_protocols::Protocol; 3] = [SendWrite, WriteSend, WriteWrite];

pub(super) const JUDGES: &[Judge] = &[
    ("MP11a", read_peak),
    ("MP11b", read_after),
    ("MP11c", send_send),
    ("MP11d", rest),
    ("MP12a", read_threads),
    ("MP12b", read_crosses),
    ("MP12c", write_write),
    ("MP13a", all_fall),
    ("MP13b", read_first),
    ("MP14a", few_read),
    ("MP14b", few_write),
    ("MP14c", few_send),
    ("MP14d", many_read),
    ("MP14e", many_large),
    ("MP14f", many_others),
];

fn read_peak(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14A)?;
    let at = curves.at(Read, 8);
    let factor = at / curves.best(&OTHERS, 8);
    let seen = Seen::new(
        format!("{factor:.2} times: {}", curves.all_told(&ALL)),
        is_same(at, curves.most(Read)) && factor >= 0.75 * 2.0,
        "more READs are pending after that than the NIC holds",
        "up to 8 calls pending the NIC holds all READs, and is what holds up all protocols: two packets come in \
             for a READ, and four for WRITEs both ways. In the paper threads hold up the others, by whose numbers a \
             call takes them 320 ns by SENDs, and 417 with WRITE",
    )?;
    Ok(seen.beside(&[(at, 13.5), (factor, 2.0)]))
}

fn read_after(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14A)?;
    let rest = curves.from(Read, 32);
    let seen = Seen::new(
        curves.all_told(&[Read]),
        is_ahead(curves.at(Read, 8), curves.at(Read, 32)) && spread(&rest) <= ALIKE,
        "the NIC has taken up more READs than it holds, and fetches requests once more",
        "the NIC holds all READs that are pending",
    )?;
    Ok(seen.beside(&[(mean(&rest), 10.0)]))
}

fn send_send(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14A)?;
    let at = curves.at(SendSend, 64);
    let seen = Seen::new(
        curves.all_told(&OTHERS),
        is_same(at, curves.most(SendSend)) && curves.ahead(&[SendSend], &REST, 64),
        "its threads have no memory to look at",
        "the NIC is what holds up all, and a receive costs it more than a WRITE that comes in; in the paper \
             threads are, by whose numbers a call takes them 320 ns by SENDs, and 417 with WRITE",
    )?;
    Ok(seen.beside(&[(at, 9.0)]))
}

fn rest(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14A)?;
    let each = REST.map(|protocol| curves.from(protocol, 8));
    let seen = Seen::new(
        curves.all_told(&REST),
        each.iter().all(|line| spread(line) <= ALIKE),
        "NICs are busy with the messages of each call, however many are pending",
        "they gain from more pending calls",
    )?;
    Ok(seen.beside(&each.map(|line| (mean(&line), 7.0))))
}

fn read_threads(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14B)?;
    let seen = Seen::new(
        curves.all_told(&[Read]),
        falls(&curves.from(Read, 1)),
        "with one thread the NIC has taken up more READs than it holds, with 2 still more, and with 8 contexts do \
             not fit either",
        "READs and contexts of more threads fit into the NIC",
    )?;
    Ok(seen.beside(&[(curves.at(Read, 1), 10.0), (curves.at(Read, 8), 1.0)]))
}

fn read_crosses(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14B)?;
    let last = |x: &usize| curves.ahead(&OTHERS, &[Read], *x);
    let mut many = FIG_14B.told.iter().filter(|x| **x >= 2);
    Seen::new(
        curves.all_told(&ALL),
        curves.ahead(&[Read], &OTHERS, 1) && many.all(last),
        "READs are fewer messages, until the NIC has to fetch them once more, and contexts",
        "with one thread the NIC has taken up more READs than it holds, and READ has what it has in the paper; \
             others have more with one thread already, as a call takes it less time than it must have taken the \
             paper's",
    )
}

fn write_write(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14B)?;
    let at = curves.at(WriteWrite, 2);
    let most = ALL
        .map(|protocol| curves.most(protocol))
        .into_iter()
        .fold(0.0, f64::max);
    let seen = Seen::new(
        curves.all_told(&ALL),
        at >= most && curves.ahead(&[WriteWrite], &[Read, SendSend, SendWrite, WriteSend], 2),
        "one thread is too slow for the NIC, and four have more queue pairs than it holds",
        "the NIC is busy with one thread already, as a call takes it less time than it must have taken the \
             paper's; and contexts of two threads do not fit",
    )?;
    Ok(seen.beside(&[(at, 11.0)]))
}

fn all_fall(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14C)?;
    Seen::new(
        curves.all_told(&ALL),
        ALL.into_iter()
            .all(|protocol| falls(&curves.from(protocol, 4))),
        "more queue pairs do not fit into the NIC",
        "with one thread contexts of 28 nodes fit into the NIC, which is as busy with 4 nodes: only READ falls, \
             of which it has then taken up more than it holds",
    )
}

fn read_first(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_14C)?;
    let holds = |x: &usize| {
        curves.ahead(&[Read], &OTHERS, *x) && spread(&curves.each(&OTHERS, *x)) <= ALIKE
    };
    let mut places = FIG_14C.told.iter().filter(|x| **x >= 4);
    Seen::new(
        curves.all_told(&ALL),
        places.all(holds),
        "a READ needs one thread, and two messages",
        "with 28 nodes the NIC has taken up more READs than it holds, while others are not held up by their \
             threads, as the paper's are; nor are these comparable, as a receive costs the NIC more than a WRITE that \
             comes in",
    )
}

fn few_read(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_15[0])?;
    let at = curves.at(Read, 4096);
    let seen = Seen::new(
        curves.all_told(&[Read]),
        is_same(at, curves.most(Read)),
        "from 4 KB on the bus to the host's memory is nearly full",
        "READs of larger values go on to fill the link",
    )?;
    Ok(seen.beside(&[(at, 25.0)]))
}

fn few_write(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_15[0])?;
    let [small, large] = [1024, 4096].map(|value| curves.at(WriteWrite, value));
    let seen = Seen::new(
        curves.all_told(&[WriteWrite, Read]),
        is_ahead(small, curves.at(WriteWrite, VALUE)) && is_ahead(large, small),
        "what a call costs is shared by more bytes",
        "larger values have less",
    )?;
    Ok(seen.beside(&[(small, 17.0), (large, 26.0)]))
}

fn few_send(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_15[0])?;
    let others = [Read, SendWrite, WriteSend, WriteWrite];
    Seen::new(
        curves.all_told(&ALL),
        FIG_15[0].told.iter().all(|x| {
            // Where the network is what there is, all are.
            curves.at(SendSend, *x) <= curves.worst(&others, *x)
        }),
        "receives cost NICs and threads more",
        "from 4 KB on sending packets keeps NICs busy, and not receives: all but READ have the same, within a \
             hundredth",
    )
}

fn many_read(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_15[1])?;
    let mut middle = FIG_15[1].told.iter().filter(|x| (1024..8192).contains(*x));
    Seen::new(
        curves.all_told(&ALL),
        curves.ahead(&[Read], &OTHERS, VALUE) && middle.all(|x| curves.ahead(&OTHERS, &[Read], *x)),
        "more READs are pending than the NIC holds, which costs large ones too",
        "READ is last with 365 bytes, too: the NIC has taken up more READs than it holds, and others are not held \
             up by their threads, as the paper's are",
    )
}

fn many_large(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_15[1])?;
    let mut large = FIG_15[1].told.iter().filter(|x| **x >= 8192);
    Seen::new(
        curves.all_told(&ALL),
        large.all(|x| spread(&curves.each(&ALL, *x)) <= ALIKE),
        "by all protocols the bus to the host's memory is nearly full",
        "a value and its header need a packet more than the value of a READ",
    )
}

fn many_others(lab: &Lab) -> Result<Seen> {
    let curves = Curves::of(lab, &FIG_15[1])?;
    Seen::new(
        curves.all_told(&OTHERS),
        FIG_15[1]
            .told
            .iter()
            .all(|x| spread(&curves.each(&OTHERS, *x)) <= ALIKE),
        "NICs are busy with the same number of messages, and then the link",
        "with 365 bytes packets that come in keep the NIC busy, and a receive costs it more than a WRITE",
    )
}
