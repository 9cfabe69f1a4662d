#!/usr/bin/env python3
"""roundel perf beside perftest, on two Soft-RoCE devices of one virtual machine, in one run.

Usage: .ci/perftest.py ROUNDEL [ROUNDS] [JSON]

Alternates both ROUNDS times (7), prints the medians and their ratios, and writes every figure to JSON.
"""

import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# What is compared: perftest's command, roundel's verb and measure, message bytes, messages, and which
# figure counts.
CASES = [
    ("ib_send_bw", "send", "bandwidth", 65536, 300, "mib_per_second"),
    ("ib_write_bw", "write", "bandwidth", 65536, 300, "mib_per_second"),
    ("ib_read_bw", "read", "bandwidth", 65536, 300, "mib_per_second"),
    ("ib_send_bw", "send", "bandwidth", 8, 5000, "million_messages_per_second"),
    ("ib_send_lat", "send", "latency", 8, 1000, "median_microseconds"),
]
# One line per figure: who, case, and what perftest printed last, or roundel's JSON.
GUEST = """
set -e
gid() {{ i=0; for g in /sys/class/infiniband/$1/ports/1/gids/*; do
    case $(cat $g) in *ffff:0a09:*) i=${{g##*/}} ;; esac; done; echo $i; }}
g0=$(gid rxe0); g1=$(gid rxe1)
round=0
while [ $round -lt {rounds} ]; do
    round=$((round + 1))
{cases}
done
"""
CASE = """
    {peer} -d rxe1 -x $g1 -F -s {size} -n {count} {extra} >/dev/null 2>&1 & server=$!
    sleep 0.5
    echo "perftest {index} $({peer} -d rxe0 -x $g0 -F -s {size} -n {count} {extra} 10.9.0.2 2>/dev/null | grep '^ *{size} ' | tail -1)"
    wait $server
    {roundel} perf --listen 127.0.0.1:7070 --fabric rdma:rxe1 >/dev/null & server=$!
    echo "roundel {index} $({roundel} perf --connect 127.0.0.1:7070 --fabric rdma:rxe0 --verb {verb} --measure {measure} --size {size} --iterations {count} {ours} --json - 2>/dev/null | tr -d '\\n')"
    wait $server
"""


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    cases = "".join(
        CASE.format(index=index, peer=peer, size=size, count=count, verb=verb, measure=measure, roundel=program,
                    extra="-I 0" if measure == "latency" else "", ours="")
        for index, (peer, verb, measure, size, count, _) in enumerate(CASES))
    script = GUEST.format(rounds=rounds, cases=cases)
    machine = subprocess.run(
        [HERE.parent / "vm/run", "exec", "--memory", "2048", "--timeout", str(60 + 60 * rounds),
         "--share", str(program.parent), "--", "sh", "-c", script],
        stdout=subprocess.PIPE, text=True)
    figures = {}
    for line in machine.stdout.splitlines():
        who, _, rest = line.partition(" ")
        index, _, told = rest.partition(" ")
        if who in ("perftest", "roundel") and told.strip():
            figures.setdefault((int(index), who), []).append(figure(CASES[int(index)], who, told))
    if machine.returncode or len(figures) < 2 * len(CASES):
        sys.exit(f"error: the machine ended with {machine.returncode}: {machine.stdout[-2000:]}")
    report = []
    for index, (peer, verb, measure, size, count, unit) in enumerate(CASES):
        theirs, ours = figures[index, "perftest"], figures[index, "roundel"]
        ratio = statistics.median(ours) / statistics.median(theirs)
        report.append({"peer": peer, "verb": verb, "bytes": size, "unit": unit, "perftest": theirs, "roundel": ours,
                       "ratio": ratio})
        print(f"{peer:12} {size:6} bytes  {unit:28} perftest {statistics.median(theirs):9.3f}  "
              f"roundel {statistics.median(ours):9.3f}  ratio {ratio:.3f}  ({len(ours)} rounds)")
    if len(sys.argv) > 3:
        pathlib.Path(sys.argv[3]).write_text(json.dumps(report, indent=2) + "\n")


def figure(case, who, told):
    unit = case[-1]
    if who == "perftest":
        columns = told.split()
        # Bandwidth: bytes, iterations, peak, average, message rate. Latency: bytes, iterations, minimum,
        # maximum, typical, ...
        at = {"mib_per_second": 3, "million_messages_per_second": 4, "median_microseconds": 4}[unit]
        return float(columns[at])
    run = json.loads(told)["measurements"][0]["median"]
    return {
        "mib_per_second": run["bytes_per_second"] / 2**20,
        "million_messages_per_second": run["messages_per_second"] / 1e6,
        "median_microseconds": (run["latency_microseconds"] or {}).get("p50"),
    }[unit]


if __name__ == "__main__":
    main()
