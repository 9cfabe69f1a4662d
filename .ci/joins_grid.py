"""Whether the way of each join that `roundel.join = auto` chooses is the fastest, on a grid of joins.

Usage: joins_grid.py ROUNDEL [--workers 2,3] [--threads N] [--json FILE]

Each join is timed in each way that it has, and in the way of its own choice: as the time that one more query of a session
takes, the median of several, all ways in turn. A choice holds when it takes at most 1.15 times as long as the fastest, or a
few milliseconds more, which is what one query differs from the next by. Exits with an error when less than 90 % hold.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import duckdb

ROWS = [1_000, 20_000, 200_000, 2_000_000]
CONDITIONS = {
    "equal": "r.k = s.k",
    "band": "abs(r.k - s.k) <= 1",
    "expression": "(r.k * s.k) % 1000003 = 5",
}
WAYS = ["cyclo", "repartition", "broadcast"]
ROUNDS = 3
WITHIN, NOISE = 1.15, 0.01
SHARE = 0.9
# Pairs that others than a ring test one by one, or that all do.
PAIRS_MAX = 5e8


class Joins:
    def __init__(self, program, directory, workers, threads):
        self.command = [program, "sql", "--format", "csv", "--fabric", "shm", "--workers", str(workers),
                        "--threads", str(threads)]
        for rows in ROWS:
            self.command += ["--table", f"t{rows}={directory}/t{rows}.parquet"]

    def run(self, way, queries):
        asked = [part for query in queries for part in ("-c", query)]
        command = [*self.command, "-c", f"SET roundel.join = '{way}'", *asked]
        began = time.monotonic()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return time.monotonic() - began, done.stdout

    def seconds(self, way, query):
        """Of one more query."""
        one, _ = self.run(way, [query])
        more = 4 if one < 2 else 2
        several, _ = self.run(way, [query] * more)
        return max(0.0, (several - one) / (more - 1))


def measure(joins, few, many, condition):
    query = f"SELECT count(*), sum(r.v + s.v) FROM t{few} r JOIN t{many} s ON {CONDITIONS[condition]}"
    ways = [way for way in WAYS if way != "repartition" or condition == "equal"]
    if condition == "band" and few * many > PAIRS_MAX:
        ways.remove("broadcast")
    times = {way: [] for way in [*ways, "auto"]}
    for _ in range(ROUNDS):
        for way, seconds in times.items():
            seconds.append(joins.seconds(way, query))
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    _, plan = joins.run("auto", [f"EXPLAIN {query}"])
    fastest = min(ways, key=medians.get)
    on_ring = "CycloJoinExec" in plan
    return {
        "few": few, "many": many, "condition": condition, "seconds": medians, "fastest": fastest, "on_ring": on_ring,
        "holds": medians["auto"] <= WITHIN * medians[fastest] + NOISE,
    }


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--workers", default="2,3")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--json")
    asked = arguments.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for rows in ROWS:
            path = pathlib.Path(directory) / f"t{rows}.parquet"
            duckdb.execute(f"COPY (SELECT (hash(i) % {rows})::BIGINT k, i::BIGINT v FROM range({rows}) t(i)) TO '{path}'")
        for workers in map(int, asked.workers.split(",")):
            joins = Joins(asked.program, directory, workers, asked.threads)
            for condition in CONDITIONS:
                for few, many in itertools.combinations_with_replacement(ROWS, 2):
                    if condition == "expression" and few * many > PAIRS_MAX:
                        continue
                    result = {"workers": workers, **measure(joins, few, many, condition)}
                    results.append(result)
                    seconds = ", ".join(f"{way} {time * 1e3:.0f} ms" for way, time in result["seconds"].items())
                    print(f"{workers} workers, {few} and {many} rows, {condition}: {seconds}; "
                          f"{'ring' if result['on_ring'] else 'no ring'}{'' if result['holds'] else ': NOT the fastest'}",
                          flush=True)
    held = sum(result["holds"] for result in results)
    print(f"{held} of {len(results)} choices are the fastest, or take at most {WITHIN} times as long")
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    sys.exit(0 if held >= SHARE * len(results) else 1)


if __name__ == "__main__":
    main()
