//! What RDMA needs of the host: the library, the modules, the device files, and a device.

use super::{Finding, Level, listed};
use crate::doctor::facts::Facts;
use crate::doctor::kernel::{CORE_MODULES, ModuleState, SOFT_ROCE};

const SECTION: &str = "RDMA";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![library(facts), modules(facts)];
    if !facts.kernel_devices.is_empty() {
        findings.push(device_files(facts));
    }
    findings.extend(unused_cards(facts));
    findings.push(devices(facts));
    findings
}

/// What is missing is a problem where RDMA should work, else it is good to know.
fn missing(facts: &Facts) -> Level {
    if facts.expects_rdma() {
        Level::Problem
    } else {
        Level::Note
    }
}

fn library(facts: &Facts) -> Finding {
    const ABOUT: &str = "libibverbs";
    let Some(problem) = &facts.library_problem else {
        return Finding::new(SECTION, ABOUT, Level::Ok, "can be loaded");
    };
    let install = match facts.host.distribution.as_deref() {
        Some("debian" | "ubuntu" | "linuxmint" | "raspbian" | "pop") | None => {
            "`apt-get install libibverbs1 ibverbs-providers`"
        }
        Some("fedora" | "rhel" | "centos" | "rocky" | "almalinux" | "ol" | "amzn") => {
            "`dnf install libibverbs`"
        }
        Some("opensuse-leap" | "opensuse-tumbleweed" | "sles") => {
            "`zypper install libibverbs1 rdma-core`"
        }
        Some(_) => "install the package rdma-core",
    };
    Finding::new(SECTION, ABOUT, missing(facts), problem).step(install)
}

fn modules(facts: &Facts) -> Finding {
    const ABOUT: &str = "modules";
    let kernel = &facts.kernel;
    let serving: Vec<&str> = kernel
        .modules
        .iter()
        .filter(|module| module.state.serves())
        .map(|module| module.name)
        .collect();
    let lacking = CORE_MODULES
        .into_iter()
        .find(|name| !kernel.state(name).serves());
    match lacking {
        None => Finding::new(SECTION, ABOUT, Level::Ok, serving.join(", ")),
        Some(name) => {
            let text = match kernel.state(name) {
                ModuleState::Absent => format!("this kernel was installed without {name}"),
                _ => format!("{name} is not loaded"),
            };
            let finding = Finding::new(SECTION, ABOUT, missing(facts), text);
            match kernel.state(name) {
                ModuleState::Absent => finding.step(kernel_package(facts)),
                ModuleState::Available => finding.step("as root: `modprobe ib_uverbs`"),
                _ if missing(facts) == Level::Note => finding,
                _ => finding.step("as root, outside of any container: `modprobe ib_uverbs`"),
            }
        }
    }
}

fn kernel_package(facts: &Facts) -> String {
    match facts.host.distribution.as_deref() {
        Some("ubuntu") => "`apt-get install linux-modules-extra-$(uname -r)`".to_owned(),
        _ => "install the distribution's full kernel, not its variant for clouds".to_owned(),
    }
}

fn device_files(facts: &Facts) -> Finding {
    const ABOUT: &str = "device files";
    let files = &facts.kernel.device_files;
    if files.is_empty() {
        let text = "the kernel has devices, but there is no /dev/infiniband/uverbs*";
        return Finding::new(SECTION, ABOUT, Level::Problem, text)
            .step("as root: `modprobe ib_uverbs`")
            .step("in a container: start it with `--device /dev/infiniband`");
    }
    let paths = |accessible: bool| -> Vec<String> {
        let chosen = files.iter().filter(|file| file.accessible == accessible);
        chosen.map(|file| file.path.display().to_string()).collect()
    };
    let closed = paths(false);
    if closed.is_empty() {
        return Finding::new(SECTION, ABOUT, Level::Ok, paths(true).join(", "));
    }
    let text = format!("this user may not open {}", listed(&closed));
    Finding::new(SECTION, ABOUT, Level::Problem, text)
        .step("for good: `apt-get install rdma-core`, whose udev rules open them to everybody")
        .step(format!(
            "until the next boot, as root: `chmod 666 {}`",
            closed.join(" ")
        ))
}

