//! Tells the program of which commit it is, and by which compiler: reports name both.

use std::process::Command;

/// Hexadecimal digits of a commit.
const DIGITS: usize = 12;

fn main() {
    let digits = format!("--abbrev={DIGITS}");
    let commit = ["describe", "--always", "--dirty", "--exclude=*", &digits];
    let compiler = std::env::var("RUSTC").unwrap_or("rustc".into());
    for (name, said) in [
        ("COMMIT", said("git", &commit)),
        ("COMPILER", said(&compiler, &["--version"])),
    ] {
        let said = said.unwrap_or("unknown".into());
        println!("cargo::rustc-env=ROUNDEL_{name}={said}");
    }
    // A commit changes the log of HEAD, and what is not committed changes files.
    println!("cargo::rerun-if-changed=..");
    if let Some(log) = said("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// What a command says; nothing where it fails, as git does outside of a repository.
fn said(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
