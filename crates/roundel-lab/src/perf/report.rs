//! The result of `roundel-lab perf`: a table for people and JSON for machines.

use roundel_protocols::perf::{EndFacts, Measure, Measurement};
use serde::Serialize;

use roundel_terminal::Failure;
use roundel_terminal::Text;

const MIB: f64 = 1024.0 * 1024.0;

/// The whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// One entry per test that was measured.
    pub measurements: Vec<Measurement>,
    /// What the run was started with.
    pub settings: Settings,
    /// The end that posts, which this process is.
    pub initiator: EndFacts,
    /// The other end.
    pub responder: EndFacts,
    /// Why the run stopped early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a run was started with; each measurement has the rest.
#[derive(Debug, Serialize)]
pub struct Settings {
    /// Version of Roundel.
    pub version: &'static str,
    /// What carried the messages.
    pub fabric: String,
    /// Transport service of the queue pairs.
    pub transport: &'static str,
    /// Messages in flight, of bandwidth.
    pub depth: usize,
    /// Work requests posted with one call, if that was asked for; each measurement has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Timed runs of each test.
    pub runs: u32,
}

impl Report {
    /// A report without measurements.
    pub fn new(settings: Settings, initiator: EndFacts, responder: EndFacts) -> Self {
        Self {
            measurements: Vec::new(),
            settings,
            initiator,
            responder,
            error: None,
        }
    }
}

/// The table for people, written line by line as tests end.
pub struct Table {
    text: Text,
    /// What the lines above measure.
    measure: Option<Measure>,
}

impl Table {
    /// Prints to standard output, or to standard error where JSON needs the former.
    pub fn new(to_stderr: bool) -> Self {
        Self {
            text: Text::new(to_stderr),
            measure: None,
        }
    }

    /// Says what runs.
    pub fn header(
        &mut self,
        settings: &Settings,
        initiator: &EndFacts,
        responder: &EndFacts,
    ) -> Result<(), Failure> {
        let between = if initiator.host == responder.host {
            format!("two processes on {}", initiator.host)
        } else {
            format!("{} and {}", initiator.host, responder.host)
        };
        let Settings {
            fabric,
            transport,
            depth,
            batch,
            ..
        } = settings;
        let batch = batch.map_or(String::new(), |batch| format!(", batch {batch}"));
        self.text.line(&format!(
            "{transport} over {fabric}, {between}, depth {depth}{batch}"
        ))
    }

    /// One test. CPU time is that of both ends together.
    pub fn measurement(&mut self, measured: &Measurement) -> Result<(), Failure> {
        let (test, run) = (&measured.test, &measured.median);
        if self.measure != Some(test.measure) {
            self.measure = Some(test.measure);
            let columns = match test.measure {
                Measure::Bandwidth => {
                    format!("{:>10}  {:>10}", "MiB/s", "Mmsg/s")
                }
                Measure::Latency => format!(
                    "{:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
                    "min µs", "p50", "p99", "p99.9", "max", "mean"
                ),
            };
            self.text.line(&format!(
                "\n{:<16} {:>9}  {:>10}  {columns}  {:>8}  {:>6}",
                test.measure.name(),
                "bytes",
                "messages",
                "lost",
                "CPU s"
            ))?;
        }
        let columns = match &run.latency {
            None => format!(
                "{:>10.2}  {:>10.6}",
                run.bytes_per_second / MIB,
                run.messages_per_second / 1e6
            ),
            Some(l) => format!(
                "{:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2}",
                l.min, l.p50, l.p99, l.p99_9, l.max, l.mean
            ),
        };
        // Of WRITE over uc nobody knows.
        let lost = run.lost.map_or("-".to_owned(), |lost| lost.to_string());
        let cpu = run.cpu_seconds.initiator + run.cpu_seconds.responder;
        self.text.line(&format!(
            "{:<16} {:>9}  {:>10}  {columns}  {:>8}  {:>6.2}",
            test.verb.name(),
            test.bytes,
            run.messages,
            lost,
            cpu
        ))
    }
}
