#!/usr/bin/env python3
"""Records what queries of TPC-H exchange and compute, for their replay on simulated hardware.

use: record_tpch.py ROUNDEL [SCALE]      writes recorded.json beside the experiment

Bytes are those that workers send over MESQ/SR, by the scale factor. They are measured with 2 and with 4 workers: what
grows with them is broadcast. Processor time is that of one worker with one thread, which exchanges nothing.
"""

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

QUERIES = [3, 4, 10]
OUT = Path(__file__).resolve().parent / "src/experiments/tpch/recorded.json"


def run(roundel, query, scale, workers, iterations):
    """What `roundel tpch` says of a query."""
    command = [roundel, "tpch", "--queries", str(query), "--scale", str(scale), "--workers", str(workers)]
    command += ["--threads", "1", "--design", "MESQ/SR", "--fabric", "shm", "--iterations", str(iterations), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}: {done.stderr.strip()}")
    report = json.loads(done.stdout)
    if not all(one["verified"] for one in report["queries"]):
        sys.exit(f"error: query {query} gave wrong rows")
    return report


def sent_bytes(roundel, query, scale, workers):
    """For each unit of the scale factor."""
    return sum(run(roundel, query, scale, workers, 1)["fabric"]["bytes"].values()) / scale


def record(roundel, query, scale):
    two, four = (sent_bytes(roundel, query, scale, workers) for workers in (2, 4))
    broadcast = max(0.0, (four - two) / 2)
    alone = run(roundel, query, scale, 1, 5)["queries"][0]["seconds"]
    return {
        "query": query,
        "repartitioned_bytes": round(max(0.0, two - 2 * broadcast)),
        "broadcast_bytes": round(broadcast),
        "cpu_seconds": round(alone / scale, 4),
    }


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    roundel, scale = sys.argv[1], float(sys.argv[2]) if len(sys.argv) == 3 else 1.0
    recorded = {
        "recorded": datetime.date.today().isoformat(),
        "host": f"{os.cpu_count()} cores, {platform.machine()}",
        "scale": scale,
        "queries": [record(roundel, query, scale) for query in QUERIES],
    }
    OUT.write_text(json.dumps(recorded, indent=2) + "\n")
    print(OUT.read_text(), end="")


if __name__ == "__main__":
    main()
