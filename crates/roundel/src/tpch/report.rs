//! The result of `roundel tpch`: a table for people and JSON for machines.

use std::collections::BTreeMap;

use bytesize::ByteSize;
use roundel_engine::FabricCounters;
use serde::Serialize;

use roundel_terminal::Failure;
use roundel_terminal::Text;

/// The whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// One entry per query that ran.
    pub queries: Vec<QueryReport>,
    /// Sum of the queries' medians.
    pub total_seconds: f64,
    /// The same of the baseline, if one ran.
    pub baseline_total_seconds: Option<f64>,
    /// `total_seconds` over `baseline_total_seconds`.
    pub ratio: Option<f64>,
    /// The same sum for single-process DataFusion with as many threads, if it was timed.
    pub single_process_total_seconds: Option<f64>,
    /// What the run was started with.
    pub settings: Settings,
    /// What the verbs layer counted; nothing, if the rows did not go through it.
    pub fabric: Option<FabricCounters>,
    /// Why the run stopped early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One query.
#[derive(Debug, Serialize)]
pub struct QueryReport {
    /// Its number.
    pub query: usize,
    /// Median time of a run, to the last row.
    pub seconds: f64,
    /// The same of the baseline, if one ran.
    pub baseline_seconds: Option<f64>,
    /// Every run, in the order they ran.
    pub runs_seconds: Vec<f64>,
    /// The same of the baseline.
    pub baseline_runs_seconds: Vec<f64>,
    /// Bytes that went over the exchange in a run, their headers included; nothing, if the rows did not go through the verbs
    /// layer.
    pub exchanged_bytes: Option<u64>,
    /// Rows of the result.
    pub rows: usize,
    /// Every row of every run was compared with the reference and was right.
    pub verified: bool,
    /// Median of single-process DataFusion, if it was timed.
    #[serde(skip)]
    pub single_process_seconds: Option<f64>,
}

/// What a run was started with.
#[derive(Debug, Serialize)]
pub struct Settings {
    /// Version of Roundel.
    pub version: &'static str,
    /// Scale factor.
    pub scale: f64,
    /// Worker processes.
    pub workers: usize,
    /// Runtime threads per worker.
    pub threads: u16,
    /// Partitions per task.
    pub partitions_per_task: usize,
    /// Which connections exchanges used.
    pub exchange: String,
    /// Shuffle design, or `auto`.
    pub design: String,
    /// Endpoints of each side of an exchange; those of the design when `null`.
    pub endpoints: Option<u16>,
    /// Registered buffers of links.
    pub buffers: String,
    /// What carried the rows.
    pub fabric: String,
    /// Why that fabric was taken.
    pub fabric_reason: String,
    /// `memory`, `memory:co-partitioned` or a directory.
    pub tables: String,
    /// Queries asked for.
    pub queries: String,
    /// How joins were done: `auto`, or what was asked for.
    pub join: &'static str,
    /// What is done about keys with far more rows than others: `off` or `auto`.
    pub skew: String,
    /// Runs of each query.
    pub iterations: u32,
    /// Whether rows were compared.
    pub verify: bool,
    /// Streams of queries at once; one query after the other when `null`.
    pub streams: Option<u16>,
    /// Seconds in which streams begin queries; until each has run each query once when `null`.
    pub seconds: Option<f64>,
    /// What was run beside it.
    pub compare: Option<String>,
    /// Quota of registered memory per worker.
    pub registered_memory_bytes: u64,
    /// Limit of query memory per worker.
    pub memory_limit_bytes: Option<u64>,
}

impl Settings {
    /// What runs, in a line.
    pub fn line(&self) -> String {
        let carried = match self.fabric.as_str() {
            "grpc" => "grpc".to_owned(),
            verbs => format!("{} over {verbs}", self.design),
        };
        format!(
            "TPC-H scale {}, tables in {}, {} workers of {} threads, {carried}",
            self.scale, self.tables, self.workers, self.threads
        )
    }
}

