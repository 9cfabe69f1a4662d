//! What was found on this host, not judged. The names of the fields are those of the JSON, which programs rely on.

use std::path::Path;

use bytesize::ByteSize;
use clap::Parser as _;
use roundel_engine::{Fabric, FabricChoice};
use roundel_verbs::loopback::{Check, Verdict};
use roundel_verbs::rdma::inventory::{self, DeviceReport};
use roundel_verbs::rdma::sysfs;
use roundel_verbs::{DeviceChoice, VerbsError};
use serde::Serialize;

use super::fabrics::{self, FabricReport};
use super::host::{Host, names_in, read};
use super::kernel::Kernel;
use crate::cli::{Cli, ClusterArgs, Command};
use roundel_terminal::Failure;
use roundel_verbs::one_line;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// The fabric that was asked for, as `--fabric` names it.
    #[serde(serialize_with = "as_text")]
    pub asked: FabricChoice,
    /// Processors, memory and limits.
    pub host: Host,
    /// What the kernel has for RDMA.
    pub kernel: Kernel,
    /// The network interface of the default route, or another one.
    pub interface: String,
    /// Why libibverbs cannot list devices; nothing when it can.
    pub library_problem: Option<String>,
    /// RDMA devices of the kernel, whether or not libibverbs can use them.
    pub kernel_devices: Vec<String>,
    /// What libibverbs and the kernel tell of the devices; of one, when one was asked for.
    pub devices: Vec<DeviceReport>,
    /// Each fabric, tried.
    pub fabrics: Vec<FabricReport>,
    /// What is taken when nothing else is said.
    pub default_run: DefaultRun,
}

fn as_text<S: serde::Serializer>(asked: &FabricChoice, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(asked)
}

/// What `roundel tpch` takes by default.
#[derive(Debug, Serialize)]
pub struct DefaultRun {
    /// What carries the rows: `auto`, the first of RDMA, shared memory, sockets and gRPC that can be opened.
    pub fabric: String,
    /// Which that is here, where all were looked at.
    pub takes: Option<String>,
    /// The shuffle design.
    pub design: String,
    /// Worker processes.
    pub workers: u16,
    /// Runtime threads of each.
    pub threads: u16,
    /// Registered memory of each, at most.
    pub registered_memory_bytes: u64,
}

impl DefaultRun {
    /// As the command line has it.
    fn new() -> Result<Self, Failure> {
        let cli = Cli::try_parse_from(["roundel", "tpch"]);
        let Ok(Command::Tpch(args)) = cli.map(|cli| cli.command) else {
            let told = "`roundel tpch` does not run without flags";
            return Err(Failure::Run(told.to_owned()));
        };
        let ClusterArgs { exchange, node, .. } = args.cluster;
        Ok(Self {
            fabric: node.fabric.to_string(),
            takes: None,
            design: exchange.design.to_string(),
            workers: args.cluster.workers,
            threads: node.threads,
            registered_memory_bytes: node.registered_memory,
        })
    }
}

impl Facts {
    pub(super) fn collect(asked: &FabricChoice) -> Result<Self, Failure> {
        let host = Host::collect();
        let kernel = Kernel::collect(&host.kernel);
        let mut found = match asked.fabric() {
            None | Some(Fabric::Rdma) => inventory::devices(),
            Some(_) => Ok(Vec::new()),
        };
        let fabrics = fabrics::check(asked, found.as_deref());
        if let (Ok(devices), FabricChoice::Device(DeviceChoice::Rdma(options))) =
            (&mut found, asked)
            && let Some(name) = &options.device
        {
            devices.retain(|device| device.name == *name);
        }
        let mut default_run = DefaultRun::new()?;
        if *asked == FabricChoice::Auto {
            default_run.takes = fabrics::first_that_opens(&fabrics).map(str::to_owned);
        }
        let library_problem = found.as_ref().err().map(|error| match error {
            VerbsError::NoLibrary { reason, .. } => one_line(reason),
            error => one_line(&error.to_string()),
        });
        Ok(Self {
            asked: asked.clone(),
            kernel,
            host,
            interface: some_interface(Path::new("/")),
            library_problem,
            kernel_devices: sysfs::device_names(),
            devices: found.unwrap_or_default(),
            fabrics,
            default_run,
        })
    }

    /// Whether RDMA is of interest.
    pub fn looks_at_rdma(&self) -> bool {
        matches!(self.asked.fabric(), None | Some(Fabric::Rdma))
    }

    /// Whether RDMA was asked for.
    fn asks_for_rdma(&self) -> bool {
        self.asked.fabric() == Some(Fabric::Rdma)
    }

    /// Whether RDMA should work here: there is hardware for it, or it was asked for.
    pub fn expects_rdma(&self) -> bool {
        let has_hardware = !self.kernel_devices.is_empty() || !self.kernel.unused_cards.is_empty();
        has_hardware || self.asks_for_rdma()
    }

    /// Whether the fabric that was asked for works, or any, when none was.
    pub(super) fn works(&self) -> bool {
        self.fabrics.iter().any(|fabric| fabric.works)
    }

    /// Why a fabric does not work, in a few words.
    pub fn reason(&self, fabric: &FabricReport) -> String {
        let refused = fabric.verbs.iter().any(|outcome| {
            outcome.check == Check::RegisteredMemory && outcome.verdict != Verdict::Works
        });
        match self.locked_memory_below_need(fabric) {
            Some(limit) if refused => format!("this process may lock only {limit} of memory"),
            _ => fabric.problem.clone().unwrap_or_default(),
        }
    }

