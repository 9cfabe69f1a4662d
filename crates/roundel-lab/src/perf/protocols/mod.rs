//! `roundel-lab perf protocols`: message protocols among nodes that ask and nodes that answer, on this host, between
//! hosts, or simulated.

mod nodes;
mod report;
pub mod settings;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use roundel_experiments::FabricChoice;
use roundel_protocols::paradigm::{Group, GroupPlace, Measured, Setting, simulate};
use roundel_verbs::sim::Parameters;
use roundel_verbs::{
    Context, Device, DeviceChoice, SocketListener, SocketOptions, SocketRendezvous, TokioContext,
};

use super::other_end;
use crate::cli::ProtocolsArgs;
use nodes::Nodes;
use report::{Report, Table};
use roundel_terminal::Failure;
use roundel_terminal::Signals;
use roundel_terminal::progress::run_bar;
use roundel_terminal::write_json;

/// How long nodes wait for each other to meet: those of this host, and those started by hand.
const MEET_HERE_MAX: Duration = Duration::from_secs(30);
const MEET_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long one node waits for another between steps: longer than any run. One that dies is noticed at once.
const EXCHANGE_MAX: Duration = Duration::from_secs(48 * 60 * 60);

/// Runs the command.
pub async fn run(args: &ProtocolsArgs) -> Result<(), Failure> {
    let mut signals = Signals::watch()?;
    let work = async {
        match (&args.fabric, args.connect) {
            (FabricChoice::Device(choice), Some(address)) => take_part(args, choice, address).await,
            (FabricChoice::Device(choice), None) => measure(args, choice).await,
            (FabricChoice::Simulated(_), None) if args.listen.is_none() => {
                let parameters = args.fabric.hardware().ok_or_else(|| {
                    Failure::Usage(format!("there is no simulated hardware {}", args.fabric))
                })?;
                simulated(args, parameters).await
            }
            (FabricChoice::Simulated(_), _) => Err(Failure::Usage(
                "a simulation is one process: without --listen and --connect".into(),
            )),
        }
    };
    signals.or_signal(work).await
}

/// Measures each setting with something that runs one, and shows what comes.
struct Session<'a> {
    args: &'a ProtocolsArgs,
    settings: Vec<Setting>,
    report: Report,
    table: Table,
}

impl<'a> Session<'a> {
    fn new(args: &'a ProtocolsArgs, settings: Vec<Setting>) -> Result<Self, Failure> {
        if args.plot.is_some() {
            report::check_plot(&settings)?;
        }
        let mut table = Table::new(args.json.is_some());
        table.header(args, &settings)?;
        Ok(Self {
            args,
            settings,
            report: Report::new(args),
            table,
        })
    }

