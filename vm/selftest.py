"""Checks of vm/run on real machines, as its users see it: output and exit status."""

import concurrent.futures
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

# For the guest's shell. A client whose server may not listen yet; and whether a device got so many packets:
# perftest's own status also says whether it trusts the clock, which on a busy host it does not.
SHELL = """retry() { for _ in 1 2 3 4 5 6; do "$@" && return; sleep 0.5; done; return 1; }
received() { [ "$(cat /sys/class/infiniband/$1/ports/1/hw_counters/rcvd_pkts)" -ge "$2" ]; }
"""
# Four seconds until a packet is sent again: a busy host may take long to answer.
PATIENT = "-u 20"
RUN = pathlib.Path(__file__).resolve().parent / "run"
# Machines at a time: a boot keeps about one core busy.
AT_ONCE = 2


def main():
    began = time.monotonic()
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        checks = [check_output, check_pair, check_loss, check_ports, check_iwarp, check_killed_peer, check_user,
                  check_nothing_left, check_panic, check_timeout, check_second_boot, check_boot_that_ends, check_missing_command]
        for check, fault, seconds in pool.map(outcome, checks):
            print(f"{'failed' if fault else 'ok':6} {seconds:5.1f} s  {check.__doc__}", flush=True)
            if fault:
                failed += 1
                print(fault)
    print(f"{len(checks) - failed} of {len(checks)} passed in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def outcome(check):
    began = time.monotonic()
    try:
        check()
        return check, "", time.monotonic() - began
    except AssertionError as error:
        return check, str(error), time.monotonic() - began


def vm(*arguments, **options):
    return subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, check=False, **options)


def expect(done, status, stdout=None, stderr=None):
    """The exit status, and what each stream is (text) or has in it (pattern)."""
    wrong = [] if done.returncode == status else [f"exit status {done.returncode} instead of {status}"]
    for name, wanted, got in [("stdout", stdout, done.stdout), ("stderr", stderr, done.stderr)]:
        if isinstance(wanted, re.Pattern) and not wanted.search(got) or isinstance(wanted, str) and wanted != got:
            wrong.append(f"{name} is not as expected")
    assert not wrong, f"{'; '.join(wrong)}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}"


def check_output():
    """output, exit status, arguments, environment and directory are the command's"""
    word = "a 'quoted' $word\n"
    done = vm("exec", "--devices", "0", "--env", f"WORD={word}", "--",
              "sh", "-c", 'seq 200000; echo "$1" >/dev/stderr; printf %s "$WORD" >&2; pwd >&2; exit 3', "sh", "x  y")
    lines = "".join(f"{n}\n" for n in range(1, 200001))
    got = hashlib.sha256(done.stdout.encode()).hexdigest()
    done.stdout = done.stdout[-1000:]
    expect(done, 3, stderr=f"x  y\n{word}{os.getcwd()}\n")
    assert got == hashlib.sha256(lines.encode()).hexdigest(), "what was written to stdout is not what arrived"


def check_missing_command():
    """a command that the guest does not have gives 127"""
    expect(vm("exec", "--devices", "0", "--", "no-such-command"), 127, "", re.compile("no-such-command: not found"))


def check_timeout():
    """a command that takes too long gives 124 and shows what it is at"""
    expect(vm("exec", "--devices", "0", "--timeout", "20", "--", "sleep", "1000"), 124, "",
           re.compile(r"the command had not ended after 20 s.*console: init: .*\(sleep\) of \S+: S .*nanosleep", re.DOTALL))


def check_second_boot():
    """a machine that does not come up in time is started anew, and its command runs once"""
    expect(vm("exec", "--devices", "0", "--boot", "0.1", "--", "echo", "hello"), 0, "hello\n",
           re.compile("was not up after 0.1 s, and is started anew"))


def check_boot_that_ends():
    """a machine that ends before it is up is started anew, and its command runs once"""
    with tempfile.TemporaryDirectory() as directory:
        # The first QEMU ends at once.
        qemu = pathlib.Path(directory, "qemu-system-x86_64")
        qemu.write_text('#!/bin/sh\nrm "$0"\necho no machine\nexit 1\n')
        qemu.chmod(0o755)
        path = f"{directory}:{os.environ['PATH']}"
        expect(vm("exec", "--devices", "0", "--", "echo", "hello", env={**os.environ, "PATH": path}), 0, "hello\n",
               re.compile("ended before it was up, and is started anew.*console: no machine", re.DOTALL))


