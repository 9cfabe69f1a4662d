"""Compares Roundel's joins on a ring with DuckDB's, over random tables and random conditions.

Usage: duckdb_joins.py ROUNDEL [--cases N] [--seed S]

A case is a pair of tables (empty, tiny, skewed, rich in nulls), a type of join, a condition, and a number of workers
from 1 to 6. Rows are compared as multisets, and exactly. A case that fails is shown with what makes it again. A part of
the cases asks for the plan as well: where there is more than one worker the join has to be a CycloJoinExec on all of them.
Every other session pins what spins.
"""

import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import duckdb

import answers

# Queries of one session: to start workers takes longer than a query.
BATCH = 50
HOSTS = [2, 3, 1, 4, 5, 6]
FABRICS = ["shm", "tcp"]

# What a column holds, as DuckDB makes it of a small number, so that values of both tables meet.
TYPES = {
    "TINYINT": "({n} % 100)::TINYINT",
    "SMALLINT": "({n} - 20)::SMALLINT",
    "INTEGER": "({n} - 50)::INTEGER",
    "BIGINT": "({n} * 3 - 10)::BIGINT",
    "UINTEGER": "{n}::UINTEGER",
    "DOUBLE": "({n} / 4.0 - 3)::DOUBLE",
    "REAL": "({n} / 2.0)::REAL",
    "DECIMAL(9,2)": "({n} * 0.25)::DECIMAL(9,2)",
    "DATE": "(DATE '2020-01-01' + ({n})::INTEGER)",
    "TIMESTAMP": "(TIMESTAMP '2020-01-01 12:00:00' + INTERVAL 1 HOUR * ({n}))",
    "VARCHAR": "chr((97 + {n} % 5)::INTEGER) || repeat('x', ({n} % 3)::INTEGER)",
    "BOOLEAN": "({n} % 2 = 0)",
}
SIGNED = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT"]
REALS = ["DOUBLE", "REAL", "DECIMAL(9,2)"]
TIMES = ["DATE", "TIMESTAMP"]
ROWS = [0, 1, 2, 5, 30, 80, 120]
# Semi and anti joins are asked for by EXISTS, of either side.
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
# Plans looked at in each session, and the part of them that have to have a ring.
PLANS = 10
ON_RING = 0.8


class Tables:
    """Two random tables, l and r, with a number for each row and some columns of the same types on both sides."""

    def __init__(self, dice, connection, directory):
        self.types = [dice.choice(list(TYPES)) for _ in range(dice.randint(2, 5))]
        # So that each has a column that can be equal, and one that can be near.
        self.types += [dice.choice(SIGNED), dice.choice(list(TYPES))]
        self.paths = {}
        for side in "lr":
            rows = dice.choice(ROWS)
            nulls, skew = dice.choice([0, 0, 0.1, 0.6]), dice.choice([1, 1, 3])
            values = dice.choice([2, 10, 60])
            columns = ["i AS id"]
            for number, name in enumerate(self.types):
                # A power of a uniform number is skewed towards 0.
                drawn = f"floor({values} * pow(random(), {skew}))::BIGINT"
                # A type may have its number twice, which has to be one.
                value = f"list_transform([{drawn}], lambda n: {TYPES[name].format(n='n')})[1]"
                columns.append(f"CASE WHEN random() < {nulls} THEN NULL ELSE {value} END AS c{number}")
            connection.execute(f"SELECT setseed({dice.random()})")
            connection.execute(
                f"CREATE OR REPLACE TABLE {side} AS SELECT {', '.join(columns)} FROM range({rows}) t(i)")
            # Several files, so that all workers have rows.
            self.paths[side] = pathlib.Path(directory) / side
            self.paths[side].mkdir()
            parts = dice.randint(1, 4)
            for part in range(parts):
                connection.execute(
                    f"COPY (FROM {side} WHERE id % {parts} = {part}) TO '{self.paths[side]}/{part}.parquet'")

    def of(self, *names):
        return [f"c{number}" for number, name in enumerate(self.types) if name in names]


def condition(dice, tables):
    """A condition of either engine's SQL, and its kind."""
    def any_column():
        return f"c{dice.randrange(len(tables.types))}"

    def equality():
        return " AND ".join(f"l.{c} = r.{c}" for c in {any_column() for _ in range(dice.choice([1, 1, 2, 3]))})

    def band():
        column = dice.choice(tables.of(*SIGNED, *REALS))
        return f"abs(l.{column} - r.{column}) <= {dice.choice([0, 1, 2.5, 7])}"

    def between():
        column = dice.choice(tables.of(*SIGNED, *REALS))
        low, high = dice.randint(-5, 5), dice.randint(-2, 9)
        sides = ["l", "r"] if dice.random() < 0.5 else ["r", "l"]
        return f"{sides[0]}.{column} BETWEEN {sides[1]}.{column} + ({low}) AND {sides[1]}.{column} + {high}"

    def days():
        columns = tables.of(*TIMES)
        if not columns:
            return between()
        column = dice.choice(columns)
        low, high = dice.randint(0, 5), dice.randint(0, 5)
        return (f"l.{column} BETWEEN r.{column} - INTERVAL '{low} days' AND r.{column} + INTERVAL '{high} days'")

    def inequality():
        column = any_column()
        return f"l.{column} {dice.choice(['<', '<=', '>', '>=', '<>'])} r.{column}"

    def distinct():
        column = any_column()
        return f"l.{column} IS {dice.choice(['', 'NOT '])}DISTINCT FROM r.{column}"

    def expression():
        column, other = dice.choice(tables.of(*SIGNED)), dice.choice(tables.of(*SIGNED))
        return f"(l.{column}::BIGINT * 7 + r.{other}::BIGINT) % {dice.randint(2, 5)} = {dice.randint(0, 2)}"

    def text():
        columns = tables.of("VARCHAR")
        if not columns:
            return expression()
        column, other = dice.choice(columns), dice.choice(columns)
        return dice.choice([
            f"levenshtein(l.{column}, r.{other}) <= {dice.randint(0, 2)}",
            f"starts_with(l.{column}, r.{other})",
            f"l.{column} || r.{other} LIKE '%ax%'",
        ])

    def nulls():
        return f"l.{any_column()} IS NULL OR r.{any_column()} IS NULL"

    simple = [equality, band, between, days, inequality, distinct, expression, text, nulls]

    def both():
        one, other = dice.sample(simple, 2)
        return f"({one()}) {dice.choice(['AND', 'AND', 'OR'])} ({other()})"

    def always():
        return "true"

    kind = dice.choice(simple * 2 + [both] * 5 + [always])
    return kind(), kind.__name__


