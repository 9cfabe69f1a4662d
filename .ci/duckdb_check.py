"""Compares Roundel's answers to the TPC-H queries with DuckDB's, over the same Parquet files.

Usage: duckdb_check.py ROUNDEL TABLES [FLAG...]

Both engines run the queries that Roundel ships. Rows are compared as multisets: integers, strings
and dates exactly, other numbers within a tolerance, since the engines give averages and quotients
of decimals different types. Flags are handed on to `roundel sql`.
"""

import datetime
import decimal
import math
import pathlib
import subprocess
import sys

import duckdb

import answers

QUERIES = pathlib.Path(__file__).parent.parent / "crates/roundel-engine/src/tpch/queries"
# DataFusion gives the average of a decimal(15, 2) six digits after the point.
ABSOLUTE = 1e-5
RELATIVE = 1e-9


def roundel_answers(program, tables, texts, flags):
    """Runs all queries in one session; each result is one JSON array."""
    command = [program, "sql", "--format", "json", *flags]
    for table in sorted(tables.iterdir()):
        if table.is_dir():
            command += ["--table", f"{table.name}={table}"]
    for text in texts:
        command += ["-c", text]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [answer.rows for answer in answers.answers(out)]


def plain(value):
    """One form for what the two engines call the same."""
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, (float, decimal.Decimal)):
        return float(value)
    return value


def like(value, model):
    """A value from JSON in the type of DuckDB's, if it has a number where JSON has a string."""
    if isinstance(model, float) and isinstance(value, (int, float, str)):
        return float(value)
    if isinstance(model, int) and isinstance(value, (float, str)) and float(value).is_integer():
        return int(float(value))
    return value


def close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return a == b and type(a) is type(b)


def order(row):
    exact = [str(value) for value in row if not isinstance(value, float)]
    return exact, [value for value in row if isinstance(value, float)]


def difference(ours, theirs):
    """The first difference between two answers, or None."""
    theirs = [[plain(value) for value in row] for row in theirs]
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, DuckDB has {len(theirs)}"
    models = []
    for column in zip(*theirs):
        models.append(next((value for value in column if value is not None), None))
    ours = [[like(plain(value), model) for value, model in zip(row, models)] for row in ours]
    for mine, other in zip(sorted(ours, key=order), sorted(theirs, key=order)):
        if len(mine) != len(other) or not all(map(close, mine, other)):
            return f"{mine}, DuckDB has {other}"
    return None


def self_check():
    """A comparison that cannot fail would prove nothing."""
    rows = [["a", decimal.Decimal("1.5"), 3], ["b", None, 4]]
    same = [["b", None, 4], ["a", 1.5 + 1e-7, 3]]
    assert difference(same, rows) is None
    for wrong in (same[:1], same + same[:1], [same[0], same[0]], [same[0], ["a", 1.6, 3]],
                  [same[0], ["a", 1.5, 4]], [same[1], ["b", 0.0, 4]]):
        assert difference(wrong, rows) is not None, wrong


def main():
    self_check()
    program, tables, flags = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    texts = [path.read_text(encoding="utf-8") for path in sorted(QUERIES.glob("q*.sql"))]
    assert len(texts) == 22, "a query is missing"
    connection = duckdb.connect()
    for table in tables.iterdir():
        if table.is_dir():
            files = f"{table}/*.parquet"
            connection.execute(f"CREATE VIEW {table.name} AS FROM read_parquet('{files}')")
    given = roundel_answers(program, tables, texts, flags)
    assert len(given) == len(texts), "an answer is missing"
    wrong, rows = 0, 0
    for number, (text, ours) in enumerate(zip(texts, given), start=1):
        theirs = connection.execute(text).fetchall()
        told = difference(ours, theirs)
        rows += len(theirs)
        if told is not None:
            wrong += 1
            print(f"query {number}: {told}", file=sys.stderr)
    print(f"{' '.join(flags)}: {len(texts) - wrong} of {len(texts)} as DuckDB, {rows} rows")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
