"""What a guest is told: its command, and the files from which its init sets everything up.

Whatever can be worked out here is, for the guest's CPU is slow. Knows nothing of QEMU.
"""

import dataclasses
import shlex
import socket

# Frames that may wait where some are lost: as good as without a limit.
NETEM_FRAMES_MAX = 100_000
# The kernel's RDMA devices in software, Soft-RoCE and Soft-iWARP, and the modules of each. Without the sums of crc32 and
# crc32c the kernel refuses to make a device.
KINDS = {"rxe": ["crc32_generic", "rdma_rxe"], "siw": ["crc32c_generic", "siw"]}


@dataclasses.dataclass
class Share:
    """A host directory that the guest sees."""

    host: str
    guest: str
    writable: bool = False


@dataclasses.dataclass
class Port:
    """An RDMA device and the interface that it is on."""

    device: str
    interface: str
    # With its prefix: 10.9.0.1/24.
    address: str

    def ip(self):
        return self.address.split("/")[0]

    def mac(self):
        return mac_of(self.ip())

    def gid(self):
        """As the kernel writes it in /sys: of the address on Soft-RoCE, of the interface on Soft-iWARP."""
        if self.device.startswith("siw"):
            a, b, c, d, e, f = self.mac().split(":")
            return f"{a}{b}:{c}{d}:{e}{f}:0000:0000:0000:0000:0000"
        a, b, c, d = (int(part) for part in self.ip().split("."))
        return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


@dataclasses.dataclass
class Job:
    """What to run, and on what machine."""

    command: list
    shares: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    directory: str = "/"
    hostname: str = "vm"
    # Name to address, of the machines on the link.
    hosts: dict = dataclasses.field(default_factory=dict)
    memory_mib: int = 2048
    cpus: int = 2
    devices: int = 2
    # One of KINDS.
    kind: str = "rxe"
    mtu: int = 9000
    loss_percent: float = 0
    # A device such as `rxe1`, or nothing.
    link_down: str = ""
    rdma_modules: bool = True
    libibverbs: bool = True
    numa_nodes: int = 1
    hugepages: int = 0
    # None for root.
    user: int | None = None
    # None for all memory.
    memlock_kib: int | None = None
    # A connected stream socket, the cable of a network card, and the card's address with its prefix.
    link: socket.socket | None = None
    net_address: str = ""
    # When it tells on its console what still runs.
    patience_s: float = 1e6

    def card(self):
        """The port on the network card, if there is one."""
        return Port(f"{self.kind}{self.devices}", "eth0", self.net_address) if self.link else None

    def ports(self):
        """Those on the guest's own switch, then that on the network card."""
        own = [Port(f"{self.kind}{n}", f"v{n}", f"10.9.0.{n + 1}/24") for n in range(self.devices)]
        return own + ([self.card()] if self.link else [])

    def files(self, marker):
        """The files under /job in the guest, by name."""
        settings = {
            "marker": marker, "hostname": self.hostname, "directory": self.directory,
            "libibverbs": int(self.libibverbs), "hugepages": self.hugepages,
            "user": "" if self.user is None else "user",
            "memlock": "unlimited" if self.memlock_kib is None else self.memlock_kib,
            "modules": " ".join(self.modules()),
            "patience": f"{self.patience_s:g}",
        }
        hosts = {"localhost": "127.0.0.1", self.hostname: "127.0.0.1"} | self.hosts
        user = self.user or 1000
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]
        lines = {
            "settings": [f"{name}={shlex.quote(str(value))}" for name, value in settings.items()],
            "command": [*exports, f"exec {shlex.join(self.command)}"],
            "shares": self.mounts(),
            "ip": self.interfaces(),
            "rdma": [f"link add {p.device} type {self.kind} netdev {p.interface}" for p in self.rdma_ports()],
            "ready": [f"{p.device} {p.gid()}" for p in self.rdma_ports() if p.device != self.link_down],
            "tc": self.disciplines(),
            "hosts": [f"{address} {name}" for name, address in hosts.items()],
            "passwd": ["root:x:0:0:root:/root:/bin/sh", f"user:x:{user}:{user}:user:/tmp:/bin/sh"],
            "group": ["root:x:0:", f"user:x:{user}:"],
        }
        return {name: "".join(f"{line}\n" for line in text) for name, text in lines.items()}

    def modules(self):
        rdma = [*KINDS[self.kind], "ib_uverbs", "rdma_ucm"] if self.rdma_modules else []
        switch = ["bridge", "veth"] if self.devices else []
        return [*(["virtio_net"] if self.link else []), *switch, *rdma, *(["sch_netem"] if self.loss_percent else [])]

    def mounts(self):
        for number, share in enumerate(self.shares):
            # What is written has to be seen by the other side at once; what is only read may be kept.
            yield f"share{number} {'rw,cache=mmap' if share.writable else 'ro,cache=loose'} {share.guest}"

    def interfaces(self):
        """Lines for `ip -batch`."""
        yield "link set lo up"
        if self.devices:
            yield "link add br0 type bridge mcast_snooping 0"
            yield f"link set br0 mtu {self.mtu} up"
        for number in range(self.devices):
            mac = self.ports()[number].mac()
            yield f"link add v{number} mtu {self.mtu} address {mac} type veth peer name p{number} mtu {self.mtu}"
            yield f"link set p{number} master br0 up"
        if self.link:
            yield f"link set eth0 mtu {self.mtu}"
        up = [port for port in self.ports() if port.device != self.link_down]
        for port in self.ports():
            yield f"address add {port.address} dev {port.interface}"
            if port in up:
                yield f"link set {port.interface} up"
        if up:
            # Where a group is joined that names no interface.
            yield f"route add 224.0.0.0/4 dev {up[0].interface}"
        if self.loss_percent:
            yield from self.neighbours(up)

    def neighbours(self, ports):
        """A lost question for an address would cost a second and fail what asked: all are answered beforehand."""
        for port in ports:
            others = self.hosts.values() if port == self.card() else [p.ip() for p in ports if p != self.card()]
            for address in others:
                if address != port.ip():
                    yield f"neighbour add {address} lladdr {mac_of(address)} dev {port.interface} nud permanent"

    def disciplines(self):
        """Lines for `tc -batch`."""
        for port in self.ports() if self.loss_percent else []:
            yield f"qdisc add dev {port.interface} root netem limit {NETEM_FRAMES_MAX} loss {self.loss_percent:g}%"

    def rdma_ports(self):
        return self.ports() if self.rdma_modules else []


def mac_of(ip):
    """From the address alone, so that a peer's is known without asking it."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in ip.split("."))
