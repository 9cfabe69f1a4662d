//! `roundel tpch`: the TPC-H queries on a cluster, verified and timed.

mod reference;
mod report;
mod streams;

use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use indicatif::ProgressBar;
use roundel_engine::{Cluster, EngineError, Fabric, Session, partitions_per_task, tpch};

use crate::cli::{ClusterArgs, Tables, TpchArgs};
use crate::cluster;
use crate::progress::LoadBars;
use crate::verify::{self, Expected, Tolerance};
use reference::Reference;
use report::{QueryReport, Report, Settings, Table};
use roundel_terminal::Failure;
use roundel_terminal::Signals;
use roundel_terminal::progress::run_bar;
use roundel_terminal::write_json;

/// Runs the command.
pub async fn run(args: &TpchArgs) -> Result<(), Failure> {
    let mut signals = Signals::watch()?;
    let cluster = cluster::join_or_start(&args.cluster, &mut signals).await?;
    let work = signals.or_signal(run_on(&cluster, args)).await;
    cluster::stop(cluster, &mut signals, work).await
}

async fn run_on(cluster: &Cluster, args: &TpchArgs) -> Result<(), Failure> {
    let session = cluster.session()?;
    load(&session, args).await?;
    let join = format!("SET roundel.join = '{}'", args.join.name());
    drop(session.sql(&join).await?);
    let baseline = match args.compare {
        Some(transport) => {
            // The tables are there already, and serve both sessions.
            let session = cluster.session_with(transport.into())?;
            load(&session, args).await?;
            Some((transport.into(), session))
        }
        None => None,
    };
    let single = match !args.no_verify || args.compare.is_some() {
        true => Some(Reference::load(args, cluster.workers().len()).await?),
        false => None,
    };
    if let Some(count) = args.streams {
        let settings = settings(cluster, args, None);
        return streams::run(cluster, session, single, args, count, settings).await;
    }
    let bench = Bench {
        cluster,
        args,
        session,
        baseline,
        single,
    };
    bench.run().await
}

async fn load(session: &Session, args: &TpchArgs) -> Result<(), Failure> {
    match &args.tables {
        Tables::Memory(layout) => {
            let bars = LoadBars::new("generating");
            session.load_tpch_memory(args.scale, *layout, &bars).await?;
        }
        Tables::Directory(directory) => {
            let bars = LoadBars::new("writing");
            session
                .register_tpch_files(directory, args.scale, &bars)
                .await?;
        }
    }
    Ok(())
}

/// One run of the command, its tables loaded.
struct Bench<'a> {
    cluster: &'a Cluster,
    args: &'a TpchArgs,
    session: Session,
    baseline: Option<(Fabric, Session)>,
    single: Option<Reference>,
}