def check_panic():
    """a machine that fails gives 125 and shows its console"""
    expect(vm("exec", "--devices", "0", "--", "sh", "-c", "echo c >/proc/sysrq-trigger"), 125, "",
           re.compile("console:.*Kernel panic"))


def check_ports():
    """three devices, one down; RDMA between the others over a smaller MTU"""
    expect(vm("exec", "--devices", "3", "--link-down", "rxe1", "--mtu", "1500", "--", "sh", "-c",
              f"{SHELL} rdma link; ib_write_bw -d rxe0 -n 100 {PATIENT} >/tmp/server & sleep 1;"
              f"retry ib_write_bw -d rxe2 -n 100 {PATIENT} 10.9.0.1; received rxe0 6400"), 0,
           re.compile(r"rxe0/1 state ACTIVE.*rxe1/1 state DOWN.*rxe2/1 state ACTIVE.*Mtu +: 1024", re.DOTALL))


def check_iwarp():
    """iWARP devices, which are connected by the connection manager"""
    expect(vm("exec", "--kind", "siw", "--", "sh", "-c",
              f"{SHELL} ib_write_bw -R -d siw0 -n 100 >/tmp/server & sleep 1;"
              "retry ib_write_bw -R -d siw1 --source_ip 10.9.0.2 -n 100 10.9.0.1 >/tmp/client;"
              "grep -E 'Transport|^ 65536' /tmp/client"), 0, re.compile(r"Transport type : IW.* 65536 +100 ", re.DOTALL))


def check_loss():
    """frames are lost, and reliable connections do not mind"""
    expect(vm("exec", "--loss", "5", "--", "sh", "-c",
              f"{SHELL} ib_send_bw -d rxe0 -s 1024 -n 500 >/tmp/server & sleep 1;"
              "retry ib_send_bw -d rxe1 -s 1024 -n 500 10.9.0.1; received rxe0 500 && received rxe1 1 &&"
              "tc -s qdisc show dev v0 && tc -s qdisc show dev v1"), 0,
           re.compile(r"netem.*dropped [1-9].*netem.*dropped [1-9]", re.DOTALL))


def check_user():
    """an ordinary user may open devices, but not register more memory than the limit"""
    expect(vm("exec", "--user", "1000", "--memlock", "64", "--", "sh", "-c",
              f"{SHELL} id -u; ulimit -l; ib_send_bw -d rxe0 >/tmp/server 2>&1 & sleep 1;"
              "retry ib_send_bw -d rxe1 10.9.0.1"), 1, re.compile("^1000\n64\n"), re.compile("Couldn't allocate MR"))


def check_pair():
    """RDMA and TCP between two machines"""
    expect(vm("pair", "--first", f"{SHELL} ib_send_bw -n 100 {PATIENT}; received rxe0 1600",
              "--second", f"{SHELL} sleep 1; retry ib_send_bw -n 100 {PATIENT} a; received rxe0 1"), 0,
           re.compile(r"^a\| .*Send BW.*^b\| .*Send BW|^b\| .*Send BW.*^a\| .*Send BW", re.DOTALL | re.MULTILINE))


def check_killed_peer():
    """a killed machine no longer answers, and its status does not count"""
    expect(vm("pair", "--kill-second-after", "3", "--first",
              "ping -c 1 -W 10 b || exit 1; while ping -c 1 -W 1 b; do :; done; echo gone; exit 4",
              "--second", "sleep 1000"), 4, re.compile(r"a\| gone\n"))


def check_nothing_left():
    """a killed vm/run takes its machine with it"""
    with subprocess.Popen([sys.executable, RUN, "exec", "--devices", "0", "--", "sh", "-c", "echo up; sleep 1000"],
                          stdout=subprocess.PIPE, text=True) as run:
        up = run.stdout.readline()
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        run.send_signal(signal.SIGKILL)
    assert up == "up\n" and len(children) == 1, f"the machine did not start: {up!r}, processes {children}"
    deadline = time.monotonic() + 10
    while alive(children[0]):
        assert time.monotonic() < deadline, f"QEMU, process {children[0]}, outlives vm/run"
        time.sleep(0.05)


def alive(process):
    """Whether it runs; one that ended and was not yet waited for does not."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
