//! Where a check finds programs and puts results, and how it runs commands and installs what a machine lacks.
//!
//! This must not know of any check.

use std::path::{Path, PathBuf};

use xshell::{Cmd, Shell, cmd};

use crate::Result;

/// Where things are.
pub struct Places {
    pub shell: Shell,
    /// Cargo's target directory.
    target: PathBuf,
    /// Results of checks.
    out: PathBuf,
    pub roundel: PathBuf,
    pub lab: PathBuf,
}

impl Places {
    pub fn find() -> Result<Self> {
        let shell = Shell::new()?;
        // Not when it was compiled: clones can share a target directory.
        let own = std::env::var("CARGO_MANIFEST_DIR").map_err(|_| "start this as cargo xtask")?;
        let root = Path::new(&own).join("../..").canonicalize()?;
        shell.change_dir(&root);
        shell.set_var("CARGO_INCREMENTAL", "0");
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
        let out = std::env::var_os("CI_OUT").map_or(root.join("target/ci"), PathBuf::from);
        shell.create_dir(&out)?;
        let release = target.join("release");
        Ok(Self {
            roundel: release.join("roundel"),
            lab: release.join("roundel-lab"),
            shell,
            target,
            out,
        })
    }

    /// The same, with both programs built.
    pub fn with_programs() -> Result<Self> {
        let places = Self::find()?;
        places.cargo(&["build", "--release"])?;
        Ok(places)
    }

    /// Runs cargo with what `Cargo.lock` says.
    pub fn cargo(&self, arguments: &[&str]) -> Result {
        let (command, rest) = arguments.split_first().expect("a command of cargo");
        run(cmd!(self.shell, "cargo {command} --locked {rest...}"))
    }

    /// A target directory for what is built in another way, beside the first.
    pub fn beside(&self, name: &str) -> PathBuf {
        let mut path = self.target.clone().into_os_string();
        path.push(format!("-{name}"));
        path.into()
    }

    /// A Python that has these packages.
    pub fn python(&self, packages: &[&str]) -> Result<PathBuf> {
        let venv = self.out.join("venv");
        let python = venv.join("bin/python");
        if !python.exists() {
            let made = cmd!(self.shell, "python3 -m venv {venv}").quiet().run();
            if made.is_err() {
                self.install(&["python3-venv"])?;
                run(cmd!(self.shell, "python3 -m venv {venv}"))?;
            }
        }
        run(cmd!(
            self.shell,
            "{python} -m pip install -q --disable-pip-version-check {packages...}"
        ))?;
        Ok(python)
    }

    /// Installs packages of Debian.
    pub fn install(&self, packages: &[&str]) -> Result {
        let shell = &self.shell;
        run(cmd!(shell, "apt-get update -q"))?;
        run(cmd!(
            shell,
            "apt-get install -qy --no-install-recommends {packages...}"
        ))
    }

    /// Whether a program can be started.
    pub fn has(&self, program: &str) -> bool {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).any(|path| path.join(program).is_file())
    }

    /// TPC-H's tables as Parquet files.
    pub fn tables(&self) -> Result<PathBuf> {
        let (roundel, tables) = (&self.roundel, self.out.join("tpch-0.1"));
        run(cmd!(
            self.shell,
            "{roundel} tpch --scale 0.1 --queries 6 --tables {tables}"
        ))?;
        Ok(tables)
    }

    /// A file of results.
    pub fn result(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }
}

/// Runs a command without standard input.
pub fn run(command: Cmd<'_>) -> Result {
    Ok(command.stdin("").run()?)
}
