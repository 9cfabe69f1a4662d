//! `roundel-lab perf`: bandwidth, message rate and latency of single verbs between two processes, or of message
//! protocols among many.

mod other_end;
pub mod protocols;
mod report;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use roundel_protocols::perf::{self, EndFacts, Length, Measure, Polling, Test, Verb};
use roundel_verbs::{
    Capabilities, Device, SocketListener, SocketOptions, SocketRendezvous, TokioContext, Transport,
    work::ATOMIC_BYTES,
};

use crate::cli::{MeasureArg, PerfArgs, PerfCommand, PollArg, TransportArg, VerbArg};
use other_end::{LISTENING, OtherEnd};
use report::{Report, Settings, Table};
use roundel_terminal::Failure;
use roundel_terminal::Signals;
use roundel_terminal::progress::run_bar;
use roundel_terminal::write_json;

/// How long an end tries to reach one that should listen.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long an end listens.
const LISTEN_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long one end waits for the other: longer than any run. An end that dies is noticed at once.
const EXCHANGE_MAX: Duration = Duration::from_secs(48 * 60 * 60);
/// A call for each message costs as much as a small message; a large one is worth its call, and many
/// at once only wait for each other.
const BATCH_MAX: usize = 16;
const BATCH_BYTES_MAX: usize = 64 << 10;
const SMALL_BYTES: usize = 8;
const LARGE_BYTES: usize = 64 << 10;

/// Runs the command.
pub async fn run(args: &PerfArgs) -> Result<(), Failure> {
    if let Some(PerfCommand::Protocols(args)) = &args.command {
        return protocols::run(args).await;
    }
    let mut signals = Signals::watch()?;
    let work = async {
        match (args.listen, args.connect) {
            (Some(address), _) => respond(args, address).await,
            (None, Some(address)) => initiate(args, address, "").await,
            (None, None) => measure_here(args).await,
        }
    };
    signals.or_signal(work).await
}

/// Measures with a process that is started for it.
async fn measure_here(args: &PerfArgs) -> Result<(), Failure> {
    // What is wrong with the flags shows before anything starts.
    let device = args.fabric.open()?;
    tests(args, device.capabilities())?;
    let other = OtherEnd::start(&args.fabric).await?;
    let done = initiate_on(args, device, other.address, &other.token).await;
    other.end(done).await
}

async fn initiate(args: &PerfArgs, address: SocketAddr, token: &str) -> Result<(), Failure> {
    let device = args.fabric.open()?;
    initiate_on(args, device, address, token).await
}

/// The end that says what is measured.
async fn initiate_on(
    args: &PerfArgs,
    device: Device,
    address: SocketAddr,
    token: &str,
) -> Result<(), Failure> {
    let tests = tests(args, device.capabilities())?;
    let options = SocketOptions {
        token: token.into(),
        join_deadline: CONNECT_MAX,
        exchange_deadline: EXCHANGE_MAX,
    };
    let own = EndFacts::of(device.capabilities());
    let rendezvous = SocketRendezvous::join(address, 1, 2, &options).await?;
    let session = perf::meet(device, rendezvous).await?;
    let settings = settings(args);
    let mut table = Table::new(args.json.is_some());
    table.header(&settings, &own, session.peer())?;
    let mut report = Report::new(settings, own, session.peer().clone());
    let measured = measure(session, tests, &mut report, &mut table).await;
    if let Err(failure) = &measured {
        report.error = Some(failure.to_string());
    }
    if let Some(path) = &args.json {
        write_json(&report, path)?;
    }
    measured
}

async fn measure(
    session: perf::Session,
    tests: Vec<Test>,
    report: &mut Report,
    table: &mut Table,
) -> Result<(), Failure> {
    let bar = run_bar(tests.len() as u64);
    let mut coming = tests.clone().into_iter();
    let announce = |test: Option<Test>| {
        let told = test.map(|test| {
            let bytes = ByteSize(test.bytes as u64);
            format!("{} of {}, {bytes}", test.measure.name(), test.verb.name())
        });
        bar.set_message(told.unwrap_or_default());
    };
    announce(coming.next());
    let mut measuring = session.initiate(tests, Arc::new(TokioContext::current()))?;
    let mut done = Ok(());
    while let Some(measured) = measuring.next().await {
        match measured {
            Ok(measurement) => {
                bar.suspend(|| table.measurement(&measurement))?;
                report.measurements.push(measurement);
                bar.inc(1);
                announce(coming.next());
            }
            Err(error) => done = Err(error.into()),
        }
    }
    bar.finish_and_clear();
    done
}

