#!/usr/bin/env python3
"""roundel-lab perf beside perftest, on two Soft-RoCE devices of one virtual machine, in one run.

Usage: .ci/perftest.py LAB [ROUNDS] [JSON] [PLOT]

Alternates both ROUNDS times (7), prints the medians and their ratios, writes every figure to JSON, and draws
them to PLOT, for which it needs matplotlib.
"""

import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MIB, RATE, LATENCY = "MiB/s", "Mmsg/s", "median us"
# What is compared: perftest's command, roundel's arguments, message bytes, messages, and which figure
# counts. Small messages as both do by default, then both with one call for a message, and for 16.
CASES = [
    ("ib_send_bw", "--verb send --measure bandwidth", 65536, 300, MIB),
    ("ib_write_bw", "--verb write --measure bandwidth", 65536, 300, MIB),
    ("ib_read_bw", "--verb read --measure bandwidth", 65536, 300, MIB),
    ("ib_send_bw", "--verb send --measure bandwidth", 8, 5000, RATE),
    ("ib_send_bw", "--verb send --measure bandwidth --batch 1", 8, 5000, RATE),
    ("ib_send_bw -l 16", "--verb send --measure bandwidth --batch 16", 8, 5120, RATE),
    ("ib_send_lat -I 0", "--verb send --measure latency --inline 0", 8, 2000, LATENCY),
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
    {peer} -d rxe1 -x $g1 -F -s {size} -n {count} >/dev/null 2>&1 & server=$!
    sleep 0.5
    echo "perftest {index} $({peer} -d rxe0 -x $g0 -F -s {size} -n {count} 10.9.0.2 2>/dev/null | grep '^ *{size} ' | tail -1)"
    wait $server
    {roundel} perf --listen 127.0.0.1:7070 --fabric rdma:rxe1 >/dev/null & server=$!
    echo "roundel {index} $({roundel} perf --connect 127.0.0.1:7070 --fabric rdma:rxe0 {ours} --size {size} --iterations {count} --json - 2>/dev/null | tr -d '\\n')"
    wait $server
"""


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    cases = "".join(
        CASE.format(index=index, peer=peer, ours=ours, size=size, count=count, roundel=program)
        for index, (peer, ours, size, count, _) in enumerate(CASES))
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
    for index, (peer, arguments, size, count, unit) in enumerate(CASES):
        theirs, ours = figures[index, "perftest"], figures[index, "roundel"]
        ratio = statistics.median(ours) / statistics.median(theirs)
        report.append({"perftest": f"{peer} -s {size}", "roundel": f"perf {arguments} --size {size}", "unit": unit,
                       "figures": {"perftest": theirs, "roundel": ours}, "ratio": ratio})
        print(f"{peer:16} {size:6} bytes  {unit:9}  perftest {statistics.median(theirs):8.4f}  "
              f"roundel {statistics.median(ours):8.4f}  ratio {ratio:.3f}  ({len(ours)} rounds)")
    if len(sys.argv) > 3:
        pathlib.Path(sys.argv[3]).write_text(json.dumps(report, indent=2) + "\n")
    if len(sys.argv) > 4:
        draw(report, sys.argv[4])


def draw(report, file):
    """Every figure as a share of perftest's median; the longer strokes are the medians."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    plot, axes = pyplot.subplots(figsize=(10, 1.2 + 0.6 * len(report)))
    for row, case in enumerate(report):
        whole = statistics.median(case["figures"]["perftest"])
        for who, shift, colour in [("perftest", -0.15, "tab:gray"), ("roundel", 0.15, "tab:red")]:
            shares = [figure / whole for figure in case["figures"][who]]
            axes.plot(shares, [row + shift] * len(shares), "o", color=colour, alpha=0.5, label=None if row else who)
            axes.plot([statistics.median(shares)], [row + shift], "|", color=colour, markersize=16, markeredgewidth=2)
    axes.set_yticks(range(len(report)), [f"{case['perftest']}, {case['unit']}\n{case['roundel']}" for case in report], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.axvline(1, color="lightgray", zorder=0)
    axes.set_xlabel("share of perftest's median (of the latency, less is better)")
    axes.legend()
    plot.tight_layout()
    plot.savefig(file)


def figure(case, who, told):
    unit = case[-1]
    if who == "perftest":
        # Bandwidth: bytes, iterations, peak, average, message rate. Latency: bytes, iterations, minimum,
        # maximum, typical, ...
        return float(told.split()[{MIB: 3, RATE: 4, LATENCY: 4}[unit]])
    run = json.loads(told)["measurements"][0]["median"]
    if unit == LATENCY:
        return run["latency_microseconds"]["p50"]
    return run["bytes_per_second"] / 2**20 if unit == MIB else run["messages_per_second"] / 1e6


if __name__ == "__main__":
    main()
