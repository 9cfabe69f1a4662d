//! Relation R: a uniformly distributed key of 8 bytes and a value. All nodes have the same rows, each in an
//! order of its own.

use crate::measured::Rows;
use crate::setting::{BATCH_ROWS, KEY_BYTES, Setting};
use arrow::array::{ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, UInt64Array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use foldhash::fast::FixedState;
use multiversion::multiversion;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Of 2 to the 64 what the golden ratio divides it by, which spreads numbers well.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A thread's part of a node's fragment of R.
pub struct Relation {
    /// The types of its rows.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
}

impl Relation {
    /// The types of the rows of a setting.
    pub fn schema(setting: &Setting) -> SchemaRef {
        let value = match setting.tuple_bytes - KEY_BYTES {
            KEY_BYTES => DataType::UInt64,
            width => DataType::FixedSizeBinary(width as i32),
        };
        let key = Field::new("a", DataType::UInt64, false);
        Arc::new(Schema::new(vec![key, Field::new("b", value, false)]))
    }

    /// The part of thread `thread` in node `node`.
    pub fn generate(setting: &Setting, node: usize, thread: usize) -> Self {
        let first = (thread * setting.rows) as u64;
        let hash = FixedState::with_seed(1);
        let numbers = first..first + setting.rows as u64;
        let mut keys: Vec<u64> = numbers.map(|number| hash.hash_one(number)).collect();
        keys.shuffle(&mut SmallRng::seed_from_u64((node * 1000 + thread) as u64));
        let schema = Self::schema(setting);
        let batches = keys
            .chunks(BATCH_ROWS)
            .map(|keys| batch(&schema, keys, setting.tuple_bytes));
        Self {
            batches: batches.collect(),
            schema,
        }
    }
}

fn batch(schema: &SchemaRef, keys: &[u64], tuple_bytes: usize) -> RecordBatch {
    let value_bytes = tuple_bytes - KEY_BYTES;
    let values: ArrayRef = match value_bytes {
        KEY_BYTES => Arc::new(UInt64Array::from_iter_values(keys.iter().map(|key| !key))),
        width => {
            let bytes = keys
                .iter()
                .flat_map(|key| std::iter::repeat_n(*key as u8, width));
            let bytes = Buffer::from_vec(bytes.collect::<Vec<_>>());
            Arc::new(FixedSizeBinaryArray::new(width as i32, bytes, None))
        }
    };
    let keys: ArrayRef = Arc::new(UInt64Array::from(keys.to_vec()));
    RecordBatch::try_new(schema.clone(), vec![keys, values]).expect("the columns are of the schema")
}

/// The keys of a batch.
pub(super) fn keys(batch: &RecordBatch) -> &[u64] {
    batch.column(0).as_primitive::<UInt64Type>().values()
}

/// How many rows a batch has, and the sum of their keys.
pub(super) fn rows_of(batch: &RecordBatch) -> Rows {
    Rows {
        count: batch.num_rows() as u64,
        keys: keys(batch)
            .iter()
            .fold(0, |sum, key| sum.wrapping_add(*key)),
    }
}

/// Which transmission group a row goes to.
#[derive(Clone, Copy)]
pub struct Partitioning {
    /// How many transmission groups there are.
    pub groups: usize,
}

impl Partitioning {
    /// That of a setting: a group for each node, or one of all.
    pub fn new(setting: &Setting) -> Self {
        Self {
            groups: setting.groups().len(),
        }
    }

    /// Sets `targets` to the group of each row.
    pub fn targets(&self, batch: &RecordBatch, targets: &mut Vec<u32>) {
        targets.resize(batch.num_rows(), 0);
        hash(keys(batch), self.groups as u32, targets);
    }

    /// What one scan of a relation sends to each group.
    pub fn rows(&self, relation: &Relation) -> Vec<Rows> {
        let mut rows = vec![Rows::default(); self.groups];
        let mut targets = Vec::new();
        for batch in &relation.batches {
            self.targets(batch, &mut targets);
            for (key, target) in keys(batch).iter().zip(&targets) {
                rows[*target as usize].add(Rows {
                    count: 1,
                    keys: *key,
                });
            }
        }
        rows
    }
}

/// A multiplicative hash, whose upper half is scaled to the groups: no division.
#[multiversion(targets("x86_64+avx512f+avx512dq", "x86_64+avx2"))]
fn hash(keys: &[u64], groups: u32, targets: &mut [u32]) {
    for (target, key) in targets.iter_mut().zip(keys) {
        let hash = key.wrapping_mul(MULTIPLIER) >> 32;
        *target = ((hash * u64::from(groups)) >> 32) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::FabricChoice;
    use crate::setting::Transport;

    #[test]
    fn nodes_have_the_same_rows_in_another_order_and_groups_get_alike() {
        let mut setting = Setting::new(Transport::Sockets, FabricChoice::default());
        setting.rows = 20_000;
        setting.nodes = 3;
        let of_node = |node| Relation::generate(&setting, node, 1);
        let (one, other) = (of_node(0), of_node(1));
        let partitioning = Partitioning::new(&setting);
        assert_eq!(partitioning.rows(&one), partitioning.rows(&other));
        assert_ne!(one.batches[0], other.batches[0]);
        for rows in partitioning.rows(&one) {
            assert!((6_000..7_400).contains(&rows.count), "{rows:?}");
        }
    }
}
