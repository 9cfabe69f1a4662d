//! Arrivals in regions that are made up, and what their readers find.

use super::*;
use crate::wire::{HEADER_LENGTH, SequenceDigest};
use futures::task::ArcWake;
use roundel_verbs::shm::{self, ShmOptions};
use roundel_verbs::{Arena, ArenaOptions, CompletionStatus};
use std::sync::atomic::AtomicUsize;

const LINK: LinkId = LinkId(0);
const READER: Option<(LinkId, u32)> = Some((LINK, 0));
const END: News = News::End(SequenceDigest {
    count: 1,
    checksum: 1,
});
const LOST: News = News::Lost(CompletionStatus::Flushed);

/// A message that an operator has got, by its sequence number, or news.
#[derive(Clone, Debug, PartialEq)]
enum Got {
    Message(u64),
    News(News),
}

#[derive(Default)]
struct Operator(Mutex<Vec<Got>>);

impl Sink for Operator {
    fn deliver(&self, _link: LinkId, message: &MessageHead, payload: &FrameBuffer) {
        assert_eq!(payload.as_slice(), [message.sequence as u8; 5]);
        self.0.lock().push(Got::Message(message.sequence));
    }

    fn tell(&self, _link: LinkId, news: News) {
        self.0.lock().push(Got::News(news));
    }
}

/// Operators of a process with regions, and memory in these.
struct Process {
    regions: Regions,
    arena: Arena,
}

impl Process {
    fn with(regions: usize) -> Self {
        let device = shm::open(ShmOptions::default()).unwrap();
        Self {
            regions: Regions::made_up(regions),
            arena: device.arena(ArenaOptions::default()),
        }
    }

    fn operator(&self) -> (Arc<Operator>, Arc<Arrivals>) {
        let operator = Arc::new(Operator::default());
        let arrivals = Arc::new(Arrivals::new(Weak::new(), &self.regions));
        let sink = Arc::downgrade(&operator);
        arrivals.set_sink(sink);
        (operator, arrivals)
    }

    /// A message in the memory of a region, of the first partition, for operators.
    fn message(&self, to: &[&Arc<Arrivals>], region: usize, sequence: u64) -> Arc<Arrival> {
        let arena = self.arena.in_region(self.regions.in_turn(region));
        let mut buffer = arena.allocate(HEADER_LENGTH + 5).unwrap();
        buffer.write(HEADER_LENGTH, &[sequence as u8; 5]);
        let member = |arrivals: &&Arc<Arrivals>| Member {
            arrivals: (*arrivals).clone(),
            link: LINK,
            number: 0,
        };
        let data = Data {
            frame_sequence: 0,
            rows: 1,
            frame_length: 5,
            offset: 0,
            payload_length: 5,
        };
        let head = MessageHead {
            partition: 0,
            group: 0,
            sequence,
            data,
        };
        Arc::new(Arrival::new(
            0,
            to.iter().map(member).collect(),
            head,
            Place::of(buffer),
        ))
    }
}

fn messages(numbers: impl IntoIterator<Item = u64>) -> Vec<Got> {
    numbers.into_iter().map(Got::Message).collect()
}

#[test]
fn a_reader_takes_from_its_own_region_first_then_from_others() {
    let process = Process::with(3);
    for own in 0..3 {
        let (operator, arrivals) = process.operator();
        for sequence in 0..6 {
            let region = sequence as usize % 3;
            process.message(&[&arrivals], region, sequence).push();
        }
        process.regions.bind(own);
        while arrivals.take_in(READER) {}
        let of_own = (0..6).filter(|number| *number as usize % 3 == own);
        let of_others = (0..6).filter(|number| *number as usize % 3 != own);
        assert_eq!(*operator.0.lock(), messages(of_own.chain(of_others)));
        assert_eq!((arrivals.region_steals(), arrivals.steals()), (4, 0));
    }
}

#[test]
fn what_waits_in_another_region_is_not_overtaken_by_too_much() {
    let process = Process::with(2);
    let (operator, arrivals) = process.operator();
    process.regions.bind(1);
    process.message(&[&arrivals], 0, 0).push();
    // There is always something in the reader's own region.
    for sequence in 1..100 {
        process.message(&[&arrivals], 1, sequence).push();
        process.message(&[&arrivals], 1, 100 + sequence).push();
        assert!(arrivals.take_in(READER));
    }
    let got = operator.0.lock();
    let place = got.iter().position(|got| *got == Got::Message(0));
    assert_eq!(place, Some(OVERTAKING_MAX as usize));
    assert_eq!(arrivals.region_steals(), 1);
}

#[test]
fn with_one_region_all_is_in_order_and_nothing_is_stolen_from_another() {
    let process = Process::with(1);
    let (operator, arrivals) = process.operator();
    for sequence in 0..3 {
        process.message(&[&arrivals], 0, sequence).push();
        arrivals.push_news(LINK, END);
    }
    let thief = Some((LINK, 1));
    while arrivals.take_in(thief) {}
    let each = |number| [Got::Message(number), Got::News(END)];
    let all: Vec<_> = (0..3).flat_map(each).collect();
    assert_eq!(*operator.0.lock(), all);
    assert_eq!((arrivals.region_steals(), arrivals.steals()), (0, 3));
}

