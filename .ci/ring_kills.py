"""Kills and restarts random workers while clients join relations that are pinned to a ring of them.

Usage: ring_kills.py ROUNDEL [--seconds N] [--fabric NAME]

Four clients ask one query after the other of three workers that read the same files. Each query has to give the rows that it
gave at first, after as many new beginnings as it takes, or to name a worker, in time. Exits with an error when one does not,
or when fewer than half of them have rows.
"""

import argparse
import collections
import pathlib
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time

QUERIES = [
    "SELECT count(*) AS n, sum(r.id) AS i FROM r JOIN s ON abs(r.x - s.x) <= 2",
    "SELECT count(*) AS n, sum(s.id) AS i FROM s LEFT JOIN r ON r.x BETWEEN s.x AND s.x + 1 AND s.y > 500",
    "SELECT count(*) AS n, sum(s.id) AS i FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.x = s.x AND r.y = s.y)",
    "SELECT count(*) AS n, sum(r.id) AS i FROM s FULL JOIN r ON r.x = s.x",
]
WORKERS, CLIENTS = 3, 4
PIN_SECONDS = 30
# Longest that a query may take, kills and new beginnings included; most seconds between two kills.
QUERY_SECONDS_MAX, PAUSE_SECONDS_MAX = 20, 2


def make_tables(directory):
    tables = []
    for name, rows, stride in (("r", 30_000, 7919), ("s", 40_000, 104_729)):
        (directory / name).mkdir()
        for part in range(6):
            lines = [f"{row},{row * stride % 100_003},{row * 7 % 1000}\n" for row in range(part, rows, 6)]
            (directory / name / f"{part}.csv").write_text("id,x,y\n" + "".join(lines), encoding="utf-8")
        tables += ["--table", f"{name}={directory / name}/"]
    return tables


class Workers:
    def __init__(self, program, token, fabric):
        self.command = [program, "worker", "--token-file", token, "--threads", "1", "--fabric", fabric, "--listen"]
        # Ports that are free, which a worker that comes back takes again.
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS)]
        self.addresses = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        self.processes = {address: self.start(address) for address in self.addresses}

    def start(self, address):
        worker = subprocess.Popen([*self.command, address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if not worker.stdout.readline():
            sys.exit(f"the worker at {address} does not start")
        return worker

    def kill_one(self):
        address = random.choice(self.addresses)
        self.processes[address].kill()
        self.processes[address].wait()
        self.processes[address] = self.start(address)

    def stop(self):
        for worker in self.processes.values():
            worker.kill()
            worker.wait()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program")
    arguments.add_argument("--seconds", type=float, default=40)
    arguments.add_argument("--fabric", default="shm")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        token = directory / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32), encoding="ascii")
        tables = make_tables(directory)
        workers = Workers(asked.program, str(token), asked.fabric)
        command = [asked.program, "sql", "--cluster", ",".join(workers.addresses), "--token-file", str(token), *tables]
        command += ["--fabric", asked.fabric, "--format", "csv", "-c", "SET roundel.join = 'cyclo'"]
        command += ["-c", f"SET roundel.pin_seconds = {PIN_SECONDS}", "-c"]

        def ask(query):
            done = subprocess.run([*command, query], capture_output=True, text=True, timeout=QUERY_SECONDS_MAX)
            return done.returncode, done.stdout, done.stderr

        outcomes, wrong = collections.Counter(), []

        def client(seed):
            dice = random.Random(seed)
            while time.monotonic() < end:
                query = dice.choice(QUERIES)
                try:
                    code, rows, said = ask(query)
                except subprocess.TimeoutExpired:
                    wrong.append(f"no end: {query}")
                    continue
                if code == 0 and rows == expected[query]:
                    outcomes["right, after new beginnings" if said else "right"] += 1
                elif code == 1 and ("127.0.0.1:" in said or "peer process" in said):
                    outcomes["a worker is named"] += 1
                else:
                    wrong.append(f"{query}: exit code {code}, {rows!r}, {said!r}")

        try:
            expected = {query: ask(query)[1] for query in QUERIES}
            if not all(expected.values()):
                sys.exit("queries without kills fail")
            end = time.monotonic() + asked.seconds
            clients = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
            for one in clients:
                one.start()
            while time.monotonic() < end:
                time.sleep(random.random() * PAUSE_SECONDS_MAX)
                workers.kill_one()
                outcomes["kills"] += 1
            for one in clients:
                one.join()
        finally:
            workers.stop()
    print(", ".join(f"{name}: {count}" for name, count in outcomes.most_common()))
    for text in wrong:
        print(text, file=sys.stderr)
    right = outcomes["right"] + outcomes["right, after new beginnings"]
    if 2 * right < right + outcomes["a worker is named"] or not outcomes["right, after new beginnings"]:
        print("too few queries outlive the kills", file=sys.stderr)
        wrong.append("few")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
