#!/usr/bin/env python3
"""Two hosts made of network namespaces, with a cable between them, run the nodes of experiments, and TPC-H over
`--fabric tcp`; then the cable is cut in the middle of a query: the error names the worker that was lost, within 5 seconds.

Usage: .ci/namespaces.py ROUNDEL [4|6]

Needs root, and `roundel-lab` beside ROUNDEL. 4 or 6 is the version of IP; 4 by default.
"""

import json
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


def run_experiments(lab: str, address: str) -> None:
    """Rows go over the cable by each kind of transport: of what a node counts half is from the other host."""
    for transport in ("MESQ/SR", "MEMQ/RD", "sockets", "grpc", "qperf"):
        setting = json.dumps({"transport": transport, "fabric": "tcp", "seconds": 0.2})
        before = cable_bytes()
        run = subprocess.run(
            inside(NAMES[0], lab, "experiment", "setting", setting, "--hosts", ",".join(NAMES), "--shell", "ip netns exec",
                   "--meet", address), check=True, stdout=subprocess.PIPE, text=True)
        received = [node["received_bytes"] for node in json.loads(run.stdout)["nodes"]]
        carried = cable_bytes() - before
        print(f"{transport}: {received} bytes received, {carried} over the cable")
        assert all(received) and carried > sum(received) / 4, "the nodes are not on two hosts"


def cable_bytes() -> int:
    """Bytes that have come out of both ends of the cable."""
    ends = zip(NAMES, ("roundel-va", "roundel-vb"))
    shown = [subprocess.run(["ip", "-n", name, "-s", "-j", "link", "show", "dev", end], check=True, stdout=subprocess.PIPE)
             for name, end in ends]
    return sum(json.loads(one.stdout)[0]["stats64"]["rx"]["bytes"] for one in shown)


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
            run_experiments(str(pathlib.Path(program).with_name("roundel-lab")), addresses[0])
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
