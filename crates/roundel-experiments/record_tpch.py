#!/usr/bin/env python3
"""Records what queries of TPC-H exchange and compute, for their replay on simulated hardware.

use: record_tpch.py ROUNDEL [SCALE]      writes recorded.json where the crate reads it

Bytes are those that go over MESQ/SR, by the scale factor, between 2 and between 4 workers: of rows that are dealt to n
workers one n-th stays where it is, and rows that are broadcast go to n - 1. Processor time is that of one worker with one
thread, which exchanges nothing: of several runs the shortest, as what else the machine does adds to it.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parent / "src/recorded/recorded.json"


def run(roundel, scale, workers, iterations):
    """What `roundel tpch` says of all queries, by their numbers."""
    command = [roundel, "tpch", "--scale", str(scale), "--workers", str(workers), "--threads", "1"]
    command += ["--design", "MESQ/SR", "--fabric", "shm", "--iterations", str(iterations), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}: {done.stderr.strip()}")
    queries = json.loads(done.stdout)["queries"]
    wrong = [one["query"] for one in queries if not one["verified"]]
    if wrong:
        sys.exit(f"error: wrong rows of queries {wrong}")
    return {one["query"]: one for one in queries}


def record(query, alone, two, four, scale):
    two, four = (run[query]["exchanged_bytes"] / scale for run in (two, four))
    dealt = max(0.0, (3 * two - four) * 4 / 3)
    broadcast = two - dealt / 2
    if broadcast < 0:
        # Rows that only some of them have, or get: as if all were dealt, between what both say.
        dealt, broadcast = (2 * two + four * 4 / 3) / 2, 0.0
    return {
        "query": query,
        "repartitioned_bytes": round(dealt),
        "broadcast_bytes": round(broadcast),
        "cpu_seconds": round(min(alone[query]["runs_seconds"]) / scale, 4),
    }


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    roundel, scale = sys.argv[1], float(sys.argv[2]) if len(sys.argv) == 3 else 1.0
    # The first run may also measure the host, over the exchange.
    alone = run(roundel, scale, 1, 5)
    two, four = (run(roundel, scale, workers, 1) for workers in (2, 4))
    recorded = {
        "recorded": datetime.date.today().isoformat(),
        "host": f"{os.cpu_count()} cores, {platform.machine()}",
        "scale": scale,
        "queries": [record(query, alone, two, four, scale) for query in sorted(alone)],
    }
    OUT.write_text(json.dumps(recorded, indent=2) + "\n")
    print(OUT.read_text(), end="")


if __name__ == "__main__":
    main()
