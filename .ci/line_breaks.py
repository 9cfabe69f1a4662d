"""What line breaks in quotes cost: the same rows as CSV with and without them, read by Roundel and by DuckDB.

Usage: line_breaks.py ROUNDEL [--megabytes 1000] [--rounds 5] [--workers 2] [--json FILE] [--picture FILE]

One row of a thousand has a line break in quotes; in the other file there is a space in its place. Both files are read in turn.
Exits with an error when an answer differs from DuckDB's, or when the file with line breaks takes more than 1.3 times as long.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import duckdb

import answers

# Of the files; breaks are told from other rows by their length alone.
QUERY = "SELECT count(*) AS a, count(DISTINCT v) AS b, sum(k) AS c, sum(v) AS d, sum(length(s)) AS e, max(s) AS f FROM t"
ROW_BYTES = 100
MOST = 1.3


def write(path, rows, between):
    text = f"CASE WHEN i % 1000 = 7 THEN 'line{between}break ' ELSE 'no such break ' END || repeat('x', 70) || i % 97"
    duckdb.execute(f"COPY (SELECT i::BIGINT k, (i * 7919 % 1000003)::BIGINT v, {text} AS s FROM range({rows}) r(i)) "
                   f"TO '{path}' (FORMAT csv, HEADER)")


def asked(program, workers, path):
    began = time.monotonic()
    (answer,) = answers.asked(program, workers, path, [QUERY])
    return time.monotonic() - began, answer


def answered(path):
    began = time.monotonic()
    answer = answers.answer_of(duckdb, QUERY.replace("FROM t", f"FROM read_csv('{path}', header = true)"))
    return time.monotonic() - began, answer


def draw(picture, times):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    names = [(engine, file) for engine in ("Roundel", "DuckDB") for file in ("without", "with")]
    pyplot.figure(figsize=(6, 3.5))
    pyplot.bar([f"{engine}\n{file}" for engine, file in names], [statistics.median(times[name]) for name in names])
    pyplot.ylabel("seconds")
    pyplot.title("A CSV file with and without line breaks in quotes")
    pyplot.tight_layout()
    pyplot.savefig(picture)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--megabytes", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--json")
    arguments.add_argument("--picture")
    given = arguments.parse_args()
    duckdb.execute("SET threads = 2")
    times = {(engine, file): [] for engine in ("Roundel", "DuckDB") for file in ("without", "with")}
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        files = {file: pathlib.Path(directory) / f"{file}.csv" for file in ("without", "with")}
        for file, between in (("without", " "), ("with", "\n")):
            write(files[file], given.megabytes * 1_000_000 // ROW_BYTES, between)
        sizes = {file: path.stat().st_size for file, path in files.items()}
        for _ in range(given.rounds):
            for file, path in files.items():
                theirs, model = answered(path)
                own, answer = asked(given.program, given.workers, path)
                times["Roundel", file].append(own)
                times["DuckDB", file].append(theirs)
                if told := answers.difference(answer, model):
                    wrong.append(f"{file} line breaks: {told}")
    for (engine, file), seconds in times.items():
        print(f"{engine} {file} line breaks: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")
    pairs = [own / other for own, other in zip(times["Roundel", "with"], times["Roundel", "without"])]
    ratio = statistics.median(pairs)
    print(f"files of {sizes['with']:,} and {sizes['without']:,} bytes: with line breaks {ratio:.2f} times as long "
          f"({min(pairs):.2f} to {max(pairs):.2f}); at most {MOST}")
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if given.json:
        told = {f"{engine} {file}": seconds for (engine, file), seconds in times.items()}
        pathlib.Path(given.json).write_text(json.dumps({"bytes": sizes, "seconds": told, "ratio": ratio}, indent=1))
    if given.picture:
        draw(given.picture, times)
    sys.exit(1 if wrong or ratio > MOST else 0)


if __name__ == "__main__":
    main()
