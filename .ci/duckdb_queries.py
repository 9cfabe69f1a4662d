"""Compares Roundel's answers to random queries with DuckDB's, over random files.

Usage: duckdb_queries.py ROUNDEL [--cases N] [--seed S] [--jobs J]
       duckdb_queries.py ROUNDEL --only SEED/BATCH/QUERY.TRY [--times N]

A batch is a few tables (CSV and Parquet, in one or several files, of 2 KB to 5 MB), a cluster of 1 to 4 workers with a
fabric, a design and settings, and a hundred queries. Rows are compared as multisets, with types, and in order where the
query orders them all. What Roundel refuses, single-process DataFusion has to refuse as well; what DuckDB refuses for what
the tables hold (a subquery of several rows), Roundel has to refuse. Where DuckDB with its optimizer off answers as Roundel,
DuckDB is wrong: such queries are counted, and may be few. A failure is told with what makes it again, and is made smaller.
Needs the Python packages duckdb and datafusion.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time

import datafusion
import duckdb

import answers
import query_tree
import random_tables
from random_queries import Queries

# Queries of one session: to start workers takes longer than a query.
BATCH = 100
TABLES = 4
# An answer of more rows is drawn again, and one that takes DuckDB longer, in seconds.
ROWS_MAX = 4000
DUCKDB_SECONDS = 1.0
# What single-process DataFusion may take to answer: more than that says that it does not answer as DuckDB does.
SINGLE_SECONDS = 60
SINGLE_ROWS_MAX = 200_000
# What each of the engines that are compared with may hold.
MEMORY_MIB = 2048
TRIES = 20
# One statement of Roundel's, and a session; a statement that takes longer hangs.
SESSION_SECONDS = 120
ALONE_SECONDS = 30
# Failures of one cause that are made smaller; the others are only told.
MADE_SMALLER = 3
CUTS_TRIED = 60
SMALLER_SECONDS = 40
# Characters of an error or a row that are told.
TEXT_MAX = 600
# Of all queries, those that both engines may refuse: more of them would prove little.
REFUSED_MAX = 0.1
# Of all queries, those that DuckDB may answer otherwise once its optimizer is off.
DUCKDB_WRONG_MAX = 0.001
# Plans looked at in each session of several workers, and the part of them that have to have stages.
PLANS = 10
STAGED_MIN = 0.3
# Of fewer plans that says nothing.
PLANS_MIN = 100
DESIGNS = ["auto", "auto", "MESQ/SR", "SESQ/SR", "MEMQ/SR", "SEMQ/SR", "MEMQ/RD", "SEMQ/RD", "MEMQ/WR", "SEMQ/WR"]
MULTIPLEXED = ["auto", "SEMQ/SR", "SEMQ/RD", "SEMQ/WR"]
JOINS = ["auto", "auto", "cyclo", "repartition", "broadcast"]
# Settings of DataFusion that change plans; most sessions have none of these. More than half cut small files, too.
SETTINGS = ["datafusion.optimizer.prefer_hash_join = false", "datafusion.optimizer.enable_window_topn = true",
            "datafusion.optimizer.repartition_file_scans = false", "datafusion.execution.batch_size = 100",
            "datafusion.optimizer.enable_round_robin_repartition = false"]


class Batch:
    """Tables in DuckDB and in files, and how Roundel is started over them."""

    def __init__(self, program, seed, number, directory):
        self.name = f"{seed}/{number}"
        dice = random.Random(self.name)
        self.connection = duckdb.connect(config={"memory_limit": f"{MEMORY_MIB}MB"})
        self.tables = [random_tables.make(dice, self.connection, directory, f"t{n}") for n in range(TABLES)]
        self.workers = 1 + number % 4
        exchange = dice.choice(["endpoint", "endpoint", "endpoint", "multiplexer", "classic"])
        design = dice.choice({"multiplexer": MULTIPLEXED, "classic": ["auto"]}.get(exchange, DESIGNS))
        self.command = [
            program, "sql", "--format", "json", "--workers", str(self.workers), "--threads", str(dice.choice([1, 2])),
            "--fabric", dice.choice(["shm", "tcp"]), "--exchange", exchange, "--design", design,
            "--skew", dice.choice(["auto", "off"])]
        for table in self.tables:
            self.command += ["--table", f"{table.name}={table.path}"]
        self.settings = [f"SET roundel.join = '{dice.choice(JOINS)}'"]
        if dice.random() < 0.6:
            self.settings.append("SET datafusion.optimizer.repartition_file_min_size = 1000")
        if dice.random() < 0.3:
            self.settings.append(f"SET {dice.choice(SETTINGS)}")
        self.single = None

    def duckdb(self, sql):
        """DuckDB's answer; an error of duckdb's if it refuses or needs too long."""
        alarm = threading.Timer(DUCKDB_SECONDS, self.connection.interrupt)
        alarm.start()
        try:
            return answers.answer_of(self.connection, sql, ROWS_MAX)
        finally:
            alarm.cancel()

    def duckdb_unoptimized(self, sql):
        """DuckDB's answer with its optimizer off; None if it refuses or needs too long."""
        self.connection.execute("PRAGMA disable_optimizer")
        try:
            return self.duckdb(sql)
        except duckdb.Error:
            return None
        finally:
            self.connection.execute("PRAGMA enable_optimizer")

    def datafusion(self, sql):
        """What single-process DataFusion answers, or why it refuses. Between two batches of rows it can be stopped."""
        answer, stopped = [], threading.Event()
        worker = threading.Thread(target=lambda: answer.append(self.datafusion_alone(sql, stopped)), daemon=True)
        worker.start()
        worker.join(SINGLE_SECONDS)
        stopped.set()
        return answer[0] if answer else (None, f"no end after {SINGLE_SECONDS} s")

    def datafusion_alone(self, sql, stopped):
        """The same, until it is stopped."""
        try:
            if self.single is None:
                config = datafusion.SessionConfig().with_target_partitions(2)
                runtime = datafusion.RuntimeEnvBuilder().with_fair_spill_pool(MEMORY_MIB << 20).with_disk_manager_os()
                self.single = datafusion.SessionContext(config, runtime)
                for setting in self.settings:
                    if " datafusion." in setting:
                        self.single.sql(setting)
                for table in self.tables:
                    read = self.single.register_csv if "csv" in table.recipe else self.single.register_parquet
                    read(table.name, table.path)
            rows = []
            for batch in self.single.sql(sql).execute_stream():
                rows += zip(*(column.to_pylist() for column in batch.to_pyarrow().columns))
                if stopped.is_set() or len(rows) > SINGLE_ROWS_MAX:
                    break
            return rows, None
        except BaseException as error:  # A panic of its own is none of Exception's.
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            return None, one_line(str(error))

    def roundel(self, texts, seconds=SESSION_SECONDS):
        """Answers to some queries, from the first on, and why there are no more."""
        script = ";\n".join([*self.settings, *(part for n, text in enumerate(texts)
                                               for part in (text, f"SELECT 'end of {n}' AS mark"))])
        try:
            done = subprocess.run([*self.command, "-f", "-"], input=script, capture_output=True, text=True,
                                  timeout=seconds)
            out, why = done.stdout, None
            if done.returncode:
                # After what the log says.
                errors = [line for line in done.stderr.splitlines() if line.startswith("error")]
                why = one_line(errors[-1] if errors else f"exit code {done.returncode}: {done.stderr}")
        except subprocess.TimeoutExpired as slow:
            out, why = (slow.stdout or b"").decode(errors="replace"), f"no answer within {seconds} s"
        given, before = [], None
        for answer in answers.answers(out):
            if answer.rows == [[f"end of {len(given)}"]]:
                given.append(before)
            before = answer
        if why is None and len(given) < len(texts):
            why = "its output has fewer answers than there were statements"
        return given, why


