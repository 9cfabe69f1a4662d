//! A join of two relations that are both shuffled by their keys, of which some have far more rows than others. Hosts are
//! simulated: nodes that share this one's cores would wait for the busiest of them anyway.
//!
//! ```text
//!   threads of a node ─rows by key─► SHUFFLE ══► RECEIVE ─► a partition for each thread: builds a table of the one
//!                                                           relation, then looks up the rows of the other
//! ```

use super::Hybrid;
use super::hosts::{Hosts, Simulated};
use super::nodes::{self, Failure, Node};
use crate::error::{Error, Result};
use crate::fabric::FabricChoice;
use crate::ring::rates;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::stream::select_all;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use roundel_exchange::skew::{Router, Sample, Task};
use roundel_exchange::{Architecture, ExchangeError, Scatter};
use roundel_ring::cost::Rates;
use roundel_simtest::keyed::{ByKey, by_partition, hashes};
use roundel_simtest::zipf::Zipf;
use roundel_simtest::{Agreeing, as_text};
use roundel_verbs::sim::Parameters;
use roundel_verbs::{Context, Work, settle};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The relation of which tables are built, and the one whose rows are looked up there.
const BUILD: usize = 0;
const PROBE: usize = 1;
/// Bytes of a row: a key and a value.
const ROW_BYTES: usize = 16;
/// Rows of a batch, as DataFusion has them.
const BATCH_ROWS: usize = 8192;
/// How long a call to another node takes outside of the exchange, each way: assumed, several round trips of TCP.
const CALL: Duration = Duration::from_micros(100);

/// A join.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkewedJoin {
    /// What it runs over, which is simulated.
    pub fabric: FabricChoice,
    /// Which connections there are.
    #[serde(with = "as_text")]
    pub architecture: Architecture,
    /// Nodes, at least 2.
    pub nodes: usize,
    /// Threads of each: each sends, and has a partition.
    pub threads: usize,
    /// Different keys. Each has one row of the relation of which tables are built.
    pub keys: usize,
    /// Rows of the other relation.
    pub rows: usize,
    /// Of these, the k-th key has as many as k to the power of minus this says.
    pub exponent: f64,
    /// Whether heavy keys are looked for, spread and sent to all.
    pub handled: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SkewedMeasured {
    /// From the first row until all have been joined.
    pub seconds: f64,
    /// Rows that were looked up on the busiest node, by the mean of all.
    pub busiest: f64,
    /// Heavy keys that were spread.
    pub heavy: usize,
}

