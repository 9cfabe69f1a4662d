//! `roundel-lab experiment setting`: one setting by itself, for scripts that compare.

use std::io::{self, Write as _};

use roundel_experiments::{NodeCommand, Setting, run};
use roundel_terminal::{Failure, Signals};
use roundel_verbs::one_line;

use super::node_command;
use crate::cli::HostsArgs;

/// Runs the command.
pub async fn run(setting: Setting, runs: u16, hosts: &HostsArgs) -> Result<(), Failure> {
    let mut signals = Signals::watch()?;
    let node = NodeCommand {
        hosts: super::hosts(hosts, &setting.fabric)?,
        ..node_command()?
    };
    let running = tokio::task::spawn_blocking(move || {
        for _ in 0..runs {
            let measured = run::run(&setting, &node);
            let measured = measured.map_err(|e| Failure::Run(one_line(&e.to_string())))?;
            let line = serde_json::to_string(&measured);
            let line = line.map_err(|e| Failure::Run(format!("cannot write JSON: {e}")))?;
            writeln!(io::stdout(), "{line}").map_err(Failure::output)?;
            eprintln!(
                "{}: {:.2} GB/s per node, {:.2} s, {:.2} CPU s",
                setting.transport.name(),
                measured.bytes_per_second / 1e9,
                measured.seconds,
                measured.cpu_seconds
            );
        }
        Ok(())
    });
    let work = async {
        let ran = running.await;
        ran.unwrap_or_else(|error| Err(Failure::Run(format!("internal error: {error}"))))
    };
    signals.or_signal(work).await
}