    async fn measure(
        &mut self,
        mut run: impl AsyncFnMut(&Setting) -> Result<Measured, Failure>,
    ) -> Result<(), Failure> {
        let runs = self.args.runs;
        let bar = run_bar(self.settings.len() as u64 * u64::from(runs));
        for setting in &self.settings {
            let mut measured = Vec::new();
            for _ in 0..runs {
                bar.set_message(format!("{} {}", setting.protocol, setting.paradigm));
                measured.push(run(setting).await?);
                bar.inc(1);
            }
            let (all, median) = median(measured);
            bar.suspend(|| self.table.measured(&median))?;
            self.report.add(median, &all);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn end(mut self, done: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &done {
            self.report.error = Some(failure.to_string());
        }
        if let Some(directory) = &self.args.plot {
            let written = self.report.plot(self.args, directory)?;
            self.table.plots(&written)?;
        }
        if let Some(path) = &self.args.json {
            write_json(&self.report, path)?;
        }
        done
    }
}

/// The calls in a second of all runs, and the run of the median.
fn median(mut runs: Vec<Measured>) -> (Vec<f64>, Measured) {
    let all = runs.iter().map(|run| run.calls_per_second).collect();
    runs.sort_by(|a, b| a.calls_per_second.total_cmp(&b.calls_per_second));
    let middle = (runs.len() - 1) / 2;
    (all, runs.swap_remove(middle))
}

async fn simulated(args: &ProtocolsArgs, parameters: Parameters) -> Result<(), Failure> {
    let settings = settings::simulated(args, &parameters)?;
    let mut session = Session::new(args, settings)?;
    let run = async |setting: &Setting| {
        in_simulation(setting.clone(), &parameters, args.fabric.seed()).await
    };
    let done = session.measure(run).await;
    session.end(done)
}

/// Simulates a setting, beside what else this program does.
pub async fn in_simulation(
    setting: Setting,
    parameters: &Parameters,
    seed: u64,
) -> Result<Measured, Failure> {
    let parameters = parameters.clone();
    let work = tokio::task::spawn_blocking(move || simulate(&setting, &parameters, seed));
    match work.await {
        Ok(measured) => Ok(measured?),
        Err(error) => Err(Failure::panicked(&*error.into_panic())),
    }
}

/// Node 0: measures with others that it starts, or that connect.
async fn measure(args: &ProtocolsArgs, choice: &DeviceChoice) -> Result<(), Failure> {
    // What is wrong with the flags shows before anything starts.
    let device = choice.open()?;
    let settings = settings::real(args, device.capabilities())?;
    let count = settings.iter().map(Setting::all_nodes).max().unwrap_or(1);
    let session = Session::new(args, settings)?;
    match args.listen {
        Some(address) => {
            let options = options(Vec::new(), MEET_MAX);
            let listener = listen(address).await?;
            let told = format!("waiting for {} nodes at {}", count - 1, listener.address());
            eprintln!("{told}");
            let rendezvous = listener.gather(count, &options).await?;
            lead(session, device, rendezvous, place(choice, false)).await
        }
        None => {
            let mut session = session;
            let done = here(choice, device, count, async |group| {
                session
                    .measure(async |setting| measured(group, setting).await)
                    .await
            });
            let done = done.await;
            session.end(done)
        }
    }
}

/// Has `work` measure with nodes of this host, which end with it.
pub async fn here<T>(
    choice: &DeviceChoice,
    device: Device,
    count: usize,
    work: impl AsyncFnOnce(&mut Group) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let token = other_end::token().map_err(|e| Failure::Run(e.to_string()))?;
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let mut nodes = Nodes::start(choice, listener.address(), count, &token).await?;
    let options = options(token.into_bytes(), MEET_HERE_MAX);
    let done = async {
        let rendezvous = listener.gather(count, &options).await?;
        let context: Arc<dyn Context> = Arc::new(TokioContext::current());
        let mut group = Group::new(device, rendezvous, context, place(choice, true));
        let done = work(&mut group).await?;
        group.finish().await?;
        Ok(done)
    };
    let done = tokio::select! {
        // What the group says of a node says more than that it ended.
        biased;
        done = done => done,
        failure = nodes.failed_early() => Err(failure),
    };
    nodes.end(done).await
}

/// Measures a setting, in which nothing may fail.
pub async fn measured(group: &mut Group, setting: &Setting) -> Result<Measured, Failure> {
    let measured = group.measure(setting).await?;
    match measured.failure() {
        Some(failure) => Err(Failure::Run(failure)),
        None => Ok(measured),
    }
}

async fn lead(
    mut session: Session<'_>,
    device: Device,
    rendezvous: SocketRendezvous,
    place: GroupPlace,
) -> Result<(), Failure> {
    let context: Arc<dyn Context> = Arc::new(TokioContext::current());
    let mut group = Group::new(device, rendezvous, context, place);
    let run = async |setting: &Setting| measured(&mut group, setting).await;
    let mut done = session.measure(run).await;
    if done.is_ok() {
        done = group.finish().await.map_err(Failure::from);
    }
    session.end(done)
}

/// Another node.
async fn take_part(
    args: &ProtocolsArgs,
    choice: &DeviceChoice,
    address: SocketAddr,
) -> Result<(), Failure> {
    let (Some(node), Some(count)) = (args.node, args.of) else {
        return Err(Failure::Usage("--connect needs --node and --of".into()));
    };
    let lifeline = args.lifeline.then(other_end::lifeline).transpose()?;
    let (token, cut) = lifeline.unzip();
    let serve = async {
        let device = choice.open()?;
        let wait = if args.lifeline {
            MEET_HERE_MAX
        } else {
            MEET_MAX
        };
        let options = options(token.unwrap_or_default().into_bytes(), wait);
        let rendezvous = SocketRendezvous::join(address, node, count, &options).await?;
        let context: Arc<dyn Context> = Arc::new(TokioContext::current());
        let group = Group::new(device, rendezvous, context, place(choice, args.lifeline));
        Ok(group.take_part().await?)
    };
    let cut = async {
        match cut {
            // An error means that the thread is gone, and with it the lifeline.
            Some(cut) => drop(cut.await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = serve => done,
        () = cut => Ok(()),
    }
}

async fn listen(address: SocketAddr) -> Result<SocketListener, Failure> {
    let listener = SocketListener::bind(address).await;
    listener.map_err(|e| Failure::Run(format!("cannot listen on {address}: {e}")))
}

/// Where a node is, on this host with all others or by itself.
fn place(choice: &DeviceChoice, together: bool) -> GroupPlace {
    let address: IpAddr = match choice {
        DeviceChoice::Tcp(Some(address)) => *address,
        _ => Ipv4Addr::LOCALHOST.into(),
    };
    GroupPlace { address, together }
}

fn options(token: Vec<u8>, join_deadline: Duration) -> SocketOptions {
    SocketOptions {
        token,
        join_deadline,
        exchange_deadline: EXCHANGE_MAX,
    }
}
