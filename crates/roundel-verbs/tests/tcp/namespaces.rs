//! Two network namespaces with a virtual cable between them, and processes in them.

use super::stream::Work;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What a process on a host is to do, and its address.
pub const WORK: &str = "ROUNDEL_TCP_WORK";
pub const ADDRESS: &str = "ROUNDEL_TCP_ADDRESS";

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two hosts and what joins them; gone when dropped.
pub struct Cable {
    names: [String; 2],
}

impl Cable {
    /// Lays a cable between two new hosts, or says what is missing for it.
    pub fn lay() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let names = ["a", "b"].map(|end| format!("rt{}-{}{end}", id.0, id.1));
        let cable = Self { names };
        let [a, b] = &cable.names;
        for name in &cable.names {
            ip(&["netns", "add", name])?;
        }
        ip(&[
            "link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b,
        ])?;
        for end in 0..2 {
            let address = format!("{}/24", cable.address(end));
            cable.on(end, &["addr", "add", &address, "dev", "cable"])?;
            cable.on(end, &["link", "set", "cable", "up"])?;
            cable.on(end, &["link", "set", "lo", "up"])?;
        }
        Ok(cable)
    }

    fn address(&self, end: usize) -> String {
        format!("10.91.7.{}", end + 1)
    }

    fn on(&self, end: usize, command: &[&str]) -> Result<(), String> {
        ip(&[&["-n", &self.names[end]], command].concat())
    }

    /// Nothing comes through any more.
    pub fn cut(&self) {
        self.on(0, &["link", "set", "cable", "down"]).unwrap();
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|error| format!("`ip` cannot be started ({error})"))?;
    if done.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    Err(format!("`ip {}`: {}", arguments.join(" "), text.trim()))
}

/// A process on a host.
pub struct Host {
    child: Child,
    stdin: ChildStdin,
    card: String,
    noticed: Receiver<Instant>,
}

impl Host {
    /// Starts it; it waits until it is introduced.
    pub fn start(cable: &Cable, end: usize, work: Work) -> Self {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &cable.names[end]])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "started_on_a_host", "--nocapture"])
            .env(WORK, work.name())
            .env(ADDRESS, cable.address(end))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let card = line_with(&mut lines, '@').expect("a host introduces itself");
        let (notice, noticed) = channel();
        std::thread::spawn(move || {
            if line_with(&mut lines, '!').is_some() {
                let _ = notice.send(Instant::now());
            }
            // The harness has a last word, which somebody must read.
            lines.for_each(drop);
        });
        Self {
            child,
            stdin,
            card,
            noticed,
        }
    }

    /// Tells each of the other.
    pub fn introduce(hosts: &mut [Self; 2]) {
        let cards = [hosts[1].card.clone(), hosts[0].card.clone()];
        for (host, card) in hosts.iter_mut().zip(cards) {
            writeln!(host.stdin, "{card}").unwrap();
        }
    }

    /// How long after a moment it found its connection broken.
    pub fn noticed_after(self, moment: Instant) -> Duration {
        let noticed = self.noticed.recv_timeout(PATIENCE);
        noticed.map_or(PATIENCE, |noticed| noticed.duration_since(moment))
    }

    pub fn has_noticed(&mut self) -> bool {
        self.noticed.try_recv().is_ok()
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line with this mark in front of it. The test harness may have written into its line.
fn line_with(lines: &mut Lines<BufReader<ChildStdout>>, mark: char) -> Option<String> {
    lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once(mark).map(|(_, rest)| rest.to_owned()))
}
