//! Runs a program in tests, and watches what it says, how it ends and what it leaves behind.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Longest that anything here may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A program with a temporary directory of its own, so that what it leaves there can be told.
pub struct Program {
    executable: &'static str,
    temp: tempfile::TempDir,
    shm_before: BTreeSet<PathBuf>,
}

impl Program {
    /// That of a test has its name from cargo, as `CARGO_BIN_EXE_…`.
    pub fn new(executable: &'static str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        Self {
            executable,
            temp,
            shm_before: shared_memory(),
        }
    }

    /// A command that has not been started.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(self.executable);
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
        finish(self.spawn(arguments))
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
pub fn fails(program: &Program, arguments: &[&str], code: i32, told: &str) {
    let output = program.run(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(
        said.starts_with("error: ") && said.contains(told),
        "{arguments:?}: {said}"
    );
    assert!(output.stdout.is_empty(), "{arguments:?}");
    program.assert_nothing_left();
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

/// What it said on standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it said on standard error.
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

/// Sends a signal to a process.
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

/// The processes that a program has started, once there are as many.
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
