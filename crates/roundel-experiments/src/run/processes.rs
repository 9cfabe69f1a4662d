//! Nodes as processes, of this host or of others: starts them, goes along with them, and adds up what they measured.

use crate::error::{Error, Result};
use crate::kept::sum_of;
use crate::meeting::attend;
use crate::node::{Job, TASK, Task};
use roundel_verbs::{SocketListener, SocketOptions, VerbsError};
use serde::de::DeserializeOwned;
use std::io::{Read, Seek};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};

/// Longest wait for nodes to end by themselves once the run is over.
const END_MAX: Duration = Duration::from_secs(5);
const TOKEN_BYTES: usize = 32;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeCommand {
    /// The program.
    pub program: PathBuf,
    /// What makes it call [`node_main`](crate::node_main).
    pub arguments: Vec<String>,
    /// Where nodes run, if not all on this host.
    pub hosts: Option<Hosts>,
}

/// Hosts that nodes run on, in turn. Each has the same program at the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Their names, at least one.
    pub names: Vec<String>,
    /// What starts a program on a host, such as `ssh`: its words, which the name of the host follows, and then the program with
    /// its arguments. The program ends when its standard input does.
    pub shell: Vec<String>,
    /// An address of this host at which all of them reach it.
    pub address: IpAddr,
}

impl NodeCommand {
    /// Of this host, where nodes meet.
    fn address(&self) -> IpAddr {
        let hosts = self.hosts.as_ref();
        hosts.map_or(Ipv4Addr::LOCALHOST.into(), |hosts| hosts.address)
    }

    /// What starts a node.
    fn of_node(&self, node: usize) -> Command {
        let mut command = match &self.hosts {
            Some(hosts) => {
                let mut words = hosts.shell.iter();
                let mut command = Command::new(words.next().map_or("", String::as_str));
                command.args(words);
                command.arg(&hosts.names[node % hosts.names.len()]);
                command.arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(&self.arguments);
        command
    }
}

/// A process of a run, which is killed when this is dropped.
struct Process {
    child: Child,
    /// Its standard input: it ends when this closes.
    lifeline: Option<ChildStdin>,
    /// What it says.
    errors: std::fs::File,
    /// The node that it is; `mpirun` is all of them.
    node: Option<usize>,
}

/// Has nodes do something once; what each measured.
///
/// # Errors
/// When a node failed, which it names.
pub(super) fn run<T: DeserializeOwned>(job: &Job, command: &NodeCommand) -> Result<Vec<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .map_err(Error::io("start a runtime"))?
        .block_on(run_async(job, command))
}

async fn run_async<T: DeserializeOwned>(job: &Job, command: &NodeCommand) -> Result<Vec<T>> {
    let token = token()?;
    let listener = SocketListener::bind((command.address(), 0).into()).await?;
    let program = match command.hosts {
        Some(_) => Some(sum_of(&command.program).map_err(Error::io("read the program of nodes"))?),
        None => None,
    };
    let task = |node| Task {
        job: job.clone(),
        node,
        meet: listener.address(),
        token: token.clone(),
        program: program.clone(),
    };
    let mut processes = Vec::new();
    if let Some(threads) = job.threads_of_mpi() {
        processes.push(Process::start_mpi(threads, command, &task(None))?);
    } else {
        for node in 0..job.nodes() {
            processes.push(Process::start(command, node, &task(Some(node))).await?);
        }
    }
    let options = SocketOptions {
        exchange_deadline: Duration::from_secs_f64(job.seconds() + 60.0),
        ..SocketOptions::new(token)
    };
    let measure = async {
        let mut rendezvous = listener.gather(job.nodes() + 1, &options).await?;
        attend(&mut rendezvous).await
    };
    // A node that never came is not waited for.
    let measured = tokio::select! {
        measured = measure => measured,
        failed = first_failure(&mut processes) => Err(failed),
    };
    let measured = match measured {
        Ok(nodes) => nodes,
        Err(error) => return Err(explain(error, &mut processes).await),
    };
    for process in &mut processes {
        let _ = tokio::time::timeout(END_MAX, process.child.wait()).await;
    }
    Ok(measured)
}

/// Ready when a process has failed.
async fn first_failure(processes: &mut [Process]) -> Error {
    let ends = processes.iter_mut().map(|process| {
        Box::pin(async {
            match process.child.wait().await {
                Ok(status) if status.success() => std::future::pending().await,
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            }
        })
    });
    let (reason, index, _) = futures::future::select_all(ends).await;
    match processes[index].node {
        Some(node) => Error::Node { node, reason },
        None => {
            // It ends with the first of its nodes, which the rendezvous can name.
            tokio::time::sleep(END_MAX).await;
            Error::Command {
                command: "mpirun".into(),
                reason: processes[index].said().unwrap_or(reason),
            }
        }
    }
}

/// What the node that failed first said itself, if it did. One that was killed comes before those that failed
/// without it.
async fn explain(error: Error, processes: &mut [Process]) -> Error {
    let (mut node, mut reason) = match error {
        Error::Node { node, reason } => (node, reason),
        Error::Verbs(VerbsError::PeerDied { peer, reason }) => match peer.parse::<usize>() {
            Ok(rank) if rank > 0 => (rank - 1, reason),
            _ => return Error::Verbs(VerbsError::PeerDied { peer, reason }),
        },
        other => return other,
    };
    for process in processes.iter_mut() {
        if let (Some(killed), Ok(Some(status))) = (process.node, process.child.try_wait())
            && status.signal().is_some()
        {
            (node, reason) = (killed, status.to_string());
        }
    }
    let of_node = |process: &&mut Process| process.node.is_none_or(|other| other == node);
    if let Some(process) = processes.iter_mut().find(of_node) {
        let _ = tokio::time::timeout(END_MAX, process.child.wait()).await;
        if let Some(said) = process.said() {
            reason = said;
        }
    }
    Error::Node { node, reason }
}

impl Process {
    /// A node, which is told its task on its standard input: what is in a command line or a variable, others on its host see.
    async fn start(command: &NodeCommand, node: usize, task: &Task) -> Result<Self> {
        let mut process = Self::spawn(command.of_node(node), task.node)?;
        let mut json = serde_json::to_vec(task).expect("plain data is JSON");
        json.push(b'\n');
        if let Some(lifeline) = &mut process.lifeline {
            // One that has ended already says itself why.
            let _ = lifeline.write_all(&json).await;
        }
        Ok(process)
    }

