#!/usr/bin/env python3
"""Makes the exchange wrong in one place at a time, and sees whether the simulation finds out.

use: mutants.py [NAME ...]      all of them, or those named

Each mutant is built in a copy of the sources, and must break one of the first 1000 seeds; the sources as they are
must not.

Some mistakes make no difference, and are not here: a smaller credit in the place of a larger one, as credit is absolute
and the next one mends it; a credit that is written just before its receive is posted, as it travels longer than that
takes; and a repetition that an endpoint takes for new, as who puts batches together knows it too.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A copy of the sources and its build, beside cargo's own directory, and kept as that is.
WORK = Path(f"{Path(os.environ.get('CARGO_TARGET_DIR') or ROOT / 'target').resolve()}-mutants")
SEEDS = "0..1000"
EXCHANGE = "crates/roundel-exchange/src/endpoint"
LINK = "crates/roundel-exchange/src/link"
WRITE = "crates/roundel-exchange/src/designs/write_rc.rs"


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    # What is replaced, each found once, and by what.
    edits: list[tuple[str, str]]


MUTANTS = [
    Mutant(
        "one message more is sent than there is credit for",
        f"{LINK}/credit.rs",
        [
            (
                "        let left = self.granted.wrapping_sub(self.spent);",
                "        let left = self.granted.wrapping_sub(self.spent).wrapping_add(1);",
            )
        ],
    ),
    Mutant(
        "counts are not compared at the end",
        f"{EXCHANGE}/receive/link.rs",
        [("Some(end) => end != self.arrived,", "Some(_) => false,")],
    ),
    Mutant(
        "an end counts whatever has arrived",
        f"{EXCHANGE}/receive/arrivals.rs",
        [("        if link.arrived == end {", "        if link.arrived.count <= end.count {")],
    ),
    Mutant(
        "a buffer is given back twice",
        WRITE,
        [
            (
                """        } else if let Ok(buffer) = buffer.expose() {
            self.put(buffer, slot);
""",
                """        } else if let Ok(buffer) = buffer.expose() {
            self.put(buffer, slot);
            self.untold.push_back(slot);
""",
            )
        ],
    ),
    Mutant(
        "the seal is written first",
        WRITE,
        [
            (
                "        if let (Notification::MessageQueue, Some(valid))",
                """        if notification == Notification::Buffers {
            let words = [length as u64, crate::link::queue::checksum(0, &[length as u64, 0, 0])];
            let seal = words.map(u64::to_le_bytes).concat();
            requests.insert(0, SendRequest {
                id: ids[1],
                operation: SendOperation::Write(self.at.offset(self.bytes - seal.len())),
                payload: roundel_verbs::work::InlineBytes::new(&seal).map_or(Payload::Empty, Payload::Inline),
                destination: None,
            });
        }
        if let (Notification::MessageQueue, Some(valid))""",
            )
        ],
    ),
    Mutant(
        "a message is announced before it is written",
        WRITE,
        [
            (
                "            requests.push(valid.put(ids[1], entry));",
                "            requests.insert(0, valid.put(ids[1], entry));",
            )
        ],
    ),
    Mutant(
        "a multiplexer makes room too late",
        "crates/roundel-exchange/src/multiplexer/connection.rs",
        [
            (
                "held.saturating_sub(self.options.receives / 2)",
                "held.saturating_sub(3 * self.options.receives / 4)",
            )
        ],
    ),
    Mutant(
        "a slot is said to be free while an older one is not",
        "crates/roundel-exchange/src/multiplexer/slots.rs",
        [("        (self.freed - before) as u32", "        u32::from(before <= self.freed)")],
    ),
    Mutant(
        "a message is said to be read while it is",
        "crates/roundel-exchange/src/multiplexer/reads.rs",
        [("        Read { count: self.read }", "        Read { count: self.read + self.reading.min(1) as u64 }")],
    ),
    Mutant(
        "rows for all partitions miss one",
        "crates/roundel-exchange/src/operator/scatter.rs",
        [
            (
                "for_all: &for_all,",
                "for_all: &for_all[..for_all.len() * usize::from(turn > 0)],",
            )
        ],
    ),
    Mutant(
        "heavy keys are decided on twice",
        "crates/roundel-exchange/src/skew/agreement.rs",
        [("if !self.told.insert(task) || self.decision.is_some() {", "if !self.told.insert(task) {")],
    ),
]


def copy_sources(to: Path) -> None:
    """What git knows, as it is in the work tree; unchanged files keep their times, so that cargo does too."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = listed.decode().split("\0")
    for old in to.rglob("*"):
        if old.is_file() and str(old.relative_to(to)) not in names:
            old.unlink()
    for name in names:
        source, target = ROOT / name, to / name
        if not name or not source.is_file():
            continue
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def broken_seeds(copy: Path) -> list[str]:
    """The seeds that the simulation of a copy finds broken."""
    # One of its own: cargo takes crates at the same place of another workspace for the same, mutant or not.
    environment = os.environ | {
        "CARGO_TARGET_DIR": str(WORK),
        "SEEDS": SEEDS,
        "RUST_BACKTRACE": "0",
    }
    command = ["cargo", "test", "--locked", "--release", "-p", "roundel-simtest", "--test", "seeds"]
    built = subprocess.run([*command, "--no-run"], cwd=copy, env=environment, capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(f"error: it does not build: {built.stderr.strip()[-2000:]}")
    run = [*command, "--", "no_seed_is_broken"]
    done = subprocess.run(run, cwd=copy, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode == 0:
        return []
    found = re.search(r"seeds: \[([\d, ]+)\]", done.stdout + done.stderr)
    if not found:
        sys.exit(f"error: the simulation ended strangely: {done.stdout[-2000:]}")
    return found[1].split(", ")


def main() -> None:
    wanted = sys.argv[1:]
    chosen = [mutant for mutant in MUTANTS if not wanted or mutant.name in wanted]
    if not chosen:
        sys.exit("error: no such mutant; there are: " + "; ".join(mutant.name for mutant in MUTANTS))
    copy = WORK / "sources"
    copy_sources(copy)
    survived = []
    if broken := broken_seeds(copy):
        sys.exit(f"error: seeds are broken without any mutant: {', '.join(broken)}")
    for mutant in chosen:
        file = copy / mutant.file
        before = after = file.read_text()
        for old, new in mutant.edits:
            if before.count(old) != 1:
                sys.exit(f"error: '{mutant.name}' has no place in {mutant.file} any more")
            after = after.replace(old, new)
        started = time.monotonic()
        file.write_text(after)
        try:
            broken = broken_seeds(copy)
        finally:
            file.write_text(before)
        took = time.monotonic() - started
        said = f"first by seed {broken[0]}, of {len(broken)}" if broken else "NOT FOUND"
        print(f"{mutant.name}: {said} ({took:.0f} s)", flush=True)
        if not broken:
            survived.append(mutant.name)
    if survived:
        sys.exit(f"error: not found within seeds {SEEDS}: " + "; ".join(survived))


if __name__ == "__main__":
    main()
