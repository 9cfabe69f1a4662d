//! Runs cases in clusters, and collects what went wrong.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use roundel_engine::{Cluster, ClusterOptions, Session};
use tokio::time::timeout;

use crate::answer::{Answer, Outcome, Wrong, check};
use crate::case::{Case, Input, Step};
use crate::common;
use crate::data::{Prepared, prepare, single_process};
use crate::report::report;
use crate::selection::{ClusterKind, Format, SIZES, Variant};

/// A statement that takes longer hangs.
const STATEMENT_MAX: Duration = Duration::from_secs(30);
/// The same for files of millions of rows, which two clusters may sort at a time.
const LARGE_STATEMENT_MAX: Duration = Duration::from_secs(120);
/// Rows from which a file is such.
const LARGE_ROWS: usize = 1_000_000;
/// Clusters at a time: while one waits, another works.
const CLUSTERS: usize = 2;

/// Cases after which a cluster tells how far it is: all combinations take long.
const TOLD_AFTER: usize = 50;

/// What went wrong, and where.
pub struct Failure {
    pub case: String,
    /// Of the cluster and the variant.
    pub place: String,
    pub wrong: Wrong,
}

/// A case with its files, and what single-process DataFusion answers to each of its steps.
struct Ready {
    case: &'static Case,
    files: Prepared,
    reference: Vec<Outcome>,
}

