//! Runs one file of the suite, in this process and through a cluster, and says what differs.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion_sqllogictest::{
    DFColumnType, TestContext, df_value_validator, setup_scratch_dir, value_normalizer,
};
use parking_lot::Mutex;
use roundel_engine::Cluster;
use serde::Serialize;
use sqllogictest::{
    AsyncDB, MakeConnection, Record, RecordOutput, Runner, parse_file, strict_column_validator,
};

use crate::db::{Db, Engine, Seen};
use crate::judge::{Kind, Outcome, is_plan, judge, sql_of};
use crate::lacking::Lacking;
use crate::setup;
use crate::shards::Shards;

/// Most characters of rows that a report has.
const SHOWN_MAX: usize = 1500;

/// Runs DataFusion alone in the cluster's place, over the same tables in files: what fails then, too, is no fault of the
/// cluster.
const FILES_IN_ONE: &str = "ROUNDEL_SLT_ONE";

/// A statement that passes in one process, and not here.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// `FILE:LINE`, or `FILE>INCLUDED:LINE`.
    pub place: String,
    pub kind: Kind,
    pub distributed: bool,
    pub sql: String,
    pub got: String,
    pub expected: String,
}

/// What became of a file's statements.
#[derive(Debug, Default)]
pub struct Tally {
    /// Statements that pass in one process, other than questions about plans.
    pub passed_in_one: usize,
    /// Of these, those that pass here.
    pub passed: usize,
    /// Of these, those in which other processes had a part.
    pub distributed: usize,
    /// Questions about plans that are answered in one process.
    pub plans: usize,
    /// Statements that fail in one process.
    pub failed_in_one: usize,
    /// Statements that fail here for want of a file, and cannot be judged.
    pub lacking: usize,
    pub failures: Vec<Failure>,
    /// Where the statements are that pass in one process and here.
    pub passes: BTreeSet<String>,
    /// How long it took in one process, and here.
    pub took: [Duration; 2],
}

impl Tally {
    /// Adds another file's.
    pub fn add(&mut self, other: Self) {
        self.passed_in_one += other.passed_in_one;
        self.passed += other.passed;
        self.distributed += other.distributed;
        self.plans += other.plans;
        self.failed_in_one += other.failed_in_one;
        self.lacking += other.lacking;
        self.failures.extend(other.failures);
        self.passes.extend(other.passes);
        for (sum, more) in self.took.iter_mut().zip(other.took) {
            *sum += more;
        }
    }

    /// Failures of these kinds.
    pub fn count(&self, kinds: &[Kind]) -> usize {
        let failures = self.failures.iter();
        failures.filter(|f| kinds.contains(&f.kind)).count()
    }
}

/// Runs a file; `None` where the suite itself leaves it out.
pub async fn run(file: &Path, cluster: &Cluster) -> Option<Tally> {
    let suite = setup::suite_context(file).await?;
    let records = parse_file(Path::new("test_files").join(file)).expect("the suite's own file");
    let (alone, alone_took) = alone(file, &records, &suite).await;
    drop(suite);
    // Its tables are as new.
    let suite = setup::suite_context(file).await?;
    let start = Instant::now();
    let mut adopted = None;
    let engine = match std::env::var_os(FILES_IN_ONE) {
        Some(_) => Engine::One(suite.session_ctx().clone()),
        None => {
            let session = cluster.session().expect("a session");
            let setting = setup::adopt(&session, suite.session_ctx(), file).await;
            adopted = setting.expect("the suite's tables and settings");
            Engine::Cluster(Arc::new(session))
        }
    };
    setup_scratch_dir(file).expect("a directory");
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut runner = runner(|| async {
        let shards = Shards::new(records.iter().filter_map(sql_of));
        let (engine, seen) = (engine.clone(), Arc::clone(&seen));
        Ok(Db::new(engine, Some(shards), file, seen))
    });
    let mut tally = Tally::default();
    let mut lacking = Lacking::default();
    for (record, alone) in records.iter().zip(&alone) {
        *seen.lock() = Seen::default();
        let outcome = runner.run_async(record.clone()).await;
        let (Some(sql), Some(passes)) = (sql_of(record), alone) else {
            continue;
        };
        if !passes {
            tally.failed_in_one += 1;
            continue;
        }
        let seen = *seen.lock();
        let wrong = judge(record, &outcome, seen);
        if wrong
            .as_ref()
            .is_some_and(|wrong| lacking.explains(sql, &wrong.got))
        {
            tally.lacking += 1;
            continue;
        }
        match is_plan(sql) {
            true => tally.plans += 1,
            false => {
                tally.passed_in_one += 1;
                tally.passed += usize::from(wrong.is_none());
                tally.distributed += usize::from(seen.distributed);
            }
        }
        let Some(wrong) = wrong else {
            lacking.passed(sql);
            tally.passes.insert(place(file, record));
            continue;
        };
        tally.failures.push(Failure {
            place: place(file, record),
            kind: wrong.kind,
            distributed: seen.distributed,
            sql: sql.to_owned(),
            got: shown(&wrong.got),
            expected: shown(&wrong.expected),
        });
    }
    drop(adopted);
    tally.took = [alone_took, start.elapsed()];
    Some(tally)
}

/// Whether each record passes in one process; `None` where it is skipped.
async fn alone(
    file: &Path,
    records: &[Record<DFColumnType>],
    suite: &TestContext,
) -> (Vec<Option<bool>>, Duration) {
    let start = Instant::now();
    setup_scratch_dir(file).expect("a directory");
    let mut runner = runner(|| async {
        let engine = Engine::One(suite.session_ctx().clone());
        Ok(Db::new(engine, None, file, Arc::default()))
    });
    let mut passes = Vec::with_capacity(records.len());
    for record in records {
        if let Record::Halt { .. } = record {
            break;
        }
        let outcome: Outcome = runner.run_async(record.clone()).await;
        passes.push(match outcome {
            Ok(RecordOutput::Nothing) => None,
            Ok(_) => Some(true),
            Err(_) => Some(false),
        });
    }
    (passes, start.elapsed())
}

fn runner<D, M>(connect: M) -> Runner<D, M>
where
    D: AsyncDB<ColumnType = DFColumnType>,
    M: MakeConnection<Conn = D>,
{
    let mut runner = Runner::new(connect);
    runner.add_label("Datafusion");
    runner.with_column_validator(strict_column_validator);
    runner.with_normalizer(value_normalizer);
    runner.with_validator(df_value_validator);
    runner
}

/// Where a record is.
fn place(file: &Path, record: &Record<DFColumnType>) -> String {
    let (Record::Statement { loc, .. } | Record::Query { loc, .. }) = record else {
        return file.display().to_string();
    };
    let (_, own) = loc.file().split_once("test_files/").unwrap_or_default();
    match Path::new(own) == file {
        true => format!("{own}:{}", loc.line()),
        false => format!("{}>{own}:{}", file.display(), loc.line()),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}