def query(dice, tables):
    """A query of either engine's SQL, and what it is about."""
    where, kind = condition(dice, tables)
    join = dice.choice(JOINS)

    def columns(side):
        names = ["id", *(f"c{number}" for number in range(len(tables.types)))]
        return ", ".join(f"{side}.{name} AS {side}_{name}" for name in names)

    if join.startswith(("SEMI", "ANTI")):
        negated = "NOT " if join.startswith("ANTI") else ""
        side, other = dice.sample("lr", 2)
        sql = f"SELECT {columns(side)} FROM {side} WHERE {negated}EXISTS (SELECT 1 FROM {other} WHERE {where})"
    else:
        sql = f"SELECT {columns('l')}, {columns('r')} FROM l {join} r ON {where}"
    return sql, f"{join}: {kind}"


class Session:
    """Runs queries with so many workers; each result is one JSON array."""

    def __init__(self, program, tables, hosts, fabric, pins):
        self.command = [program, "sql", "--format", "json", "--workers", str(hosts), "--threads", "2",
                        "--fabric", fabric]
        for name, path in tables.paths.items():
            self.command += ["--table", f"{name}={path}"]
        self.command += ["-c", "SET roundel.join = 'cyclo'", "-c", f"SET roundel.pin_seconds = {60 if pins else 0}"]

    def run(self, texts):
        """The rows of each, or None and why there are none."""
        asked = [part for text in texts for part in ("-c", text)]
        done = subprocess.run(self.command + asked, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            return None, done.stderr.strip()
        return answers.answers(done.stdout)[-len(texts):], None


def main():
    answers.self_check()
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--cases", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = arguments.parse_args()
    done, wrong, rows = 0, 0, 0
    kinds, algorithms = collections.Counter(), collections.Counter()
    while done < asked.cases:
        number = done // BATCH
        seed = f"{asked.seed}/{number}"
        dice, connection = random.Random(seed), duckdb.connect()
        hosts, fabric = HOSTS[number % len(HOSTS)], FABRICS[number // len(HOSTS) % len(FABRICS)]
        with tempfile.TemporaryDirectory() as directory:
            tables = Tables(dice, connection, directory)
            session = Session(asked.program, tables, hosts, fabric, pins=number % 4 > 1)
            cases = [query(dice, tables) for _ in range(min(BATCH, asked.cases - done))]
            texts = [sql for sql, _ in cases]
            expected = [answers.answer_of(connection, sql) for sql in texts]
            # The plan of the first ones as well.
            plans = [f"EXPLAIN {sql}" for sql in texts[:PLANS]]
            given, why = session.run(texts + plans)
            if given is None:
                # One of them fails: which?
                alone = [session.run([sql]) for sql in texts]
                given = [rows and rows[0] if error is None else error for rows, error in alone]
                print(f"a session of {hosts} workers over {fabric} failed: {why}", file=sys.stderr)
                wrong += 1
            for (sql, kind), ours, theirs in zip(cases, given, expected):
                told = ours if isinstance(ours, str) else answers.difference(ours, theirs)
                kinds[kind] += 1
                rows += len(theirs.rows)
                if told is not None:
                    wrong += 1
                    print(f"seed {seed}, {hosts} workers over {fabric}, {tables.types}\n  {sql}\n  {told}",
                          file=sys.stderr)
            if hosts > 1 and why is None:
                for plan in given[len(texts):]:
                    found = re.search(r"CycloJoinExec: .*?, (hash|sort-merge|nested loops)", str(plan.rows))
                    # Without a stage of its own it is on one worker.
                    on_ring = found and "stage 1: " in str(plan.rows)
                    algorithms[found[1] if on_ring else "none"] += 1
            done += len(texts)
    told = ", ".join(f"{count} {name}" for name, count in algorithms.most_common())
    print(f"seed {asked.seed}: {done - wrong} of {done} joins as DuckDB, of {len(kinds)} kinds, {rows} rows; plans: {told}")
    # Those of none are known beforehand to be empty, or are no joins.
    if done >= BATCH * len(HOSTS) and (
            algorithms["none"] > (1 - ON_RING) * algorithms.total() or
            not all(algorithms[name] for name in ("hash", "sort-merge", "nested loops"))):
        print("too few of them run on a ring, or not by all algorithms", file=sys.stderr)
        wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
