#!/usr/bin/env python3
"""Two hosts made of network namespaces, with a cable between them, run TPC-H over `--fabric tcp`; then the cable is
cut in the middle of a query: the error names the worker that was lost, within 5 seconds.

Usage: .ci/namespaces.py ROUNDEL [4|6]

Needs root. 4 or 6 is the version of IP; 4 by default.
"""

import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time

NAMES = ("roundel-a", "roundel-b")
ADDRESSES = {"4": ("10.77.0.1", "10.77.0.2"), "6": ("fd77::1", "fd77::2")}
NOTICED_WITHIN = 5.0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def inside(name: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", name, *command]


def make_hosts(addresses: tuple[str, str]) -> None:
    for name in NAMES:
        ip("netns", "add", name)
    ip("link", "add", "roundel-va", "netns", NAMES[0], "type", "veth", "peer", "name", "roundel-vb", "netns", NAMES[1])
    for name, end, address in zip(NAMES, ("roundel-va", "roundel-vb"), addresses):
        bits = ["/24"] if "." in address else ["/64", "nodad"]
        ip("-n", name, "addr", "add", address + bits[0], "dev", end, *bits[1:])
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", end, "up")


def wait_for_the_cable(addresses: tuple[str, str]) -> None:
    """A host that was just plugged in may miss its neighbour's first questions, of which IPv6 repeats one a second."""
    knock = "import socket, sys\ntry: socket.create_connection((sys.argv[1], 9), 1)\nexcept ConnectionRefusedError: pass"
    deadline = time.monotonic() + 30
    while subprocess.run(inside(NAMES[0], sys.executable, "-c", knock, addresses[1]), stderr=subprocess.DEVNULL,
                         check=False).returncode != 0:
        assert time.monotonic() < deadline, f"{addresses[1]} does not answer over the cable"
        time.sleep(0.1)


def remove_hosts() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def member(address: str) -> str:
    return f"[{address}]:7070" if ":" in address else f"{address}:7070"


def start_workers(program: str, token: pathlib.Path, addresses: tuple[str, str]) -> list[subprocess.Popen]:
    workers = [
        subprocess.Popen(
            inside(name, program, "worker", "--listen", member(address), "--token-file", str(token), "--fabric", "tcp"),
            stdout=subprocess.PIPE, text=True)
        for name, address in zip(NAMES, addresses)
    ]
    for worker in workers:
        assert "listening" in worker.stdout.readline(), "a worker does not serve"
    return workers


def run_all(tpch: list[str]) -> None:
    subprocess.run(tpch + ["--scale", "0.01"], check=True)


def cut_in_mid_query(tpch: list[str], lost: str) -> None:
    client = subprocess.Popen(tpch + ["--scale", "0.1", "--iterations", "1000", "--no-verify", "--queries", "21"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(8)
    assert client.poll() is None, f"the queries ended before the cable was cut: {client.communicate()}"
    # The far end: a host whose own end goes down also loses its addresses.
    ip("-n", NAMES[1], "link", "set", "roundel-vb", "down")
    cut = time.monotonic()
    _, errors = client.communicate(timeout=60)
    seconds = time.monotonic() - cut
    # A connection that breaks before its worker is known to be lost has the query run again, which is logged.
    lines = [line for line in errors.strip().splitlines() if "running the query again" not in line]
    print(f"{lines[-1]!r} {seconds:.1f} s after the cable was cut")
    assert client.returncode == 1 and len(lines) == 1, f"exit {client.returncode}: {errors}"
    assert lost in lines[-1], "the message does not name the lost worker"
    assert seconds < NOTICED_WITHIN, f"more than {NOTICED_WITHIN} s"


def main() -> None:
    if os.geteuid() != 0:
        sys.exit("error: network namespaces need root")
    program = str(pathlib.Path(sys.argv[1]).resolve())
    addresses = ADDRESSES[sys.argv[2] if len(sys.argv) > 2 else "4"]
    workers: list[subprocess.Popen] = []
    remove_hosts()
    try:
        with tempfile.TemporaryDirectory() as directory:
            token = pathlib.Path(directory) / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32), encoding="ascii")
            make_hosts(addresses)
            wait_for_the_cable(addresses)
            workers = start_workers(program, token, addresses)
            cluster = ",".join(member(address) for address in addresses)
            tpch = inside(NAMES[0], program, "tpch", "--cluster", cluster, "--token-file", str(token), "--fabric", "tcp")
            run_all(tpch)
            cut_in_mid_query(tpch, member(addresses[1]))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        remove_hosts()


if __name__ == "__main__":
    main()
