//! Runs a check in a process group of its own for a limited time. Of one that does not end, it tells where it hangs.
//!
//! The group ends with this process, however that ends: the check holds a pipe whose other end is here.
//!
//! This must not know what the check does.

use std::io::{Read as _, stdin};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_current_process_group, kill_process_group};

use crate::Result;

/// Set for a check whose standard input is the pipe.
const LIFELINE: &str = "XTASK_LIFELINE";

/// Between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(200);

/// Processes whose threads are looked at.
const SHOWN_MAX: usize = 8;

/// Runs a check by its name, and ends all its processes after so long.
pub fn run(name: &str, longest: Duration) -> Result {
    let program = std::env::current_exe()?;
    let mut check = Command::new(program)
        .arg(name)
        .env(LIFELINE, "stdin")
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let ends = Instant::now() + longest;
    loop {
        // Waiting without this would close the pipe.
        if let Some(status) = check.try_wait()? {
            // What it left behind ends with it.
            end(&check);
            return match status.success() {
                true => Ok(()),
                false => Err(format!("check {name} failed; by itself: cargo xtask {name}").into()),
            };
        }
        if Instant::now() >= ends {
            tell_where_it_hangs(check.id());
            end(&check);
            check.wait()?;
            return Err(format!("check {name} did not end in {} s", longest.as_secs()).into());
        }
        sleep(LOOK);
    }
}

/// In a check: ends its processes when the process that [runs](run) it has ended.
pub fn end_with_parent() {
    if std::env::var_os(LIFELINE).is_none() {
        return;
    }
    std::thread::spawn(|| {
        // Nothing is written: this returns when the other end is closed.
        let _ = stdin().read(&mut [0]);
        let _ = kill_current_process_group(Signal::KILL);
    });
}

fn end(check: &Child) {
    let group = i32::try_from(check.id()).ok().and_then(Pid::from_raw);
    // It fails when none of them is there any more, which is what is wanted.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
}

/// What the processes of a group wait for, as far as programs are there that can tell.
fn tell_where_it_hangs(group: u32) {
    let group = group.to_string();
    let Some(processes) = output("pgrep", &["-g", &group]) else {
        return;
    };
    let ids: Vec<&str> = processes.lines().collect();
    let columns = "pid,ppid,etime,time,stat,wchan:24,args";
    eprint!(
        "{}",
        output("ps", &["-o", columns, "-p", &ids.join(",")]).unwrap_or_default()
    );
    for id in ids.iter().take(SHOWN_MAX) {
        let threads = output(
            "gdb",
            &["-p", id, "-batch", "-ex", "thread apply all backtrace 25"],
        );
        let threads = threads.unwrap_or_default();
        let frames = threads
            .lines()
            .filter(|line| line.starts_with('#') || line.starts_with("Thread"));
        frames.for_each(|line| eprintln!("{line}"));
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
