//! `roundel tpch --streams`: the throughput test of TPC-H. Streams run the queries at once on one session, each in an
//! order of its own; every answer is compared with the reference, and what counts is how many queries end. What a
//! stream is must not depend on how a query is run.

mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use roundel_engine::{Cluster, Session};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::report::{QueryReport, Report};
use super::reference::Reference;
use super::report::Settings;
use super::{answer, in_query, sql};
use crate::cli::TpchArgs;
use crate::verify::Expected;
use roundel_terminal::Failure;
use roundel_terminal::progress::run_bar;
use roundel_terminal::{Text, write_json};
use roundel_verbs::one_line;

/// Which queries streams run, and until when.
struct Plan {
    streams: usize,
    queries: Vec<usize>,
    /// Asked when a stream has ended a query; when there is none, each stream runs each query once.
    is_over: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

/// A query that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ended {
    query: usize,
    seconds: f64,
    rows: usize,
}

/// A query to run many times.
struct Query {
    number: usize,
    sql: &'static str,
    expected: Option<Expected>,
}

/// Runs `count` streams on a session that has the tables.
pub(super) async fn run(
    cluster: &Cluster,
    session: Session,
    reference: Option<Reference>,
    args: &TpchArgs,
    count: u16,
    settings: Settings,
) -> Result<(), Failure> {
    let numbers = args.queries.numbers();
    let mut queries = Vec::new();
    let references = run_bar(numbers.len() as u64);
    for number in numbers.iter().copied() {
        references.set_message(format!("reference: query {number}"));
        let sql = sql(number)?;
        let expected = match &reference {
            Some(reference) => Some(reference.expected(number, sql).await?),
            None => None,
        };
        queries.push(Query {
            number,
            sql,
            expected,
        });
        references.inc(1);
    }
    references.finish_and_clear();
    let verified = reference.is_some();
    // Its tables are not needed any more, nor its threads.
    drop(reference);

    let fabric = cluster.fabric().fabric;
    let shared = Arc::new((session, queries));
    let ask = move |number: usize| {
        let shared = Arc::clone(&shared);
        async move {
            let (session, queries) = &*shared;
            let known = queries.iter().find(|query| query.number == number);
            let query = known.expect("streams run the queries of their plan");
            run_once(session, query)
                .await
                .map_err(|failure| in_query(number, fabric, failure))
        }
    };
    let mut text = Text::new(args.json.is_some());
    text.line(&settings.line())?;
    let length = args.seconds.map(Duration::from_secs_f64);
    let bar = run_bar(match length {
        Some(length) => length.as_secs(),
        None => u64::from(count) * numbers.len() as u64,
    });
    bar.set_message(format!("{count} streams"));
    let began = Instant::now();
    let plan = Plan {
        streams: usize::from(count),
        queries: numbers.to_vec(),
        is_over: length.map(|length| Arc::new(move || began.elapsed() >= length) as Arc<_>),
    };
    let mut ended = Vec::new();
    let failed = run_streams(&plan, ask, |query| {
        ended.push(query);
        match length {
            Some(length) => bar.set_position(began.elapsed().min(length).as_secs()),
            None => bar.inc(1),
        }
    })
    .await;
    let elapsed = began.elapsed();
    bar.finish_and_clear();

    // After a failure a worker may be gone, and with it its counts.
    let fabric = match failed {
        Ok(()) => cluster.fabric_counters().await?,
        Err(_) => None,
    };
    let queries = numbers
        .iter()
        .map(|number| QueryReport::new(*number, &ended, verified));
    let mut report = Report::new(queries.collect(), elapsed, settings, fabric);
    match &failed {
        Ok(()) => report.table(&mut text)?,
        Err(failure) => report.error = Some(failure.to_string()),
    }
    if let Some(path) = &args.json {
        write_json(&report, path)?;
    }
    failed
}

/// Runs a query and checks its rows, which is no part of its time.
async fn run_once(session: &Session, query: &Query) -> Result<Ended, Failure> {
    let answer = answer(session, query.sql).await?;
    if let Some(expected) = &query.expected {
        answer
            .check(expected)
            .map_err(|wrong| Failure::Run(one_line(&wrong.to_string())))?;
    }
    Ok(Ended {
        query: query.number,
        seconds: answer.seconds,
        rows: answer.rows(),
    })
}

/// Runs all streams to their ends, and tells of each query that has ended. The first failure ends them all.
async fn run_streams<F>(
    plan: &Plan,
    ask: impl Fn(usize) -> F + Clone + Send + 'static,
    mut tell: impl FnMut(Ended),
) -> Result<(), Failure>
where
    F: Future<Output = Result<Ended, Failure>> + Send + 'static,
{
    let (sender, mut results) = mpsc::unbounded_channel();
    // Aborted when dropped, which cancels their queries.
    let mut streams = JoinSet::new();
    for number in 0..plan.streams {
        let (ask, sender) = (ask.clone(), sender.clone());
        let (queries, is_over) = (plan.order(number), plan.is_over.clone());
        streams.spawn(async move {
            loop {
                for query in queries.iter().copied() {
                    let result = ask(query).await;
                    let failed = result.is_err();
                    // Nobody listens after the failure of another.
                    if sender.send((number, result)).is_err() || failed {
                        return;
                    }
                    if is_over.as_ref().is_some_and(|is_over| is_over()) {
                        return;
                    }
                }
                if is_over.is_none() {
                    return;
                }
            }
        });
    }
    drop(sender);
    loop {
        tokio::select! {
            biased;
            Some((stream, result)) = results.recv() => {
                tell(result.map_err(|failure| in_stream(stream, failure))?);
            }
            Some(ended) = streams.join_next() => {
                if let Err(error) = ended
                    && let Ok(panic) = error.try_into_panic()
                {
                    return Err(Failure::panicked(panic.as_ref()));
                }
            }
            else => return Ok(()),
        }
    }
}

fn in_stream(stream: usize, failure: Failure) -> Failure {
    let told = |message| format!("stream {}: {message}", stream + 1);
    match failure {
        Failure::Run(message) => Failure::Run(told(message)),
        Failure::Usage(message) => Failure::Usage(told(message)),
        ended => ended,
    }
}

impl Plan {
    /// The queries as a stream runs them: all go round the same circle, each from a place as far from those of the
    /// others as can be.
    fn order(&self, stream: usize) -> Vec<usize> {
        let mut queries = self.queries.clone();
        let first = stream * queries.len() / self.streams;
        queries.rotate_left(first);
        queries
    }
}

#[cfg(test)]
mod tests;
