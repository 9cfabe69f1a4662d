//! What streams of queries came to: a table for people and JSON for machines.

use std::time::Duration;

use bytesize::ByteSize;
use roundel_engine::FabricCounters;
use serde::Serialize;

use super::super::median;
use super::super::report::{Settings, exchange_line};
use super::Ended;
use roundel_terminal::Failure;
use roundel_terminal::Text;

/// The whole run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// One entry for each query, of all streams together.
    pub(super) queries: Vec<QueryReport>,
    /// Queries that have ended.
    pub(super) queries_done: usize,
    /// From the start of all streams to the end of the last.
    pub(super) elapsed_seconds: f64,
    /// Queries in so much time, by the hour.
    pub(super) queries_per_hour: f64,
    /// The workers and the coordinator, each of which exchanges rows with all others.
    pub(super) processes: usize,
    /// What the run was started with.
    pub(super) settings: Settings,
    /// What the verbs layer counted; nothing, if the rows did not go through it.
    pub(super) fabric: Option<FabricCounters>,
    /// Why the run stopped early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// One query of all streams.
#[derive(Debug, Serialize)]
pub(super) struct QueryReport {
    /// Its number.
    pub(super) query: usize,
    /// How often it has ended.
    pub(super) runs: usize,
    /// Median time of a run, to the last row; nothing, if it has not ended.
    pub(super) seconds: Option<f64>,
    /// Every run, in the order they ended.
    pub(super) runs_seconds: Vec<f64>,
    /// Rows of the result.
    pub(super) rows: usize,
    /// Every row of every run was compared with the reference and was right.
    pub(super) verified: bool,
}

impl QueryReport {
    /// A query's part of what has ended.
    pub(super) fn new(query: usize, ended: &[Ended], verified: bool) -> Self {
        let mut own = ended.iter().filter(|one| one.query == query);
        let runs_seconds: Vec<f64> = own.clone().map(|one| one.seconds).collect();
        Self {
            query,
            runs: runs_seconds.len(),
            seconds: median(&runs_seconds),
            rows: own.next_back().map_or(0, |one| one.rows),
            verified: verified && !runs_seconds.is_empty(),
            runs_seconds,
        }
    }
}

impl Report {
    /// Sums the queries up.
    pub(super) fn new(
        queries: Vec<QueryReport>,
        elapsed: Duration,
        settings: Settings,
        fabric: Option<FabricCounters>,
    ) -> Self {
        let queries_done = queries.iter().map(|query| query.runs).sum();
        let elapsed_seconds = elapsed.as_secs_f64();
        Self {
            queries,
            queries_done,
            elapsed_seconds,
            queries_per_hour: queries_done as f64 * 3600.0 / elapsed_seconds.max(f64::EPSILON),
            processes: settings.workers + 1,
            settings,
            fabric,
            error: None,
        }
    }

    /// The table for people.
    pub(super) fn table(&self, text: &mut Text) -> Result<(), Failure> {
        text.line("query       runs     median    longest       rows")?;
        for query in &self.queries {
            let longest = query.runs_seconds.iter().copied().reduce(f64::max);
            let time = |seconds: Option<f64>| match seconds {
                Some(seconds) => format!("{seconds:>10.3}"),
                None => format!("{:>10}", "-"),
            };
            let verified = match (query.runs, query.verified) {
                (0, _) => "not run",
                (_, true) => "verified",
                (_, false) => "not verified",
            };
            text.line(&format!(
                "{:>5} {:>10} {} {} {:>10}  {verified}",
                query.query,
                query.runs,
                time(query.seconds),
                time(longest),
                query.rows,
            ))?;
        }
        let verified = self.queries.iter().filter(|query| query.verified);
        let verified: usize = verified.map(|query| query.runs).sum();
        text.line(&format!(
            "{} queries of {} streams in {:.1} s: {:.0} an hour, {verified} of {} verified",
            self.queries_done,
            self.settings.streams.unwrap_or(1),
            self.elapsed_seconds,
            self.queries_per_hour,
            self.queries_done,
        ))?;
        if let Some(fabric) = &self.fabric {
            text.line(&exchange_line(fabric, &self.settings.exchange))?;
            text.line(&format!(
                "{} processes with {} queue pairs each at most; {} registered in all of them, of {} for each",
                self.processes,
                fabric.device_queue_pairs,
                ByteSize(fabric.registered_bytes_sum),
                ByteSize(self.settings.registered_memory_bytes),
            ))?;
        }
        Ok(())
    }
}
