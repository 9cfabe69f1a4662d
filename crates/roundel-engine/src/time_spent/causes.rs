//! What the answer of a query waited for in the end.
//!
//! It begins with the rows that the coordinator waited for, and follows the waits down the stages. Who sends rows spends its time on
//! several things ([`Spending`]). Of the time in which somebody waited for these rows, each thing gets its share; what the sender itself
//! waited for rows goes on to those that it reads. So what is told adds up to the time of the query. Of rows that stay in a process nothing
//! is measured: they are a part of what their reader computes.

use std::collections::BTreeMap;
use std::time::Duration;

use roundel_datafusion::engine::{COORDINATOR, Ends, LinkSpent};
use roundel_datafusion::{Spending, Spent};

use super::TimeSpent;
use super::stages::{Stage, read_at};

/// Tasks spend time on these until they have rows.
const MAKING: &[Spending] = &[Spending::Computing, Spending::Processor, Spending::Rows];
/// A worker that takes so many times what the others take is named.
const SLOWER: f64 = 1.5;

/// What somebody waited for in the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// The coordinator, or whoever takes the answer from it.
    Answer,
    /// Plans are on their way to the workers.
    Starts,
    /// A stage computes.
    Computes { stage: usize },
    /// Tasks could go on, and wait for a processor.
    Processor,
    /// A stage waits for what no exchange brings: files, and rows of its own process.
    Reads { stage: usize },
    /// Rows are on their way between two processes, whichever sends them: credit for rows goes the other way.
    Travels([String; 2]),
    /// Rows wait for their turn at a worker's multiplexer.
    Turn { from: String },
}

impl Cause {
    fn travels(ends: &Ends) -> Self {
        let mut ends = [ends.from.clone(), ends.at.clone()];
        ends.sort();
        Self::Travels(ends)
    }
}

impl TimeSpent {
    /// What was waited for in the end, the longest first: seconds by worker.
    pub(super) fn longest(&self) -> Vec<(Cause, Seconds)> {
        let mut blame = Blame::default();
        let starting = self.starting().as_secs_f64();
        blame.add(Cause::Starts, COORDINATOR, starting);
        let ran = self.took.as_secs_f64() - starting;
        let read: Spent = self.readers().copied().sum();
        let waited = match read.total().is_zero() {
            true => ran,
            false => ran * part(&read, &[Spending::Rows], Spending::ALL),
        };
        blame.add(Cause::Answer, COORDINATOR, ran - waited);
        let waits = [(COORDINATOR.to_owned(), waited)].into();
        blame.follow(&self.inputs, None, &waits);
        let mut causes: Vec<_> = blame.0.into_iter().collect();
        let time = |by_worker: &Seconds| by_worker.values().sum::<f64>();
        causes.sort_by(|(_, one), (_, other)| time(other).total_cmp(&time(one)));
        causes
    }
}

/// Seconds by worker.
type Seconds = BTreeMap<String, f64>;

/// Seconds by cause and worker.
#[derive(Default)]
struct Blame(BTreeMap<Cause, Seconds>);

impl Blame {
    fn add(&mut self, cause: Cause, worker: &str, seconds: f64) {
        if seconds > 0.0 {
            let by_worker = self.0.entry(cause).or_default();
            *by_worker.entry(worker.to_owned()).or_default() += seconds;
        }
    }

