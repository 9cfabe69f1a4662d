"""Soft-iWARP for the guest: Debian's kernels are built without the module `siw`, so it is built from their source."""

import subprocess

# Of the kernel's source, which is large, only this is unpacked.
SOURCE = "drivers/infiniband/sw/siw"


def build(version, modules, scratch, run):
    """Adds `siw.ko` to the modules of the kernel `version`; `run` runs a command of the host."""
    release = version.rpartition("-")[0]
    series = ".".join(version.split(".")[:2])
    source = f"linux-source-{series}"
    packages = [f"linux-headers-{version}", f"linux-headers-{release}-common", f"linux-kbuild-{series}", source]
    downloads = scratch / "siw"
    downloads.mkdir()
    # The unprivileged user that apt downloads as cannot write here.
    run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages], cwd=downloads)
    for package in downloads.glob("*.deb"):
        run(["dpkg-deb", "-x", package, downloads])
    run(["tar", "-xf", downloads / f"usr/src/{source}.tar.xz", "-C", downloads, f"{source}/{SOURCE}"])
    headers = downloads / f"usr/src/linux-headers-{version}"
    # It names the place where the package would be installed.
    (headers / "Makefile").write_text(f"include {downloads}/usr/src/linux-headers-{release}-common/Makefile\n")
    sources = downloads / source / SOURCE
    run(["make", "-C", headers, f"M={sources}", "CONFIG_RDMA_SIW=m", "modules"], stdin=subprocess.DEVNULL)
    built = modules / "kernel" / SOURCE / "siw.ko"
    built.parent.mkdir(parents=True)
    run(["strip", "--strip-debug", "-o", built, sources / "siw.ko"])