def one_line(text):
    return " ".join(text.split())[:TEXT_MAX]


class Case:
    """One query of a batch: it is drawn again until DuckDB can answer, and with not too many rows."""

    def __init__(self, batch, number, at=None):
        for attempt in range(TRIES) if at is None else [at]:
            self.name = f"{batch.name}/{number}.{attempt}"
            self.tree = Queries(random.Random(self.name), batch.tables).top()
            self.expected, self.refusal = expectation(batch, self.tree)
            if self.expected is not None:
                # An empty answer says little; some are kept.
                if self.expected.rows or attempt % 4 == 3 or at is not None:
                    return
                continue
            if self.refusal is not None and "More than one row" in self.refusal:
                return
        self.name = None


def expectation(batch, tree):
    """DuckDB's answer, or why it refuses; neither if it would take too long."""
    try:
        answer = batch.duckdb(query_tree.text(tree, "duckdb"))
    except duckdb.InterruptException:
        return None, None
    except duckdb.Error as error:
        return None, one_line(str(error))
    return (None, None) if len(answer.rows) > ROWS_MAX else (answer, None)


def judged(batch, tree, expected, refusal, ours, why):
    """What is wrong with Roundel's answer or refusal, and else what is to be counted: that both refuse, or that DuckDB is
    wrong. `ours` is None when it refused."""
    sql = query_tree.text(tree, "roundel")
    if ours is None:
        if refusal is not None:
            return None, BOTH_REFUSE
        rows, single_why = batch.datafusion(sql)
        if rows is None or ("more than one row" in why and several_rows(batch, tree)):
            return None, BOTH_REFUSE
        return f"refused: {why}\n  single-process DataFusion gives {len(rows)} rows", None
    if refusal is not None:
        rows, _ = batch.datafusion(sql)
        # A subquery whose value nobody needs may be left out.
        if rows is not None and len(rows) == len(ours.rows):
            return None, None
        return f"{len(ours.rows)} rows, such as {str(ours.rows[:1])[:TEXT_MAX]}, where DuckDB refuses: {refusal}", None
    told = answers.difference(ours, expected, ordered=tree.total)
    if told is None:
        return None, None
    plain = batch.duckdb_unoptimized(query_tree.text(tree, "duckdb"))
    if plain is not None and answers.difference(ours, plain, ordered=tree.total) is None:
        return None, DUCKDB_WRONG
    told = told if len(told) <= TEXT_MAX else f"{told[:TEXT_MAX]} …"
    rows, single_why = batch.datafusion(sql)
    if rows is None:
        return f"{told}\n  single-process DataFusion refuses: {single_why}", None
    mine = collections.Counter(ours.of_columns(expected.kinds))
    alone = collections.Counter(tuple(answers.plain(v, k) for v, k in zip(row, expected.kinds)) for row in rows)
    whose = "as Roundel" if alone == mine else "as DuckDB" if alone == collections.Counter(expected.rows) else "otherwise"
    return f"{told}\n  single-process DataFusion answers {whose}", None


