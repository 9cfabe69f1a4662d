//! A join of two exchanges by their keys, some of which are heavy: its tasks look for them, agree, and scatter their rows by
//! what was agreed. Whatever that is, rows that match must meet in one partition, and in one only.

use crate::agreeing::Agreeing;
use crate::keyed::{ByKey, hashes, numbers};
use crate::plan::{INPUTS, Join, Plan, dawdle};
use crate::zipf::Zipf;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use roundel_exchange::operator::Group;
use roundel_exchange::skew::{Router, Sample, Task};
use roundel_exchange::{ExchangeError, Scatter, Shuffle};
use roundel_verbs::Context;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The columns of both inputs: the key, and a number that no other row of the input has.
pub(crate) fn schema() -> SchemaRef {
    batch(&[], 0).schema()
}

fn batch(keys: &[i64], first: i64) -> RecordBatch {
    let numbers = first..first + keys.len() as i64;
    let columns: [(&str, ArrayRef); 2] = [
        ("key", Arc::new(Int64Array::from(keys.to_vec()))),
        ("row", Arc::new(Int64Array::from_iter_values(numbers))),
    ];
    RecordBatch::try_from_iter(columns).expect("both columns have a value for each row")
}

/// What its tasks, and its readers, have in common.
pub(crate) struct Joining {
    join: Join,
    partitions: usize,
    agreeing: Agreeing,
    arrived: Mutex<[Arrived; INPUTS]>,
    /// Readers that there are, and those for which all has come.
    readers: usize,
    ended: AtomicUsize,
    /// The key of each row of each input.
    sent: [Vec<i64>; INPUTS],
}

/// Of each key, where each row has come, in ascending order.
type Arrived = BTreeMap<i64, BTreeMap<i64, Vec<u32>>>;

impl Joining {
    /// The join of a plan, if it has one.
    pub(crate) fn of(plan: &Plan) -> Option<Arc<Self>> {
        let join = plan.join?;
        let tasks = plan.nodes * plan.threads;
        let sent = [0, 1].map(|input| {
            let all = (0..tasks as u64).flat_map(|task| input_of(plan, &join, (input, task)));
            let keys = all.flat_map(|batch| numbers(&batch, 0).to_vec());
            keys.collect()
        });
        Some(Arc::new(Self {
            join,
            partitions: tasks,
            agreeing: Agreeing::new(tasks, tasks, join.spreads),
            arrived: Mutex::default(),
            readers: INPUTS * plan.nodes * tasks,
            ended: AtomicUsize::new(0),
            sent,
        }))
    }

    /// What a task does: it looks at its first rows, hears what all do with heavy keys, and sends its rows to groups by
    /// partition.
    pub(crate) async fn scatter(
        &self,
        plan: &Plan,
        task: Task,
        shuffle: Arc<Shuffle>,
        groups: Vec<Group>,
        context: &dyn Context,
        random: &mut ChaCha8Rng,
    ) -> Result<(), ExchangeError> {
        let batches = input_of(plan, &self.join, task);
        if self.join.spreads[task.0] {
            let mut sample = Sample::default();
            for batch in batches.iter().take(self.join.sampled) {
                sample.add(&hashes(batch), batch.get_array_memory_size());
            }
            dawdle(context, plan.dawdle, random).await;
            self.agreeing.hear(task, &sample);
        }
        let decision = self.agreeing.decided(context, self.join.patience).await;
        let first = task.1 as usize;
        let router = Router::new(self.partitions, decision.routes(task.0), first);
        let mut scatter = Scatter::new(shuffle, groups, Box::new(ByKey(router)), first)?;
        for batch in &batches {
            dawdle(context, plan.dawdle, random).await;
            if !scatter.send(batch).await? {
                break;
            }
        }
        Ok(())
    }

    /// Rows have come to a partition.
    pub(crate) fn arrived(
        &self,
        input: usize,
        partition: u32,
        batch: &RecordBatch,
    ) -> Result<(), String> {
        let mut arrived = self.arrived.lock();
        for (key, row) in key_and_row(batch) {
            if self.sent[input].get(row as usize) != Some(&key) {
                return Err(format!(
                    "row {row} of input {input} with key {key}: nobody sent it"
                ));
            }
            let places = arrived[input]
                .entry(key)
                .or_default()
                .entry(row)
                .or_default();
            let at = places.partition_point(|place| *place < partition);
            if places.get(at) == Some(&partition) {
                return Err(format!(
                    "row {row} of input {input} came to partition {partition} twice"
                ));
            }
            places.insert(at, partition);
        }
        Ok(())
    }

    /// All rows of a source for a partition have come.
    pub(crate) fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all rows have come where they should, in the end. What came to a node that has crashed since, nobody knows.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.ended.load(Ordering::Relaxed) < self.readers {
            return Ok(());
        }
        let arrived = self.arrived.lock();
        for (input, sent) in self.sent.iter().enumerate() {
            let came: usize = arrived[input].values().map(BTreeMap::len).sum();
            if came != sent.len() {
                return Err(format!(
                    "{came} rows of input {input} came, of {}",
                    sent.len()
                ));
            }
            // Rows of an input are copied where those of the other are spread, and may be.
            let copied = self.join.spreads[1 - input];
            let places = arrived[input].values().flat_map(BTreeMap::iter);
            for (row, places) in places {
                if places.len() > 1 && !(copied && places.len() == self.partitions) {
                    return Err(format!(
                        "row {row} of input {input} came to partitions {places:?}"
                    ));
                }
            }
        }
        for (key, left) in &arrived[0] {
            let right = arrived[1].get(key).into_iter().flat_map(BTreeMap::iter);
            for (other, theirs) in right {
                for (row, places) in left {
                    let meet = places.iter().filter(|place| theirs.contains(place)).count();
                    if meet != 1 {
                        return Err(format!(
                            "rows {row} and {other} of key {key} meet in {meet} partitions: {places:?} and {theirs:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The rows of a task, the same whenever they are asked for.
fn input_of(plan: &Plan, join: &Join, task: Task) -> Vec<RecordBatch> {
    let (input, number) = task;
    let seed = plan.seed ^ (2 + 2 * number + input as u64) << 32;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let exponent = f64::from(join.exponents[input]) / 10.0;
    let zipf = Zipf::new(join.keys as u64, exponent);
    let rows = plan.rows * plan.batches;
    (0..plan.batches)
        .map(|number_of_batch| {
            let keys: Vec<i64> = (0..plan.rows)
                .map(|_| zipf.draw(&mut random) as i64)
                .collect();
            batch(
                &keys,
                (number as usize * rows + number_of_batch * plan.rows) as i64,
            )
        })
        .collect()
}

fn key_and_row(batch: &RecordBatch) -> impl Iterator<Item = (i64, i64)> {
    let (keys, rows) = (numbers(batch, 0), numbers(batch, 1));
    keys.iter().copied().zip(rows.iter().copied())
}
