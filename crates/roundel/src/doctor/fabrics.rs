//! What each fabric can do here: it is opened, every verb is tried, and from that follows which
//! designs can run on it.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use roundel_engine::{Design, Fabric, FabricChoice, Verb};
use roundel_verbs::loopback::{self, Check, Outcome, Verdict};
use roundel_verbs::rdma::RdmaOptions;
use roundel_verbs::rdma::inventory::DeviceReport;
use roundel_verbs::{Capabilities, DeviceChoice, Transport, VerbsError};
use serde::Serialize;

/// A fabric, and what it can do.
#[derive(Debug, Serialize)]
pub struct FabricReport {
    /// As `--fabric` names it: `shm`, `rdma:mlx5_0/1`, `grpc`.
    pub name: String,
    /// Whether it can carry rows.
    pub works: bool,
    /// Why not, in a few words.
    pub problem: Option<String>,
    /// What its device says of itself, if it could be opened.
    pub capabilities: Option<Capabilities>,
    /// Each verb, tried between two queue pairs of the device.
    pub verbs: Vec<Outcome>,
    /// Each design; none where the fabric has no designs.
    pub designs: Vec<DesignReport>,
}

/// Whether a design can run.
#[derive(Debug, Serialize)]
pub struct DesignReport {
    /// Its name.
    pub design: String,
    /// Whether all works that it builds on.
    pub runs: bool,
    /// Why it cannot run.
    pub problem: Option<String>,
}

/// RDMA devices to look at, and why there is none.
pub type Devices<'a> = Result<&'a [DeviceReport], &'a VerbsError>;

/// Tries the fabric that was asked for, or every one.
pub fn check(asked: &FabricChoice, devices: Devices<'_>) -> Vec<FabricReport> {
    match asked {
        FabricChoice::Grpc => vec![check_grpc()],
        FabricChoice::Device(DeviceChoice::Rdma(options)) if options.device.is_some() => {
            vec![check_rdma(options, devices)]
        }
        FabricChoice::Device(DeviceChoice::Rdma(_)) => check_every_port(devices),
        FabricChoice::Device(choice) => vec![check_device(choice)],
        FabricChoice::Auto => {
            let mut all = vec![check_device(&DeviceChoice::Shm)];
            all.extend(check_every_port(devices));
            all.push(check_device(&DeviceChoice::Tcp(None)));
            all.push(check_grpc());
            all
        }
    }
}

/// What `--fabric auto` takes on this host, if it comes to that: the first in the order of
/// preference whose device can be opened, whether or not it works then.
pub fn first_that_opens(fabrics: &[FabricReport]) -> Option<&str> {
    let opens = |fabric: &&FabricReport, name: &str| {
        let of_name = fabric.name.split(':').next() == Some(name);
        of_name && (fabric.capabilities.is_some() || fabric.works)
    };
    Fabric::ALL.into_iter().find_map(|wanted| {
        let found = fabrics.iter().find(|one| opens(one, wanted.name()))?;
        Some(found.name.as_str())
    })
}

/// A fabric for each port in use; for a device without one, or a host without devices, one that
/// says why there is none.
fn check_every_port(devices: Devices<'_>) -> Vec<FabricReport> {
    let mut fabrics = Vec::new();
    for device in devices.unwrap_or_default() {
        let ports = device
            .opened
            .as_ref()
            .map_or(&[][..], |opened| &opened.ports);
        let active = ports.iter().filter(|port| port.is_active());
        let numbers: Vec<Option<u8>> = match ports {
            [_] => vec![None],
            _ => active.map(|port| Some(port.number)).collect(),
        };
        let of = |port| RdmaOptions {
            device: Some(device.name.clone()),
            port,
            gid_index: None,
        };
        let all = if numbers.is_empty() {
            vec![None]
        } else {
            numbers
        };
        fabrics.extend(all.into_iter().map(|port| check_rdma(&of(port), devices)));
    }
    if fabrics.is_empty() {
        fabrics.push(check_rdma(&RdmaOptions::default(), devices));
    }
    fabrics
}

fn check_rdma(options: &RdmaOptions, devices: Devices<'_>) -> FabricReport {
    let mut report = check_device(&DeviceChoice::Rdma(options.clone()));
    if report.capabilities.is_none()
        && let Some(why) = why_not_open(options, devices)
    {
        report.problem = Some(why);
    }
    report
}

/// In a few words, why a device cannot be used, where the inventory shows it.
fn why_not_open(options: &RdmaOptions, devices: Devices<'_>) -> Option<String> {
    let devices = match devices {
        Err(VerbsError::NoLibrary { .. }) => return Some("libibverbs is not installed".to_owned()),
        Err(_) => return None,
        Ok([]) => return Some("no device".to_owned()),
        Ok(devices) => devices,
    };
    let name = options.device.as_ref()?;
    let Some(device) = devices.iter().find(|device| device.name == *name) else {
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        return Some(format!("no such device; there is {}", names.join(", ")));
    };
    let Some(opened) = &device.opened else {
        return Some("it cannot be opened".to_owned());
    };
    let of_interest = |number: u8| options.port.is_none_or(|port| port == number);
    let mut ports = opened.ports.iter().filter(|port| of_interest(port.number));
    let port = ports.find(|port| !port.is_active() || port.gids.is_empty())?;
    Some(if port.is_active() {
        format!("port {} has no address", port.number)
    } else {
        format!("port {} is {}", port.number, port.state)
    })
}

