#!/usr/bin/env python3
"""Makes the exchange wrong in one place at a time, and sees whether the simulation finds out.

use: mutants.py [NAME ...]      all of them, or those named

All mutants are built at once, in a copy of the sources: each is asleep until the variable MUTANT has its number. Awake, it
must break one of the first 1000 seeds. That these are right without mutants is what the check `simulate` shows.

Some mistakes make no difference, and are not here: a smaller credit in the place of a larger one, as credit is absolute
and the next one mends it; a credit that is written just before its receive is posted, as it travels longer than that
takes; and a repetition that an endpoint takes for new, as who puts batches together knows it too.
"""

import concurrent.futures
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
# Most are found by one of the first.
SEEDS = ["0..50", "50..300", "300..1000"]
CRATE = "crates/roundel-exchange/src"
WRITE = f"{CRATE}/designs/write_rc.rs"
READ = f"{CRATE}/designs/read_rc.rs"
# What asks whether a mutant is awake.
ASKS = """
pub(crate) fn mutant(number: usize) -> bool {
    static AWAKE: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *AWAKE.get_or_init(|| std::env::var("MUTANT").ok()?.parse().ok()) == Some(number)
}
"""


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    # What is replaced, each found once, and by what; AWAKE stands for whether the mutant is.
    edits: list[tuple[str, str]]


MUTANTS = [
    Mutant(
        "one message more is sent than there is credit for",
        f"{CRATE}/link/credit.rs",
        [
            (
                "        let left = self.granted.wrapping_sub(self.spent);",
                "        let left = self.granted.wrapping_sub(self.spent).wrapping_add(u32::from(AWAKE));",
            )
        ],
    ),
    Mutant(
        "counts are not compared at the end",
        f"{CRATE}/endpoint/receive/link.rs",
        [("Some(end) => end != self.arrived,", "Some(end) => !AWAKE && end != self.arrived,")],
    ),
    Mutant(
        "an end counts whatever has arrived",
        f"{CRATE}/endpoint/receive/arrivals.rs",
        [
            (
                "        if link.arrived == end {",
                "        if link.arrived == end || AWAKE && link.arrived.count <= end.count {",
            )
        ],
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
            if AWAKE {
                self.untold.push_back(slot);
            }
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
                """        if AWAKE && notification == Notification::Buffers {
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
                """            let first = if AWAKE { 0 } else { requests.len() };
            requests.insert(first, valid.put(ids[1], entry));""",
            )
        ],
    ),
    Mutant(
        "a multiplexer makes room too late",
        f"{CRATE}/multiplexer/connection.rs",
        [
            (
                "self.held.saturating_sub(self.options.receives / 2)",
                "self.held.saturating_sub((2 + usize::from(AWAKE)) * self.options.receives / 4)",
            )
        ],
    ),
    Mutant(
        "a free buffer is named twice",
        WRITE,
        [
            (
                "        self.untold.push_back(slot);",
                "        self.untold.extend([slot, slot].into_iter().take(1 + usize::from(AWAKE)));",
            )
        ],
    ),
    Mutant(
        "a message is said to be read while it is",
        READ,
        [
            (
                "        self.in_flight.push_back(number);",
                """        self.in_flight.push_back(number);
        self.untold.extend(AWAKE.then_some(number));""",
            ),
            (
                "        self.untold.extend(self.in_flight.pop_front());",
                "        self.untold.extend(self.in_flight.pop_front().filter(|_| !AWAKE));",
            ),
        ],
    ),
    Mutant(
        "rows for all partitions miss one",
        f"{CRATE}/operator/scatter.rs",
        [
            (
                "for_all: &for_all,",
                "for_all: &for_all[..for_all.len() * usize::from(!AWAKE || turn > 0)],",
            )
        ],
    ),
    Mutant(
        "heavy keys are decided on twice",
        f"{CRATE}/skew/agreement.rs",
        [
            (
                "if !self.told.insert(task) || self.decision.is_some() {",
                "if !self.told.insert(task) || !AWAKE && self.decision.is_some() {",
            )
        ],
    ),
]


def copy_sources(to: Path) -> None:
    """What git knows, as it is in the work tree, with the mutants; unchanged files keep their times, so that cargo does
    too."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]
    for old in to.rglob("*"):
        if old.is_file() and str(old.relative_to(to)) not in names:
            old.unlink()
    changed = with_mutants()
    for name in names:
        target, text = to / name, changed.get(name)
        now = text.encode() if text is not None else (ROOT / name).read_bytes()
        if not target.exists() or target.read_bytes() != now:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copyfile(ROOT / name, target)
            target.write_bytes(now)


def with_mutants() -> dict[str, str]:
    """The files that are changed. Where each change goes is looked for in the sources as they are."""
    edits = [(mutant.file, *edit, f"crate::mutant({n})", mutant.name)
             for n, mutant in enumerate(MUTANTS) for edit in mutant.edits]
    changed = {}
    for file in {edit[0] for edit in edits}:
        source = (ROOT / file).read_text()
        places = []
        for _, old, new, awake, name in (edit for edit in edits if edit[0] == file):
            if source.count(old) != 1:
                sys.exit(f"error: '{name}' has no place in {file} any more")
            places.append((source.index(old), old, new.replace("AWAKE", awake)))
        # From the end on, so that places stay where they are.
        text = source
        for at, old, new in sorted(places, reverse=True):
            text = text[:at] + new + text[at + len(old):]
        changed[file] = text
    library = f"{CRATE}/lib.rs"
    changed[library] = changed.get(library, (ROOT / library).read_text()) + ASKS
    return changed


def simulation(copy: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Runs the simulation of the copy."""
    # A target directory of its own: cargo takes crates at the same place of another workspace for the same.
    environment = os.environ | {"CARGO_TARGET_DIR": str(WORK), "RUST_BACKTRACE": "0"} | variables
    command = ["cargo", "test", "--locked", "--release", "-p", "roundel-simtest", "--test", "seeds", *arguments]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=1200)


def first_broken(copy: Path, number: int) -> str | None:
    """A seed that a mutant breaks, as far as one is found."""
    for seeds in SEEDS:
        done = simulation(copy, "--", "no_seed_is_broken", SEEDS=seeds, MUTANT=str(number))
        if done.returncode == 0:
            continue
        found = re.search(r"seeds: \[(\d+)", done.stdout + done.stderr)
        if not found:
            sys.exit(f"error: the simulation ended strangely: {done.stdout[-2000:]}")
        return found[1]
    return None


def main() -> None:
    wanted = sys.argv[1:]
    chosen = [n for n, mutant in enumerate(MUTANTS) if not wanted or mutant.name in wanted]
    if not chosen:
        sys.exit("error: no such mutant; there are: " + "; ".join(mutant.name for mutant in MUTANTS))
    copy = WORK / "sources"
    copy_sources(copy)
    built = simulation(copy, "--no-run")
    if built.returncode != 0:
        sys.exit(f"error: it does not build: {built.stderr.strip()[-2000:]}")
    survived = []
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for number, seed in zip(chosen, pool.map(lambda n: first_broken(copy, n), chosen)):
            said = f"found by seed {seed}" if seed else "NOT FOUND"
            print(f"{MUTANTS[number].name}: {said} ({time.monotonic() - started:.0f} s)", flush=True)
            if not seed:
                survived.append(MUTANTS[number].name)
    if survived:
        sys.exit(f"error: not found within seeds {SEEDS[0].split('.')[0]}..{SEEDS[-1].split('.')[-1]}: "
                 + "; ".join(survived))


if __name__ == "__main__":
    main()
