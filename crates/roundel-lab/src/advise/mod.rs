//! `roundel-lab advise`: which protocol or which design of the shuffle to use, with what, and why; and whether advice
//! on protocols is good.

mod check;
mod protocol;
mod shuffle;

use roundel_protocols::Protocol;
use roundel_protocols::advise::{HostModel, probes};
use roundel_protocols::paradigm::Group;
use roundel_verbs::Device;
use roundel_verbs::sim::Parameters;

use crate::cli::{AdviseArgs, AdviseCommand, ModelArgs};
use crate::perf::protocols::{measured, settings};
use roundel_terminal::Failure;
use roundel_terminal::Signals;
use roundel_terminal::progress::run_bar;

/// Seconds of each measured point.
const PROBE_SECONDS: f64 = 0.2;

/// Runs the command.
pub async fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let mut signals = Signals::watch()?;
    let work = async {
        match &args.command {
            AdviseCommand::Protocol(args) => protocol::run(args).await,
            AdviseCommand::Shuffle(args) => shuffle::run(args).await,
            AdviseCommand::Check(args) => check::run(args).await,
        }
    };
    signals.or_signal(work).await
}

fn parameters(args: &ModelArgs) -> Result<Parameters, Failure> {
    let unknown = || Failure::Usage(format!("there is no hardware {}", args.nic));
    Parameters::named(&args.nic).ok_or_else(unknown)
}

/// The protocols to choose from, where they are simulated.
fn simulated_protocols(args: &ModelArgs, parameters: &Parameters) -> Vec<Protocol> {
    chosen(args, settings::simulated_protocols(parameters))
}

/// The protocols to choose from, on a device.
fn protocols_of(args: &ModelArgs, device: &Device) -> Vec<Protocol> {
    let can = |protocol: &Protocol| protocol.check(device.capabilities()).is_ok();
    chosen(args, Protocol::ALL.into_iter().filter(can).collect())
}

fn chosen(args: &ModelArgs, there: Vec<Protocol>) -> Vec<Protocol> {
    let wanted = |one: &Protocol| args.protocol.is_empty() || args.protocol.contains(one);
    there.into_iter().filter(wanted).collect()
}

/// Measures a few points of each protocol.
async fn measure_host(
    group: &mut Group,
    protocols: &[Protocol],
    request_bytes: usize,
) -> Result<HostModel, Failure> {
    let probes = probes(protocols, request_bytes, PROBE_SECONDS);
    let bar = run_bar(probes.len() as u64);
    let mut points = Vec::new();
    for probe in &probes {
        bar.set_message(format!("measuring {}", probe.protocol));
        points.push(measured(group, probe).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(HostModel::new(&points, processors))
}
