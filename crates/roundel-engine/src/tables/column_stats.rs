//! Statistics of a memory table's columns for the planner: bytes, least and greatest value.
//!
//! The workers measure their shards, the coordinator adds up. The planner orders joins by it as it
//! does by the statistics in Parquet files.

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use arrow::compute::{max, min};
use arrow::datatypes::{
    ArrowNumericType, DataType, Date32Type, Decimal128Type, Int32Type, Int64Type,
};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue};
use datafusion_proto::protobuf;
use prost::Message as _;

use crate::protocol::control::ColumnStats;

/// Measures column `column` of some batches.
pub(crate) fn measure(batches: &[RecordBatch], column: usize) -> ColumnStats {
    let columns = || batches.iter().map(move |batch| batch.column(column));
    let bounds = columns().filter_map(bounds).reduce(widen);
    ColumnStats {
        bytes: columns().map(|c| c.get_array_memory_size() as u64).sum(),
        least: bounds.as_ref().and_then(|(least, _)| encode(least)),
        greatest: bounds.as_ref().and_then(|(_, greatest)| encode(greatest)),
    }
}

impl ColumnStats {
    /// Adds another shard's statistics of the same column.
    pub(crate) fn add(&mut self, other: &ColumnStats) {
        self.bytes += other.bytes;
        let bounds = match (self.bounds(), other.bounds()) {
            (Some(ours), Some(theirs)) => Some(widen(ours, theirs)),
            // A shard without rows says nothing.
            (ours, theirs) => ours.or(theirs),
        };
        self.least = bounds.as_ref().and_then(|(least, _)| encode(least));
        self.greatest = bounds.as_ref().and_then(|(_, greatest)| encode(greatest));
    }

    /// For the planner. Columns of TPC-H hold no nulls.
    pub(crate) fn to_statistics(&self) -> ColumnStatistics {
        let mut statistics = ColumnStatistics::new_unknown()
            .with_null_count(Precision::Exact(0))
            .with_byte_size(Precision::Exact(self.bytes as usize));
        if let Some((least, greatest)) = self.bounds() {
            statistics = statistics
                .with_min_value(Precision::Exact(least))
                .with_max_value(Precision::Exact(greatest));
        }
        statistics
    }

    fn bounds(&self) -> Option<(ScalarValue, ScalarValue)> {
        Some((decode(self.least())?, decode(self.greatest())?))
    }
}

fn encode(value: &ScalarValue) -> Option<Vec<u8>> {
    let message = protobuf::ScalarValue::try_from(value).ok()?;
    Some(message.encode_to_vec())
}

/// The value; `None` where there is none.
fn decode(bytes: &[u8]) -> Option<ScalarValue> {
    let message = protobuf::ScalarValue::decode(bytes).ok()?;
    ScalarValue::try_from(&message).ok()
}

type Bounds = (ScalarValue, ScalarValue);

fn widen(a: Bounds, b: Bounds) -> Bounds {
    (
        if b.0 < a.0 { b.0 } else { a.0 },
        if b.1 > a.1 { b.1 } else { a.1 },
    )
}

fn bounds(array: &ArrayRef) -> Option<Bounds> {
    fn of<T: ArrowNumericType>(array: &ArrayRef) -> Option<Bounds> {
        let values = array.as_primitive::<T>();
        let scalar = |value| ScalarValue::new_primitive::<T>(Some(value), array.data_type()).ok();
        Some((scalar(min(values)?)?, scalar(max(values)?)?))
    }
    match array.data_type() {
        DataType::Int32 => of::<Int32Type>(array),
        DataType::Int64 => of::<Int64Type>(array),
        DataType::Date32 => of::<Date32Type>(array),
        DataType::Decimal128(_, _) => of::<Decimal128Type>(array),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn batch(numbers: Vec<i64>) -> RecordBatch {
        let words = StringArray::from(vec!["word"; numbers.len()]);
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
        RecordBatch::try_from_iter([("n", numbers), ("w", Arc::new(words) as ArrayRef)])
            .expect("columns of one length")
    }

    #[test]
    fn bounds_widen_over_batches_and_shards() {
        let mut stats = measure(&[batch(vec![3, 5]), batch(vec![4])], 0);
        stats.add(&measure(&[batch(vec![-1])], 0));
        stats.add(&measure(&[], 0));
        let statistics = stats.to_statistics();
        let exact = |n: i64| Precision::Exact(ScalarValue::Int64(Some(n)));
        assert_eq!(statistics.min_value, exact(-1));
        assert_eq!(statistics.max_value, exact(5));
        assert_eq!(measure(&[batch(vec![1])], 1).least, None);
    }
}
