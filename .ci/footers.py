"""Counts how often footers of Parquet files are read: at most once by each worker for each file.

Usage: footers.py ROUNDEL [--files 1000] [--rows 10000000]

One table has many small files, the other is one file of many row groups. Each is read twice in a session, by itself and joined with
itself, on 1 to 3 workers. Exits with an error when a footer was read more often, or an answer differs from DuckDB's.
"""

import argparse
import pathlib
import re
import sys
import tempfile

import duckdb

import answers

QUERIES = [
    "SELECT count(*) AS a, sum(k) AS b, sum(length(s)) AS c FROM t",
    "SELECT count(*) AS a, sum(x.k) AS b, max(y.s) AS c FROM t x JOIN t y ON x.k = y.k",
]
UNITS = {"": 1, " K": 1_000, " M": 1_000_000}


def read(plans):
    """How many footers plans with measures say were read, and by how much that can be off, as it is told in three digits."""
    found = re.findall(r"[ \[]footers_read=([\d.]+)( [KM])?", str([plan.rows for plan in plans]))
    counts = [float(number) * UNITS[unit] for number, unit in found]
    return sum(counts), sum(count / 100 for count in counts if count >= 1_000)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--files", type=int, default=1000)
    arguments.add_argument("--rows", type=int, default=10_000_000)
    given = arguments.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        many, one = pathlib.Path(directory) / "many", pathlib.Path(directory) / "one.parquet"
        many.mkdir()
        for file in range(given.files):
            duckdb.execute(f"COPY (SELECT i::BIGINT k, 's' || i s FROM range({file * 100}, {file * 100 + 100}) r(i)) "
                           f"TO '{many}/{file}.parquet'")
        duckdb.execute(f"COPY (SELECT i::BIGINT k, 's' || i s FROM range({given.rows}) r(i)) TO '{one}' (FORMAT parquet)")
        for table, files, glob in ((many, given.files, f"{many}/*.parquet"), (one, 1, one)):
            models = [answers.answer_of(duckdb, query.replace(" t", f" '{glob}'")) for query in QUERIES]
            for workers in (1, 2, 3):
                explained = [f"EXPLAIN ANALYZE {query}" for query in QUERIES]
                *plans, first, second = answers.asked(given.program, workers, table, [*explained, *QUERIES])
                count, unsure = read(plans)
                wrong = [told for own, model in zip((first, second), models) if (told := answers.difference(own, model))]
                # None at all would say that nothing was counted.
                once = files - unsure <= count <= workers * files + unsure
                failed |= bool(wrong) or not once
                print(f"{table.name}, {workers} workers: two queries read {count:.0f} footers of {files} files"
                      f"{'' if once else ': NOT once by each worker'}", *wrong, sep="; ", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