/// The end that does what the other one asks for.
async fn respond(args: &PerfArgs, address: SocketAddr) -> Result<(), Failure> {
    let lifeline = args.lifeline.then(other_end::lifeline).transpose()?;
    let (token, cut) = lifeline.unzip();
    let options = SocketOptions {
        token: token.unwrap_or_default().into(),
        join_deadline: LISTEN_MAX,
        exchange_deadline: EXCHANGE_MAX,
    };
    let serve = async {
        let device = args.fabric.open()?;
        let listener = SocketListener::bind(address)
            .await
            .map_err(|e| Failure::Run(format!("cannot listen on {address}: {e}")))?;
        writeln!(std::io::stdout(), "{LISTENING}{}", listener.address())
            .map_err(Failure::output)?;
        let rendezvous = listener.gather(2, &options).await?;
        let session = perf::meet(device, rendezvous).await?;
        let mut responding = session.respond(Arc::new(TokioContext::current()))?;
        match responding.next().await {
            Some(Err(error)) => Err(error.into()),
            _ => Ok(()),
        }
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

/// What the flags ask for, in order.
fn tests(args: &PerfArgs, device: &Capabilities) -> Result<Vec<Test>, Failure> {
    let transport = transport(args);
    let measures: &[Measure] = match args.measure {
        MeasureArg::Bandwidth => &[Measure::Bandwidth],
        MeasureArg::Latency => &[Measure::Latency],
        MeasureArg::All => &[Measure::Bandwidth, Measure::Latency],
    };
    let mut tests = Vec::new();
    for measure in measures {
        let sizes = match (args.size.is_empty(), measure) {
            (false, _) => args
                .size
                .iter()
                .map(|size| usize::try_from(*size).unwrap_or(usize::MAX))
                .collect(),
            (true, Measure::Latency) => vec![SMALL_BYTES],
            (true, Measure::Bandwidth) => {
                let most = perf::message_bytes_max(device, transport);
                vec![SMALL_BYTES, LARGE_BYTES.min(most)]
            }
        };
        for (verb, is_named) in verbs(args, transport, device) {
            // Atomics have one size. Only who asks for them and for another one is told.
            let is_told = is_named && !args.size.is_empty();
            for bytes in &sizes {
                if verb.is_atomic() && *bytes != ATOMIC_BYTES && !is_told {
                    continue;
                }
                let test = test(args, *measure, verb, transport, *bytes);
                test.check(device)?;
                tests.push(test);
            }
        }
    }
    Ok(tests)
}

/// The verbs that the flags ask for, and whether by name.
fn verbs(args: &PerfArgs, transport: Transport, device: &Capabilities) -> Vec<(Verb, bool)> {
    let mut verbs = Vec::new();
    for verb in &args.verb {
        let named = match verb {
            VerbArg::Send => Verb::Send,
            VerbArg::Write => Verb::Write,
            VerbArg::Read => Verb::Read,
            VerbArg::WriteImm => Verb::WriteImm,
            VerbArg::CompareAndSwap => Verb::CompareAndSwap,
            VerbArg::FetchAndAdd => Verb::FetchAndAdd,
            VerbArg::All => {
                let all = Verb::ALL.into_iter();
                let there = all.filter(|verb| verb.is_on(transport) && verb.is_of(device));
                verbs.extend(there.map(|verb| (verb, false)));
                continue;
            }
        };
        verbs.push((named, true));
    }
    verbs
}

fn test(args: &PerfArgs, measure: Measure, verb: Verb, transport: Transport, bytes: usize) -> Test {
    let polling = match args.poll {
        PollArg::Busy => Polling::Busy,
        PollArg::Event => Polling::Event,
    };
    Test {
        measure,
        verb,
        transport,
        bytes,
        depth: args.depth,
        batch: batch(args, bytes),
        inline_bytes_max: args.inline,
        polling,
        // Nobody is woken by memory.
        poll_memory: polling == Polling::Busy,
        length: match args.iterations {
            Some(messages) => Length::Messages(messages),
            None => Length::Seconds(args.seconds),
        },
        warm_up: args.warm_up,
        timed_runs: args.runs,
    }
}

fn transport(args: &PerfArgs) -> Transport {
    match args.transport {
        TransportArg::Rc => Transport::ReliableConnection,
        TransportArg::Uc => Transport::UnreliableConnection,
        TransportArg::Ud => Transport::UnreliableDatagram,
    }
}

fn batch(args: &PerfArgs, bytes: usize) -> usize {
    let batch = (BATCH_BYTES_MAX / bytes.max(1)).clamp(1, BATCH_MAX);
    args.batch.unwrap_or(batch.min(args.depth))
}

fn settings(args: &PerfArgs) -> Settings {
    Settings {
        version: env!("CARGO_PKG_VERSION"),
        fabric: args.fabric.to_string(),
        transport: perf::transport_name(transport(args)),
        depth: args.depth,
        batch: args.batch,
        runs: args.runs,
    }
}