impl SkewedJoin {
    /// 16 million rows with 100,000 keys, on nodes of four threads.
    pub fn new(fabric: FabricChoice, architecture: Architecture, nodes: usize) -> Self {
        Self {
            fabric,
            architecture,
            nodes,
            threads: 4,
            keys: 100_000,
            rows: 16_000_000,
            exponent: 0.0,
            handled: true,
        }
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<()> {
        self.hardware().map(|_| ())
    }

    /// What it runs on.
    fn hardware(&self) -> Result<Parameters> {
        self.operators().check()?;
        let hardware = self.fabric.hardware();
        let sensible = hardware.filter(|_| (1..=1 << 24).contains(&self.keys));
        sensible.ok_or_else(|| {
            Error::Setting("joins by skewed keys are simulated, with 1 to 16 million keys".into())
        })
    }

    /// Its exchanges.
    fn operators(&self) -> Hybrid {
        Hybrid {
            threads: self.threads,
            operators: 2,
            ..Hybrid::new(self.fabric.clone(), self.architecture, self.nodes)
        }
    }

    fn partitions(&self) -> usize {
        self.nodes * self.threads
    }
}

/// Runs it once.
///
/// # Errors
/// When it makes no sense, or a node fails.
pub fn run(join: &SkewedJoin) -> Result<SkewedMeasured> {
    let hardware = join.hardware()?;
    let hybrid = join.operators();
    // A row stands for as many as a byte of a message does.
    let times = hybrid.payload_times();
    let hosts = Simulated::new(&hybrid, hardware.clone().with_payload_times(times));
    let nodes = nodes::open(&hybrid, &hosts, true)?;
    let (busy, idle) = mpsc::unbounded::<()>();
    let run = Arc::new(Run {
        join: join.clone(),
        times,
        zipf: Zipf::new(join.keys as u64, join.exponent),
        rates: rates::of_roundel(&hardware),
        cycle: hardware.cpu.cycle.as_picos() as f64 / 1e3,
        agreeing: Agreeing::new(join.partitions(), join.partitions(), [join.handled; 2]),
        heavy: AtomicUsize::new(0),
        looked_up: (0..join.nodes).map(|_| AtomicUsize::new(0)).collect(),
        failure: Failure::default(),
    });
    for (number, node) in nodes.iter().enumerate() {
        run.send(number, node, &hosts, &busy)?;
        run.receive(number, node, &hosts, &busy)?;
    }
    drop(busy);
    let took = hosts.wait(async move { drop(idle.collect::<Vec<()>>().await) })?;
    if let Some(error) = run.failure.take() {
        return Err(error.into());
    }
    let looked_up = run
        .looked_up
        .iter()
        .map(|rows| rows.load(Ordering::Relaxed));
    let (most, all) = (looked_up.clone().max(), looked_up.sum::<usize>());
    Ok(SkewedMeasured {
        seconds: took.as_secs_f64(),
        busiest: most.unwrap_or(0) as f64 * join.nodes as f64 / all.max(1) as f64,
        heavy: run.heavy.load(Ordering::Relaxed),
    })
}

/// What all tasks have in common.
struct Run {
    join: SkewedJoin,
    /// Rows for which one stands.
    times: usize,
    zipf: Zipf,
    rates: Rates,
    /// Nanoseconds of a cycle.
    cycle: f64,
    agreeing: Agreeing,
    heavy: AtomicUsize,
    /// By node.
    looked_up: Vec<AtomicUsize>,
    failure: Failure,
}

impl Run {
    /// Starts the tasks of a node that send, for both relations.
    fn send(
        self: &Arc<Self>,
        number: usize,
        node: &Node,
        hosts: &Simulated,
        busy: &mpsc::UnboundedSender<()>,
    ) -> Result<()> {
        let threads = self.join.threads;
        for (relation, operator) in node.operators.iter().enumerate() {
            let to = operator.destinations.iter();
            let to = to.map(|(_, to)| operator.shuffle.group(std::slice::from_ref(to)));
            let groups = by_partition(&to.collect::<std::result::Result<Vec<_>, _>>()?, threads);
            let (feeding, fed) = mpsc::unbounded::<()>();
            for thread in 0..threads {
                let task = (relation, (number * threads + thread) as u64);
                let groups = groups.iter().map(|group| group.by(thread)).collect();
                let (run, shuffle) = (self.clone(), operator.shuffle.clone());
                let context = node.fabric.context.clone();
                let (busy, feeding) = (busy.clone(), feeding.clone());
                let feed = async move {
                    let sent = run.scatter(task, &*context, |router| {
                        let first = task.1 as usize;
                        Scatter::new(shuffle, groups, Box::new(ByKey(router)), first)
                    });
                    run.failure.note(sent.await);
                    drop((busy, feeding));
                };
                hosts.spawn(number, thread, Box::pin(feed));
            }
            drop(feeding);
            let finish = operator.finish(fed, &self.failure, busy);
            hosts.spawn(number, 0, Box::pin(finish));
        }
        Ok(())
    }

    async fn scatter(
        &self,
        task: Task,
        context: &dyn Context,
        open: impl FnOnce(Router) -> std::result::Result<Scatter, ExchangeError>,
    ) -> std::result::Result<(), ExchangeError> {
        let batches = self.rows_of(task);
        if self.join.handled {
            let mut sample = Sample::default();
            for batch in &batches {
                self.work(context, Work::Hash(self.bytes(batch))).await;
                if sample.add(&hashes(batch), self.bytes(batch)) {
                    break;
                }
            }
            context.sleep(CALL).await;
            self.agreeing.hear(task, &sample);
        }
        let decision = self.agreeing.decided(context, None).await;
        if self.join.handled {
            context.sleep(CALL).await;
        }
        let routes = decision.routes(task.0);
        if task == (PROBE, 0) {
            let heavy = routes.as_ref().map_or(0, |routes| routes.spread.len());
            self.heavy.store(heavy, Ordering::Relaxed);
        }
        let mut scatter = open(Router::new(self.join.partitions(), routes, task.1 as usize))?;
        for batch in &batches {
            let bytes = self.bytes(batch);
            self.work(context, Work::Hash(bytes)).await;
            self.work(context, Work::Copy(bytes)).await;
            scatter.send(batch).await?;
        }
        Ok(())
    }

