"""What the virtual machine boots: Debian's kernel, and an initramfs made of this machine's packages.

Knows nothing of QEMU. All of it is kept in a cache, under a name that is a hash of what went in.
"""

import contextlib
import fcntl
import hashlib
import io
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import time

import siw

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ["qemu-system-x86", "busybox-static", "kmod", "iproute2", "libibverbs1", "ibverbs-providers",
            "librdmacm1", "perftest", "gcc-12", "make", "xz-utils"]
# Of the kernel's package only the image and these modules, with what they depend on, are kept.
MODULES = ["virtio_pci", "virtio_console", "9p", "9pnet_virtio", "crc32_generic", "rdma_rxe", "crc32c_generic", "siw",
           "ib_uverbs", "rdma_ucm", "veth", "bridge", "sch_netem", "virtio_net"]
# `sh` is dash: busybox's shell would run its own `ip` and `tc`, which know less.
TOOLS = ["sh", "ip", "rdma", "tc", "ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat",
         "ib_read_lat"]
LIBRARY_DIR = "usr/lib/x86_64-linux-gnu"
# Opened by name: by the verbs' users, by libibverbs, and by what runs from a share.
LIBRARIES = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs/librxe-rdmav*.so", "libibverbs/libsiw-rdmav*.so",
             "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1",
             "libutil.so.1", "libresolv.so.2", "libnss_files.so.2", "libnss_dns.so.2"]
# A build that was not used for so long, or a kernel that is so old, is removed by the next build.
UNUSED_DAYS_MAX = 14
KERNEL_PACKAGE = re.compile(r"linux-image-\d\S*-amd64")


class Unprepared(Exception):
    """The machine lacks something; the text says what, and what to run."""


def cache_dir():
    """Where kernels and builds are kept."""
    if chosen := os.environ.get("ROUNDEL_VM_CACHE"):
        return pathlib.Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base).absolute() / "roundel-vm"


def find():
    """The directory that has `vmlinux` and `initramfs`; raises Unprepared when there is none."""
    versions = installed_versions()
    if missing := [p for p in PACKAGES if p not in versions]:
        raise Unprepared(f"packages are missing: {' '.join(missing)}")
    build = cache_dir() / build_name(versions)
    if not build.is_dir():
        raise Unprepared("the virtual machine's files are not built, or their recipe changed")
    os.utime(build)
    return build


def prepare(say):
    """Installs, downloads and builds what is missing; `say` is told of each long step."""
    with contextlib.suppress(Unprepared):
        return find()
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(Unprepared):
            return find()
        install_packages(say)
        kernel = cached_kernel(cache) or fetch_kernel(cache, say)
        say("build the initramfs")
        build = cache / build_name(installed_versions())
        with tempfile.TemporaryDirectory(dir=cache, prefix="tmp-") as scratch:
            fresh = pathlib.Path(scratch) / "build"
            fresh.mkdir()
            os.link(kernel / "vmlinux", fresh / "vmlinux")
            (fresh / "initramfs").write_bytes(initramfs(kernel))
            fresh.rename(build)
        remove_unused(cache)
    return build


def installed_versions():
    """Package name to version, for those of PACKAGES and libc6 that are installed."""
    asked = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n", *PACKAGES, "libc6"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    lines = (line.split() for line in asked.stdout.splitlines())
    return {line[0]: line[1] for line in lines if line[2:] == ["installed"]}


def build_name(versions):
    recipes = [(HERE / name).read_bytes() for name in ("image.py", "siw.py", "init")]
    inputs = [*recipes, repr(sorted(versions.items())).encode()]
    return "build-" + hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]


def install_packages(say):
    missing = [p for p in PACKAGES if p not in installed_versions()]
    if not missing:
        return
    command = ["apt-get", "install", "-qy", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        raise Unprepared(f"packages are missing; run: sudo {' '.join(command)}")
    say(f"install {' '.join(missing)}")
    run(["apt-get", "update", "-q"])
    run(command, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})


