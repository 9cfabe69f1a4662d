"""One virtual machine: its QEMU process, the job that it is given, and the streams that come out of it.

Knows nothing of the command line or of how kernel and initramfs came to be. Nothing of a machine is in the
file system, and its process dies with this one, so there is nothing to leave behind.

Standard output and standard error are a virtio-serial port each. A marker, of random bytes, on standard output
says that the guest is ready, and it waits for a line there; a second one ends the stream. A marker on standard
error ends that stream and is followed by a line with the exit status, or with why the guest cannot be set up.
"""

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time

import image

# Enough for what the kernel says of a fault, reason first, and for what init says of a hundred threads.
CONSOLE_LINES_MAX = 400
READ_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1


class Machine:
    """A machine that was started. Its job begins with `go`; when `wait` has returned True, `status` is the job's
    exit status, or None with the reason in `failure`; `explained` if it is the guest's own."""

    def __init__(self, job, stdout, stderr, console=None):
        """`stdout` and `stderr` are called with bytes as they come, and with none at the end; `console` with
        lines."""
        self.job, self.console = job, console
        self.status, self.failure, self.explained = None, None, False
        self.console_lines = []
        self.marker = secrets.token_hex(16)
        # Set when the guest is up, or never will be.
        self.ready, self.up = threading.Event(), False
        build = image.find()
        with contextlib.ExitStack() as passed:
            initrd = passed.enter_context(self.make_initrd(build))
            near, far = zip(socket.socketpair(), socket.socketpair())
            handed = [initrd, *far, *([job.link] if job.link else [])]
            for one in handed[1:]:
                passed.enter_context(one)
            self.process = subprocess.Popen(
                self.qemu(build / "vmlinux", *handed), pass_fds=[one.fileno() for one in handed],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent, start_new_session=True)
        self.stdout, self.stderr = (Stream(end, self.marker.encode()) for end in near)
        self.threads = [threading.Thread(target=target, args=arguments, daemon=True) for target, arguments in [
            (self.relay_stdout, (stdout,)), (self.relay_stderr, (stderr,)), (self.read_console, ())]]
        for thread in self.threads:
            thread.start()

    def go(self):
        """Lets the job begin; for a guest that is ready."""
        with contextlib.suppress(OSError):
            self.stdout.socket.sendall(b"go\n")

    def wait(self, deadline):
        """Whether the job, or the machine, ended before `deadline` (of time.monotonic)."""
        for thread in self.threads[:2]:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                return False
        said = self.stderr.line
        if said.isdigit() and self.stdout.ended:
            self.status = int(said)
        elif said and not said.isdigit():
            self.failure, self.explained = f"the guest cannot be set up: {said}", True
        elif not self.failure:
            self.failure = "the machine ended before its command did"
        return True

    def kill(self):
        self.process.kill()
        self.process.wait()
        for thread in self.threads:
            thread.join()

    def make_initrd(self, build):
        """The build's initramfs and the job's files in one, in memory: there is no file to remove later."""
        initrd = os.fdopen(os.memfd_create("initrd"), "wb")
        with open(build / "initramfs", "rb") as base:
            shutil.copyfileobj(base, initrd, READ_BYTES)
        archive = image.Archive()
        for name, text in self.job.files(self.marker).items():
            archive.file(f"job/{name}", text.encode())
        initrd.write(archive.bytes())
        initrd.flush()
        return initrd

    def qemu(self, vmlinux, initrd, stdout, stderr, link=None):
        """The command line; all but the kernel are open files that are handed on."""
        job = self.job
        # Most of it saves time: nothing here has to be random, mitigated or probed for.
        kernel_line = ("console=ttyS0 panic=-1 random.trust_cpu=on nokaslr mitigations=off tsc=reliable "
                       "no_timer_check cryptomgr.notests rcupdate.rcu_expedited=1 8250.nr_uarts=1 "
                       "initcall_blacklist=crypto_kdf108_init transparent_hugepage=madvise")
        if not self.console:
            kernel_line += " quiet"
        command = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", f"{job.cpus}",
            "-m", f"{job.memory_mib}M", "-rtc", "base=utc", "-serial", "stdio", "-kernel", f"{vmlinux}",
            "-initrd", f"/proc/self/fd/{initrd.fileno()}", "-append", kernel_line, "-device", "virtio-serial-pci",
        ]
        for number, end in [(1, stdout), (2, stderr)]:
            command += ["-chardev", f"socket,id=stream{number},fd={end.fileno()}",
                        "-device", f"virtserialport,nr={number},chardev=stream{number}"]
        for number, share in enumerate(job.shares):
            readonly = "off" if share.writable else "on"
            # A comma ends a value unless it is doubled.
            path = share.host.replace(",", ",,")
            command += ["-fsdev", f"local,id=fs{number},path={path},security_model=none,readonly={readonly},"
                                  "multidevs=remap",
                        "-device", f"virtio-9p-pci,fsdev=fs{number},mount_tag=share{number}"]
        if link:
            command += ["-netdev", f"stream,id=link,server=off,addr.type=fd,addr.str={link.fileno()}",
                        "-device", f"virtio-net-pci,netdev=link,romfile=,mac={job.card().mac()}"]
        if job.numa_nodes > 1:
            command += numa_options(job)
        return command

    def relay_stdout(self, write):
        if self.copy(self.stdout, write):
            self.up = True
            self.ready.set()
            self.stdout.ended = self.copy(self.stdout, write)
        self.ready.set()
        with contextlib.suppress(OSError):
            write(b"")

    def relay_stderr(self, write):
        if self.copy(self.stderr, write):
            self.stderr.line = self.stderr.read_line()
            if not self.stderr.line.isdigit():
                # It never was up, and standard output does not end by itself.
                self.process.kill()
        self.ready.set()
        with contextlib.suppress(OSError):
            write(b"")

    def copy(self, stream, write):
        try:
            return stream.copy_to_marker(write)
        except OSError as error:
            self.failure, self.explained = f"what the command writes cannot be passed on: {error.strerror}", True
            self.process.kill()
            return False

    def read_console(self):
        with self.process.stdout as console:
            for line in console:
                text = line.decode(errors="replace").rstrip()
                self.console_lines = [*self.console_lines[1 - CONSOLE_LINES_MAX:], text]
                if self.console:
                    self.console(text)