fn check_device(choice: &DeviceChoice) -> FabricReport {
    let name = choice.to_string();
    let device = match choice.open() {
        Ok(device) => device,
        Err(error) => {
            let problem = error.to_string();
            let verbs: Vec<Outcome> = Vec::new();
            return FabricReport {
                name,
                works: false,
                capabilities: None,
                designs: Design::ALL
                    .map(|design| DesignReport {
                        design: design.to_string(),
                        runs: false,
                        problem: Some("the device cannot be used".to_owned()),
                    })
                    .into(),
                problem: Some(problem),
                verbs,
            };
        }
    };
    let verbs = loopback::run(&device);
    let designs = Design::ALL.map(|design| DesignReport::new(design, &verbs));
    let works = designs.iter().any(|design| design.runs);
    FabricReport {
        name,
        works,
        problem: (!works).then(|| designs[0].problem.clone()).flatten(),
        capabilities: Some(device.capabilities().clone()),
        verbs,
        designs: designs.into(),
    }
}

/// The verbs that a design's endpoints use, for data and to say what is free or wanted.
fn verbs_of(design: Design) -> Vec<Check> {
    let mut verbs = vec![
        Check::RegisteredMemory,
        Check::CompletionChannel,
        Check::Inline,
    ];
    verbs.extend(match (design.transport(), design.verb()) {
        (Transport::UnreliableDatagram, _) => vec![Check::UdSend],
        (_, Verb::Send) => vec![Check::RcSend, Check::RcWriteWithImmediate],
        (_, Verb::Read) => vec![Check::RcRead, Check::RcWrite, Check::RcWriteWithImmediate],
        (_, Verb::Write(_)) => vec![Check::RcWrite, Check::RcWriteWithImmediate],
    });
    verbs
}

impl DesignReport {
    fn new(design: Design, verbs: &[Outcome]) -> Self {
        let broken = |needed: Check| {
            let verdict = verbs.iter().find(|outcome| outcome.check == needed);
            match verdict.map(|outcome| &outcome.verdict) {
                Some(Verdict::Works) => None,
                Some(Verdict::NotSupported) => Some(format!("no {}", needed.name())),
                _ => Some(format!("{} does not work", needed.name())),
            }
        };
        let problem = verbs_of(design).into_iter().find_map(broken);
        Self {
            design: design.to_string(),
            runs: problem.is_none(),
            problem,
        }
    }
}

/// gRPC needs TCP, tried on loopback.
fn check_grpc() -> FabricReport {
    let connect = || -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        TcpStream::connect(listener.local_addr()?)?;
        Ok(())
    };
    let problem = connect()
        .err()
        .map(|error| format!("no TCP on loopback: {error}"));
    FabricReport {
        name: "grpc".to_owned(),
        works: problem.is_none(),
        problem,
        capabilities: None,
        verbs: Vec::new(),
        designs: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_need_the_verbs_of_their_transport() {
        let verdict = |check| match check {
            Check::UdSend => Verdict::Failed("lost".to_owned()),
            Check::Multicast => Verdict::NotSupported,
            _ => Verdict::Works,
        };
        let verbs = Check::ALL.map(|check| Outcome {
            check,
            verdict: verdict(check),
        });
        let runs = |design| DesignReport::new(design, &verbs).runs;
        let expected =
            Design::ALL.map(|design| design.transport() != Transport::UnreliableDatagram);
        assert_eq!(Design::ALL.map(runs), expected);
        let why = DesignReport::new(Design::MesqSr, &verbs).problem;
        assert_eq!(why.as_deref(), Some("UD SEND does not work"));
        assert!(!DesignReport::new(Design::SemqSr, &[]).runs);
    }

    #[test]
    fn shared_memory_runs_every_design() {
        let fabrics = check(&DeviceChoice::Shm.into(), Ok(&[]));
        assert!(fabrics[0].works && fabrics[0].designs.iter().all(|design| design.runs));
        assert_eq!(fabrics[0].problem, None);
    }

    #[test]
    fn a_host_without_devices_says_so() {
        let fabrics = check(&FabricChoice::Auto, Ok(&[]));
        let names: Vec<&str> = fabrics.iter().map(|fabric| fabric.name.as_str()).collect();
        assert_eq!(names, ["shm", "rdma", "tcp", "grpc"]);
        let missing = VerbsError::NoLibrary {
            library: "x",
            reason: "y".to_owned(),
        };
        let why = |devices| why_not_open(&RdmaOptions::default(), devices);
        assert_eq!(why(Ok(&[])).as_deref(), Some("no device"));
        assert_eq!(
            why(Err(&missing)).as_deref(),
            Some("libibverbs is not installed")
        );
    }
}
