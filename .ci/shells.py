"""Eight clients run eight different TPC-H queries on one cluster at once, for a while.

Usage: shells.py ROUNDEL TABLES SECONDS [FLAG...]; the flags are for the clients.

Every answer is compared with the one that the same query gave alone, over gRPC. No process may
fail, and no worker may hold more shared memory than its quota of registered memory.
"""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import threading
import time

QUERY_TEXTS = pathlib.Path(__file__).parent.parent / "crates/roundel-engine/src/tpch/queries"
QUERIES = [1, 3, 5, 7, 10, 12, 18, 21]
WORKERS = 2
QUOTA_MIB = 32
# What the mapping of a device holds besides registered memory.
RINGS_MIB = 8


def rows(program, flags, tables, query, timeout=120):
    """The answer to a query, as sorted lines."""
    command = [program, "sql", "--format", "json", *flags]
    for table in sorted(tables.iterdir()):
        if table.is_dir():
            command += ["--table", f"{table.name}={table}"]
    command += ["-f", str(text_of(query))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return sorted(json.dumps(row) for row in json.loads(done.stdout))


def text_of(query):
    (path,) = [p for p in QUERY_TEXTS.iterdir() if p.stem.lstrip("q").lstrip("0") == str(query)]
    return path


def write_token(directory):
    token = pathlib.Path(directory) / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    return token


def start_worker(program, token, flags):
    """A worker and the address that it says it listens on."""
    worker = subprocess.Popen(
        [program, "worker", "--token-file", str(token), *flags], stdout=subprocess.PIPE, text=True
    )
    return worker, worker.stdout.readline().split()[-1]


def shared_mib(pid):
    """What the largest memory file that a worker has open really takes: its own device's."""
    most = 0
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "memfd:" in os.readlink(descriptor):
                most = max(most, os.stat(descriptor).st_blocks * 512)
        except FileNotFoundError:
            pass
    return most >> 20


def main():
    program, tables, seconds = sys.argv[1], pathlib.Path(sys.argv[2]), float(sys.argv[3])
    flags = sys.argv[4:]
    expected = {q: rows(program, ["--fabric", "grpc", "--workers", "1"], tables, q) for q in QUERIES}
    with tempfile.TemporaryDirectory() as directory:
        token = write_token(directory)
        listen = ["--listen", "127.0.0.1:0", "--registered-memory", f"{QUOTA_MIB}MiB"]
        workers, addresses = [], []
        try:
            for _ in range(WORKERS):
                worker, address = start_worker(program, token, listen)
                workers.append(worker)
                addresses.append(address)
            cluster = ["--cluster", ",".join(addresses), "--token-file", str(token), *flags]
            runs, wrong, until = dict.fromkeys(QUERIES, 0), [], time.monotonic() + seconds

            def shell(query):
                while time.monotonic() < until and not wrong:
                    try:
                        if rows(program, cluster, tables, query) != expected[query]:
                            wrong.append(f"query {query}: wrong rows")
                    except (RuntimeError, subprocess.TimeoutExpired) as error:
                        wrong.append(f"query {query}: {error}")
                    runs[query] += 1

            shells = [threading.Thread(target=shell, args=(query,)) for query in QUERIES]
            for thread in shells:
                thread.start()
            most = 0
            while any(thread.is_alive() for thread in shells):
                most = max(most, *(shared_mib(worker.pid) for worker in workers))
                time.sleep(0.2)
            assert not wrong, wrong[0]
            assert all(worker.poll() is None for worker in workers), "a worker ended"
            assert most > 0, "no worker has shared memory"
            assert most <= QUOTA_MIB + RINGS_MIB, f"{most} MiB of shared memory"
            print(f"8 shells, {sum(runs.values())} queries in {seconds:.0f} s, all right; "
                  f"at most {most} MiB of shared memory in a worker {' '.join(flags)}")
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait(timeout=10)


if __name__ == "__main__":
    main()
