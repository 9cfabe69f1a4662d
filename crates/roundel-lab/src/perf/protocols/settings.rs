//! The settings that flags ask for, in order.

use roundel_protocols::Protocol;
use roundel_protocols::paradigm::{Load, Paradigm, Setting};
use roundel_verbs::Capabilities;
use roundel_verbs::sim::Parameters;

use crate::cli::ProtocolsArgs;
use roundel_terminal::Failure;

/// Seconds of a run on real devices, and before it counts.
const SECONDS: f64 = 1.0;
const WARM_UP: f64 = 0.2;

/// Of real devices.
pub fn real(args: &ProtocolsArgs, device: &Capabilities) -> Result<Vec<Setting>, Failure> {
    let can = |protocol: &Protocol| protocol.check(device).is_ok();
    let protocols = match args.protocol.is_empty() {
        true => Protocol::ALL.into_iter().filter(can).collect(),
        false => args.protocol.clone(),
    };
    let settings = all(args, &protocols, |setting| Setting {
        warm_up: WARM_UP,
        seconds: SECONDS,
        ..setting.clone()
    });
    checked(settings, device)
}

/// What simulated hardware can carry.
pub fn simulated_protocols(parameters: &Parameters) -> Vec<Protocol> {
    let can = |protocol: &Protocol| {
        let transports = protocol.transports();
        let known = |transport| parameters.nic.transports.contains(transport);
        *protocol != Protocol::Tcp && transports.iter().all(known)
    };
    Protocol::ALL.into_iter().filter(can).collect()
}

/// Of simulated hardware.
pub fn simulated(args: &ProtocolsArgs, parameters: &Parameters) -> Result<Vec<Setting>, Failure> {
    let can = |protocol: &Protocol| {
        let transports = protocol.transports();
        let known = |transport| parameters.nic.transports.contains(transport);
        *protocol != Protocol::Tcp && transports.iter().all(known)
    };
    let protocols: Vec<_> = match args.protocol.is_empty() {
        true => Protocol::ALL.into_iter().filter(can).collect(),
        false => args.protocol.clone(),
    };
    if let Some(cannot) = protocols.iter().find(|protocol| !can(protocol)) {
        return Err(Failure::Usage(format!("{} has no {cannot}", args.fabric)));
    }
    let settings = all(args, &protocols, Setting::for_simulation);
    for setting in &settings {
        setting.check()?;
    }
    Ok(settings)
}

fn checked(settings: Vec<Setting>, device: &Capabilities) -> Result<Vec<Setting>, Failure> {
    for setting in &settings {
        setting.check_on(device)?;
    }
    Ok(settings)
}

/// All combinations; `timed` says how long each takes, unless the flags do.
fn all(
    args: &ProtocolsArgs,
    protocols: &[Protocol],
    timed: impl Fn(&Setting) -> Setting,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    for paradigm in &args.paradigm {
        let least = match paradigm {
            Paradigm::ManyToMany => vec![2],
            _ => vec![1],
        };
        let nodes = if args.nodes.is_empty() {
            &least
        } else {
            &args.nodes
        };
        for (nodes, threads, pending, value) in combinations(args, nodes) {
            for protocol in protocols {
                let setting = Setting {
                    threads,
                    responder_threads: args.responder_threads,
                    pending,
                    request_bytes: bytes(args.request),
                    response_bytes: bytes(value),
                    load: args.rate.map_or(Load::Closed, Load::Open),
                    ..Setting::new(*paradigm, *protocol, nodes)
                };
                let timed = timed(&setting);
                settings.push(Setting {
                    warm_up: args.warm_up.unwrap_or(timed.warm_up),
                    seconds: args.seconds.unwrap_or(timed.seconds),
                    ..setting
                });
            }
        }
    }
    settings
}

fn combinations(args: &ProtocolsArgs, nodes: &[usize]) -> Vec<(usize, usize, usize, u64)> {
    let mut all = Vec::new();
    for nodes in nodes {
        for threads in &args.threads {
            for pending in &args.pending {
                for value in &args.value {
                    all.push((*nodes, *threads, *pending, *value));
                }
            }
        }
    }
    all
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
