//! The machine of a run, for its report.

use std::fs;

use chrono::Utc;
use roundel_experiments::outcome::Machine;

/// This machine, and what carries messages.
pub fn this(fabric: &str) -> Machine {
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

#[cfg(test)]
mod tests {
    use super::this;

    #[test]
    fn every_field_says_something() {
        let machine = this("shm");
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        let texts = [machine.host, machine.cpu, machine.kernel, machine.date];
        assert!(texts.iter().all(|text| !text.is_empty()), "{texts:?}");
    }
}