#[test]
fn news_that_overtake_messages_are_told_after_them() {
    let process = Process::with(2);
    let (operator, arrivals) = process.operator();
    process.message(&[&arrivals], 1, 0).push();
    arrivals.push_news(LINK, END);
    process.message(&[&arrivals], 1, 1).push();
    arrivals.push_news(LINK, LOST);
    process.regions.bind(0);
    // Both news are in the first region.
    assert!(arrivals.take_in(READER) && arrivals.take_in(READER));
    assert_eq!(*operator.0.lock(), []);
    // Those of another link do not wait for this one's messages.
    arrivals.push_news(LinkId(1), LOST);
    assert!(arrivals.take_in(READER));
    assert_eq!(operator.0.lock().drain(..).as_slice(), [Got::News(LOST)]);
    while arrivals.take_in(READER) {}
    let all = [
        Got::Message(0),
        Got::News(END),
        Got::Message(1),
        Got::News(LOST),
    ];
    assert_eq!(*operator.0.lock(), all);
}

#[test]
fn a_message_for_two_is_taken_in_once_and_lets_the_news_of_both_pass() {
    let process = Process::with(2);
    let (first, second) = (process.operator(), process.operator());
    process.message(&[&first.1, &second.1], 1, 7).push();
    for (_, arrivals) in [&first, &second] {
        arrivals.push_news(LINK, END);
    }
    // The news of the second come to nobody, for a message that the first takes in.
    process.regions.bind(0);
    assert!(second.1.take_in(READER));
    assert_eq!(*second.0.0.lock(), []);
    process.regions.bind(1);
    assert!(first.1.take_in(READER));
    let both = [Got::Message(7), Got::News(END)];
    assert_eq!(*second.0.0.lock(), both);
    // The entry of the message in the queue of the second brings nothing more, and is no steal.
    process.regions.bind(0);
    for (operator, arrivals) in [&first, &second] {
        while arrivals.take_in(READER) {}
        assert_eq!(*operator.0.lock(), both);
        assert_eq!(arrivals.region_steals(), 0);
    }
}

#[test]
fn what_nobody_reads_any_more_leaves_every_region() {
    let process = Process::with(3);
    let (operator, arrivals) = process.operator();
    drop(operator);
    for region in 0..3 {
        process.message(&[&arrivals], region, 1).push();
        arrivals.push_news(LINK, END);
    }
    assert!(process.arena.usage().allocated > 0);
    while arrivals.take_in(None) {}
    assert_eq!(process.arena.usage().allocated, 0);
    assert_eq!((arrivals.region_steals(), arrivals.steals()), (0, 0));
}

#[test]
fn a_message_is_relieved_once() {
    let process = Process::with(2);
    let (operator, arrivals) = process.operator();
    let message = process.message(&[&arrivals], 1, 3);
    message.push();
    arrivals.push_news(LINK, END);
    assert!(message.is_held() && message.relieve());
    assert!(!message.is_held() && !message.relieve());
    while arrivals.take_in(READER) {}
    let all = [Got::Message(3), Got::News(END)];
    assert_eq!(*operator.0.lock(), all);
    assert_eq!(arrivals.region_steals(), 0);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl ArcWake for Woken {
    fn wake_by_ref(woken: &Arc<Self>) {
        woken.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_message_wakes_its_reader_or_one_of_its_region() {
    let process = Process::with(2);
    for (region, woken) in [(1, [0, 1, 0]), (0, [0, 0, 1])] {
        let (_operator, arrivals) = process.operator();
        let readers: [Arc<Woken>; 3] = Default::default();
        for (number, reader) in readers.iter().enumerate() {
            process.regions.bind(number);
            let waker = futures::task::waker(reader.clone());
            arrivals.wait((LINK, 1 + number as u32), &waker);
        }
        process.message(&[&arrivals], region, 0).push();
        let got = readers.each_ref().map(|one| one.0.load(Ordering::Relaxed));
        assert_eq!(got, woken, "for a reader that is at work");
        // Its own reader, wherever that is.
        process.regions.bind(1 - region);
        let own = Arc::new(Woken::default());
        arrivals.wait((LINK, 0), &futures::task::waker(own.clone()));
        process.message(&[&arrivals], region, 1).push();
        assert_eq!(own.0.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_reader_of_another_operator_hears_of_what_was_taken_in_for_it() {
    let process = Process::with(1);
    let (first, second) = (process.operator(), process.operator());
    process.message(&[&first.1, &second.1], 0, 7).push();
    // It began to wait after the message had come. Its link has the same number.
    let reader = Arc::new(Woken::default());
    second
        .1
        .wait((LINK, 0), &futures::task::waker(reader.clone()));
    assert!(first.1.take_in(READER));
    assert_eq!(reader.0.load(Ordering::Relaxed), 1);
    assert_eq!((first.1.steals(), second.1.steals()), (0, 1));
}

#[test]
fn all_partitions_hear_of_an_end_that_waited_for_the_last_message() {
    let process = Process::with(1);
    let (_operator, arrivals) = process.operator();
    let message = process.message(&[&arrivals], 0, 0);
    message.push();
    arrivals.push_news(LINK, END);
    // Another thread has the message in hand, and this one finds the end.
    assert!(arrivals.queues[0].pop().is_some());
    assert!(arrivals.take_in(READER));
    let reader = Arc::new(Woken::default());
    arrivals.wait((LINK, 1), &futures::task::waker(reader.clone()));
    assert!(arrivals.copy(&message, READER));
    assert_eq!(reader.0.load(Ordering::Relaxed), 1);
}
