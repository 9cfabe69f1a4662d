//! What is done once for either side of a join, on all threads of a host.

use super::cluster::cluster;
use super::nested::Loops;
use super::table::{ByHash, Table, bits_for};
use super::{Algorithm, JoinSpec, Stationary, merge, whole};
use crate::error::Result;
use crate::threads::JoinThreads;
use arrow::array::RecordBatch;

/// Sets the rows up that a host has of both relations. Those that spin are put in the order in which the other side's are
/// looked up, or sorted, and spin as they are then.
///
/// # Errors
/// When their keys cannot be joined so.
pub async fn set_up(
    spec: &JoinSpec,
    spinning: Vec<RecordBatch>,
    stationary: Vec<RecordBatch>,
    threads: &dyn JoinThreads,
) -> Result<(Vec<RecordBatch>, Stationary)> {
    match &spec.algorithm {
        Algorithm::Hash {
            spinning: spinning_keys,
            stationary: stationary_keys,
            nulls_equal,
        } => {
            let nulls_equal = *nulls_equal;
            // As finely on either side, as a few rows that spin are best looked up in order too.
            let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum();
            let bits = bits_for(Ord::max(rows(&spinning), rows(&stationary)));
            let by = |columns: &[usize]| ByHash {
                columns: columns.to_vec(),
                nulls_equal,
                bits,
            };
            let stays = by(stationary_keys);
            let part_of = {
                let by = stays.clone();
                move |rows: &RecordBatch, parts: &mut Vec<u32>| by.part_of(rows, parts)
            };
            let clustered = cluster(
                &spec.stationary,
                stationary,
                stays.parts(),
                part_of,
                threads,
            )
            .await?;
            let table = Table::new(&clustered, &stays, spinning_keys, threads).await?;
            let stays = Stationary::new(spec, clustered.rows, Box::new(table));
            let by = by(spinning_keys);
            let parts = by.parts();
            let part_of = move |rows: &RecordBatch, parts: &mut Vec<u32>| by.part_of(rows, parts);
            let spins = cluster(&spec.spinning, spinning, parts, part_of, threads).await?;
            Ok((vec![spins.rows], stays))
        }
        Algorithm::Merge {
            spinning: spinning_key,
            stationary: stationary_key,
            window,
        } => {
            let (rows, matcher) = merge::matcher(
                &spec.stationary,
                stationary,
                *stationary_key,
                *spinning_key,
                *window,
                threads,
            )
            .await?;
            let stays = Stationary::new(spec, rows, matcher);
            let spins =
                merge::sort(&spec.spinning, spinning, *spinning_key, *window, threads).await?;
            Ok((spins, stays))
        }
        Algorithm::NestedLoops => {
            let rows = whole(&spec.stationary, &stationary)?;
            let loops = Loops::new(&rows);
            Ok((spinning, Stationary::new(spec, rows, Box::new(loops))))
        }
    }
}
