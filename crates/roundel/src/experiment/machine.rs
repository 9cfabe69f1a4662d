//! The machine of a run, for its report.

use std::path::Path;

use chrono::Utc;
use roundel_experiments::outcome::Machine;

use crate::doctor::host::{kilobytes_of, read, value_of};

/// This machine, and what carries messages.
pub fn this(fabric: &str) -> Machine {
    let file = |path: &str| read(Path::new(path)).unwrap_or_default();
    let kernel = |name: &str| file(&format!("/proc/sys/kernel/{name}"));
    Machine {
        host: kernel("hostname"),
        cpu: value_of(&file("/proc/cpuinfo"), "model name")
            .unwrap_or(std::env::consts::ARCH)
            .to_owned(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: kilobytes_of(&file("/proc/meminfo"), "MemTotal").unwrap_or_default(),
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