    /// The tasks of `readers`, a stage or the coordinator, waited so long on each worker for rows of these stages.
    fn follow(&mut self, stages: &[Stage], readers: Option<usize>, waits: &Seconds) {
        let mut sent: BTreeMap<usize, (&Stage, Seconds)> = BTreeMap::new();
        for (at, seconds) in waits {
            let read = read_at(stages, at);
            let waited = |link: &LinkSpent| link.reader()[Spending::Rows].as_secs_f64();
            let all: f64 = read.iter().map(|(_, _, link)| waited(link)).sum();
            if all <= 0.0 {
                match readers {
                    Some(stage) => self.add(Cause::Reads { stage }, at, *seconds),
                    None => self.add(Cause::Answer, at, *seconds),
                }
                continue;
            }
            for (stage, ends, link) in read {
                let seconds = seconds * waited(link) / all;
                let travels = seconds * travelling(stage, ends, link);
                self.add(Cause::travels(ends), &ends.from, travels);
                let (_, sent) = sent.entry(stage.number).or_insert((stage, Seconds::new()));
                *sent.entry(ends.from.clone()).or_default() += seconds - travels;
            }
        }
        for (stage, waits) in self.making(sent, readers).values() {
            let mut rows = Seconds::new();
            for (from, seconds) in waits {
                let spent = stage.senders(from).spent;
                let share = |on: Spending| seconds * part(&spent, &[on], MAKING);
                let computes = Cause::Computes {
                    stage: stage.number,
                };
                self.add(computes, from, share(Spending::Computing));
                self.add(Cause::Processor, from, share(Spending::Processor));
                rows.insert(from.clone(), share(Spending::Rows));
            }
            rows.retain(|_, seconds| *seconds > 0.0);
            self.follow(&stage.inputs, Some(stage.number), &rows);
        }
    }

    /// Somebody waited so long for what the tasks of each stage send. Returns how long it was until these had rows to send.
    fn making<'a>(
        &mut self,
        sent: BTreeMap<usize, (&'a Stage, Seconds)>,
        readers: Option<usize>,
    ) -> BTreeMap<usize, (&'a Stage, Seconds)> {
        let mut making = sent;
        let mut agreement = 0.0;
        for (stage, waits) in making.values_mut() {
            for (from, seconds) in waits {
                let spent = stage.senders(from).spent;
                if spent.total().is_zero() {
                    let computes = Cause::Computes {
                        stage: stage.number,
                    };
                    self.add(computes, from, std::mem::take(seconds));
                    continue;
                }
                let share = |on: &[Spending]| *seconds * part(&spent, on, Spending::ALL);
                let turn = Cause::Turn { from: from.clone() };
                self.add(turn, from, share(&[Spending::Turn]));
                // A reader within its process takes rows slowly.
                self.reader(readers, from, share(&[Spending::Reader]));
                let delivering = share(&[Spending::Credit, Spending::Buffer]);
                self.delivering(stage, readers, from, delivering);
                agreement += share(&[Spending::Agreement]);
                *seconds = share(MAKING);
            }
        }
        // Those who had rows last held up all of them.
        let made = |(stage, from): (&Stage, &String)| -> f64 {
            let spent = stage.senders(from).spent;
            let agrees = !spent[Spending::Agreement].is_zero();
            let made = MAKING.iter().filter(|_| agrees).map(|on| spent[*on]);
            made.sum::<Duration>().as_secs_f64()
        };
        let all = making.values();
        let all = all.flat_map(|(stage, waits)| waits.keys().map(move |from| (*stage, from)));
        let sum: f64 = all.map(made).sum();
        for (stage, waits) in making.values_mut() {
            for (from, seconds) in waits {
                match sum > 0.0 {
                    true => *seconds += agreement * made((stage, from)) / sum,
                    // They had rows at once: it is their first poll that was late.
                    false => self.add(Cause::Processor, from, std::mem::take(&mut agreement)),
                }
            }
        }
        making
    }

    /// The tasks of a stage on a worker waited so long for readers to take rows.
    fn delivering(&mut self, stage: &Stage, readers: Option<usize>, from: &str, seconds: f64) {
        let links = || stage.links.iter().filter(|(ends, _)| ends.from == from);
        let all: f64 = links().map(|(_, link)| link.delivering.as_secs_f64()).sum();
        let count = links().count() as f64;
        for (ends, link) in links() {
            let share = match all > 0.0 {
                true => link.delivering.as_secs_f64() / all,
                false => 1.0 / count,
            };
            let reader = link.reader();
            match reader[Spending::Reader] > reader[Spending::Rows] {
                true => self.reader(readers, &ends.at, seconds * share),
                false => self.add(Cause::travels(ends), from, seconds * share),
            }
        }
    }

