//! The exchange of one process: its device and registered memory, and the endpoints that the
//! links of one task share.

use crate::error::{Result, TransportError};
use crate::failure::exchange_error;
use crate::multiplexers::Multiplexers;
use crate::options;
use crate::protocol::{CountersAnswer, OpcodeCount};
use crate::settings::Setting;
use datafusion_distributed::TaskKey;
use parking_lot::Mutex;
use roundel_exchange::operator::LocalLinks;
use roundel_exchange::{
    Account, Architecture, Buffers, BuffersChoice, Design, DesignChoice, EndpointReport,
    ExchangeOptions, Fabric, MemoryBudget, OnLoss, Receive, Route, Shuffle,
};
use roundel_verbs::loopback::pipe;
use roundel_verbs::{
    Arena, ArenaOptions, Capabilities, CompletionChannel, Device, Opcode, TokioContext,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// The exchange of one process.
pub struct ExchangeNode {
    fabric: Fabric,
    multiplexers: Multiplexers,
    on_loss: OnLoss,
    local: Arc<LocalLinks>,
    /// In bytes, once it was measured.
    bandwidth_delay: OnceLock<usize>,
    /// Sending sides, one for each task that is asked for rows.
    shuffles: Mutex<HashMap<(TaskKey, Setting), Weak<Shuffle>>>,
    /// Receiving sides, one for each task's view of an input stage.
    receives: Mutex<HashMap<InputKey, Weak<InputSide>>>,
    queue_pairs_max: AtomicUsize,
    /// What errors call this process.
    name: String,
    _shrinker: AbortOnDropHandle<()>,
}

/// The receiving side of an input stage, which the links to all of its producers share.
pub(super) struct InputSide {
    pub receive: Receive,
    pub design: Design,
    /// The counts of it that the plan's metrics have already.
    pub noted: Mutex<EndpointReport>,
}

/// Serves the completion channel, and the multiplexers, from a thread of its own. The thread ends with the channel. The
/// query runtime would be too slow for this: it looks at file descriptors when it runs out of work, or after a number
/// of polls, and those of a query can take a second. A source that has got credit must not wait for so long, nor the
/// reader behind it. Woken from outside, its task is the next but one.
fn spawn_driver(channel: &CompletionChannel) -> Result<tokio::runtime::Handle> {
    let failed = |error| TransportError::io("start the completion thread", error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let driver = {
        let _entered = runtime.enter();
        let watched = channel.drive();
        watched.map_err(|error| TransportError::io("watch the exchange's device", error))?
    };
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("completions".into())
        .spawn(move || runtime.block_on(driver))
        .map_err(failed)?;
    Ok(handle)
}

/// Time between two looks at whether registered memory is idle.
const SHRINK_INTERVAL: Duration = Duration::from_secs(5);

/// Gives registered memory back to the system once no query has held any for a while.
async fn shrink_when_idle(arena: Arena) {
    let mut idle = false;
    loop {
        tokio::time::sleep(SHRINK_INTERVAL).await;
        let was_idle = std::mem::replace(&mut idle, arena.usage().allocated == 0);
        if was_idle && idle {
            // The system may take its time, in which timers and sockets must go on.
            let arena = arena.clone();
            let shrunk = tokio::task::spawn_blocking(move || arena.shrink()).await;
            tracing::debug!(bytes = shrunk.unwrap_or_default(), "gave idle memory back");
        }
    }
}

/// Whether a design can run on a device.
fn check(design: Design, capabilities: &Capabilities) -> Result<()> {
    match design.lacks(capabilities) {
        None => Ok(()),
        Some(lack) => Err(TransportError::NoFabric(format!(
            "{design} cannot run on device {}: {lack}",
            capabilities.device
        ))),
    }
}

/// The consumer of an input stage: who asks for which partitions of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct InputKey {
    pub query: Uuid,
    pub stage: usize,
    pub partition_start: usize,
}

impl ExchangeNode {
    /// An exchange on a device of this process. Needs a tokio runtime.
    pub(crate) fn open(device: Device, asked: &options::ExchangeOptions) -> Result<Arc<Self>> {
        let registered_bytes_max = asked.registered_bytes_max()?;
        let failed = |error| TransportError::io("open the exchange's device", error);
        if let DesignChoice::Of(design) = asked.design {
            check(design, device.capabilities())?;
        }
        let channel = device.create_channel().map_err(failed)?;
        let device_name = device.capabilities().device.clone();
        let arena = device.arena(ArenaOptions {
            registered_bytes_max,
            ..ArenaOptions::default()
        });
        // A device that registers nothing for this process is found out now, not by a query.
        arena.allocate(1).map_err(failed)?;
        let shrinker = tokio::spawn(shrink_when_idle(arena.clone()));
        let fabric = Fabric {
            device,
            arena,
            channel,
            context: Arc::new(TokioContext::current()),
        };
        let driver = spawn_driver(&fabric.channel)?;
        let name = asked.name.clone();
        let name = name.unwrap_or_else(|| format!("process {}", std::process::id()));
        Ok(Arc::new(Self {
            multiplexers: Multiplexers::new(&fabric, asked.scheduling, driver),
            fabric,
            on_loss: asked.on_loss,
            local: Arc::default(),
            bandwidth_delay: OnceLock::new(),
            shuffles: Mutex::default(),
            receives: Mutex::default(),
            queue_pairs_max: AtomicUsize::new(0),
            name: format!("{name} ({device_name})"),
            _shrinker: AbortOnDropHandle::new(shrinker),
        }))
    }

    /// What errors call this process.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// An account of tasks of this process.
    pub(super) fn account(&self) -> Account {
        Account::new(self.fabric.context.clone())
    }

    /// What carries the links of queries that use them.
    pub(super) fn multiplexers(&self) -> &Multiplexers {
        &self.multiplexers
    }

    /// The device, its registered memory and its channel.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// What the device can do.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.fabric.device.capabilities()
    }

    /// The buffers that are asked for, for the messages of a design. The bandwidth-delay product is
    /// measured when it is first asked for, which blocks for some milliseconds.
    pub(crate) fn buffers(
        &self,
        asked: BuffersChoice,
        design: Design,
    ) -> Result<Buffers, roundel_exchange::ExchangeError> {
        let options = ExchangeOptions::new(design, 1, self.capabilities());
        asked.resolve(options.message_bytes, || {
            if let Some(bytes) = self.bandwidth_delay.get() {
                return Ok(*bytes);
            }
            let bytes = pipe::measure(&self.fabric.device)?.bytes_in_flight();
            Ok(*self.bandwidth_delay.get_or_init(|| bytes))
        })
    }

    /// The settings of an exchange, and the way that it takes.
    fn options(&self, setting: &Setting, query: Uuid) -> Result<(ExchangeOptions, Route)> {
        check(setting.design, self.capabilities())?;
        let mut options =
            ExchangeOptions::new(setting.design, setting.endpoints, self.capabilities());
        let transport = setting.design.transport();
        options.window = setting.buffers.window(transport, options.message_bytes);
        // Whether a stage's rows have an order is not known here; keeping it costs nothing while
        // nothing is overtaken.
        options.ordered = true;
        options.on_loss = self.on_loss;
        let beside = Route::beside(&self.local);
        Ok(match setting.architecture {
            Architecture::Endpoint => (options, beside),
            Architecture::Classic => (options.classic(setting.endpoints), beside),
            Architecture::Multiplexer => {
                let (high, low) = query.as_u64_pair();
                let own = self.multiplexers.of(setting.design)?;
                let route = Route::through(&own.multiplexer, high ^ low, &self.local);
                (options, route)
            }
        })
    }

    /// The sending side of a task: all its consumers share it.
    pub(super) fn shuffle(&self, task: TaskKey, setting: &Setting) -> Result<Arc<Shuffle>> {
        let (options, route) = self.options(setting, task.query_id)?;
        let key = (task, *setting);
        let mut shuffles = self.shuffles.lock();
        if let Some(shuffle) = shuffles.get(&key).and_then(Weak::upgrade) {
            return Ok(shuffle);
        }
        shuffles.retain(|_, shuffle| shuffle.strong_count() > 0);
        let exchange = self.fabric.context.random();
        let source = key.0.task_number as u32;
        let shuffle = Shuffle::open(&self.fabric, &options, &route, exchange, source)
            .map_err(|error| exchange_error(self.name(), error))?;
        let shuffle = Arc::new(shuffle);
        shuffles.insert(key, Arc::downgrade(&shuffle));
        Ok(shuffle)
    }

    /// The receiving side of a task's input: all its sources share it. `coupled` says that they send to several
    /// consumers at once.
    pub(super) fn receive(
        &self,
        key: InputKey,
        setting: &Setting,
        coupled: bool,
        budget: impl FnOnce() -> Arc<dyn MemoryBudget>,
    ) -> Result<Arc<InputSide>> {
        let (mut options, route) = self.options(setting, key.query)?;
        options.coupled = coupled;
        let mut receives = self.receives.lock();
        if let Some(receive) = receives.get(&key).and_then(Weak::upgrade) {
            return Ok(receive);
        }
        receives.retain(|_, receive| receive.strong_count() > 0);
        let receive = Receive::open(&self.fabric, &options, &route, &budget())
            .map_err(|error| exchange_error(self.name(), error))?;
        let receive = Arc::new(InputSide {
            receive,
            design: setting.design,
            noted: Mutex::default(),
        });
        receives.insert(key, Arc::downgrade(&receive));
        Ok(receive)
    }

    /// Notes how many queue pairs one side of an exchange had.
    pub(super) fn note_queue_pairs(&self, count: usize) {
        self.queue_pairs_max.fetch_max(count, Ordering::Relaxed);
    }

    /// The counts of the device since it was opened.
    pub(super) fn counters(&self) -> CountersAnswer {
        let counters = self.fabric.device.counters();
        let usage = self.fabric.arena.usage();
        CountersAnswer {
            counts: Opcode::ALL
                .into_iter()
                .map(|opcode| OpcodeCount {
                    opcode: opcode.name().to_owned(),
                    messages: counters.messages(opcode),
                    bytes: counters.bytes(opcode),
                })
                .collect(),
            registered_bytes_max: usage.registered_max as u64,
            buffer_bytes: usage.allocated as u64,
            queue_pairs_max: self.queue_pairs_max.load(Ordering::Relaxed) as u64,
            device_queue_pairs_max: self.fabric.device.queue_pairs().most() as u64,
        }
    }
}
