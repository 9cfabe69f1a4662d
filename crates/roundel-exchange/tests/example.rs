//! The example `three_processes`, run as a program.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// It takes a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn three_processes_receive_all_rows() {
    // `cargo test` builds examples too, beside the directory of this binary; `--test` alone does
    // not.
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    program.extend(["examples", "three_processes"]);
    let mut child = Command::new(&program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            let program = program.display();
            panic!("{program}: {error}; build it with: cargo build --release --examples")
        });
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);

    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    // 100 times the keys 0 to 9,999 by their remainder, from three nodes.
    assert_eq!(
        lines,
        [
            "node 0 received 1000200 of 3000000 rows",
            "node 1 received 999900 of 3000000 rows",
            "node 2 received 999900 of 3000000 rows",
        ]
    );
}