def kernel_dir(cache, version):
    """Where a kernel is kept with the modules that are wanted today."""
    return cache / f"kernel-{version}-{hashlib.sha256(repr(MODULES).encode()).hexdigest()[:8]}"


def cached_kernel(cache):
    kernels = sorted(cache.glob(kernel_dir(cache, "*").name))
    return kernels[-1] if kernels else None


def fetch_kernel(cache, say):
    """Downloads the kernel that `linux-image-amd64` stands for, without installing it."""
    package = kernel_package()
    say(f"download {package}")
    with tempfile.TemporaryDirectory(dir=cache, prefix="tmp-") as scratch:
        scratch = pathlib.Path(scratch)
        # The unprivileged user that apt downloads as cannot write here.
        run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", package], cwd=scratch)
        debs = list(scratch.glob("*.deb"))
        if len(debs) != 1:
            raise Unprepared(f"apt-get download {package} gave {len(debs)} files instead of one")
        say(f"unpack {debs[0].name}")
        run(["dpkg-deb", "-x", debs[0], scratch / "package"])
        version = package.removeprefix("linux-image-")
        fresh = scratch / "kernel"
        fresh.mkdir()
        vmlinuz = (scratch / "package/boot" / f"vmlinuz-{version}").read_bytes()
        (fresh / "vmlinux").write_bytes(unpack_vmlinux(vmlinuz))
        say("build the module siw")
        siw.build(version, scratch / "package/lib/modules" / version, scratch, run)
        run([tool("depmod"), "-b", scratch / "package", version])
        keep_modules(scratch / "package/lib/modules" / version, fresh / "modules" / version)
        kernel = kernel_dir(cache, version)
        fresh.rename(kernel)
    return kernel


def kernel_package():
    for attempt in range(2):
        asked = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, check=False)
        if found := KERNEL_PACKAGE.findall(asked.stdout):
            return found[0]
        if attempt == 0 and os.geteuid() == 0:
            run(["apt-get", "update", "-q"])
    raise Unprepared("apt knows no kernel; run: sudo apt-get update")


def unpack_vmlinux(vmlinuz):
    """The ELF image in a bzImage: QEMU boots that directly, in half the time."""
    magic = b"\xfd7zXZ\0"
    at = vmlinuz.find(magic)
    while at >= 0:
        with contextlib.suppress(lzma.LZMAError):
            image = lzma.LZMADecompressor().decompress(vmlinuz[at:])
            if image.startswith(b"\x7fELF"):
                return image
        at = vmlinuz.find(magic, at + 1)
    raise Unprepared("the kernel's package has an image that is not compressed with xz")


def keep_modules(source, target):
    """Copies MODULES and what they depend on, with the lines of `modules.dep` that name them."""
    depends = {}
    for line in (source / "modules.dep").read_text().splitlines():
        module, _, needs = line.partition(":")
        depends[module] = needs.split()
    by_name = {pathlib.Path(m).name.removesuffix(".ko").replace("-", "_"): m for m in depends}
    wanted = {}
    for name in MODULES:
        if name not in by_name:
            raise Unprepared(f"the kernel's package has no module {name}")
        for module in [by_name[name], *depends[by_name[name]]]:
            wanted[module] = depends[module]
    for module in wanted:
        (target / module).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / module, target / module)
    lines = (f"{module}: {' '.join(needs)}\n" for module, needs in sorted(wanted.items()))
    (target / "modules.dep").write_text("".join(lines))