    /// Somebody waited so long for a reader that was busy.
    fn reader(&mut self, readers: Option<usize>, at: &str, seconds: f64) {
        match readers {
            Some(stage) => self.add(Cause::Computes { stage }, at, seconds),
            None => self.add(Cause::Answer, at, seconds),
        }
    }
}

/// Which part of the time for some things went to some of them.
fn part(spent: &Spent, on: &[Spending], of: &[Spending]) -> f64 {
    let sum = |on: &[Spending]| -> Duration { on.iter().map(|on| spent[*on]).sum() };
    let all = sum(of);
    match all.is_zero() {
        true => 0.0,
        false => sum(on).as_secs_f64() / all.as_secs_f64(),
    }
}

/// Which part of the time in which rows were waited for they were on their way: who waits for longer than they were sent waits for that.
fn travelling(stage: &Stage, ends: &Ends, link: &LinkSpent) -> f64 {
    let waited = link.reader()[Spending::Rows].as_secs_f64() / link.readers.len().max(1) as f64;
    let sent = stage.senders(&ends.from);
    match ends.from == ends.at || sent.tasks == 0 || waited <= sent.mean() {
        true => 0.0,
        false => 1.0 - sent.mean() / waited,
    }
}

/// A cause in words, and what can be done about it. Both fit into a terminal of 100 columns, beside the name of the row.
pub(super) fn told_of(cause: &Cause, by_worker: &Seconds) -> (String, String) {
    let slower = slower(by_worker);
    let on_slower = |what: String| match slower {
        Some((worker, _)) => format!("{what}, longest on {}", host(worker)),
        None => what,
    };
    let as_long =
        |why: &str| slower.map(|(_, times)| format!("{times:.1} times what others take: {why}"));
    let even = |remedy: &str| remedy.to_owned();
    match cause {
        Cause::Answer => (
            "the coordinator computes, or waits for who takes the answer".to_owned(),
            even("Let the query give fewer rows, or take them faster."),
        ),
        Cause::Starts => (
            "plans are made ready, and are on their way to the workers".to_owned(),
            even("Fewer workers do for a query of so few rows."),
        ),
        Cause::Computes { stage } => (
            on_slower(format!("stage {stage} computes")),
            as_long("has it more rows, or a slower processor?").unwrap_or_else(|| {
                even("More workers or threads help, and filters that leave it fewer rows.")
            }),
        ),
        Cause::Processor => (
            on_slower("tasks wait for a processor".to_owned()),
            as_long("does another program use its processors?")
                .unwrap_or_else(|| even("More processors help: more threads, or more workers.")),
        ),
        Cause::Reads { stage } => (
            format!("stage {stage} waits for files, or for rows of its own process"),
            even("Faster disks help, and files that more tasks can read at once."),
        ),
        Cause::Travels([one, other]) => (
            format!("rows travel between {} and {}", host(one), host(other)),
            even("See whether this link is slow. Filters before the exchange help."),
        ),
        Cause::Turn { from } => (
            format!("rows wait at {} for their turn at the network", host(from)),
            even("Other queries use it, too, or a worker is late in the network's schedule."),
        ),
    }
}

/// The host and port of a worker's URL.
fn host(url: &str) -> &str {
    url.trim_start_matches("http://").trim_end_matches('/')
}

