//! The exchange of one process, for a coordinator, a worker, or what is both.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion_distributed::grpc::DefaultChannelResolver;
use datafusion_distributed::{
    ChannelResolver, DistributedExt as _, Worker, WorkerQueryContext, WorkerSessionBuilder,
};
use url::Url;

use crate::broadcast::gather_in;
use crate::calls::{Channels, ConnectWorkers};
use crate::client::{OwnWorker, RoundelChannels};
use crate::devices::Devices;
use crate::error::Result;
use crate::fabric::Fabric;
use crate::options::ExchangeOptions;
use crate::own_address::all_here;
use crate::protocol::ExchangeServer;
use crate::scatter::scatter_in;
use crate::server::ExchangeService;
use crate::settings::{Heard, QuerySettings};

/// The URL that no worker has.
const NOWHERE: &str = "nowhere://";

/// The exchange of one process. Clones share it.
#[derive(Clone)]
pub struct RoundelExchange(Arc<Process>);

struct Process {
    options: ExchangeOptions,
    channels: Channels,
    devices: Devices,
    worker: OnceLock<Worker>,
}

impl RoundelExchange {
    /// Opens the devices of this process, which reaches workers as datafusion-distributed does by itself.
    ///
    /// # Errors
    /// When the fabric that `options` ask for by name is not there.
    ///
    /// # Panics
    /// Outside of a tokio runtime. It must be one of several threads.
    pub fn open(options: ExchangeOptions) -> Result<Self> {
        Self::open_over(options, DefaultChannelResolver::default())
    }

    /// Opens the devices of this process, which reaches workers its own way: by authenticated channels, say.
    ///
    /// # Errors
    /// When the fabric that `options` ask for by name is not there.
    ///
    /// # Panics
    /// Outside of a tokio runtime. It must be one of several threads.
    pub fn open_over(options: ExchangeOptions, connect: impl ConnectWorkers) -> Result<Self> {
        Ok(Self(Arc::new(Process {
            devices: Devices::open(&options)?,
            channels: Channels::new(connect),
            options,
            worker: OnceLock::new(),
        })))
    }

    /// What carries the rows of queries on these workers: what was asked for; else shared memory if all of them are on this
    /// host, and sockets if not. RDMA is taken where it is asked for.
    pub fn fabric(&self, workers: &[Url]) -> Fabric {
        let auto = || match all_here(workers) {
            true => Fabric::Shm,
            false => Fabric::Tcp,
        };
        self.0.options.fabric.fabric().unwrap_or_else(auto)
    }

    /// What resolves the URLs of these workers for a coordinator: an argument of
    /// [`with_distributed_channel_resolver`](datafusion_distributed::DistributedExt::with_distributed_channel_resolver).
    ///
    /// # Errors
    /// When this process does not have the fabric that they need.
    pub fn channel_resolver(
        &self,
        workers: &[Url],
    ) -> Result<Arc<dyn ChannelResolver + Send + Sync>> {
        self.resolver_over(self.fabric(workers))
    }

    /// What resolves workers' URLs for a coordinator whose queries' rows this fabric carries.
    ///
    /// # Errors
    /// When this process does not have the fabric.
    pub fn resolver_over(&self, fabric: Fabric) -> Result<Arc<dyn ChannelResolver + Send + Sync>> {
        let settings = QuerySettings {
            setting: self.0.options.setting(),
            ..QuerySettings::default()
        };
        self.resolver(fabric, Arc::new(settings), None)
    }

    fn resolver(
        &self,
        fabric: Fabric,
        settings: Arc<QuerySettings>,
        own: Option<OwnWorker>,
    ) -> Result<Arc<dyn ChannelResolver + Send + Sync>> {
        let Process {
            channels, devices, ..
        } = self.0.as_ref();
        Ok(match devices.get(fabric)? {
            None => Arc::new(channels.clone()),
            Some(node) => Arc::new(RoundelChannels {
                channels: channels.clone(),
                fabric,
                node: node.clone(),
                settings,
                own,
            }),
        })
    }

    /// Sessions of a worker whose rows are exchanged. Those that `application` builds have what the application adds to
    /// them, for each query: its functions, its codecs of plans, its settings.
    pub fn worker_sessions<B>(&self, application: B) -> WorkerSessions<B> {
        WorkerSessions {
            exchange: self.clone(),
            application,
        }
    }

    /// The gRPC service by which other processes ask this worker for rows, to be served beside `worker`'s own, from the
    /// same address. The worker is the one of this process. Its sessions are built by [`Self::worker_sessions`].
    pub fn worker_service(&self, worker: &Worker) -> ExchangeServer<ExchangeService> {
        // Sessions are built when the worker serves.
        let _ = self.0.worker.set(worker.clone());
        ExchangeServer::new(ExchangeService::new(self.0.devices.clone(), worker.clone()))
    }

    /// The gRPC channels to workers.
    pub fn channels(&self) -> &Channels {
        &self.0.channels
    }

    /// This process's ends of the fabrics.
    pub fn devices(&self) -> &Devices {
        &self.0.devices
    }
}

impl fmt::Debug for RoundelExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RoundelExchange")
            .field(&self.0.options)
            .finish()
    }
}

/// Builds the sessions of a worker: those of the application, whose rows are exchanged where their coordinator says so.
#[derive(Clone, Debug)]
pub struct WorkerSessions<B> {
    exchange: RoundelExchange,
    application: B,
}

#[async_trait]
impl<B: WorkerSessionBuilder + Send + Sync> WorkerSessionBuilder for WorkerSessions<B> {
    async fn build_session_state(
        &self,
        context: WorkerQueryContext,
    ) -> Result<SessionState, DataFusionError> {
        let heard = Heard::of(&context.headers)?;
        let mut state = self.application.build_session_state(context).await?;
        let Some(heard) = heard else {
            return Ok(state);
        };
        let (process, config) = (&self.exchange.0, state.config_mut());
        config.set_extension(heard.settings.clone());
        scatter_in(config, &process.channels);
        gather_in(config);
        let worker = process.worker.get().cloned();
        if let Some(worker) = &worker {
            // Rows are scattered over all consumers at once, also to those of this process:
            // datafusion-distributed is to take them by the resolver as well.
            let nowhere = Url::parse(NOWHERE).expect("a URL");
            config.set_extension(Arc::new(worker.to_local_worker_context(nowhere)));
        }
        let own = worker.map(|worker| OwnWorker {
            url: heard.worker,
            worker,
        });
        let resolver = self.exchange.resolver(heard.fabric, heard.settings, own)?;
        state.set_distributed_channel_resolver(resolver);
        Ok(state)
    }
}
