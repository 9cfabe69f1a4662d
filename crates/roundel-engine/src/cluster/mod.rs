//! The coordinator's handle on its workers.

mod arguments;
mod spawn;

use futures::future::BoxFuture;
use std::fmt;
use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use roundel_datafusion::engine::{Asked, Designs, collect, own_address};
use roundel_datafusion::{ExchangeOptions, RoundelExchange};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::channel::Authenticated;
use crate::fabric::FabricChooser;
use crate::membership::Membership;
use crate::runtime::runtime_env;
use crate::settings::skew_of;
use crate::spill_dir::SpillDir;
use crate::tables::catalog::ShardCatalog;
use crate::tpch::memory::TpchTables;
use crate::{
    Architecture, ClusterOptions, DesignChoice, EngineError, Fabric, FabricCounters, FabricReason,
    Result, Session, Skew, Token,
};
use spawn::WorkerProcess;

/// A cluster's workers, as the coordinator sees them.
pub struct Cluster {
    core: Arc<Core>,
    processes: Vec<WorkerProcess>,
    /// One for each worker; they end with the cluster.
    _listeners: Vec<AbortOnDropHandle<()>>,
}

/// What the sessions of a cluster share.
pub(crate) struct Core {
    pub(crate) options: ClusterOptions,
    pub(crate) membership: Arc<Membership>,
    /// This process's ends of the fabrics, and how it reaches the workers.
    pub(crate) exchange: RoundelExchange,
    /// Which of them queries take.
    pub(crate) fabrics: FabricChooser,
    pub(crate) runtime: Arc<RuntimeEnv>,
    /// Replicated tables, for the parts of plans that run in the coordinator.
    pub(crate) catalog: Arc<ShardCatalog>,
    pub(crate) tables: TpchTables,
    _spill_dir: SpillDir,
}

/// One worker, as the coordinator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The worker's URL.
    pub url: String,
    /// Its process id, when this coordinator started it.
    pub pid: Option<u32>,
    /// Whether it answers.
    pub alive: bool,
}

impl Cluster {
    /// Starts worker processes on this host, on loopback, and waits until they serve.
    ///
    /// They end when the cluster is stopped or dropped, or when this process ends in any way.
    pub fn start(options: ClusterOptions) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            check(&options)?;
            if options.workers == 0 {
                return Err(EngineError::Usage(
                    "a cluster needs at least 1 worker".to_owned(),
                ));
            }
            // A fabric that is not there is noticed before workers start.
            let token = Token::random()?;
            let exchange = exchange(&options, &token, &[])?;
            let starts = (0..options.workers).map(|i| WorkerProcess::start(i, &options, &token));
            let processes = futures::future::try_join_all(starts).await?;
            let urls = processes
                .iter()
                .map(|process| process.url.clone())
                .collect();
            Self::join(urls, processes, options, exchange).await
        })
    }

    /// Joins workers that were started by hand, given as `host:port`.
    pub fn connect(
        workers: Vec<String>,
        token: Token,
        options: ClusterOptions,
    ) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            check(&options)?;
            let mut urls: Vec<Url> = Vec::with_capacity(workers.len());
            for worker in &workers {
                let url = worker_url(worker)?;
                if urls.contains(&url) {
                    return Err(EngineError::Usage(format!(
                        "worker {worker} is named twice"
                    )));
                }
                urls.push(url);
            }
            if urls.is_empty() {
                return Err(EngineError::Usage(
                    "a cluster needs at least 1 worker".to_owned(),
                ));
            }
            let exchange = exchange(&options, &token, &urls)?;
            Self::join(urls, Vec::new(), options, exchange).await
        })
    }

    async fn join(
        urls: Vec<Url>,
        processes: Vec<WorkerProcess>,
        options: ClusterOptions,
        exchange: RoundelExchange,
    ) -> Result<Self> {
        let (membership, listeners) =
            Membership::watch(urls, exchange.channels(), options.extensions.names()).await?;
        let spill_dir = SpillDir::create()?;
        let catalog: Arc<ShardCatalog> = Arc::default();
        let tables = TpchTables::new(
            exchange.channels().clone(),
            Arc::clone(&membership),
            Arc::clone(&catalog),
            options.partitions_per_task(),
        );
        let core = Core {
            runtime: runtime_env(options.memory_limit_bytes, &spill_dir)?,
            fabrics: FabricChooser::new(&options.fabric, exchange.devices(), &membership.beats())?,
            exchange,
            options,
            membership,
            catalog,
            tables,
            _spill_dir: spill_dir,
        };
        Ok(Self {
            core: Arc::new(core),
            processes,
            _listeners: listeners,
        })
    }

    /// A new SQL session over the cluster, with its own tables and settings.
    pub fn session(&self) -> Result<Session> {
        Session::new(Arc::clone(&self.core), None)
    }

    /// A session whose rows this fabric carries, come what may. Its queries are planned as on any
    /// other.
    pub fn session_with(&self, fabric: Fabric) -> Result<Session> {
        Session::new(Arc::clone(&self.core), Some(fabric))
    }

    /// What carries the rows of new queries, and why.
    pub fn fabric(&self) -> FabricReason {
        self.core.fabrics.current()
    }

    /// The workers, in the order in which they were started or named.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let live = self.core.membership.live();
        let status = |url: Url| WorkerStatus {
            alive: live.iter().any(|(live, _)| *live == url),
            pid: self.processes.iter().find(|p| p.url == url).map(|p| p.pid),
            url: url.to_string(),
        };
        self.core
            .membership
            .urls()
            .into_iter()
            .map(status)
            .collect()
    }

    /// Counters of the verbs layer, on the fabric that new queries take. They are summed over this process and the live
    /// workers. `None` if that fabric has no verbs.
    ///
    /// # Errors
    /// When this process does not have the fabric, or a worker does not answer.
    pub fn fabric_counters(&self) -> BoxFuture<'_, Result<Option<FabricCounters>>> {
        Box::pin(async move {
            let fabric = self.fabric().fabric;
            let exchange = &self.core.exchange;
            let Some(node) = exchange.devices().get(fabric)? else {
                return Ok(None);
            };
            let live = self.core.membership.live().into_iter();
            let urls: Vec<Url> = live.map(|(url, _)| url).collect();
            let counted = collect(fabric, node, exchange.channels(), &urls).await?;
            Ok(Some(counted))
        })
    }

    /// Ends the workers that were started here, and waits until they are gone. Workers that were
    /// joined go on.
    pub fn stop(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let ends = self.processes.into_iter().map(WorkerProcess::end);
            let ended: Vec<Result<()>> = futures::future::join_all(ends).await;
            ended.into_iter().collect()
        })
    }
}