/// Whether a step of a case, by its name and number, was distributed at least once.
type Spread = HashMap<(&'static str, usize), bool>;

/// Cases by index, format and size.
type ReadyCases = HashMap<(usize, Format, usize), Ready>;

/// Runs the cases in all clusters.
pub async fn run_all(
    cases: &[&'static Case],
    selected: &[(ClusterKind, Vec<Variant>)],
) -> Vec<Failure> {
    let base = tempfile::tempdir().expect("a directory");
    let mut ready = ReadyCases::new();
    for (_, variants) in selected {
        for (index, case) in cases.iter().enumerate() {
            for variant in of_case(case, variants) {
                let key = (index, variant.format, variant.size);
                if let std::collections::hash_map::Entry::Vacant(entry) = ready.entry(key) {
                    entry.insert(make_ready(base.path(), key, case).await);
                }
            }
        }
    }
    eprintln!("{} answers of one process are known", ready.len());
    let (all, ready): (Arc<[_]>, _) = (cases.into(), Arc::new(ready));
    let runs = selected.iter().cloned().map(|(kind, variants)| {
        let (all, ready, base) = (all.clone(), ready.clone(), base.path().to_owned());
        let run = async move { run_in_cluster(&base, &all, &ready, kind, &variants).await };
        // A task of its own: answers are compared on all cores.
        async { tokio::spawn(run).await.expect("no panic") }
    });
    let runs: Vec<(Vec<Failure>, Spread)> = futures::stream::iter(runs)
        .buffer_unordered(CLUSTERS)
        .collect()
        .await;
    let mut spread = Spread::new();
    let mut failures = Vec::new();
    for (failed, spread_here) in runs {
        failures.extend(failed);
        for (key, is_spread) in spread_here {
            *spread.entry(key).or_default() |= is_spread;
        }
    }
    let never = spread.into_iter().filter(|(_, is_spread)| !is_spread);
    failures.extend(never.map(|((name, step), _)| {
        let case = cases.iter().find(|case| case.name == name);
        let sql = case.map_or("", |case| sql_of(&case.steps[step]));
        Failure {
            case: format!("{name}: {sql}"),
            place: "3 workers".to_owned(),
            wrong: Wrong {
                seen: "plans of one task alone, which test nothing".to_owned(),
                expected: "it is distributed".to_owned(),
            },
        }
    }));
    failures
}

fn sql_of(step: &Step) -> &'static str {
    match step {
        Step::Run(sql) | Step::Try(sql, _) | Step::Ask(sql, _) | Step::AskAlone(sql, _) => sql,
        Step::Register(..) | Step::Do(_) => "",
    }
}

/// The variants that differ for a case.
fn of_case(case: &Case, variants: &[Variant]) -> Vec<Variant> {
    let has = |is: fn(&Input) -> bool| case.inputs.iter().any(is);
    let sized = has(|input| matches!(input, Input::T));
    let formatted =
        sized || has(|input| matches!(input, Input::Table { parquet_only, .. } if !parquet_only));
    let mut different = Vec::new();
    for variant in variants {
        let mut variant = *variant;
        if !sized {
            variant.size = 0;
        }
        if !formatted {
            variant.format = Format::Parquet;
        }
        if !case.joins {
            (variant.join, variant.skew) = ("auto", "auto");
        }
        if !different.contains(&variant) {
            different.push(variant);
        }
    }
    different
}

async fn make_ready(base: &Path, key: (usize, Format, usize), case: &'static Case) -> Ready {
    let (index, format, size) = key;
    let files = prepare(base, index, case, format, size).await;
    let fill = filler(&files, &new_directory(base));
    let context = single_process();
    let limit = statement_max(size);
    let answer = async |sql: &str| -> Outcome {
        let answered = async {
            let frame = context.sql(sql).await.map_err(|e| e.to_string())?;
            let types = frame.schema().fields().iter();
            let types = types.map(|f| f.data_type().to_string()).collect();
            let batches = frame.collect().await.map_err(|e| e.to_string())?;
            Ok(Answer::of(types, &batches))
        };
        let hangs = |_| Ok(Err("hangs".to_owned()));
        let panics = |_| Err("panics".to_owned());
        let answered = AssertUnwindSafe(answered).catch_unwind();
        let answered = timeout(limit, answered).await.unwrap_or_else(hangs);
        answered.unwrap_or_else(panics)
    };
    for create in &files.creates {
        // Of Roundel's own settings it does not know.
        if !create.starts_with("SET ") {
            answer(create).await.expect(create);
        }
    }
    let mut reference = Vec::new();
    for step in case.steps {
        reference.push(match step {
            Step::Run(sql) | Step::Try(sql, _) | Step::Ask(sql, _) | Step::AskAlone(sql, _) => {
                answer(&fill(sql)).await
            }
            Step::Register(..) => Err("not registered".to_owned()),
            Step::Do(act) => {
                act(Path::new(&fill("{out}")));
                Err("no statement".to_owned())
            }
        });
    }
    Ready {
        case,
        files,
        reference,
    }
}

fn new_directory(base: &Path) -> PathBuf {
    tempfile::tempdir_in(base).expect("a directory").keep()
}

/// Puts in what stands for names and numbers in statements and answers.
fn filler(files: &Prepared, out: &Path) -> impl Fn(&str) -> String + use<> {
    let dir = files.dir.display().to_string();
    let out = out.display().to_string();
    let rows = files.t_rows.to_string();
    let rows_but_400 = (files.t_rows - 400).to_string();
    let list: Vec<_> = (5..=60_000).map(|n| n.to_string()).collect();
    let list = list.join(", ");
    move |text| {
        text.replace("{dir}", &dir)
            .replace("{out}", &out)
            .replace("{n}", &rows)
            .replace("{n-400}", &rows_but_400)
            .replace("{list}", if text.contains("{list}") { &list } else { "" })
    }
}

async fn run_in_cluster(
    base: &Path,
    cases: &[&'static Case],
    ready: &ReadyCases,
    kind: ClusterKind,
    variants: &[Variant],
) -> (Vec<Failure>, Spread) {
    let start = || async {
        let options = ClusterOptions {
            threads: kind.threads,
            fabric: kind.fabric(),
            ..common::options(kind.workers)
        };
        Cluster::start(options).await.expect("starts")
    };
    let mut cluster = start().await;
    let mut failures = Vec::new();
    let mut spread = Spread::new();
    let ClusterKind {
        workers,
        threads,
        fabric,
    } = kind;
    let place = format!("{workers} workers of {threads} threads over {fabric}");
    for (index, case) in cases.iter().enumerate() {
        if index > 0 && index % TOLD_AFTER == 0 {
            eprintln!("{place}: {index} of {} cases", cases.len());
        }
        for variant in of_case(case, variants) {
            let ready = &ready[&(index, variant.format, variant.size)];
            let mut run = CaseRun {
                ready,
                kind,
                variant,
                failures: &mut failures,
                spread: &mut spread,
            };
            run.run(&cluster, &new_directory(base)).await;
            if cluster.workers().iter().any(|worker| !worker.alive) {
                run.fail("", "a worker died".to_owned(), "no worker dies");
                cluster = start().await;
            }
        }
    }
    cluster.stop().await.expect("stops");
    eprintln!("{place}: {} failures", failures.len());
    (failures, spread)
}

/// A case in a session of a cluster.
struct CaseRun<'a> {
    ready: &'a Ready,
    kind: ClusterKind,
    variant: Variant,
    failures: &'a mut Vec<Failure>,
    spread: &'a mut Spread,
}

impl CaseRun<'_> {
    async fn run(&mut self, cluster: &Cluster, out: &Path) {
        let session = cluster.session().expect("a session");
        let mut settings = Vec::new();
        if self.ready.case.joins {
            settings.push(format!("SET roundel.join = '{}'", self.variant.join));
            settings.push(format!("SET roundel.skew = '{}'", self.variant.skew));
        }
        for sql in settings.iter().chain(&self.ready.files.creates) {
            if let Err(error) = self.answer(&session, sql).await {
                return self.fail(sql, error, "it succeeds");
            }
        }
        let fill = filler(&self.ready.files, out);
        let ready = self.ready;
        let steps = ready.case.steps.iter().zip(&ready.reference);
        for (number, (step, reference)) in steps.enumerate() {
            match step {
                Step::Run(sql) => {
                    let sql = fill(sql);
                    if let Err(error) = self.answer(&session, &sql).await {
                        return self.fail(&sql, error, "it succeeds");
                    }
                }
                Step::Try(sql, errors) => {
                    let sql = fill(sql);
                    let Err(error) = self.answer(&session, &sql).await else {
                        continue;
                    };
                    if !errors.iter().any(|part| error.contains(part)) {
                        self.fail(&sql, error, "it succeeds, or is refused with a reason");
                    }
                    return;
                }
                Step::Register(name, path) => {
                    let path = fill(path);
                    if let Err(error) = session.register_file(name, &path).await {
                        return self.fail(&path, error.to_string(), "it is registered");
                    }
                }
                Step::Do(act) => act(out),
                Step::Ask(sql, expected) | Step::AskAlone(sql, expected) => {
                    let sql = fill(sql);
                    let seen = self.answer(&session, &sql).await;
                    if let Err(wrong) = check(&seen, expected, reference, &fill) {
                        self.push(&sql, wrong);
                    }
                    if matches!(step, Step::Ask(..)) && seen.is_ok() {
                        self.check_plan(&session, &sql, number).await;
                    }
                }
            }
        }
    }

    /// Notes whether a statement about tables that are spread is distributed.
    async fn check_plan(&mut self, session: &Session, sql: &str, step: usize) {
        let reads = sql.starts_with("SELECT") || sql.starts_with("WITH");
        if !self.ready.case.spread || !reads || self.kind.workers != 3 {
            return;
        }
        match self.answer(session, &format!("EXPLAIN {sql}")).await {
            Ok(plan) => {
                let spread = plan.rows.iter().any(|row| row.contains("Network"));
                let key = (self.ready.case.name, step);
                *self.spread.entry(key).or_default() |= spread;
            }
            Err(error) => self.fail(sql, error, "it is explained"),
        }
    }

    async fn answer(&self, session: &Session, sql: &str) -> Outcome {
        answer_within(session, sql, statement_max(self.variant.size)).await
    }

    fn fail(&mut self, sql: &str, seen: String, expected: &str) {
        let expected = expected.to_owned();
        self.push(sql, Wrong { seen, expected });
    }

    fn push(&mut self, sql: &str, wrong: Wrong) {
        let (kind, variant) = (self.kind, self.variant);
        let mut place = format!("{}x{} {}", kind.workers, kind.threads, kind.fabric);
        if self
            .ready
            .case
            .inputs
            .iter()
            .any(|input| matches!(input, Input::T))
        {
            place += &format!(" {} {:?}", SIZES[variant.size].0, variant.format);
        } else {
            place += &format!(" {:?}", variant.format);
        }
        if self.ready.case.joins {
            place += &format!(" {} skew {}", variant.join, variant.skew);
        }
        let sql: String = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let failure = Failure {
            case: format!("{}: {}", self.ready.case.name, cut(&sql, 300)),
            place,
            wrong: Wrong {
                seen: cut(&wrong.seen, 300),
                expected: cut(&wrong.expected, 200),
            },
        };
        // All combinations take long: a run that is stopped has told what it found.
        eprintln!("{}", report(std::slice::from_ref(&failure)));
        self.failures.push(failure);
    }
}

fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Runs a statement over small tables to its end.
pub async fn answer(session: &Session, sql: &str) -> Outcome {
    answer_within(session, sql, STATEMENT_MAX).await
}

/// Runs a statement to its end, or to the limit.
async fn answer_within(session: &Session, sql: &str, limit: Duration) -> Outcome {
    let answered = async {
        let rows = session.sql(sql).await.map_err(|e| e.to_string())?;
        let schema = rows.schema();
        let types = schema.fields().iter();
        let types = types.map(|f| f.data_type().to_string()).collect();
        let collected: Result<Vec<_>, _> = rows.try_collect().await;
        let batches = collected.map_err(|e| roundel_engine::EngineError::from(e).to_string())?;
        Ok(Answer::of(types, &batches))
    };
    let hangs = |_| Err(format!("hangs: no end in {limit:?}"));
    timeout(limit, answered).await.unwrap_or_else(hangs)
}

/// How long a statement over a file of this size may take.
fn statement_max(size: usize) -> Duration {
    match SIZES[size].1 {
        rows if rows >= LARGE_ROWS => LARGE_STATEMENT_MAX,
        _ => STATEMENT_MAX,
    }
}