/// What went over the exchange, in a line.
pub fn exchange_line(counters: &FabricCounters, exchange: &str) -> String {
    // Rows are most of what is moved.
    let by = ["send", "read", "write_with_immediate", "write"]
        .into_iter()
        .max_by_key(|opcode| counters.bytes.get(*opcode).copied().unwrap_or(0))
        .unwrap_or("send");
    let of = |counts: &BTreeMap<String, u64>| counts.get(by).copied().unwrap_or(0);
    // The queue pairs that say most of an exchange.
    let connections = match exchange {
        "multiplexer" => format!("queue pairs per process: {}", counters.device_queue_pairs),
        _ => format!("queue pairs per operator: {}", counters.queue_pairs),
    };
    format!(
        "exchange: {} in {} messages by {}, {connections}, {} registered",
        ByteSize(of(&counters.bytes)),
        of(&counters.messages),
        by.to_uppercase().replace('_', " "),
        ByteSize(counters.registered_bytes_max),
    )
}

impl Report {
    /// Sums the queries up.
    pub fn new(
        queries: Vec<QueryReport>,
        settings: Settings,
        fabric: Option<FabricCounters>,
    ) -> Self {
        let total_seconds = queries.iter().map(|query| query.seconds).sum();
        let total_of = |seconds: fn(&QueryReport) -> Option<f64>| -> Option<f64> {
            let all: Option<Vec<f64>> = queries.iter().map(seconds).collect();
            all.filter(|all| !all.is_empty())
                .map(|all| all.iter().sum())
        };
        let baseline_total_seconds = total_of(|query| query.baseline_seconds);
        Self {
            total_seconds,
            baseline_total_seconds,
            ratio: baseline_total_seconds.map(|baseline: f64| total_seconds / baseline),
            single_process_total_seconds: total_of(|query| query.single_process_seconds),
            queries,
            settings,
            fabric,
            error: None,
        }
    }
}

/// The table for people, written line by line as the queries end.
pub struct Table {
    text: Text,
    baseline: Option<String>,
}

impl Table {
    /// Prints to standard output, or to standard error where JSON needs the former.
    pub fn new(to_stderr: bool, baseline: Option<String>) -> Self {
        Self {
            text: Text::new(to_stderr),
            baseline,
        }
    }

    /// Says what runs.
    pub fn header(&mut self, settings: &Settings) -> Result<(), Failure> {
        let mut text = settings.line() + "\n";
        text += "query    seconds";
        if let Some(baseline) = &self.baseline {
            text += &format!(" {:>10}  ratio", baseline);
        }
        text += "       rows";
        self.text.line(&text)
    }

    /// One query.
    pub fn query(&mut self, query: &QueryReport) -> Result<(), Failure> {
        let mut text = format!("{:>5} {:>10.3}", query.query, query.seconds);
        if let Some(baseline) = query.baseline_seconds {
            text += &format!(" {baseline:>10.3} {:>6.2}", query.seconds / baseline);
        }
        let verified = if query.verified {
            "verified"
        } else {
            "not verified"
        };
        text += &format!(" {:>10}  {verified}", query.rows);
        self.text.line(&text)
    }

    /// The sums.
    pub fn totals(&mut self, report: &Report) -> Result<(), Failure> {
        let mut text = format!("total {:>10.3}", report.total_seconds);
        if let (Some(baseline), Some(ratio)) = (report.baseline_total_seconds, report.ratio) {
            text += &format!(" {baseline:>10.3} {ratio:>6.2}");
        }
        let rows: usize = report.queries.iter().map(|query| query.rows).sum();
        let verified = report.queries.iter().filter(|query| query.verified).count();
        text += &format!(
            " {rows:>10}  {verified} of {} verified",
            report.queries.len()
        );
        self.text.line(&text)?;
        if let Some(seconds) = report.single_process_total_seconds {
            let threads = report.settings.workers * usize::from(report.settings.threads);
            let plural = if threads == 1 { "" } else { "s" };
            self.text.line(&format!(
                "single-process DataFusion, {threads} thread{plural}: {seconds:.3} s"
            ))?;
        }
        if let Some(fabric) = &report.fabric {
            self.text
                .line(&exchange_line(fabric, &report.settings.exchange))?;
        }
        Ok(())
    }
}
