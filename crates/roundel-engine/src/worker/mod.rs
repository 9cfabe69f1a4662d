//! A worker process: serves tasks, holds shards of memory tables.

mod control;
mod lifeline;
mod loader;

use futures::future::BoxFuture;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::DataFusionError;
use datafusion_distributed::{DistributedExt as _, Worker, WorkerQueryContext};
use roundel_datafusion::engine::reachable_at;
use roundel_datafusion::{ExchangeOptions, RoundelExchange};
use roundel_verbs::Regions;
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tonic::service::InterceptorLayer;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status};

use crate::channel::{self, Authenticated, authorization};
use crate::protocol::control::control_server::ControlServer;
use crate::protocol::ring::ring_server::RingServer;
use crate::protocol::{LISTENING, VERSION};
use crate::ring::{Meetings, Pins, RingService, RingWorker};
use crate::runtime::runtime_env;
use crate::settings::hear;
use crate::spill_dir::SpillDir;
use crate::tables::catalog::ShardCatalog;
use crate::tables::scan::ReadBy;
use crate::{EngineError, Result, Token, WorkerOptions, partitions_per_task};
use control::ControlService;
use loader::Loader;

/// Serves until it is stopped: by SIGINT or SIGTERM, or, with a lifeline, when standard input
/// closes. Prints `roundel worker listening on HOST:PORT` on standard output once it serves.
///
/// The caller runs this on a runtime of [`WorkerOptions::threads`] threads.
pub fn run_worker(options: WorkerOptions) -> BoxFuture<'static, Result<()>> {
    Box::pin(async move {
        let spill_dir = Arc::new(SpillDir::create()?);
        let stopped = lifeline::stopped(options.lifeline, &spill_dir)?;

        let listen = |e| EngineError::io(format!("listen on {}", options.listen), e);
        let listener = TcpListener::bind(options.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;

        let catalog = Arc::new(ShardCatalog::default());
        let asked = ExchangeOptions {
            fabric: options.fabric.clone(),
            address: Some(reachable_at(address.ip())),
            name: Some(format!("worker http://{address}/")),
            on_loss: options.on_loss,
            scheduling: options.schedule,
            registered_memory_bytes: options.registered_memory_bytes,
            ..ExchangeOptions::default()
        };
        let exchange = RoundelExchange::open_over(asked, Authenticated::new(&options.token))?;
        let offers = exchange.devices().offers();
        let (meetings, pins) = (Meetings::default(), Pins::default());
        let rings = RingWorker {
            exchange: exchange.clone(),
            meetings: meetings.clone(),
            pins: pins.clone(),
        };
        let extensions = options.extensions.names();
        let worker = worker(&options, &catalog, &spill_dir, rings, address)?;
        let exchange = exchange.worker_service(&worker);
        let loader = Loader::new(Arc::clone(&catalog), options.threads);
        let control = ControlService::new(loader, offers, extensions);
        // Without it every small message waits about 40 ms for the peer's delayed acknowledgement.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = channel::server()
            .layer(InterceptorLayer::new(require_token(&options.token)))
            .add_service(worker.into_worker_server())
            .add_service(exchange)
            .add_service(RingServer::new(RingService { meetings, pins }))
            .add_service(ControlServer::new(control))
            .serve_with_incoming(incoming);

        // A reader that is gone is no reason to end.
        let mut stdout = std::io::stdout();
        let _ = writeln!(stdout, "{LISTENING}{address}").and_then(|()| stdout.flush());

        tokio::select! {
            served = server => served.map_err(|e| EngineError::io(format!("serve on {address}"), e)),
            () = stopped => Ok(()),
        }
    })
}

/// The stack of each thread that plans queries or runs their tasks, in bytes. An expression of thousands of operators is walked by
/// functions that call themselves. Only what is used of it takes memory.
pub const STACK_BYTES: usize = 64 << 20;

/// The runtime that a worker's threads and a coordinator run on. Where the process may use several NUMA regions, each
/// thread stays in one of them, in turn, on any of its processors; unless there are fewer threads than regions, some of
/// which would have none.
///
/// # Errors
/// When its threads cannot be started.
pub fn runtime(threads: Option<usize>) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.thread_stack_size(STACK_BYTES);
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    let regions = Regions::of_this_process();
    if regions.count() > 1 && threads.is_none_or(|threads| threads >= regions.count()) {
        // Processes that are started one after the other begin with different regions: where a region has one thread
        // more than the others, it is not the same one in all of them.
        let turn = AtomicUsize::new(std::process::id() as usize);
        builder.on_thread_start(move || regions.bind(turn.fetch_add(1, Ordering::Relaxed)));
    }
    builder.enable_all().build()
}

/// The part of the worker that runs tasks.
fn worker(
    options: &WorkerOptions,
    catalog: &Arc<ShardCatalog>,
    spill_dir: &SpillDir,
    rings: RingWorker,
    address: SocketAddr,
) -> Result<Worker> {
    let read_by = Arc::new(ReadBy(format!("http://{address}/")));
    let exchange = rings.exchange.clone();
    let catalog = Arc::clone(catalog);
    let rings = Arc::new(rings);
    let partitions = partitions_per_task(options.threads);
    let extensions = options.extensions.clone();
    let build_session = move |context: WorkerQueryContext| {
        let catalog = Arc::clone(&catalog);
        let rings = Arc::clone(&rings);
        let extensions = extensions.clone();
        let read_by = Arc::clone(&read_by);
        async move {
            let mut builder = context.builder;
            extensions.add_all_codecs(&mut builder);
            let config = builder.config().get_or_insert_default();
            config.options_mut().execution.target_partitions = partitions;
            config.set_extension(catalog);
            config.set_extension(read_by);
            config.set_extension(Arc::clone(&rings));
            // Before plans are decoded: functions and operators read it when they are made.
            hear(config, &context.headers)?;
            let channels = rings.exchange.channels().clone();
            let mut state = builder.with_distributed_channel_resolver(channels).build();
            extensions.add_functions(&mut state)?;
            Ok::<_, DataFusionError>(state)
        }
    };
    let sessions = exchange.worker_sessions(build_session);
    Ok(Worker::from_session_builder(sessions)
        .with_runtime_env(runtime_env(options.memory_limit_bytes, spill_dir)?)
        .with_version(VERSION))
}

/// Refuses requests that do not bring the cluster's token.
fn require_token(
    token: &Token,
) -> impl FnMut(Request<()>) -> Result<Request<()>, Status> + Clone + use<> {
    let expected = authorization(token);
    move |request| {
        let matches = request
            .metadata()
            .get(http::header::AUTHORIZATION.as_str())
            .is_some_and(|given| given.as_bytes().ct_eq(expected.as_bytes()).into());
        match matches {
            true => Ok(request),
            false => Err(Status::unauthenticated("this cluster's token is missing")),
        }
    }
}