def initramfs(kernel):
    """The archive that the kernel unpacks as its root: not compressed, for the guest's CPU is slow."""
    archive = Archive()
    for link, target in [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")]:
        archive.link(link, target)
    for directory in ["proc", "sys", "dev", "tmp", "root", "run", "var/tmp", "usr/lib64", "usr/sbin"]:
        archive.directory(directory)
    archive.link("var/run", "/run")
    archive.file("init", (HERE / "init").read_bytes(), 0o755)
    busybox = tool("busybox")
    archive.file("usr/bin/busybox", pathlib.Path(busybox).read_bytes(), 0o755)
    for applet in run([busybox, "--list"]).split():
        if applet not in TOOLS and applet != "busybox":
            archive.link(f"usr/bin/{applet}", "busybox")
    system = pathlib.Path("/") / LIBRARY_DIR
    wanted = [path for pattern in LIBRARIES for path in sorted(system.glob(pattern))]
    for name in TOOLS:
        path = tool(name)
        archive.file(f"usr/bin/{name}", pathlib.Path(path).read_bytes(), 0o755)
        wanted.append(pathlib.Path(path))
    for path in sorted({library for w in wanted for library in [w, *libraries_of(w)]}):
        if path.is_relative_to(system):
            archive.file(str(path.relative_to("/")), path.read_bytes(), 0o755)
    archive.file("usr/lib64/ld-linux-x86-64.so.2", pathlib.Path("/lib64/ld-linux-x86-64.so.2").read_bytes(), 0o755)
    for driver in ["rxe", "siw"]:
        name = f"etc/libibverbs.d/{driver}.driver"
        archive.file(name, pathlib.Path("/", name).read_bytes())
    archive.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n")
    archive.file("etc/protocols", b"ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\n")
    modules = kernel / "modules"
    for path in sorted(p for p in modules.rglob("*") if p.is_file()):
        archive.file(f"usr/lib/modules/{path.relative_to(modules)}", unsigned(path.read_bytes()))
    return archive.bytes()


def unsigned(module):
    """A kernel module without its signature, which takes the guest long to verify; other files as they are."""
    end = b"~Module signature appended~\n"
    if not module.endswith(end):
        return module
    body = module.removesuffix(end)
    # Before the end are twelve bytes, of which the last four are the size of what is before them.
    return body[:-12 - int.from_bytes(body[-4:], "big")]


def libraries_of(binary):
    """The shared libraries that the loader would open for it, under their names in LIBRARY_DIR."""
    listed = subprocess.run(["ldd", binary], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    paths = re.findall(r"=> (/\S+)", listed.stdout)
    return [pathlib.Path("/") / LIBRARY_DIR / pathlib.Path(path).name for path in paths]


class Archive:
    """A cpio archive in the format that the kernel reads (`newc`)."""

    def __init__(self):
        self.out = io.BytesIO()
        self.names = set()
        self.inode = 0

    def directory(self, name):
        parts = pathlib.PurePosixPath(name)
        for path in [*reversed(parts.parents), parts]:
            if str(path) not in (*self.names, "."):
                self.entry(str(path), stat.S_IFDIR | 0o755, b"")

    def file(self, name, content, mode=0o644):
        self.directory(str(pathlib.PurePosixPath(name).parent))
        self.entry(name, stat.S_IFREG | mode, content)

    def link(self, name, target):
        self.directory(str(pathlib.PurePosixPath(name).parent))
        self.entry(name, stat.S_IFLNK | 0o777, target.encode())

    def entry(self, name, mode, content):
        self.names.add(name)
        self.inode += 1
        encoded = name.encode() + b"\0"
        fields = [self.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
        self.out.write(b"070701" + b"".join(b"%08X" % f for f in fields) + encoded)
        self.pad()
        self.out.write(content)
        self.pad()

    def pad(self):
        self.out.write(bytes(-self.out.tell() % 4))

    def bytes(self):
        self.entry("TRAILER!!!", 0, b"")
        return self.out.getvalue()


def tool(name):
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        raise Unprepared(f"{name} is not installed")
    return path


def run(command, **options):
    """Runs a host command; its output is in the error when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-5:])
        raise Unprepared(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{last}")
    return done.stdout


def remove_unused(cache):
    for old in [*cache.glob("build-*"), *cache.glob("kernel-*")]:
        if time.time() - old.stat().st_mtime > UNUSED_DAYS_MAX * 86400:
            shutil.rmtree(old, ignore_errors=True)
    # What a killed run left; nobody else builds while the lock is held.
    for scratch in cache.glob("tmp-*"):
        shutil.rmtree(scratch, ignore_errors=True)
