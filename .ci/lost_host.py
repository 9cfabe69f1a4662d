#!/usr/bin/env python3
"""Kills one of two virtual machines in the middle of a query: the other says which worker was lost, and when.

Usage: .ci/lost_host.py ROUNDEL [SECONDS_MAX]

Fails when that takes longer than SECONDS_MAX (5, plus 3 for the emulation's pauses).
"""

import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
WORKER = ("printf %064d 7 >/run/token; chmod 600 /run/token; "
          "{program} worker --listen {address}:7070 --token-file /run/token >/dev/null & ")
FIRST = WORKER + ("sleep 3; {program} tpch --cluster 10.9.1.1:7070,10.9.1.2:7070 --token-file /run/token "
                  "--scale 0.02 --no-verify --iterations 100 2>&1; echo ended $?")
SECOND = WORKER + "while sleep 0.1; do echo alive; done"
KILL_AFTER = 60


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    allowed = float(sys.argv[2]) if len(sys.argv) > 2 else 8
    machines = subprocess.Popen(
        [HERE.parent / "vm/run", "pair", "--memory", "3072", "--timeout", "200", "--share", str(program.parent),
         "--kill-second-after", str(KILL_AFTER),
         "--first", FIRST.format(program=program, address="10.9.1.1"),
         "--second", SECOND.format(program=program, address="10.9.1.2")],
        stdout=subprocess.PIPE, text=True, bufsize=1)
    alive = told = None
    queries = 0
    lines = []
    for line in machines.stdout:
        now = time.monotonic()
        lines.append(line)
        if line.startswith("b| alive"):
            alive = now
        elif re.match(r"a\| +\d+ +[\d.]+ +\d+", line):
            queries += 1
        elif line.startswith("a| error: ") and told is None:
            told = (now, line[3:].strip())
    machines.wait()
    if alive is None or told is None:
        sys.exit("error: nothing was lost, or nothing said: " + "".join(lines[-20:]))
    seconds, message = told[0] - alive, told[1]
    print(f"{message!r} {seconds:.1f} s after the host was gone, {queries} queries before")
    if "10.9.1.2" not in message:
        sys.exit("error: the message does not name the lost worker")
    if seconds > allowed:
        sys.exit(f"error: more than {allowed} s")


if __name__ == "__main__":
    main()