    /// The limit of locked memory, where a worker on this fabric would need more.
    pub fn locked_memory_below_need(&self, fabric: &FabricReport) -> Option<ByteSize> {
        let limit = &self.host.locked_memory;
        let pins = fabric.name.starts_with("rdma");
        let enough = limit.allows(self.default_run.registered_memory_bytes);
        limit.limit_bytes.filter(|_| pins && !enough).map(ByteSize)
    }
}

/// The network interface of the default route; else the first that is not loopback.
fn some_interface(root: &Path) -> String {
    let routes = read(&root.join("proc/net/route")).unwrap_or_default();
    let by_default = routes.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (name, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then(|| name.to_owned())
    });
    let first = || {
        let mut names = names_in(&root.join("sys/class/net"));
        names.retain(|name| name != "lo");
        names.into_iter().next()
    };
    by_default
        .or_else(first)
        .unwrap_or_else(|| "eth0".to_owned())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::doctor::host::NumaNode;
    use crate::doctor::kernel::{DeviceFile, Module, ModuleState};
    use roundel_verbs::rdma::LockedMemory;
    use roundel_verbs::rdma::inventory::{Limits, OpenedDevice, PortReport};
    use roundel_verbs::rdma::sysfs::{Gid, GidType, Interface};
    use std::collections::BTreeSet;

    /// A host with one healthy card: a RoCE device on `eth0`.
    pub fn facts() -> Facts {
        let limits = Limits {
            queue_pairs_max: 1000,
            work_requests_max: 16384,
            scatter_gather_max: 30,
            completion_queues_max: 1000,
            completion_queue_depth_max: 65535,
            memory_regions_max: 1000,
            registered_bytes_max: u64::MAX,
            reads_asked_max: 16,
            reads_answered_max: 16,
            atomics: "device",
            shared_receive_queues_max: 1000,
            shared_receive_depth_max: 1000,
            multicast_groups_max: 1000,
            address_handles_max: 1000,
        };
        let port = PortReport {
            number: 1,
            state: "active",
            physical_state: "link up",
            link_layer: "Ethernet",
            rate: Some("100 Gb/sec (4X EDR)".to_owned()),
            active_mtu_bytes: 4096,
            max_mtu_bytes: 4096,
            lid: 0,
            message_bytes_max: 1 << 30,
            interface: Some(Interface {
                name: "eth0".to_owned(),
                mtu: Some(9000),
                enabled: true,
            }),
            gids: vec![Gid {
                index: 3,
                address: "::ffff:10.0.0.1".parse().unwrap(),
                kind: GidType::RoceV2,
                interface: Some("eth0".to_owned()),
            }],
        };
        let device = DeviceReport {
            name: "mlx5_0".to_owned(),
            node_guid: None,
            firmware: Some("16.35.2000".to_owned()),
            software_on: None,
            numa_node: None,
            pci_address: None,
            pcie: None,
            opened: Some(OpenedDevice {
                transport: "InfiniBand",
                vendor_id: 0x15b3,
                vendor_part_id: 4119,
                hardware_version: 0,
                limits,
                ports: vec![port],
            }),
            problem: None,
        };
        let node = |node: u32| NumaNode {
            node,
            cpus: BTreeSet::from([2 * node, 2 * node + 1]),
            memory_bytes: Some(8 << 30),
        };
        let module = |name| Module {
            name,
            state: ModuleState::Loaded,
        };
        Facts {
            asked: FabricChoice::Auto,
            host: Host {
                kernel: "6.1.0".to_owned(),
                distribution: Some("debian".to_owned()),
                cpus: (0..4).collect(),
                numa_nodes: vec![node(0), node(1)],
                memory_bytes: Some(16 << 30),
                memory_available_bytes: Some(12 << 30),
                cgroup_memory_limit_bytes: None,
                locked_memory: LockedMemory {
                    limit_bytes: None,
                    hard_limit_bytes: None,
                    exempt: false,
                },
                huge_pages: Vec::new(),
                transparent_huge_pages: None,
                memfd: true,
                dev_shm: None,
            },
            kernel: Kernel {
                modules: ["ib_core", "ib_uverbs", "mlx5_ib"].map(module).into(),
                device_files: vec![DeviceFile {
                    path: "/dev/infiniband/uverbs0".into(),
                    accessible: true,
                }],
                unused_cards: Vec::new(),
            },
            interface: "eth0".to_owned(),
            library_problem: None,
            kernel_devices: vec!["mlx5_0".to_owned()],
            devices: vec![device],
            fabrics: Vec::new(),
            default_run: DefaultRun::new().unwrap(),
        }
    }

    /// A fabric that works, or why not.
    pub fn fabric(name: &str, problem: Option<&str>) -> FabricReport {
        FabricReport {
            name: name.to_owned(),
            works: problem.is_none(),
            problem: problem.map(str::to_owned),
            capabilities: None,
            verbs: Vec::new(),
            designs: Vec::new(),
        }
    }

    #[test]
    fn the_interface_of_the_default_route_is_proposed() {
        let root = crate::doctor::root_with(&[
            (
                "proc/net/route",
                "Iface Destination\na 000200C0\nb 00000000 x\n",
            ),
            ("sys/class/net/lo/x", ""),
            ("sys/class/net/z/x", ""),
        ]);
        assert_eq!(some_interface(root.path()), "b");
        std::fs::remove_file(root.path().join("proc/net/route")).unwrap();
        assert_eq!(some_interface(root.path()), "z");
    }
}