    /// All nodes, which `mpirun` starts.
    fn start_mpi(threads: usize, command: &NodeCommand, task: &Task) -> Result<Self> {
        let mut mpirun = Command::new("mpirun");
        mpirun.args([
            "-np",
            &task.job.nodes().to_string(),
            "--oversubscribe",
            "--bind-to",
            "none",
        ]);
        if rustix::process::geteuid().is_root() {
            mpirun.arg("--allow-run-as-root");
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = 2 * task.job.nodes() * threads;
        let yields = if threads > cores { "1" } else { "0" };
        mpirun.args(["--mca", "mpi_yield_when_idle", yields]);
        // Its standard input is that of one node.
        let json = serde_json::to_string(task).expect("plain data is JSON");
        mpirun.env(TASK, json).args(["-x", TASK]);
        mpirun.arg(&command.program).args(&command.arguments);
        Self::spawn(mpirun, None)
    }

    fn spawn(mut command: Command, node: Option<usize>) -> Result<Self> {
        let errors = tempfile::tempfile().map_err(Error::io("make a temporary file"))?;
        let to_file = errors
            .try_clone()
            .map_err(Error::io("make a temporary file"))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(to_file)
            // Its own group: Ctrl-C in the terminal is for this process to act on.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::Command {
                command: format!("{:?}", command.as_std().get_program()),
                reason: error.to_string(),
            })?;
        Ok(Self {
            // Else waiting for the process would close it.
            lifeline: child.stdin.take(),
            child,
            errors,
            node,
        })
    }

    /// The error that it ended with.
    fn said(&mut self) -> Option<String> {
        let mut text = String::new();
        self.errors.rewind().ok()?;
        self.errors.read_to_string(&mut text).ok()?;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some((_, error)) = line.split_once("error: ") {
                return Some(error.to_owned());
            }
            if line.contains("panicked at") {
                return Some(format!("{line} {}", lines.next().unwrap_or_default()));
            }
        }
        None
    }
}

fn token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::Io {
        action: "draw a secret",
        source: error.into(),
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