class Stream:
    """The host's end of a port, with what was read of it and not yet passed on."""

    def __init__(self, end, marker):
        self.socket, self.marker = end, marker
        self.pending = b""
        self.ended = False
        self.line = ""

    def copy_to_marker(self, write):
        """Passes bytes on as they come; whether the marker ended them."""
        while True:
            at = self.pending.find(self.marker)
            ready = at if at >= 0 else len(self.pending) - self.marker_begun()
            if ready:
                write(self.pending[:ready])
            if at >= 0:
                self.pending = self.pending[at + len(self.marker):]
                return True
            self.pending = self.pending[ready:]
            if not self.more():
                if self.pending:
                    write(self.pending)
                return False

    def read_line(self):
        """The line that follows, or nothing where there is no whole one."""
        while b"\n" not in self.pending:
            if not self.more():
                return ""
        return self.pending.split(b"\n")[0].decode(errors="replace")

    def more(self):
        try:
            chunk = self.socket.recv(READ_BYTES)
        except ConnectionError:
            chunk = b""
        self.pending += chunk
        return bool(chunk)

    def marker_begun(self):
        """How many of the last bytes may be the beginning of a marker."""
        longest = min(len(self.pending), len(self.marker) - 1)
        return next((n for n in range(longest, 0, -1) if self.pending.endswith(self.marker[:n])), 0)


def numa_options(job):
    """Memory and CPUs in equal parts; what remains goes to the last node."""
    options = []
    for node in range(job.numa_nodes):
        first, last = (job.cpus * n // job.numa_nodes for n in (node, node + 1))
        low, high = (job.memory_mib * n // job.numa_nodes for n in (node, node + 1))
        options += ["-object", f"memory-backend-ram,id=node{node},size={high - low}M",
                    "-numa", f"node,nodeid={node},cpus={first}-{last - 1},memdev=node{node}"]
    return options


def die_with_parent():
    """The kernel kills QEMU when this process ends, however it does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
