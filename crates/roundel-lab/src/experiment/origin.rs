//! Where results are from, for their report: the machine, and the command.

use std::fs;
use std::path::Path;

use chrono::Utc;
use roundel_experiments::outcome::{Machine, Run};

/// This machine, and what carries messages.
pub fn machine(fabric: &str) -> Machine {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = |name: &str| file(&format!("/proc/sys/kernel/{name}")).trim().to_owned();
    let field = |path: &str, key: &str| {
        let text = file(path);
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = field("/proc/meminfo", "MemTotal");
    let kilobytes = memory.and_then(|memory| memory.strip_suffix(" kB")?.parse::<u64>().ok());
    Machine {
        host: kernel("hostname"),
        cpu: field("/proc/cpuinfo", "model name").unwrap_or(std::env::consts::ARCH.to_owned()),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: kilobytes.unwrap_or_default() * 1024,
        kernel: format!("{} {}", kernel("ostype"), kernel("osrelease")),
        fabric: fabric.to_owned(),
        roundel: env!("CARGO_PKG_VERSION").to_owned(),
        date: Utc::now().format("%Y-%m-%d %H:%M UTC").to_string(),
    }
}

/// This command, as a shell takes it, and what this program is made of.
pub fn run() -> Run {
    let words = std::env::args_os();
    let mut words: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // Where the program lies is of no use elsewhere.
    if let Some(program) = words.first_mut() {
        let name = Path::new(program.as_str()).file_name();
        *program = name.unwrap_or_default().to_string_lossy().into_owned();
    }
    Run {
        command: command_line(&words),
        commit: env!("ROUNDEL_COMMIT").to_owned(),
        compiler: env!("ROUNDEL_COMPILER").to_owned(),
    }
}

/// Words of a command, with those in quotes that a shell would split or expand.
fn command_line(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    let words = words
        .iter()
        .map(|word| match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_says_something() {
        let machine = machine("shm");
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        let texts = [machine.host, machine.cpu, machine.kernel, machine.date];
        assert!(texts.iter().all(|text| !text.is_empty()), "{texts:?}");
        let run = run();
        assert!(run.compiler.starts_with("rustc "), "{run:?}");
        assert!(!run.command.is_empty() && !run.commit.is_empty(), "{run:?}");
    }

    #[test]
    fn a_shell_takes_the_command_apart_as_it_was() {
        let words = [
            "roundel-lab",
            "experiment",
            "run",
            "--plot",
            "it's here",
            "",
        ];
        assert_eq!(
            command_line(&words.map(str::to_owned)),
            r"roundel-lab experiment run --plot 'it'\''s here' ''"
        );
    }
}
