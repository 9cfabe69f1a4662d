//! The program, and clusters that are started by hand.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

pub use roundel_testbed::program::{
    Program, eventually, fails, finish, is_alive, signal, stderr, stdout, until_busy, wait,
    workers_of,
};

/// `roundel`, with a temporary directory of its own.
pub fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_roundel"))
}

/// What workers that were started by hand said on standard error.
pub fn worker_log(roundel: &Program) -> PathBuf {
    roundel.temp().join("workers.log")
}

/// What carries the rows in the tests that do not look at one transport alone.
pub const TRANSPORTS: [&[&str]; 8] = [
    &["--design", "MESQ/SR"],
    &["--design", "SESQ/SR"],
    &["--design", "MEMQ/SR"],
    &["--design", "SEMQ/SR"],
    &["--design", "MEMQ/RD"],
    &["--design", "SEMQ/WR"],
    &["--fabric", "tcp"],
    &["--fabric", "grpc"],
];

/// The arguments of a `roundel sql` with these flags and tables, as `NAME=PATH`, that runs statements one after the other.
pub fn sql_arguments<'a>(
    flags: &'a str,
    tables: &'a [impl AsRef<str>],
    statements: &'a [impl AsRef<str>],
) -> Vec<&'a str> {
    let mut arguments: Vec<&str> = ["sql"].into_iter().chain(flags.split(' ')).collect();
    arguments.extend(tables.iter().flat_map(|table| ["--table", table.as_ref()]));
    arguments.extend(statements.iter().flat_map(|sql| ["-c", sql.as_ref()]));
    arguments
}

/// Writes a table as one CSV file, and gives it as `NAME=PATH`. Rows end with their lines.
pub fn csv(
    roundel: &Program,
    name: &str,
    header: &str,
    rows: impl Iterator<Item = String>,
) -> String {
    let path = roundel.temp().join(format!("{name}.csv"));
    let rows: String = rows.collect();
    fs::write(&path, format!("{header}\n{rows}")).unwrap();
    format!("{name}={}", path.display())
}

/// The same as a directory of several files.
pub fn csv_files(
    roundel: &Program,
    name: &str,
    header: &str,
    files: impl Iterator<Item = String>,
) -> String {
    let directory = roundel.temp().join(name);
    fs::create_dir(&directory).unwrap();
    for (file, rows) in files.enumerate() {
        let path = directory.join(format!("{file}.csv"));
        fs::write(path, format!("{header}\n{rows}")).unwrap();
    }
    format!("{name}={}", directory.display())
}

/// A cluster started by hand, of workers that end with it.
pub struct HandCluster {
    pub workers: Vec<HandWorker>,
    pub token_file: PathBuf,
    pub fabric: &'static str,
}

pub struct HandWorker {
    pub child: Child,
    pub address: String,
}

impl HandCluster {
    pub fn start(roundel: &Program, count: usize, fabric: &'static str) -> Self {
        let token_file = roundel.temp().join("token");
        write_token(&token_file, 'a');
        let workers = (0..count)
            .map(|_| HandWorker::start(roundel, &token_file, "127.0.0.1:0", fabric))
            .collect();
        Self {
            workers,
            token_file,
            fabric,
        }
    }

    /// The addresses as `--cluster` takes them.
    pub fn addresses(&self) -> String {
        let addresses: Vec<&str> = self.workers.iter().map(|w| w.address.as_str()).collect();
        addresses.join(",")
    }

    /// A `roundel sql` on it, with these tables as `NAME=PATH`, that runs statements one after the other.
    pub fn sql(&self, roundel: &Program, tables: &[String], statements: &[String]) -> Child {
        self.sql_with(roundel, &[], tables, statements)
    }

    /// The same with more flags.
    pub fn sql_with(
        &self,
        roundel: &Program,
        flags: &[&str],
        tables: &[String],
        statements: &[String],
    ) -> Child {
        let (fabric, addresses) = (self.fabric, self.addresses());
        let own = format!("--fabric {fabric} --cluster {addresses} --format csv");
        let mut arguments = sql_arguments(&own, tables, statements);
        arguments.extend(flags);
        arguments.extend(["--token-file", self.token_file()]);
        roundel.spawn(&arguments)
    }

    pub fn token_file(&self) -> &str {
        self.token_file.to_str().unwrap()
    }
}

impl HandWorker {
    pub fn start(roundel: &Program, token_file: &Path, listen: &str, fabric: &str) -> Self {
        let log = worker_log(roundel);
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(log)
            .unwrap();
        let token_file = token_file.to_str().unwrap();
        let arguments = [
            "worker",
            "--listen",
            listen,
            "--token-file",
            token_file,
            "--fabric",
            fabric,
        ];
        let mut child = roundel
            .command(arguments)
            .env("RUST_LOG", "info")
            .stdout(Stdio::piped())
            .stderr(log.try_clone().unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("roundel worker listening on ");
        let address = address
            .unwrap_or_else(|| panic!("the worker said {line:?}"))
            .to_owned();
        Self { child, address }
    }
}

impl Drop for HandWorker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A token file of one repeated digit, readable by its owner only.
pub fn write_token(path: &Path, digit: char) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    writeln!(file, "{}", digit.to_string().repeat(64)).unwrap();
}