def several_rows(batch, tree):
    """Whether a scalar subquery has several rows: that may be refused also where nobody needs its value."""
    return any(len(batch.connection.execute(query_tree.text(node, "duckdb")).fetchmany(2)) > 1
               for node in query_tree.nodes(tree) if getattr(node, "risky", False))


def alone(batch, tree):
    """The same of a query by itself: what is wrong with it, or None."""
    expected, refusal = expectation(batch, tree)
    if expected is None and (refusal is None or "More than one row" not in refusal):
        return None
    given, why = batch.roundel([query_tree.text(tree, "roundel")], ALONE_SECONDS)
    return judged(batch, tree, expected, refusal, given[0] if given else None, why)[0]


def kind(told):
    """Failures are of one kind if this is equal; a query is made smaller only to one of the same."""
    alike = told.rsplit("DataFusion ", 1)[-1].split()[:3] if "DataFusion" in told else ["DuckDB refuses"]
    return told.startswith("refused"), "another order" in told, *alike[:1], *(alike[1:] if alike[0] == "answers" else [])


def made_smaller(batch, tree, told):
    """A smaller query that is wrong in the same way, if one is found."""
    left, ends = CUTS_TRIED, time.monotonic() + SMALLER_SECONDS
    found = True
    while found:
        found = False
        size = len(query_tree.text(tree, "roundel"))
        for changed in query_tree.smaller(tree):
            if left == 0 or time.monotonic() > ends or len(query_tree.text(changed, "roundel")) >= size:
                continue
            if expectation(batch, changed)[0] is None:
                continue
            left -= 1
            now = alone(batch, changed)
            if now is not None and kind(now) == kind(told):
                tree, told, found = changed, now, True
                break
    return tree, told


# What a verdict counts besides failures.
BOTH_REFUSE, DUCKDB_WRONG = "both refuse", "DuckDB is wrong"


class Outcome:
    """What came of a batch."""

    def __init__(self):
        self.done, self.rows, self.empty, self.undrawn, self.plans, self.staged = 0, 0, 0, 0, 0, 0
        self.verdicts = collections.Counter()
        self.failures = []


