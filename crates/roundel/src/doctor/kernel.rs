//! What the kernel has for RDMA: modules, character devices, and cards that no driver serves.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde::Serialize;

use super::host::{names_in, read};

/// Modules that every device needs.
pub const CORE_MODULES: [&str; 2] = ["ib_core", "ib_uverbs"];
/// The module of RDMA over Ethernet in software.
pub const SOFT_ROCE: &str = "rdma_rxe";
/// Modules that drive devices.
const DRIVERS: [&str; 17] = [
    "bnxt_re",
    "efa",
    "erdma",
    "hfi1",
    "hns_roce_hw_v2",
    "ib_mthca",
    "ib_qib",
    "irdma",
    "iw_cxgb4",
    "mana_ib",
    "mlx4_ib",
    "mlx5_ib",
    "ocrdma",
    "qedr",
    "siw",
    "usnic_verbs",
    "vmw_pvrdma",
];

/// What the kernel has.
#[derive(Debug, Serialize)]
pub struct Kernel {
    /// The modules of RDMA, by what is known of them.
    pub modules: Vec<Module>,
    /// `/dev/infiniband/uverbs*`, through which programs reach devices.
    pub device_files: Vec<DeviceFile>,
    /// Cards that could do RDMA, without an RDMA device.
    pub unused_cards: Vec<Card>,
}

/// A module of the kernel.
#[derive(Debug, Serialize)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// Whether it is there.
    pub state: ModuleState,
}

/// Whether a module is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModuleState {
    /// It is loaded at present.
    Loaded,
    /// Part of the kernel itself.
    BuiltIn,
    /// Can be loaded.
    Available,
    /// The kernel was installed without it.
    Absent,
    /// Not loaded; the files of this kernel's modules are not here, as in a container.
    Unknown,
}

impl ModuleState {
    /// Whether it serves now.
    pub fn serves(self) -> bool {
        matches!(self, Self::Loaded | Self::BuiltIn)
    }
}

/// A character device.
#[derive(Debug, Serialize)]
pub struct DeviceFile {
    /// Its path.
    pub path: PathBuf,
    /// Whether this user may open it.
    pub accessible: bool,
}

/// A PCI function.
#[derive(Debug, Serialize)]
pub struct Card {
    /// Its address, `0000:3b:00.0`.
    pub pci_address: String,
    /// Vendor and device, in hexadecimal: `15b3:1017`.
    pub id: String,
    /// The module that would make it an RDMA device, where that is known.
    pub module: Option<&'static str>,
}

impl Kernel {
    /// Looks at the kernel of this release.
    pub fn collect(release: &str) -> Self {
        let root = Path::new("/");
        let directory = root.join("dev/infiniband");
        let mut device_files: Vec<DeviceFile> = names_in(&directory)
            .into_iter()
            .filter(|name| name.starts_with("uverbs"))
            .map(|name| {
                let path = directory.join(name);
                let accessible = access(&path, Access::READ_OK | Access::WRITE_OK).is_ok();
                DeviceFile { path, accessible }
            })
            .collect();
        // uverbs10 after uverbs9.
        device_files.sort_by_key(|file| (file.path.as_os_str().len(), file.path.clone()));
        Self {
            modules: modules(root, release),
            device_files,
            unused_cards: unused_cards(root),
        }
    }

    /// What is known of a module.
    pub fn state(&self, name: &str) -> ModuleState {
        let found = self.modules.iter().find(|module| module.name == name);
        found.map_or(ModuleState::Unknown, |module| module.state)
    }
}

fn modules(root: &Path, release: &str) -> Vec<Module> {
    let files = root.join("lib/modules").join(release);
    let of_file = |name: &str| read(&files.join(name));
    let (built_in, loadable) = (of_file("modules.builtin"), of_file("modules.dep"));
    let names = CORE_MODULES.into_iter().chain([SOFT_ROCE]).chain(DRIVERS);
    let state = |name: &str| {
        let lists = |list: &Option<String>| {
            let list = list.as_deref().unwrap_or_default();
            list.lines().any(|line| is_file_of(line, name))
        };
        let shown = root.join("sys/module").join(name);
        if shown.join("initstate").exists() {
            ModuleState::Loaded
        } else if shown.exists() || lists(&built_in) {
            ModuleState::BuiltIn
        } else if lists(&loadable) {
            ModuleState::Available
        } else if loadable.is_some() {
            ModuleState::Absent
        } else {
            ModuleState::Unknown
        }
    };
    names
        .map(|name| Module {
            name,
            state: state(name),
        })
        .collect()
}

/// Whether a line of the kernel's lists is of the module: `kernel/drivers/…/ib_core.ko.xz: …`.
fn is_file_of(line: &str, module: &str) -> bool {
    let path = line.split(':').next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let name = file.split(".ko").next().unwrap_or_default();
    name.replace('-', "_") == module
}