/// The worker that takes much longer than the others, and how many times the mean of theirs.
fn slower(by_worker: &Seconds) -> Option<(&str, f64)> {
    let (worker, longest) = by_worker
        .iter()
        .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let others = by_worker
        .len()
        .checked_sub(1)
        .filter(|others| *others > 0)?;
    let mean = (by_worker.values().sum::<f64>() - longest) / others as f64;
    let times = longest / mean;
    (times >= SLOWER).then_some((worker.as_str(), times))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds for each thing.
    fn spent(parts: &[(Spending, u64)]) -> Spent {
        let mut spent = Spent::default();
        for (on, seconds) in parts {
            spent[*on] = Duration::from_secs(*seconds);
        }
        spent
    }

    type Parts<'a> = &'a [(Spending, u64)];

    fn link(from: &str, at: &str, sender: Parts<'_>, reader: Parts<'_>) -> (Ends, LinkSpent) {
        let ends = Ends {
            from: from.to_owned(),
            at: at.to_owned(),
        };
        let sender = spent(sender);
        let link = LinkSpent {
            delivering: sender[Spending::Credit],
            senders: [(0, sender)].into(),
            readers: [(0, spent(reader))].into(),
        };
        (ends, link)
    }

    fn stage<const N: usize>(
        number: usize,
        links: [(Ends, LinkSpent); N],
        inputs: Vec<Stage>,
    ) -> Stage {
        Stage {
            number,
            links: links.into(),
            inputs,
        }
    }

    /// What took most of ten seconds, and its text.
    pub(super) fn longest(inputs: Vec<Stage>) -> (Cause, String) {
        let spent = TimeSpent {
            took: Duration::from_secs(10),
            inputs,
        };
        let causes = spent.longest();
        let all: f64 = causes.iter().flat_map(|(_, by)| by.values()).sum();
        assert!((all - 10.0).abs() < 1e-6, "{causes:?}");
        (causes[0].0.clone(), spent.summary())
    }

    use Spending::{Agreement, Computing, Credit, Reader, Rows};

    const WAITS: Parts<'_> = &[(Rows, 10)];

    /// Of two workers, who send to the coordinator.
    fn top(a: Parts<'_>, b: Parts<'_>, inputs: Vec<Stage>) -> Vec<Stage> {
        let links = [
            link("a", COORDINATOR, a, WAITS),
            link("b", COORDINATOR, b, WAITS),
        ];
        vec![stage(2, links, inputs)]
    }

    #[test]
    fn a_stage_computes_and_a_slow_worker_is_named() {
        let even = top(
            &[(Computing, 9), (Rows, 1)],
            &[(Computing, 9), (Rows, 1)],
            Vec::new(),
        );
        let (cause, text) = longest(even);
        assert_eq!(cause, Cause::Computes { stage: 2 });
        assert!(text.contains("\n1. 9.00 s: stage 2 computes\n"), "{text}");
        assert!(
            text.contains("2. 1.00 s: stage 2 waits for files"),
            "{text}"
        );
        let uneven = top(
            &[(Computing, 3), (Rows, 7)],
            &[(Computing, 9), (Rows, 1)],
            Vec::new(),
        );
        let (cause, text) = longest(uneven);
        assert_eq!(cause, Cause::Computes { stage: 2 });
        assert!(
            text.contains("stage 2 computes, longest on b\n   3.0 times what others take"),
            "{text}"
        );
    }

    #[test]
    fn waits_are_followed_to_a_slow_link() {
        let waits: Parts<'_> = &[(Computing, 1), (Rows, 9)];
        let blocked: Parts<'_> = &[(Computing, 1), (Credit, 9)];
        let links = [
            link("a", "b", blocked, WAITS),
            link(
                "b",
                "a",
                &[(Computing, 1), (Rows, 9)],
                &[(Rows, 1), (Reader, 9)],
            ),
        ];
        let lower = vec![stage(1, links, Vec::new())];
        let links = [
            link("a", COORDINATOR, &[(Computing, 1)], &[(Rows, 1)]),
            link("b", COORDINATOR, waits, WAITS),
        ];
        let (cause, text) = longest(vec![stage(2, links, lower)]);
        assert_eq!(cause, Cause::Travels(["a", "b"].map(str::to_owned)));
        assert!(text.contains("rows travel between a and b"), "{text}");
    }

    #[test]
    fn a_sender_that_waits_for_a_busy_reader_is_not_the_cause() {
        let blocked: Parts<'_> = &[(Computing, 1), (Credit, 9)];
        let links = [link("a", "b", blocked, &[(Rows, 2), (Reader, 8)])];
        let lower = vec![stage(1, links, Vec::new())];
        let links = [link("b", COORDINATOR, &[(Rows, 10)], WAITS)];
        let (cause, _) = longest(vec![stage(2, links, lower)]);
        assert_eq!(cause, Cause::Computes { stage: 2 });
    }

    #[test]
    fn who_takes_the_answer_slowly_is_the_cause() {
        let links = [link(
            "a",
            COORDINATOR,
            &[(Credit, 10)],
            &[(Rows, 1), (Reader, 9)],
        )];
        let (cause, _) = longest(vec![stage(2, links, Vec::new())]);
        assert_eq!(cause, Cause::Answer);
    }

    #[test]
    fn rows_that_come_after_their_senders_ended_are_on_their_way() {
        let links = [
            link("a", "b", &[(Computing, 1)], WAITS),
            link("b", "b", &[(Computing, 1)], &[(Rows, 1)]),
        ];
        let lower = vec![stage(1, links, Vec::new())];
        let links = [link("b", COORDINATOR, &[(Rows, 10)], WAITS)];
        let (cause, _) = longest(vec![stage(2, links, lower)]);
        assert_eq!(cause, Cause::Travels(["a", "b"].map(str::to_owned)));
    }

    #[test]
    fn who_has_rows_last_holds_up_an_agreement() {
        let quick: Parts<'_> = &[(Computing, 1), (Agreement, 9)];
        let slow: Parts<'_> = &[(Computing, 9), (Agreement, 1)];
        let left = stage(1, [link("a", "a", quick, WAITS)], Vec::new());
        let right = stage(2, [link("a", "a", slow, &[])], Vec::new());
        let links = [link("a", COORDINATOR, &[(Rows, 10)], WAITS)];
        let (cause, _) = longest(vec![stage(3, links, vec![left, right])]);
        assert_eq!(cause, Cause::Computes { stage: 2 });
    }

    #[test]
    fn a_query_of_few_rows_takes_as_long_as_its_plans() {
        let few: Parts<'_> = &[(Rows, 1)];
        let links = [link("a", COORDINATOR, &[(Computing, 1)], few)];
        let (cause, text) = longest(vec![stage(1, links, Vec::new())]);
        assert_eq!(cause, Cause::Starts);
        assert!(text.contains("\n1. 9.00 s: plans are made ready"), "{text}");
    }

    #[test]
    fn what_is_told_fits_into_a_terminal() {
        let workers = ["http://10.100.100.101:7070/", "http://10.100.100.102:7070/"];
        let [one, other] = workers.map(str::to_owned);
        for cause in [
            Cause::Answer,
            Cause::Starts,
            Cause::Computes { stage: 10 },
            Cause::Processor,
            Cause::Reads { stage: 10 },
            Cause::Travels([one.clone(), other.clone()]),
            Cause::Turn { from: one.clone() },
        ] {
            for seconds in [1.0, 10.0] {
                let by_worker = [(one.clone(), 1.0), (other.clone(), seconds)].into();
                let (what, remedy) = told_of(&cause, &by_worker);
                let line = format!("| Plan with Metrics | 1. 100.00 s: {what}");
                let beneath = format!("| Plan with Metrics |    {remedy}");
                assert!(
                    line.len() <= 100 && beneath.len() <= 100,
                    "{line}\n{beneath}"
                );
            }
        }
    }

    #[test]
    fn a_stage_within_its_reader_passes_waits_on() {
        let lowest = stage(0, [link("b", "a", &[(Computing, 10)], WAITS)], Vec::new());
        let within = stage(1, [], vec![lowest]);
        let links = [link("a", COORDINATOR, &[(Rows, 10)], WAITS)];
        let (cause, _) = longest(vec![stage(2, links, vec![within])]);
        assert_eq!(cause, Cause::Computes { stage: 0 });
    }
}
