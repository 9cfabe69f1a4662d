//! TPC-H tables as Parquet files in a directory.
//!
//! ```text
//!   DIR/roundel-tpch.json            what the directory holds; written last
//!   DIR/lineitem/part-000.parquet …  several files of each large table
//! ```
//!
//! A directory in which a generation was cut short holds `roundel-tpch.incomplete`, and is
//! generated again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::prelude::{ParquetReadOptions, SessionContext};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::generate::{Table, available_threads, check_scale, generate};
use crate::{EngineError, LoadProgress, Result};

const MARKER: &str = "roundel-tpch.json";
const INCOMPLETE: &str = "roundel-tpch.incomplete";
/// Rows of a file, about; large tables are in several files.
const FILE_ROWS: u64 = 1 << 20;
/// Fewest files of a table that is not tiny, so that several tasks can read it.
const FILES_MIN: usize = 4;
/// Most rows of a row group: the unit in which files are dealt to tasks and partitions.
const ROW_GROUP_ROWS_MAX: usize = 1 << 17;
/// Layout of the directory; a directory of another one is refused.
const LAYOUT: u32 = 1;

/// The description of the directory, in a file of its own.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    layout: u32,
    scale: f64,
}

/// Sees to it that `dir` holds the tables at `scale`.
pub(crate) async fn provide(dir: &Path, scale: f64, progress: &dyn LoadProgress) -> Result<()> {
    check_scale(scale)?;
    if is_complete(dir, scale)? {
        return Ok(());
    }
    let (done, mut rows) = mpsc::unbounded_channel();
    let target = dir.to_owned();
    let job = tokio::task::spawn_blocking(move || write_all(&target, scale, &done));
    let mut sums = [0; Table::ALL.len()];
    while let Some((table, count)) = rows.recv().await {
        let sum = &mut sums[table as usize];
        *sum += count;
        progress.advance(table.name(), *sum, table.rows(scale).max(*sum));
    }
    job.await
        .map_err(|e| EngineError::io("generate the tables", e))??;
    for table in Table::ALL {
        let sum = sums[table as usize];
        progress.advance(table.name(), sum, sum);
    }
    Ok(())
}

/// Registers the directory's tables under their own names.
pub(crate) async fn register(context: &SessionContext, dir: &Path) -> Result<()> {
    let dir = std::fs::canonicalize(dir)
        .map_err(|e| EngineError::io(format!("open {}", dir.display()), e))?;
    for table in Table::ALL {
        let path = dir.join(table.name());
        let path = path.to_str().ok_or_else(|| EngineError::Directory {
            path: dir.clone(),
            reason: "its name is not UTF-8".to_owned(),
        })?;
        context.deregister_table(table.name())?;
        context
            .register_parquet(table.name(), path, ParquetReadOptions::default())
            .await?;
    }
    Ok(())
}

/// Whether the tables are there. Refuses a directory that holds anything else.
fn is_complete(dir: &Path, scale: f64) -> Result<bool> {
    let refuse = |reason: String| {
        Err(EngineError::Directory {
            path: dir.to_owned(),
            reason,
        })
    };
    match std::fs::read(dir.join(MARKER)) {
        Ok(bytes) => match serde_json::from_slice::<Marker>(&bytes) {
            Ok(marker) if marker.layout != LAYOUT => {
                refuse("it was written by another version; give an empty directory".to_owned())
            }
            Ok(marker) if marker.scale != scale => refuse(format!(
                "it holds TPC-H at scale {}, not {scale}; give another directory",
                marker.scale
            )),
            Ok(_) => Ok(true),
            Err(e) => refuse(format!("{MARKER} cannot be read: {e}")),
        },
        Err(_) if dir.join(INCOMPLETE).exists() => Ok(false),
        Err(_) => match std::fs::read_dir(dir).map(Iterator::count) {
            Ok(1..) => refuse(
                "it is not empty, and holds no TPC-H tables of Roundel's; give an empty directory"
                    .to_owned(),
            ),
            Ok(0) => Ok(false),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => refuse(e.to_string()),
        },
    }
}

type Done = mpsc::UnboundedSender<(Table, u64)>;

/// One file to write.
struct Job {
    table: Table,
    path: PathBuf,
    chunks: Vec<usize>,
}

fn write_all(dir: &Path, scale: f64, done: &Done) -> Result<()> {
    let io =
        |path: &Path, e: std::io::Error| EngineError::io(format!("write {}", path.display()), e);
    std::fs::create_dir_all(dir).map_err(|e| io(dir, e))?;
    let incomplete = dir.join(INCOMPLETE);
    std::fs::write(&incomplete, "").map_err(|e| io(&incomplete, e))?;

    let mut jobs = Vec::new();
    for table in Table::ALL {
        let table_dir = dir.join(table.name());
        // Files that an earlier generation left when it was cut short.
        match std::fs::remove_dir_all(&table_dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(&table_dir, e)),
            _ => {}
        }
        std::fs::create_dir(&table_dir).map_err(|e| io(&table_dir, e))?;
        let chunks: Vec<usize> = (0..table.chunks(scale)).collect();
        let files = (table.rows(scale).div_ceil(FILE_ROWS) as usize)
            .max(FILES_MIN)
            .min(chunks.len());
        for (index, chunks) in chunks.chunks(chunks.len().div_ceil(files)).enumerate() {
            jobs.push(Job {
                table,
                path: table_dir.join(format!("part-{index:03}.parquet")),
                chunks: chunks.to_vec(),
            });
        }
    }

    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            write_file(job, scale, done)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..available_threads())
            .map(|_| scope.spawn(work))
            .collect();
        let mut result = work();
        for other in others {
            let joined = other
                .join()
                .unwrap_or_else(|_| Err(EngineError::io("generate the tables", "a panic")));
            result = result.and(joined);
        }
        result
    })?;

    let marker = Marker {
        layout: LAYOUT,
        scale,
    };
    let text = serde_json::to_vec_pretty(&marker)
        .map_err(|e| EngineError::io(format!("write {MARKER}"), e))?;
    // The rename is what makes the directory complete.
    std::fs::write(&incomplete, text).map_err(|e| io(&incomplete, e))?;
    std::fs::rename(&incomplete, dir.join(MARKER)).map_err(|e| io(&incomplete, e))
}

fn write_file(job: &Job, scale: f64, done: &Done) -> Result<()> {
    let failed =
        |e: &dyn std::fmt::Display| EngineError::io(format!("write {}", job.path.display()), e);
    let file = File::create(&job.path).map_err(|e| failed(&e))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS_MAX))
        .build();
    let mut writer =
        ArrowWriter::try_new(file, job.table.schema(), Some(properties)).map_err(|e| failed(&e))?;
    // A few chunks at a time: a file's rows need not fit in memory.
    for chunks in job.chunks.chunks(8) {
        for batch in generate(job.table, scale, chunks, 1, &|_| true)? {
            writer.write(&batch).map_err(|e| failed(&e))?;
            // No one listens when the caller was cancelled: stop.
            if done.send((job.table, batch.num_rows() as u64)).is_err() {
                return Err(failed(&"it was cancelled"));
            }
        }
    }
    writer.close().map_err(|e| failed(&e))?;
    Ok(())
}
