"""Kills workers at random moments under load; the one that is spared must never be wedged.

Usage: kills.py ROUNDEL TABLES KILLS [FLAG...]

Clients run TPC-H queries on a cluster of three workers without a pause, while two of the workers are
killed and started again at random moments. Every query must end in time: with the right rows, or
with one line that names a worker that was killed. In the end every query must be right, and the
spared worker must have no more files open than before and have given its memory back.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from shells import rows, shared_mib, start_worker, write_token

QUERIES = [1, 3, 5, 10, 12, 18]
CLIENTS = 3
# A killed worker is noticed within 5 s; a busy machine gets three times as long.
END_SECONDS = 15
# Shared memory of a worker that has nothing to do.
IDLE_MIB = 4


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Load:
    """Clients that run queries until told to stop."""

    def __init__(self, query, expected, victims):
        self.query, self.expected, self.victims = query, expected, victims
        self.right, self.failed, self.faults = 0, 0, []
        self.until = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self, seed):
        choose = random.Random(seed)
        while not self.until.is_set() and not self.faults:
            number = choose.choice(QUERIES)
            try:
                if self.query(number) != self.expected[number]:
                    self.faults.append(f"query {number}: wrong rows")
                self.right += 1
            except subprocess.TimeoutExpired:
                self.faults.append(f"query {number} has not ended after {END_SECONDS} s")
            except RuntimeError as error:
                self.failed += 1
                said = str(error)
                if len(said.splitlines()) != 1 or not any(v in said for v in self.victims):
                    self.faults.append(said)

    def stop(self):
        self.until.set()
        for thread in self.threads:
            thread.join()


def main():
    program, tables, kills = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    flags = sys.argv[4:]
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    moment = random.Random(seed)
    print(f"kills at random moments, SEED={seed}", flush=True)
    expected = {q: rows(program, ["--fabric", "grpc", "--workers", "1"], tables, q) for q in QUERIES}
    with tempfile.TemporaryDirectory() as directory:
        token = write_token(directory)

        def start(address="127.0.0.1:0"):
            return start_worker(program, token, ["--listen", address])

        workers = [start() for _ in range(3)]
        load = None
        try:
            addresses = [address for _, address in workers]
            cluster = ["--cluster", ",".join(addresses), "--token-file", str(token), *flags]

            def query(number):
                return rows(program, cluster, tables, number, END_SECONDS)

            spared = workers[0][0]
            for number in QUERIES:
                assert query(number) == expected[number], number
            before = open_files(spared.pid)
            began = time.monotonic()
            load = Load(query, expected, addresses[1:])
            for _ in range(kills):
                time.sleep(moment.expovariate(1 / 0.1))
                victim = moment.choice([1, 2])
                worker, address = workers[victim]
                worker.kill()
                worker.wait()
                workers[victim] = start(address)
                assert workers[victim][1] == address
                assert spared.poll() is None, "the spared worker ended"
                if load.faults:
                    break
            load.stop()
            assert not load.faults, load.faults[0]
            took = time.monotonic() - began
            for number in QUERIES:
                assert query(number) == expected[number], number
            # What the dead left is noticed within seconds, and memory goes back when it is idle.
            until = time.monotonic() + 20
            while True:
                after, shared = open_files(spared.pid), shared_mib(spared.pid)
                if after <= before + 4 and shared <= IDLE_MIB:
                    break
                left = f"{after} open files, {before} before; {shared} MiB of shared memory"
                assert time.monotonic() < until, left
                time.sleep(0.5)
            assert load.right > 0 and load.failed > 0, "there was no load, or nothing hit it"
            print(f"{kills} kills in {took:.0f} s: {load.right} queries right, {load.failed} named a "
                  f"killed worker; the spared one has {after} files open, {before} before, and "
                  f"{shared} MiB of shared memory {' '.join(flags)}")
        finally:
            if load:
                load.stop()
            for worker, _ in workers:
                worker.send_signal(signal.SIGTERM)
                worker.wait(timeout=10)


if __name__ == "__main__":
    main()
