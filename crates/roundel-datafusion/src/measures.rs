//! What is measured of an exchange, among the measures of the plan's node that reads: messages and memory, and for each link where the
//! time of the tasks at its two ends went.
//!
//! This knows nothing of calls: what a producer measured has been told already.

use crate::node::InputSide;
use crate::protocol::{Sent, SpentMessage};
use datafusion::physical_plan::metrics::{
    ExecutionPlanMetricsSet, Label, MetricBuilder, MetricValue, MetricsSet,
};
use roundel_exchange::{ReceiveLink, Spending, Spent};
use std::collections::BTreeMap;
use std::time::Duration;
use url::Url;

/// The label with the worker that sends: its URL.
const FROM: &str = "from";
/// The label with who reads: a worker's URL, or [`COORDINATOR`].
const AT: &str = "at";
/// The label with the number of the task.
const THREAD: &str = "thread";
/// The measure of [`LinkSpent::delivering`].
const DELIVERING: &str = "sender_delivering";
/// Who reads the rows of the last stage.
pub const COORDINATOR: &str = "coordinator";

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Sender,
    Reader,
}

impl End {
    /// The name of the measure of a spending.
    fn measure(self, on: Spending) -> String {
        let end = match self {
            Self::Sender => "sender",
            Self::Reader => "reader",
        };
        match (self, on) {
            (_, Spending::Computing) => format!("{end}_computing"),
            // Whatever it does with the rows, which may be to wait for others.
            (Self::Reader, Spending::Reader) => format!("{end}_busy"),
            (_, on) => format!("{end}_waiting_for_{}", on.name()),
        }
    }
}

/// Who is at the ends of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    /// The URL of the worker that sends.
    pub from: String,
    /// The URL of the worker that reads, or [`COORDINATOR`].
    pub at: String,
}

impl Ends {
    pub(crate) fn new(from: &Url, at: Option<&Url>) -> Self {
        Self {
            from: from.to_string(),
            at: at.map_or_else(|| COORDINATOR.to_owned(), Url::to_string),
        }
    }
}

/// What was spent at the ends of a link, by the numbers of tasks. Those of a stage that is there twice on a worker are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSpent {
    /// By the tasks that send. One that sends to several readers at once is told of at one of them.
    pub senders: BTreeMap<usize, Spent>,
    /// How long tasks that send have waited for the reader's credit, or for buffers on their way to it.
    pub delivering: Duration,
    /// By those who read a partition each: [`Spending::Reader`] is whatever they do with the rows.
    pub readers: BTreeMap<usize, Spent>,
}

impl LinkSpent {
    /// By all that send.
    pub fn sender(&self) -> Spent {
        self.senders.values().copied().sum()
    }

    /// By all that read.
    pub fn reader(&self) -> Spent {
        self.readers.values().copied().sum()
    }
}

/// What was spent at the ends of each link, from the measures of a node that reads, of one task or of all.
pub fn links_spent(measures: &MetricsSet) -> BTreeMap<Ends, LinkSpent> {
    let mut links: BTreeMap<Ends, LinkSpent> = BTreeMap::new();
    for measure in measures.iter() {
        let MetricValue::Time { name, time } = measure.value() else {
            continue;
        };
        let label = |name| {
            let mut labels = measure.labels().iter();
            let label = labels.find(|label| label.name() == name);
            label.map(|label| label.value().to_owned())
        };
        let (Some(from), Some(at)) = (label(FROM), label(AT)) else {
            continue;
        };
        let link = links.entry(Ends { from, at }).or_default();
        let spent = Duration::from_nanos(time.value() as u64);
        if name == DELIVERING {
            link.delivering += spent;
        }
        let Some(thread) = label(THREAD).and_then(|thread| thread.parse().ok()) else {
            continue;
        };
        for on in Spending::ALL {
            if *name == End::Sender.measure(*on) {
                link.senders.entry(thread).or_default()[*on] += spent;
            } else if *name == End::Reader.measure(*on) {
                link.readers.entry(thread).or_default()[*on] += spent;
            }
        }
    }
    links
}

