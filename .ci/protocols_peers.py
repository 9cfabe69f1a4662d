#!/usr/bin/env python3
"""Message protocols over shared memory beside the same exchange over TCP, and beside UCX, in one run.

Usage: .ci/protocols_peers.py LAB [ROUNDS] [JSON] [PLOT]

Alternates all of them ROUNDS times (5), with messages of 64 bytes each way, and prints medians and ratios: calls a
second of each with so many pending; then, since ucx_perftest has no calls, its ping-pong beside one call at a time, and
its stream of messages one way beside the messages of calls, which are two. UCX runs over shared memory alone
(UCX_TLS=posix); it is left out, and told, where ucx_perftest (Debian: ucx-utils) is not there. With PLOT (needs
matplotlib) the rates are drawn.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time

BYTES = 64
PENDING = [1, 4, 16, 64]
PROTOCOLS = ["WRITE/WRITE", "SEND/SEND", "WRITE-IMM/WRITE-IMM", "TCP"]
# Test, iterations, and whether its figure is a round trip.
UCX = {"ucp_am_lat": 300_000, "ucp_am_bw": 3_000_000, "tag_lat": 300_000, "tag_bw": 3_000_000}
PORT = 13_977


def calls(program):
    """Calls a second, by protocol and calls pending."""
    command = [program, "perf", "protocols", "--protocol", ",".join(PROTOCOLS), "--request", str(BYTES), "--value",
               str(BYTES), "--pending", ",".join(map(str, PENDING)), "--seconds", "0.4", "--warm-up", "0.1", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    measured = json.loads(done.stdout)["measurements"]
    return {(one["setting"]["protocol"], one["setting"]["pending"]): one["calls_per_second"] for one in measured}


def ucx(test, count):
    """Messages a second."""
    environment = {**os.environ, "UCX_TLS": "posix", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    common = ["-p", str(PORT)]
    server = subprocess.Popen(["ucx_perftest", "-c", "0", *common], env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.4)
        client = ["ucx_perftest", "localhost", "-c", "1", *common, "-t", test, "-s", str(BYTES), "-n", str(count), "-f"]
        done = subprocess.run(client, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        figures = done.stdout.strip().splitlines()[-1].split() if done.stdout.strip() else []
        if done.returncode or not figures:
            raise SystemExit(f"error: ucx_perftest {test}: {done.stderr.strip() or done.stdout.strip()}")
        return float(figures[-1])
    finally:
        server.kill()
        server.wait()


def main():
    program = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with_ucx = shutil.which("ucx_perftest") is not None
    if not with_ucx:
        print("SKIPPED: UCX: there is no ucx_perftest here (apt-get install ucx-utils)")
    runs = {}
    for _ in range(rounds):
        for key, rate in calls(program).items():
            runs.setdefault(key, []).append(rate)
        for test, count in UCX.items() if with_ucx else ():
            runs.setdefault((test, 0), []).append(ucx(test, count))
    median = {key: statistics.median(rates) for key, rates in runs.items()}
    print(f"messages of {BYTES} bytes, medians of {rounds}; millions a second\n")
    print(f"{'calls pending':<22}" + "".join(f"{pending:>10}" for pending in PENDING))
    for protocol in PROTOCOLS:
        print(f"{protocol:<22}" + "".join(f"{median[protocol, pending] / 1e6:>10.3f}" for pending in PENDING))
    ours = {pending: max(median[one, pending] for one in PROTOCOLS if one != "TCP") for pending in PENDING}
    ratios = {pending: ours[pending] / median["TCP", pending] for pending in PENDING}
    print(f"{'best, times TCP':<22}" + "".join(f"{ratios[pending]:>10.2f}" for pending in PENDING))
    beside = {}
    if with_ucx:
        # Its latency is half of a round trip, its rate of a ping-pong that of messages each way.
        trips = max(median["ucp_am_lat", 0], median["tag_lat", 0]) / 2
        stream = max(median["ucp_am_bw", 0], median["tag_bw", 0])
        beside = {
            "round_trips": (ours[1], trips, ours[1] / trips),
            "messages": (2 * max(ours.values()), stream, 2 * max(ours.values()) / stream),
        }
        print()
        for what, (own, theirs, ratio) in beside.items():
            print(f"{what.replace('_', ' '):<14} ours {own / 1e6:>7.3f}   UCX {theirs / 1e6:>7.3f}   ratio {ratio:.2f}")
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w") as file:
            all_runs = [{"what": what, "pending": pending, "rates": rates} for (what, pending), rates in runs.items()]
            json.dump({"bytes": BYTES, "runs": all_runs, "times_tcp": ratios, "beside_ucx": beside}, file, indent=1)
    if len(sys.argv) > 4:
        draw(median, sys.argv[4])


def draw(median, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for protocol in PROTOCOLS:
        axes.plot(PENDING, [median[protocol, pending] / 1e6 for pending in PENDING], marker="o", label=protocol)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("calls pending")
    axes.set_ylabel("millions of calls a second")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
