//! What is done once for either side of a join, on all threads of a host.

use super::cluster::cluster;
use super::nested::Loops;
use super::table::{ByHash, Table};
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
    // As finely on either side, as a few rows that spin are best looked up in order too.
    let (few, many) = (rows_of(&spinning), rows_of(&stationary));
    let stays = set_up_stationary(spec, stationary, few, threads).await?;
    let spins = set_up_spinning(spec, spinning, many, threads).await?;
    Ok((spins, stays))
}

/// Sets the rows up that stay, of a relation whose other side has so many rows here, if that is known.
///
/// # Errors
/// When their keys cannot be joined so.
pub async fn set_up_stationary(
    spec: &JoinSpec,
    stationary: Vec<RecordBatch>,
    others: usize,
    threads: &dyn JoinThreads,
) -> Result<Stationary> {
    match &spec.algorithm {
        Algorithm::Hash {
            spinning: keys,
            stationary: own_keys,
            nulls_equal,
        } => {
            let by = ByHash::new(own_keys, *nulls_equal, others.max(rows_of(&stationary)));
            let schema = &spec.stationary;
            let clustered =
                cluster(schema, stationary, by.parts(), by.to_part_of(), threads).await?;
            let table = Table::new(&clustered, &by, keys, threads).await?;
            Ok(Stationary::new(spec, clustered.rows, Box::new(table)))
        }
        Algorithm::Merge {
            spinning,
            stationary: own_key,
            window,
        } => {
            let schema = &spec.stationary;
            let (rows, matcher) =
                merge::matcher(schema, stationary, *own_key, *spinning, *window, threads).await?;
            Ok(Stationary::new(spec, rows, matcher))
        }
        Algorithm::NestedLoops => {
            let rows = whole(&spec.stationary, &stationary)?;
            let loops = Loops::new(&rows);
            Ok(Stationary::new(spec, rows, Box::new(loops)))
        }
    }
}

/// Sets the rows up that spin, past so many rows of a host.
///
/// # Errors
/// When their keys cannot be joined so.
pub async fn set_up_spinning(
    spec: &JoinSpec,
    spinning: Vec<RecordBatch>,
    others: usize,
    threads: &dyn JoinThreads,
) -> Result<Vec<RecordBatch>> {
    match &spec.algorithm {
        Algorithm::Hash {
            spinning: own_keys,
            nulls_equal,
            ..
        } => {
            let by = ByHash::new(own_keys, *nulls_equal, others.max(rows_of(&spinning)));
            let schema = &spec.spinning;
            let clustered = cluster(schema, spinning, by.parts(), by.to_part_of(), threads).await?;
            Ok(vec![clustered.rows])
        }
        Algorithm::Merge {
            spinning: own_key,
            window,
            ..
        } => merge::sort(&spec.spinning, spinning, *own_key, *window, threads).await,
        Algorithm::NestedLoops => Ok(spinning),
    }
}

fn rows_of(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}