/// Adds what was measured of the rows of one producer, which told `sent` unless it is gone.
pub(crate) fn note(
    measures: &ExecutionPlanMetricsSet,
    ends: &Ends,
    sent: Option<Sent>,
    input: &InputSide,
    link: &ReceiveLink,
) {
    let count = |name: &'static str, value: u64| {
        MetricBuilder::new(measures)
            .global_counter(name)
            .add(value as usize);
    };
    // Those that are nothing are left out.
    let counted = |name, value| {
        if value > 0 {
            count(name, value);
        }
    };
    let of_link = || {
        MetricBuilder::new(measures)
            .with_label(Label::new(FROM, ends.from.clone()))
            .with_label(Label::new(AT, ends.at.clone()))
    };
    let by_tasks = |end: End, spent: Vec<Spent>| {
        for (thread, spent) in spent.iter().enumerate() {
            for on in Spending::ALL.iter().filter(|on| !spent[**on].is_zero()) {
                of_link()
                    .with_label(Label::new(THREAD, thread.to_string()))
                    .subset_time(end.measure(*on), 0)
                    .add_duration(spent[*on]);
            }
        }
    };
    if let Some(sent) = sent {
        count("messages", sent.messages);
        count("bytes", sent.bytes);
        count("filled_bytes", sent.filled);
        counted("repaired_messages", sent.repaired);
        let time = |name, nanoseconds| {
            MetricBuilder::new(measures)
                .subset_time(name, 0)
                .add_duration(Duration::from_nanos(nanoseconds));
        };
        time("blocked_for_credit", sent.blocked_ns);
        if sent.phases > 0 {
            count("phases", sent.phases);
            time("stalled", sent.stalled_ns);
        }
        of_link()
            .subset_time(DELIVERING, 0)
            .add_duration(Duration::from_nanos(sent.delivering_ns));
        by_tasks(
            End::Sender,
            sent.spent.into_iter().map(Into::into).collect(),
        );
    }
    by_tasks(End::Reader, link.spent());
    count(input.design.name(), 1);
    // All producers share the receiving side: each notes what came since another did.
    let mut noted = input.noted.lock();
    let report = input.receive.report();
    let since = |now: usize, then: usize| now.saturating_sub(then) as u64;
    count(
        "registered_bytes",
        since(report.registered_bytes, noted.registered_bytes),
    );
    count(
        "max_buffered_bytes",
        since(report.buffered_bytes_max, noted.buffered_bytes_max),
    );
    counted("steals", report.steals.saturating_sub(noted.steals));
    counted(
        "region_steals",
        report.region_steals.saturating_sub(noted.region_steals),
    );
    counted(
        "exchange_spilled_bytes",
        report.spilled_bytes.saturating_sub(noted.spilled_bytes),
    );
    *noted = report;
}

impl From<Spent> for SpentMessage {
    fn from(spent: Spent) -> Self {
        let nanoseconds = |on| spent[on].as_nanos() as u64;
        Self {
            computing: nanoseconds(Spending::Computing),
            processor: nanoseconds(Spending::Processor),
            rows: nanoseconds(Spending::Rows),
            buffer: nanoseconds(Spending::Buffer),
            credit: nanoseconds(Spending::Credit),
            turn: nanoseconds(Spending::Turn),
            agreement: nanoseconds(Spending::Agreement),
            reader: nanoseconds(Spending::Reader),
        }
    }
}

impl From<SpentMessage> for Spent {
    fn from(told: SpentMessage) -> Self {
        let mut spent = Self::default();
        for (on, nanoseconds) in [
            (Spending::Computing, told.computing),
            (Spending::Processor, told.processor),
            (Spending::Rows, told.rows),
            (Spending::Buffer, told.buffer),
            (Spending::Credit, told.credit),
            (Spending::Turn, told.turn),
            (Spending::Agreement, told.agreement),
            (Spending::Reader, told.reader),
        ] {
            spent[on] = Duration::from_nanos(nanoseconds);
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some time for each thing, another one for each `begin`.
    fn some(begin: u64) -> Spent {
        let mut spent = Spent::default();
        for (on, seconds) in Spending::ALL.iter().zip(begin..) {
            spent[*on] = Duration::from_secs(seconds);
        }
        spent
    }

    #[test]
    fn what_a_producer_spent_is_told_whole() {
        assert_eq!(Spent::from(SpentMessage::from(some(1))), some(1));
    }

    #[test]
    fn links_and_tasks_are_told_apart() {
        let measures = ExecutionPlanMetricsSet::new();
        let time = |(from, at): (&str, &str), end: End, thread: usize, spent: Spent| {
            for on in Spending::ALL {
                MetricBuilder::new(&measures)
                    .with_label(Label::new(FROM, from.to_owned()))
                    .with_label(Label::new(AT, at.to_owned()))
                    .with_label(Label::new(THREAD, thread.to_string()))
                    .subset_time(end.measure(*on), 0)
                    .add_duration(spent[*on]);
            }
        };
        time(("a", "b"), End::Sender, 0, some(1));
        time(("a", "b"), End::Sender, 0, some(1));
        time(("a", "b"), End::Sender, 1, some(2));
        time(("a", "b"), End::Reader, 0, some(10));
        time(("b", COORDINATOR), End::Reader, 0, some(100));
        MetricBuilder::new(&measures).subset_time("sender_computing", 0);
        let links = links_spent(&measures.clone_inner());
        assert_eq!(links.len(), 2);
        let ends = |from: &str, at: &str| Ends {
            from: from.to_owned(),
            at: at.to_owned(),
        };
        let link = &links[&ends("a", "b")];
        assert_eq!(link.reader(), some(10));
        assert_eq!(link.senders[&0].total(), 2 * some(1).total());
        assert_eq!(link.senders[&1], some(2));
        assert_eq!(
            link.sender().total(),
            link.senders[&0].total() + some(2).total()
        );
        assert_eq!(links[&ends("b", COORDINATOR)].reader(), some(100));
    }
}