    /// Starts the consumers of a node: one for each partition.
    fn receive(
        self: &Arc<Self>,
        number: usize,
        node: &Node,
        hosts: &Simulated,
        busy: &mpsc::UnboundedSender<()>,
    ) -> Result<()> {
        for thread in 0..self.join.threads {
            let partition = (number * self.join.threads + thread) as u32;
            let streams = |relation: usize| {
                let operator = &node.operators[relation];
                let links = operator.links.iter();
                let streams = links.map(|link| operator.receive.stream(link, partition, &schema()));
                let streams = streams.collect::<std::result::Result<Vec<_>, _>>();
                streams.map(select_all)
            };
            let (mut build, mut probe) = (streams(BUILD)?, streams(PROBE)?);
            let (run, context) = (self.clone(), node.fabric.context.clone());
            let busy = busy.clone();
            let consume = async move {
                let joined = async {
                    while let Some(batch) = build.next().await {
                        let rate = run.rates.build;
                        run.take(&*context, &batch?, rate).await;
                    }
                    while let Some(batch) = probe.next().await {
                        let batch = batch?;
                        let rate = run.rates.probe + run.rates.emit;
                        run.take(&*context, &batch, rate).await;
                        run.looked_up[number].fetch_add(batch.num_rows(), Ordering::Relaxed);
                    }
                    Ok(())
                };
                run.failure.note(joined.await);
                drop(busy);
            };
            hosts.spawn(number, thread, Box::pin(consume));
        }
        Ok(())
    }

    /// Takes rows in, with so many nanoseconds for each.
    async fn take(&self, context: &dyn Context, batch: &RecordBatch, rate: f64) {
        self.work(context, Work::Copy(self.bytes(batch))).await;
        let nanoseconds = (batch.num_rows() * self.times) as f64 * rate;
        let cycles = (nanoseconds / self.cycle).round() as u64;
        self.work(context, Work::Cycles(cycles)).await;
    }

    async fn work(&self, context: &dyn Context, work: Work) {
        context.charge(work);
        settle(context).await;
    }

    /// Bytes of the rows for which those of a batch stand.
    fn bytes(&self, batch: &RecordBatch) -> usize {
        batch.num_rows() * self.times * ROW_BYTES
    }

    /// The rows of a task.
    fn rows_of(&self, task: Task) -> Vec<RecordBatch> {
        let (relation, number) = (task.0, task.1 as usize);
        let (keys, tasks) = (self.join.keys, self.join.partitions());
        let mine = |count: usize| count * number / tasks..count * (number + 1) / tasks;
        let keys: Vec<i64> = match relation {
            // One row of each key, or as many of them as rows stand for.
            BUILD => mine(keys)
                .step_by(self.times)
                .map(|key| key as i64)
                .collect(),
            _ => {
                let mut random = ChaCha8Rng::seed_from_u64(task.1);
                let rows = mine(self.join.rows / self.times);
                rows.map(|_| self.zipf.draw(&mut random) as i64).collect()
            }
        };
        keys.chunks(BATCH_ROWS / self.times).map(batch).collect()
    }
}

fn batch(keys: &[i64]) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
    let columns = [("key", keys.clone()), ("value", keys)];
    RecordBatch::try_from_iter(columns).expect("both columns have a value for each row")
}

fn schema() -> SchemaRef {
    batch(&[]).schema()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(exponent: f64, handled: bool) -> SkewedJoin {
        SkewedJoin {
            threads: 2,
            keys: 10_000,
            rows: 2_000_000,
            exponent,
            handled,
            ..SkewedJoin::new("sim:qdr".parse().unwrap(), Architecture::Multiplexer, 4)
        }
    }

    #[test]
    fn heavy_keys_that_are_spread_overload_nobody() {
        let (off, handled) = (join(1.2, false), join(1.2, true));
        let (slow, fast) = (run(&off).unwrap(), run(&handled).unwrap());
        assert_eq!(run(&handled).unwrap(), fast, "the same once more");
        assert!(slow.heavy == 0 && fast.heavy > 0, "{slow:?} {fast:?}");
        assert!(
            slow.busiest > 1.4 && fast.busiest < 1.1,
            "{slow:?} {fast:?}"
        );
        assert!(slow.seconds > 1.5 * fast.seconds, "{slow:?} {fast:?}");
    }

    #[test]
    fn keys_that_are_alike_are_left_where_they_are() {
        let measured = run(&join(0.0, true)).unwrap();
        assert!(
            measured.heavy == 0 && measured.busiest < 1.1,
            "{measured:?}"
        );
    }

    #[test]
    fn devices_of_this_host_are_refused() {
        let real = SkewedJoin::new(FabricChoice::default(), Architecture::Endpoint, 2);
        assert!(run(&real).is_err());
    }
}
