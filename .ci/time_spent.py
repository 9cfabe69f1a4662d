#!/usr/bin/env python3
"""EXPLAIN ANALYZE of TPC-H Q9 names what its answer waits for: on three hosts, made of network namespaces, one of which is slow for a
reason that is known.

Usage: .ci/time_spent.py ROUNDEL [RUNS]

Each of these in turn, RUNS times (10 by default), and the first line of the row `Time` has to name it:

* a slow consumer: a worker is stopped for three quarters of the time;
* a slow link: `tc` leaves little from one worker to another one;
* a busy core: other programs run on the only core that a worker may use.

Before them, on equal hosts, all that is told has to add up to the time that has passed. Needs root and two cores.
"""

import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time

HOSTS = ("roundel-a", "roundel-b", "roundel-c")
ADDRESSES = ("10.79.0.1", "10.79.0.2", "10.79.0.3")
BRIDGE = "roundel-bridge"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
# The host that is slow, and the one that its slow link leads to.
SLOW, BEYOND = 0, 1
BITS_PER_SECOND = "10mbit"
STOPPED, RUNNING = 0.03, 0.01
PROGRAMS = 6
SUMS_WITHIN = 0.05

Q9 = """select nation, o_year, sum(amount) as sum_profit
from (select n_name as nation, extract(year from o_orderdate) as o_year,
             l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
      from part, supplier, lineitem, partsupp, orders, nation
      where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey
        and o_orderkey = l_orderkey and s_nationkey = n_nationkey and p_name like '%green%') as profit
group by nation, o_year order by nation, o_year desc"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def make_hosts() -> None:
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("link", "set", BRIDGE, "up")
    for host, address in zip(HOSTS, ADDRESSES):
        port = host + "-port"
        ip("netns", "add", host)
        ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
        ip("link", "set", port, "master", BRIDGE, "up")
        ip("-n", host, "addr", "add", address + "/24", "dev", "eth0")
        ip("-n", host, "link", "set", "lo", "up")
        ip("-n", host, "link", "set", "eth0", "up")


def remove_hosts() -> None:
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], stderr=subprocess.DEVNULL, check=False)


def member(host: int) -> str:
    return f"{ADDRESSES[host]}:7070"


def start_worker(program: str, token: pathlib.Path, host: int) -> subprocess.Popen:
    """The slow host has a core of its own, so that it is not slow for the others."""
    core = "0" if host == SLOW else "1"
    worker = subprocess.Popen(
        ["ip", "netns", "exec", HOSTS[host], "taskset", "--cpu-list", core, program, "worker", "--listen", member(host),
         "--token-file", str(token), "--fabric", "tcp", "--threads", "1"], stdout=subprocess.PIPE, text=True)
    assert "listening" in worker.stdout.readline(), "a worker does not serve"
    return worker


class SlowConsumer:
    """The slow host's worker is stopped, again and again."""

    def __init__(self, workers: list[subprocess.Popen]):
        self.pid = workers[SLOW].pid
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(STOPPED)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(RUNNING)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    @staticmethod
    def is_named(first: str) -> bool:
        return f"longest on {member(SLOW)}" in first


class SlowLink:
    """Little goes from the slow host to the one beyond."""

    def __init__(self, _: list[subprocess.Popen]):
        pass

    def tc(self, *words: str) -> None:
        subprocess.run(["ip", "netns", "exec", HOSTS[SLOW], "tc", *words], check=True)

    def __enter__(self) -> None:
        self.tc("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "20")
        self.tc("class", "add", "dev", "eth0", "parent", "1:", "classid", "1:10", "htb", "rate", BITS_PER_SECOND)
        self.tc("class", "add", "dev", "eth0", "parent", "1:", "classid", "1:20", "htb", "rate", "10gbit",
                "quantum", "60000")
        self.tc("filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "u32", "match", "ip", "dst",
                ADDRESSES[BEYOND], "flowid", "1:10")

    def __exit__(self, *_: object) -> None:
        self.tc("qdisc", "del", "dev", "eth0", "root")

    @staticmethod
    def is_named(first: str) -> bool:
        return f"rows travel between {member(SLOW)} and {member(BEYOND)}" in first


class BusyCore:
    """Other programs run on the slow host's core."""

    def __init__(self, _: list[subprocess.Popen]):
        self.programs: list[subprocess.Popen] = []

    def __enter__(self) -> None:
        command = ["taskset", "--cpu-list", "0", sys.executable, "-c", "while True: pass"]
        self.programs = [subprocess.Popen(command) for _ in range(PROGRAMS)]

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.kill()
            program.wait()

    @staticmethod
    def is_named(first: str) -> bool:
        return SlowConsumer.is_named(first)


def explain(sql: list[str], verbose: bool = False) -> dict[str, str]:
    statement = f"EXPLAIN ANALYZE {'VERBOSE ' if verbose else ''}{Q9}"
    run = subprocess.run(sql + ["--format", "json", "-c", statement], check=True, stdout=subprocess.PIPE, text=True)
    return {row["plan_type"]: row["plan"] for row in json.loads(run.stdout)}


def check_sums(rows: dict[str, str]) -> None:
    """What tasks say that they spent is the time that passed while they ran."""
    print(rows["Time"])
    told = json.loads(rows["Time in full"])
    last = told["stages"][0]
    # The coordinator has a reader for each partition of each link, from the beginning to the end.
    for link in last["links"]:
        for reader in link["readers"]:
            thread = reader.pop("thread")
            share = (told["starting"] + sum(reader.values())) / told["seconds"]
            print(f"{link['from']} to {link['at']}, partition {thread}: {share:.3f} of the time that has passed")
            assert abs(share - 1) <= SUMS_WITHIN, "the parts do not add up"


def main() -> None:
    if os.geteuid() != 0:
        sys.exit("error: network namespaces need root")
    program = str(pathlib.Path(sys.argv[1]).resolve())
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    workers: list[subprocess.Popen] = []
    remove_hosts()
    try:
        with tempfile.TemporaryDirectory() as directory:
            data = pathlib.Path(directory) / "tpch"
            subprocess.run([program, "tpch", "--scale", "0.3", "--workers", "1", "--queries", "6", "--iterations", "1",
                            "--no-verify", "--tables", str(data)], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            token = pathlib.Path(directory) / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32), encoding="ascii")
            make_hosts()
            workers.extend(start_worker(program, token, host) for host in range(len(HOSTS)))
            cluster = ",".join(member(host) for host in range(len(HOSTS)))
            sql = ["ip", "netns", "exec", HOSTS[-1], "taskset", "--cpu-list", "1", program, "sql", "--cluster", cluster,
                   "--token-file", str(token), "--fabric", "tcp", "--threads", "1"]
            for table in TABLES:
                sql += ["--table", f"{table}={data / table}"]
            check_sums(explain(sql, verbose=True))
            wrong = 0
            for trouble in (SlowConsumer, SlowLink, BusyCore):
                for _ in range(runs):
                    with trouble(workers):
                        first = explain(sql)["Time"].splitlines()[1]
                    right = trouble.is_named(first)
                    wrong += not right
                    print(f"{'right' if right else 'WRONG'}: {trouble.__name__}: {first}", flush=True)
            print(f"{3 * runs - wrong} of {3 * runs} right")
            if wrong:
                sys.exit(1)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        remove_hosts()


if __name__ == "__main__":
    main()
