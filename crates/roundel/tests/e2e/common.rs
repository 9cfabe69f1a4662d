//! Runs the real binary and watches what it leaves behind.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Longest that anything here may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(120);

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

/// The binary with a temporary directory of its own, so that what it leaves there can be told.
pub struct Roundel {
    temp: tempfile::TempDir,
    shm_before: BTreeSet<PathBuf>,
}

impl Roundel {
    /// What workers that were started by hand said on standard error.
    pub fn worker_log(&self) -> PathBuf {
        self.temp().join("workers.log")
    }

    pub fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        Self {
            temp,
            shm_before: shared_memory(),
        }
    }

    /// A command that has not been started.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roundel"));
        command
            .args(arguments)
            .env("TMPDIR", self.temp.path())
            .env("HOME", self.temp.path());
        command
            .env_remove("RUST_LOG")
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        finish(child)
    }

    /// Starts a command, its output piped.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Asserts that the commands left no file behind, neither in the temporary directory nor in
    /// shared memory.
    pub fn assert_nothing_left(&self) {
        let left = || -> Vec<PathBuf> {
            let temp = fs::read_dir(self.temp.path())
                .unwrap()
                .map(|entry| entry.unwrap().path());
            temp.chain(shared_memory().difference(&self.shm_before).cloned())
                .filter(|path| path.to_string_lossy().contains("roundel"))
                .collect()
        };
        assert!(
            eventually(Duration::from_secs(5), || left().is_empty()),
            "left: {:?}",
            left()
        );
    }

    /// The temporary directory.
    pub fn temp(&self) -> &Path {
        self.temp.path()
    }
}

/// Runs a command that must fail with one line that contains `told`.
pub fn fails(roundel: &Roundel, arguments: &[&str], code: i32, told: &str) {
    let output = roundel.run(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(
        said.starts_with("error: ") && said.contains(told),
        "{arguments:?}: {said}"
    );
    assert!(output.stdout.is_empty(), "{arguments:?}");
    roundel.assert_nothing_left();
}

fn shared_memory() -> BTreeSet<PathBuf> {
    fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// Waits for a child's end and reads all it says.
pub fn finish(mut child: Child) -> Output {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                pipe.read_to_end(&mut bytes).unwrap();
            }
            bytes
        })
    };
    let out = read(out.map(|pipe| Box::new(pipe) as _));
    let err = read(err.map(|pipe| Box::new(pipe) as _));
    let status = wait(&mut child);
    Output {
        status,
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    }
}

/// Waits for a child's end, but not for ever.
pub fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether something becomes true in time.
pub fn eventually(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < within {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    condition()
}

pub fn signal(pid: u32, signal: Signal) {
    kill_process(pid_of(pid), signal).unwrap();
}

/// Whether a process is there and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .trim_start()
        .chars()
        .next();
    test_kill_process(pid_of(pid)).is_ok() && state.is_some_and(|state| state != 'Z')
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// The processes that a coordinator has started, once there are as many.
pub fn workers_of(coordinator: u32, count: usize) -> Vec<u32> {
    let mut workers = Vec::new();
    let found = eventually(PATIENCE, || {
        // Children belong to the thread that started them, which may be any.
        let threads = fs::read_dir(format!("/proc/{coordinator}/task"))
            .into_iter()
            .flatten();
        let files = threads
            .flatten()
            .map(|thread| thread.path().join("children"));
        let text: Vec<String> = files
            .filter_map(|file| fs::read_to_string(file).ok())
            .collect();
        workers = text
            .join(" ")
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect();
        workers.len() >= count || !is_alive(coordinator)
    });
    assert!(
        found && workers.len() == count,
        "expected {count} workers, found {workers:?}"
    );
    workers
}

/// Waits until a process has used some processor time, that is, works on the query.
pub fn until_busy(pid: u32) {
    let ticks = || -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default().to_owned();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        fields
            .get(11)
            .and_then(|ticks| ticks.parse().ok())
            .unwrap_or(0)
    };
    let before = ticks();
    assert!(
        eventually(PATIENCE, || ticks() > before + 50),
        "process {pid} does not work"
    );
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
    pub fn start(roundel: &Roundel, count: usize, fabric: &'static str) -> Self {
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
    pub fn sql(&self, roundel: &Roundel, tables: &[String], statements: &[String]) -> Child {
        self.sql_with(roundel, &[], tables, statements)
    }

    /// The same with more flags.
    pub fn sql_with(
        &self,
        roundel: &Roundel,
        flags: &[&str],
        tables: &[String],
        statements: &[String],
    ) -> Child {
        let addresses = self.addresses();
        let mut arguments = vec!["sql", "--fabric", self.fabric, "--cluster", &addresses];
        arguments.extend(flags);
        arguments.extend(["--token-file", self.token_file(), "--format", "csv"]);
        for table in tables {
            arguments.extend(["--table", table]);
        }
        for statement in statements {
            arguments.extend(["-c", statement]);
        }
        roundel.spawn(&arguments)
    }

    pub fn token_file(&self) -> &str {
        self.token_file.to_str().unwrap()
    }
}

impl HandWorker {
    pub fn start(roundel: &Roundel, token_file: &Path, listen: &str, fabric: &str) -> Self {
        let log = roundel.worker_log();
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