fn unused_cards(root: &Path) -> Vec<Card> {
    let directory = root.join("sys/bus/pci/devices");
    let card = |address: String| {
        let files = directory.join(&address);
        let number = |name: &str| {
            let text = read(&files.join(name))?;
            u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        let (vendor, device) = (number("vendor")?, number("device")?);
        if files.join("infiniband").exists() {
            return None;
        }
        let driver = std::fs::read_link(files.join("driver")).unwrap_or_default();
        let module = rdma_module(number("class")?, vendor, device, &driver)?;
        Some(Card {
            pci_address: address,
            id: format!("{vendor:04x}:{device:04x}"),
            module,
        })
    };
    names_in(&directory).into_iter().filter_map(card).collect()
}

/// For a card that can do RDMA: its module, where that is known.
fn rdma_module(
    class: u32,
    vendor: u32,
    device: u32,
    driver: &Path,
) -> Option<Option<&'static str>> {
    const ETHERNET: u32 = 0x0200;
    const INFINIBAND: u32 = 0x0207;
    const MELLANOX: u32 = 0x15b3;
    const AMAZON: u32 = 0x1d0f;
    let class = class >> 8;
    match vendor {
        MELLANOX if matches!(class, ETHERNET | INFINIBAND) => {
            let fourth = driver.ends_with("mlx4_core");
            Some(Some(if fourth { "mlx4_ib" } else { "mlx5_ib" }))
        }
        AMAZON if device >> 4 == 0xefa => Some(Some("efa")),
        _ if class == INFINIBAND => Some(None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::root_with as root;

    #[test]
    fn modules_are_loaded_built_in_available_or_absent() {
        let state = |root: &Path, name: &str| {
            let kernel = Kernel {
                modules: modules(root, "6.1"),
                device_files: Vec::new(),
                unused_cards: Vec::new(),
            };
            kernel.state(name)
        };
        let known = root(&[
            ("sys/module/ib_core/initstate", "live\n"),
            ("sys/module/ib_uverbs/parameters/x", "\n"),
            (
                "lib/modules/6.1/modules.builtin",
                "kernel/drivers/mlx5_ib.ko\n",
            ),
            (
                "lib/modules/6.1/modules.dep",
                "kernel/a/rdma_rxe.ko.xz: kernel/b/siw.ko.xz\nkernel/c/hns-roce-hw-v2.ko:\n",
            ),
        ]);
        for (name, wanted) in [
            ("ib_core", ModuleState::Loaded),
            ("ib_uverbs", ModuleState::BuiltIn),
            ("mlx5_ib", ModuleState::BuiltIn),
            ("rdma_rxe", ModuleState::Available),
            ("hns_roce_hw_v2", ModuleState::Available),
            ("siw", ModuleState::Absent),
        ] {
            assert_eq!(state(known.path(), name), wanted, "{name}");
        }
        let container = root(&[("sys/module/ib_core/initstate", "live\n")]);
        assert_eq!(state(container.path(), "ib_core"), ModuleState::Loaded);
        assert_eq!(state(container.path(), "rdma_rxe"), ModuleState::Unknown);
    }

    #[test]
    fn cards_without_an_rdma_device_are_found() {
        let pci = "sys/bus/pci/devices";
        let card = |address: &str, class: &str, vendor: &str, device: &str| {
            [("class", class), ("vendor", vendor), ("device", device)]
                .map(|(name, text)| (format!("{pci}/{address}/{name}"), text.to_owned()))
        };
        let mut files: Vec<(String, String)> = [
            card("0000:01:00.0", "0x020000", "0x15b3", "0x1017"),
            card("0000:02:00.0", "0x020000", "0x15b3", "0x1017"),
            card("0000:03:00.0", "0x020700", "0x1077", "0x7322"),
            card("0000:04:00.0", "0x020000", "0x8086", "0x1533"),
            card("0000:05:00.0", "0x020000", "0x1d0f", "0xefa1"),
        ]
        .concat();
        files.push((
            format!("{pci}/0000:02:00.0/infiniband/mlx5_0/x"),
            String::new(),
        ));
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let root = root(&files);
        let found: Vec<(String, String, Option<&str>)> = unused_cards(root.path())
            .into_iter()
            .map(|card| (card.pci_address, card.id, card.module))
            .collect();
        let wanted = [
            ("0000:01:00.0", "15b3:1017", Some("mlx5_ib")),
            ("0000:03:00.0", "1077:7322", None),
            ("0000:05:00.0", "1d0f:efa1", Some("efa")),
        ]
        .map(|(address, id, module)| (address.to_owned(), id.to_owned(), module));
        assert_eq!(found, wanted);
    }
}