impl Core {
    /// How the rows of each stage of a plan are exchanged; `None` where gRPC carries them.
    pub(crate) fn designs(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        fabric: Fabric,
        config: &ConfigOptions,
    ) -> Result<Option<Designs>> {
        let Some(node) = self.exchange.devices().get(fabric)? else {
            return Ok(None);
        };
        let asked = Asked {
            architecture: self.options.exchange,
            design: self.options.design,
            endpoints: self.options.endpoints,
            buffers: self.options.buffers,
            threads: self.options.threads,
        };
        let designs = asked.designs(plan, node)?;
        let live = self.membership.live().into_iter();
        let live: Vec<Url> = live.map(|(url, _)| url).collect();
        Ok(Some(match skew_of(config)? {
            Skew::Auto => designs.with_skewed_joins(plan, &live),
            Skew::Off => designs,
        }))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.workers()).finish()
    }
}

/// The coordinator's exchange; `workers` are those it is about to join.
fn exchange(options: &ClusterOptions, token: &Token, workers: &[Url]) -> Result<RoundelExchange> {
    let asked = ExchangeOptions {
        fabric: options.fabric.clone(),
        address: Some(own_address(workers)),
        name: Some(format!("the coordinator, process {}", std::process::id())),
        design: options.design,
        on_loss: options.on_loss,
        scheduling: options.schedule,
        registered_memory_bytes: options.registered_memory_bytes,
        ..ExchangeOptions::default()
    };
    Ok(RoundelExchange::open_over(
        asked,
        Authenticated::new(token),
    )?)
}

fn check(options: &ClusterOptions) -> Result<()> {
    if options.threads == 0 {
        return Err(EngineError::Usage(
            "a worker needs at least 1 thread".to_owned(),
        ));
    }
    if options.exchange == Architecture::Multiplexer {
        return check_multiplexer(options);
    }
    let Some(endpoints) = options.endpoints else {
        return Ok(());
    };
    let most = match (options.exchange, options.design) {
        (Architecture::Endpoint, DesignChoice::Of(design)) => design.endpoints(options.threads),
        _ => options.threads,
    };
    if !(1..=most).contains(&endpoints) {
        return Err(EngineError::Usage(format!(
            "{endpoints} endpoints: {} has from 1 to {most} in a worker of {} threads",
            options.design, options.threads
        )));
    }
    Ok(())
}

/// A multiplexer has one endpoint for all threads, and connections over Reliable Connection.
fn check_multiplexer(options: &ClusterOptions) -> Result<()> {
    let refused = |why: String| Err(EngineError::Usage(why));
    if options.endpoints.is_some() {
        return refused("a multiplexer has no endpoints to choose the number of".to_owned());
    }
    match options.design {
        DesignChoice::Auto => Ok(()),
        DesignChoice::Of(design) => match design.check_multiplexed() {
            Ok(()) => Ok(()),
            Err(error) => refused(format!("{error}, or --exchange endpoint")),
        },
    }
}

fn worker_url(worker: &str) -> Result<Url> {
    let wrong = || EngineError::Usage(format!("{worker:?} is no worker address: give HOST:PORT"));
    let (host, port) = worker.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let url = Url::parse(&format!("http://{host}:{port}")).map_err(|_| wrong())?;
    match url.host().is_some() && url.path() == "/" && url.username().is_empty() {
        true => Ok(url),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:4040", "localhost:1", "[::1]:4040"] {
            assert!(worker_url(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "localhost",
            "localhost:",
            ":1",
            "localhost:99999",
            "a/b:1",
            "u@h:1",
        ] {
            assert!(worker_url(bad).is_err(), "{bad}");
        }
    }
}
