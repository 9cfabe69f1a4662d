//! The exchange of one process: its device and registered memory, and the endpoints that the
//! links of one task share.

use super::protocol::{CountersAnswer, OpcodeCount};
use crate::fabric::{Sizes, bytes};
use crate::{EngineError, Result};
use datafusion_distributed::TaskKey;
use parking_lot::Mutex;
use roundel_exchange::{
    Design, EndpointReport, ExchangeOptions, Fabric, MemoryBudget, Receive, Shuffle,
};
use roundel_verbs::{
    Arena, ArenaOptions, CompletionChannel, Device, DeviceAddress, Opcode, QueuePairAddress,
    TokioContext, VerbsError,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

/// The exchange of one process.
pub(crate) struct ExchangeNode {
    fabric: Fabric,
    options: ExchangeOptions,
    /// Sending sides, one for each task that is asked for rows.
    shuffles: Mutex<HashMap<TaskKey, Weak<Shuffle>>>,
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
    /// What of it is in the plan's metrics already.
    pub noted: Mutex<EndpointReport>,
}

/// Serves the completion channel from a thread of its own, which ends with the channel. The query
/// runtime looks at file descriptors when it runs out of work, or after as many polls as can take
/// a second when they are a query's: a source that has got credit is not to wait for that, with its
/// reader behind it. Woken from outside, its task is the next but one.
fn spawn_driver(channel: &CompletionChannel) -> Result<()> {
    let failed = |error| EngineError::io("start the completion thread", error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    let driver = {
        let _entered = runtime.enter();
        let watched = channel.drive();
        watched.map_err(|error| EngineError::io("watch the exchange's device", error))?
    };
    std::thread::Builder::new()
        .name("completions".into())
        .spawn(move || runtime.block_on(driver))
        .map_err(failed)?;
    Ok(())
}

/// How often it is looked whether registered memory lies idle.
const SHRINK_INTERVAL: Duration = Duration::from_secs(5);

/// Gives registered memory back to the system once no query has held any for a while.
async fn shrink_when_idle(arena: Arena) {
    let mut idle = false;
    loop {
        tokio::time::sleep(SHRINK_INTERVAL).await;
        let was_idle = std::mem::replace(&mut idle, arena.usage().allocated == 0);
        if was_idle && idle {
            arena.shrink();
        }
    }
}

/// The consumer of an input stage: who asks for which partitions of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct InputKey {
    pub query: uuid::Uuid,
    pub stage: usize,
    pub partition_start: usize,
}

impl ExchangeNode {
    /// An exchange on a device of this process. Needs a tokio runtime.
    pub(crate) fn open(device: Device, sizes: Sizes, name: &str) -> Result<Arc<Self>> {
        let registered_bytes_max = bytes(sizes.registered_memory_bytes)?;
        let failed = |error| EngineError::io("open the exchange's device", error);
        if let Some(lack) = sizes.design.lacks(device.capabilities()) {
            let device = &device.capabilities().device;
            let why = format!("{} cannot run on device {device}: {lack}", sizes.design);
            return Err(EngineError::NoFabric(why));
        }
        let channel = device.create_channel().map_err(failed)?;
        spawn_driver(&channel)?;
        let mut options = ExchangeOptions::new(sizes.design, sizes.threads, device.capabilities());
        // Whether a stage's rows have an order is not known here; keeping it costs nothing while
        // nothing is overtaken.
        options.ordered = true;
        options.on_loss = sizes.on_loss;
        options.local = Some(Arc::default());
        let device_name = device.capabilities().device.clone();
        let arena = device.arena(ArenaOptions {
            registered_bytes_max,
            ..ArenaOptions::default()
        });
        // A device that registers nothing for this process is found out now, not by a query.
        arena.allocate(1).map_err(failed)?;
        let shrinker = tokio::spawn(shrink_when_idle(arena.clone()));
        Ok(Arc::new(Self {
            fabric: Fabric {
                device,
                arena,
                channel,
                context: Arc::new(TokioContext::current()),
            },
            options,
            shuffles: Mutex::default(),
            receives: Mutex::default(),
            queue_pairs_max: AtomicUsize::new(0),
            name: format!("{name} ({})", device_name),
            _shrinker: AbortOnDropHandle::new(shrinker),
        }))
    }

    /// What errors call this process.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where the device is.
    pub(crate) fn address(&self) -> DeviceAddress {
        self.fabric.device.address()
    }

    /// Whether a peer's device is within reach, as far as can be told without asking it. May
    /// block for a second.
    pub(crate) fn reaches(&self, peer: &DeviceAddress) -> Result<(), VerbsError> {
        let anyone = QueuePairAddress {
            device: peer.clone(),
            number: 1,
            incarnation: 0,
            queue_key: 0,
        };
        self.fabric.device.create_address_handle(&anyone).map(drop)
    }

    pub(super) fn design(&self) -> Design {
        self.options.design
    }

    /// The sending side of a task: all its consumers share it.
    pub(super) fn shuffle(
        &self,
        task: TaskKey,
    ) -> Result<Arc<Shuffle>, roundel_exchange::ExchangeError> {
        let mut shuffles = self.shuffles.lock();
        if let Some(shuffle) = shuffles.get(&task).and_then(Weak::upgrade) {
            return Ok(shuffle);
        }
        shuffles.retain(|_, shuffle| shuffle.strong_count() > 0);
        let exchange = self.fabric.context.random();
        let source = task.task_number as u32;
        let shuffle = Arc::new(Shuffle::open(
            &self.fabric,
            &self.options,
            exchange,
            source,
        )?);
        shuffles.insert(task, Arc::downgrade(&shuffle));
        Ok(shuffle)
    }

    /// The receiving side of a task's input: all its sources share it. `coupled` says that they
    /// scatter.
    pub(super) fn receive(
        &self,
        key: InputKey,
        coupled: bool,
        budget: impl FnOnce() -> Arc<dyn MemoryBudget>,
    ) -> Result<Arc<InputSide>, roundel_exchange::ExchangeError> {
        let mut receives = self.receives.lock();
        if let Some(receive) = receives.get(&key).and_then(Weak::upgrade) {
            return Ok(receive);
        }
        receives.retain(|_, receive| receive.strong_count() > 0);
        let options = ExchangeOptions {
            coupled,
            ..self.options.clone()
        };
        let receive = Arc::new(InputSide {
            receive: Receive::open(&self.fabric, &options, &budget())?,
            design: self.options.design,
            noted: Mutex::default(),
        });
        receives.insert(key, Arc::downgrade(&receive));
        Ok(receive)
    }

    /// Notes how many queue pairs one side of an exchange had.
    pub(super) fn note_queue_pairs(&self, count: usize) {
        self.queue_pairs_max.fetch_max(count, Ordering::Relaxed);
    }

    /// What the device has counted so far.
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
        }
    }
}