def run_batch(program, seed, number, count, budget):
    """Runs a batch. `budget` counts the failures of each cause, of which some are made smaller."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as directory:
        batch = Batch(program, seed, number, directory)
        cases = [Case(batch, n) for n in range(count)]
        outcome.undrawn = sum(case.name is None for case in cases)
        cases = [case for case in cases if case.name is not None]
        at = 0
        while at < len(cases):
            given, why = batch.roundel([query_tree.text(case.tree, "roundel") for case in cases[at:]])
            if why is not None:
                # The first without an answer is what failed, and the next session goes on behind it.
                given.append(None)
            for case, ours in zip(cases[at:], given):
                told, verdict = judged(batch, case.tree, case.expected, case.refusal, ours, why)
                outcome.verdicts[verdict] += 1
                if case.expected is not None:
                    outcome.rows += len(case.expected.rows)
                    outcome.empty += not case.expected.rows
                if told is not None:
                    outcome.failures.append(report(batch, case, told, budget))
            at += len(given)
        outcome.done = len(cases)
        if batch.workers > 1:
            plans, _ = batch.roundel([f"EXPLAIN {query_tree.text(case.tree, 'roundel')}" for case in cases[:PLANS]])
            outcome.plans += len(plans)
            outcome.staged += sum("stage 1: " in str(plan.rows) for plan in plans)
    return outcome


def report(batch, case, told, budget):
    """A failure for people."""
    sql = query_tree.text(case.tree, "roundel")
    again = f"{sys.executable} {sys.argv[0]} {batch.command[0]} --only {case.name}"
    used = [table.recipe.split("\n")[0] for table in batch.tables if f"{table.name} " in sql]
    lines = [f"FAILED {case.name}: {told}", f"  {sql}", f"  again: {again}"]
    lines += ["  " + " ".join(batch.command[2:]), "  " + "; ".join(batch.settings), *(f"  {one}" for one in used)]
    budget[cause(told)] += 1
    if budget[cause(told)] <= MADE_SMALLER:
        now = alone(batch, case.tree)
        if now is None:
            lines.append("  by itself it is right: it depends on what runs before it, or on chance")
        else:
            tree, now = made_smaller(batch, case.tree, now)
            lines += [f"  smaller: {query_tree.text(tree, 'roundel')}", f"    {now}"]
    return told, "\n".join(lines)


def cause(told):
    """What failures of one cause have in common, about."""
    first, *rest = told.split("\n")
    if told.startswith("refused"):
        return re.sub(r"[0-9]+", "#", first)[:100]
    told_of = [words for words in ("too many", "missing", "another order", "DuckDB refuses") if words in first]
    return " ".join([*told_of, *rest])


def run_one(program, name, times):
    """Runs one query by itself and tells all of it; its tables are kept."""
    name, attempt = name.rsplit(".", 1)
    seed, number, query = name.split("/")
    directory = tempfile.mkdtemp(prefix="duckdb-queries-")
    batch = Batch(program, seed, int(number), directory)
    case = Case(batch, int(query), int(attempt))
    sql = query_tree.text(case.tree, "roundel")
    (pathlib.Path(directory) / "query.sql").write_text(";\n".join([*batch.settings, sql, ""]), encoding="utf-8")
    print(*(table.recipe for table in batch.tables), "; ".join(batch.settings), sep="\n")
    print(f"{sql}\n{shlex.join([*batch.command, '-f', directory + '/query.sql'])}")
    told = [alone(batch, case.tree) for _ in range(times)]
    wrong = [one for one in told if one is not None]
    print(f"wrong in {len(wrong)} of {times} runs", *wrong[:1], sep="\n")
    if wrong:
        tree, now = made_smaller(batch, case.tree, wrong[0])
        print(f"smaller: {query_tree.text(tree, 'roundel')}\n{now}")
    return bool(wrong)


def main():
    answers.self_check()
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--cases", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    arguments.add_argument("--only", metavar="SEED/BATCH/QUERY.TRY")
    arguments.add_argument("--times", type=int, default=1)
    asked = arguments.parse_args()
    if asked.only:
        sys.exit(1 if run_one(asked.program, asked.only, asked.times) else 0)
    counts = [min(BATCH, asked.cases - at) for at in range(0, asked.cases, BATCH)]
    budget, total = collections.Counter(), Outcome()
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        runs = [pool.submit(run_batch, asked.program, asked.seed, number, count, budget)
                for number, count in enumerate(counts)]
        for run in runs:
            outcome = run.result()
            for name, value in vars(outcome).items():
                setattr(total, name, getattr(total, name) + value)
            for _, failure in outcome.failures:
                print(failure, file=sys.stderr, flush=True)
    wrong = len(total.failures)
    refused, duckdb_wrong = total.verdicts[BOTH_REFUSE], total.verdicts[DUCKDB_WRONG]
    print(f"seed {asked.seed}: {total.done - wrong} of {total.done} queries as DuckDB ({total.rows} rows, {total.empty} "
          f"answers empty, {refused} refused by both, {duckdb_wrong} as DuckDB with its optimizer off alone, {total.undrawn} "
          f"not drawn; {total.staged} of {total.plans} plans with stages)")
    for told, times in collections.Counter(cause(told) for told, _ in total.failures).most_common():
        print(f"  {times} times {one_line(told)}")
    if duckdb_wrong > max(1, DUCKDB_WRONG_MAX * total.done):
        print("DuckDB is wrong too often to compare with", file=sys.stderr)
        wrong += 1
    if refused > REFUSED_MAX * total.done or total.done < 0.9 * asked.cases:
        print("too few queries have an answer", file=sys.stderr)
        wrong += 1
    if total.plans >= PLANS_MIN and total.staged < STAGED_MIN * total.plans:
        print("too few plans are distributed", file=sys.stderr)
        wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
