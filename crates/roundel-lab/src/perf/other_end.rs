//! The second process: `roundel-lab perf` starts it, and it ends with the first, however that ends.
//!
//! It gets the token of the rendezvous as the first line of its standard input, which then stays
//! open as its lifeline.

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use roundel_terminal::Failure;
use roundel_verbs::DeviceChoice;

/// What an end that listens says first on standard output.
pub const LISTENING: &str = "roundel-lab perf listening on ";

/// Longest wait for the process to listen.
const START_MAX: Duration = Duration::from_secs(30);
/// Longest wait for it to end by itself, and for what it says last.
const END_MAX: Duration = Duration::from_secs(3);
/// A process whose runtime does not notice its end within this time is ended regardless.
const GRACE: Duration = Duration::from_millis(500);
const TOKEN_BYTES: usize = 32;

/// The other end, in a process that this one started.
pub struct OtherEnd {
    child: Child,
    lifeline: ChildStdin,
    errors: JoinHandle<()>,
    /// The error that it ended with, if it said so.
    said: Arc<Mutex<Option<String>>>,
    /// Where it listens.
    pub address: SocketAddr,
    /// The token of the rendezvous.
    pub token: String,
}

impl OtherEnd {
    /// Starts it and waits until it listens.
    pub async fn start(fabric: &DeviceChoice) -> Result<Self, Failure> {
        let failed = |reason: String| Failure::Run(format!("cannot start the other end: {reason}"));
        let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let token = token().map_err(|e| failed(e.to_string()))?;
        let mut child = Command::new(program)
            .args(["perf", "--lifeline", "--listen=127.0.0.1:0"])
            .arg(format!("--fabric={fabric}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own group: Ctrl-C in the terminal is for this process to act on.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let mut lifeline = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let said = Arc::default();
        let errors = tokio::spawn(listen_to(stderr, Arc::clone(&said)));
        let greet = async {
            // If it is gone already, what it said says more.
            let _ = lifeline.write_all(format!("{token}\n").as_bytes()).await;
            let line = BufReader::new(stdout).lines().next_line().await;
            line.ok().flatten()
        };
        let greeting = tokio::time::timeout(START_MAX, greet)
            .await
            .map_err(|_| failed(format!("it did not listen within {START_MAX:?}")))?;
        let address = greeting
            .as_deref()
            .and_then(|line| line.strip_prefix(LISTENING)?.parse().ok());
        let Some(address) = address else {
            let _ = tokio::time::timeout(END_MAX, errors).await;
            let said: &Mutex<Option<String>> = &said;
            let said = said.lock().unwrap_or_else(PoisonError::into_inner).take();
            return Err(failed(said.unwrap_or_else(|| "it ended".to_owned())));
        };
        Ok(Self {
            child,
            lifeline,
            errors,
            said,
            address,
            token,
        })
    }

    /// Cuts the lifeline and waits until the process is gone. When the measurement failed, says
    /// what the process said itself, if that is more.
    pub async fn end(mut self, done: Result<(), Failure>) -> Result<(), Failure> {
        drop(self.lifeline);
        if tokio::time::timeout(END_MAX, self.child.wait())
            .await
            .is_err()
        {
            // Killed when it is dropped.
            return done;
        }
        let _ = tokio::time::timeout(END_MAX, self.errors).await;
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match (done, &*said) {
            (Err(Failure::Run(told)), Some(said)) => {
                Err(Failure::Run(format!("{told}; the other end said: {said}")))
            }
            (done, _) => done,
        }
    }
}

/// Keeps the error that a process ends with, and passes everything else on.
pub async fn listen_to(stderr: tokio::process::ChildStderr, said: Arc<Mutex<Option<String>>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.strip_prefix("error: ") {
            Some(error) => {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                *said = Some(error.to_owned());
            }
            None => eprintln!("{line}"),
        }
    }
}

/// A new token.
pub fn token() -> Result<String, getrandom::Error> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// In the process that was started: the token, and what fires when standard input ends. A thread
/// watches that, so that nothing can keep the process.
pub fn lifeline() -> Result<(String, oneshot::Receiver<()>), Failure> {
    let failed = |e: std::io::Error| Failure::Run(format!("cannot read standard input: {e}"));
    let mut token = String::new();
    std::io::stdin().read_line(&mut token).map_err(failed)?;
    let (cut, is_cut) = oneshot::channel();
    let watch = move || {
        let mut ignored = [0; 256];
        let mut stdin = std::io::stdin().lock();
        while !matches!(stdin.read(&mut ignored), Ok(0) | Err(_)) {}
        let _ = cut.send(());
        std::thread::sleep(GRACE);
        std::process::exit(0);
    };
    let thread = std::thread::Builder::new().name("lifeline".to_owned());
    thread.spawn(watch).map_err(failed)?;
    Ok((token.trim().to_owned(), is_cut))
}