impl Bench<'_> {
    async fn run(&self) -> Result<(), Failure> {
        let baseline = self.baseline.as_ref().map(|(fabric, _)| fabric.to_string());
        let mut table = Table::new(self.args.json.is_some(), baseline);
        table.header(&self.settings())?;
        let numbers = self.args.queries.numbers();
        let sides = 1 + u64::from(self.baseline.is_some());
        let bar = run_bar(numbers.len() as u64 * u64::from(self.args.iterations) * sides);
        let mut queries = Vec::new();
        let mut failed: Result<(), Failure> = Ok(());
        for number in numbers {
            bar.set_message(format!("query {number}"));
            match self.query(*number, &bar).await {
                Ok(query) => {
                    bar.suspend(|| table.query(&query))?;
                    queries.push(query);
                }
                Err(failure) => {
                    failed = Err(failure);
                    break;
                }
            }
        }
        bar.finish_and_clear();
        // After a failure a worker may be gone, and with it its counts.
        let fabric = match failed {
            Ok(()) => self.cluster.fabric_counters().await?,
            Err(_) => None,
        };
        let mut report = Report::new(queries, self.settings(), fabric);
        match &failed {
            Ok(()) => table.totals(&report)?,
            Err(failure) => report.error = Some(failure.to_string()),
        }
        if let Some(path) = &self.args.json {
            write_json(&report, path)?;
        }
        failed
    }

    async fn query(&self, number: usize, bar: &ProgressBar) -> Result<QueryReport, Failure> {
        let sql = sql(number)?;
        let expected = match &self.single {
            Some(single) if !self.args.no_verify => Some(single.expected(number, sql).await?),
            _ => None,
        };
        let moved_before = self.moved_bytes().await?;
        let mut times = Times::default();
        let mut rows = 0;
        for iteration in 0..self.args.iterations {
            // Who goes first changes, so that neither always finds the caches warm.
            for ours in [iteration % 2 == 0, iteration % 2 == 1] {
                let (fabric, session, seconds) = match (ours, &self.baseline) {
                    (true, _) => (self.cluster.fabric().fabric, &self.session, &mut times.ours),
                    (false, Some((fabric, session))) => (*fabric, session, &mut times.baseline),
                    (false, None) => continue,
                };
                let answer = answer(session, sql)
                    .await
                    .map_err(|failure| in_query(number, fabric, failure))?;
                seconds.push(answer.seconds);
                if ours {
                    rows = answer.rows();
                }
                if let Some(expected) = &expected {
                    answer
                        .check(expected)
                        .map_err(|wrong| in_query(number, fabric, wrong))?;
                }
                bar.inc(1);
            }
            if let (Some(single), true) = (&self.single, self.baseline.is_some()) {
                times.single.push(single.time(number, sql).await?);
            }
        }
        let moved = self.moved_bytes().await?;
        let moved = moved.zip(moved_before).map(|(now, then)| now - then);
        Ok(QueryReport {
            query: number,
            exchanged_bytes: moved.map(|bytes| bytes / u64::from(self.args.iterations)),
            seconds: median(&times.ours).unwrap_or_default(),
            baseline_seconds: median(&times.baseline),
            single_process_seconds: median(&times.single),
            runs_seconds: times.ours,
            baseline_runs_seconds: times.baseline,
            rows,
            verified: expected.is_some(),
        })
    }

    /// Bytes that the verbs layers of all processes have moved; nothing, where the rows do not go through one.
    async fn moved_bytes(&self) -> Result<Option<u64>, Failure> {
        let counters = self.cluster.fabric_counters().await?;
        // What was sent to a receive is counted at both ends.
        let moved = |(opcode, bytes): (&String, &u64)| (opcode != "receive").then_some(*bytes);
        Ok(counters.map(|counters| counters.bytes.iter().filter_map(moved).sum()))
    }

    fn settings(&self) -> Settings {
        let baseline = self.baseline.as_ref().map(|(fabric, _)| *fabric);
        settings(self.cluster, self.args, baseline)
    }
}

fn settings(cluster: &Cluster, args: &TpchArgs, baseline: Option<Fabric>) -> Settings {
    let carried = cluster.fabric();
    let workers = cluster.workers().len();
    let ClusterArgs { exchange, node, .. } = &args.cluster;
    Settings {
        version: env!("CARGO_PKG_VERSION"),
        scale: args.scale,
        workers,
        threads: node.threads,
        partitions_per_task: partitions_per_task(usize::from(node.threads)),
        exchange: exchange.exchange.to_string(),
        design: exchange.design.to_string(),
        endpoints: exchange.endpoints,
        buffers: exchange.buffers.to_string(),
        fabric: carried.fabric.to_string(),
        fabric_reason: carried.why,
        tables: args.tables.to_string(),
        queries: args.queries.to_string(),
        join: args.join.name(),
        skew: exchange.skew.to_string(),
        iterations: args.iterations,
        streams: args.streams,
        seconds: args.seconds,
        verify: !args.no_verify,
        compare: baseline.map(|fabric| fabric.to_string()),
        registered_memory_bytes: node.registered_memory,
        memory_limit_bytes: node.memory_limit,
    }
}

#[derive(Default)]
struct Times {
    ours: Vec<f64>,
    baseline: Vec<f64>,
    single: Vec<f64>,
}

/// A query's result and how long it took to come.
struct Answer {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    seconds: f64,
}

impl Answer {
    fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Compares it with what the query must return.
    fn check(&self, expected: &Expected) -> Result<(), Failure> {
        let tolerance = Tolerance::default();
        verify::compare(expected, &self.schema, &self.batches, tolerance)
            .map_err(|wrong| Failure::Run(format!("wrong answer: {wrong}")))
    }
}

/// The text of a query.
fn sql(number: usize) -> Result<&'static str, Failure> {
    tpch::query(number).ok_or_else(|| Failure::Usage(format!("there is no TPC-H query {number}")))
}

async fn answer(session: &Session, sql: &str) -> Result<Answer, Failure> {
    let start = Instant::now();
    let stream = session.sql(sql).await?;
    let schema = stream.schema();
    let batches = stream.try_collect().await.map_err(EngineError::from)?;
    Ok(Answer {
        schema,
        batches,
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn in_query(number: usize, fabric: Fabric, failure: Failure) -> Failure {
    let told = |message| format!("query {number} over {fabric}: {message}");
    match failure {
        Failure::Run(message) => Failure::Run(told(message)),
        Failure::Usage(message) => Failure::Usage(told(message)),
        ended => ended,
    }
}

/// The middle value, or the mean of the two middle ones.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }
}