fn unused_cards(facts: &Facts) -> Vec<Finding> {
    let finding = |card: &crate::doctor::kernel::Card| {
        let text = format!("{} ({}) has no RDMA driver", card.pci_address, card.id);
        let load = match card.module {
            Some(module) => format!("as root: `modprobe {module}`"),
            None => format!(
                "load its driver; `lspci -k -s {}` names it",
                card.pci_address
            ),
        };
        Finding::new(SECTION, "card", Level::Problem, text).step(load)
    };
    facts.kernel.unused_cards.iter().map(finding).collect()
}

fn devices(facts: &Facts) -> Finding {
    const ABOUT: &str = "devices";
    if !facts.kernel_devices.is_empty() {
        let text = listed(&facts.kernel_devices);
        return Finding::new(SECTION, ABOUT, Level::Ok, text);
    }
    let finding = Finding::new(SECTION, ABOUT, missing(facts), "none");
    let make = format!(
        "`modprobe {SOFT_ROCE} && rdma link add rxe0 type rxe netdev {}`",
        facts.interface
    );
    let finding = match facts.kernel.state(SOFT_ROCE) {
        ModuleState::Absent => finding,
        ModuleState::Unknown => finding.step(format!(
            "to try RDMA without a card (Soft-RoCE), as root, outside of any container: {make}"
        )),
        _ => finding.step(format!(
            "to try RDMA without a card (Soft-RoCE), as root: {make}"
        )),
    };
    finding.step(
        "to try it where the kernel has no Soft-RoCE, in a checkout of Roundel: \
         `vm/run exec -- target/release/roundel doctor`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::tests::facts;
    use crate::doctor::kernel::{Card, DeviceFile, Module};

    fn without_devices() -> Facts {
        let mut facts = facts();
        facts.devices.clear();
        facts.kernel_devices.clear();
        facts
    }

    #[test]
    fn a_laptop_without_a_card_has_no_problem() {
        let mut facts = without_devices();
        facts.library_problem = Some("cannot be loaded".to_owned());
        let found = judge(&facts);
        assert!(found.iter().all(|finding| finding.level < Level::Problem));
        facts.asked = "rdma".parse().unwrap();
        assert_eq!(library(&facts).level, Level::Problem);
        assert_eq!(devices(&facts).level, Level::Problem);
    }

    #[test]
    fn soft_roce_is_proposed_where_the_kernel_may_have_it() {
        let mut facts = without_devices();
        let steps = |facts: &Facts| devices(facts).to_do;
        for (state, count) in [
            (ModuleState::Available, 2),
            (ModuleState::Unknown, 2),
            (ModuleState::Absent, 1),
        ] {
            let name = SOFT_ROCE;
            facts.kernel.modules = vec![Module { name, state }];
            assert_eq!(steps(&facts).len(), count, "{state:?}");
        }
    }

    #[test]
    fn a_card_without_its_driver_is_a_problem_with_a_command() {
        let mut facts = without_devices();
        facts.kernel.unused_cards = vec![Card {
            pci_address: "0000:3b:00.0".to_owned(),
            id: "15b3:1017".to_owned(),
            module: Some("mlx5_ib"),
        }];
        let found = &unused_cards(&facts)[0];
        assert_eq!(found.level, Level::Problem);
        assert_eq!(found.to_do, ["as root: `modprobe mlx5_ib`"]);
        assert_eq!(devices(&facts).level, Level::Problem);
    }

    #[test]
    fn device_files_must_be_there_and_open() {
        let mut facts = facts();
        facts.kernel.device_files.clear();
        assert!(device_files(&facts).to_do[0].contains("modprobe ib_uverbs"));
        facts.kernel.device_files = vec![DeviceFile {
            path: "/dev/infiniband/uverbs0".into(),
            accessible: false,
        }];
        let found = device_files(&facts);
        assert!(found.to_do[1].contains("chmod 666 /dev/infiniband/uverbs0"));
    }
}
