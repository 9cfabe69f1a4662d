//! The one thread of a device: it waits until sockets are ready or time has passed, and tells those
//! whom it concerns. It knows who they are, not what they do.

use super::completion_queue::Event;
use super::connection::{Departed, StreamPair};
use super::datagram::DatagramPair;
use super::device::DeviceState;
use super::handshake::Incoming;
use crate::error::{Result, VerbsError};
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often it is looked whether silent peers are gone and strangers have said hello.
const SWEEP: Duration = Duration::from_millis(500);
/// Events taken with one call.
const BATCH: usize = 64;
/// How the thread's own wake-up is known.
const WAKE: u64 = 0;

/// The provider's own clock, for timers: a NIC has one too.
#[allow(clippy::disallowed_methods)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Whom the events of a socket concern.
#[derive(Clone)]
pub(super) enum Source {
    /// Somebody connects.
    Listener,
    /// Who has connected and not said hello.
    Incoming(Arc<Incoming>),
    /// A peer that has called a queue pair which was not told to connect.
    Early(Weak<StreamPair>),
    Stream(Weak<StreamPair>),
    Datagrams(Weak<DatagramPair>),
    Departed(Arc<Departed>),
}

/// What the thread waits for.
pub(super) struct Events {
    epoll: OwnedFd,
    wake: Event,
    sources: Mutex<HashMap<u64, Source>>,
    tokens: AtomicU64,
    /// Sockets with more to read than one turn allows.
    again: Mutex<Vec<u64>>,
    alarms: Mutex<BTreeMap<(Instant, u64), Weak<StreamPair>>>,
}

impl Events {
    pub(super) fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(VerbsError::system("epoll_create"))?;
        let events = Self {
            epoll,
            wake: Event::new()?,
            sources: Mutex::default(),
            tokens: AtomicU64::new(WAKE + 1),
            again: Mutex::default(),
            alarms: Mutex::default(),
        };
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&events.epoll, &events.wake, data, epoll::EventFlags::IN)
            .map_err(VerbsError::system("epoll_ctl"))?;
        Ok(events)
    }

    /// Tells the source whenever its socket becomes ready, beginning now if it is. Returns the
    /// token of the source.
    pub(super) fn watch(&self, socket: &OwnedFd, source: Source) -> Result<u64> {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        self.sources.lock().insert(token, source);
        self.watch_too(socket, token)
            .inspect_err(|_| self.forget(token))?;
        Ok(token)
    }

    /// Tells the source of a token of another socket too.
    pub(super) fn watch_too(&self, socket: &OwnedFd, token: u64) -> Result<()> {
        use epoll::EventFlags;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), flags)
            .map_err(VerbsError::system("epoll_ctl"))
    }

    /// From now on the socket of a token concerns somebody else.
    pub(super) fn replace(&self, token: u64, source: Source) {
        let before = self.sources.lock().insert(token, source);
        // Outside of the lock: it may be the last who holds something.
        drop(before);
    }

    /// The socket of a token concerns nobody any more. It is not watched once it is closed.
    pub(super) fn forget(&self, token: u64) {
        let before = self.sources.lock().remove(&token);
        drop(before);
    }

    /// No socket concerns anybody any more.
    pub(super) fn forget_all(&self) {
        let before = std::mem::take(&mut *self.sources.lock());
        drop(before);
    }

    /// Tells the source of a token once more, after the others.
    pub(super) fn again(&self, token: u64) {
        self.again.lock().push(token);
        self.wake.signal();
    }

    /// Tells a queue pair when a time has come.
    pub(super) fn wake_at(&self, when: Instant, pair: Weak<StreamPair>) {
        let id = self.tokens.fetch_add(1, Ordering::Relaxed);
        let mut alarms = self.alarms.lock();
        let first = alarms
            .first_key_value()
            .is_none_or(|((at, _), _)| when < *at);
        alarms.insert((when, id), pair);
        drop(alarms);
        if first {
            self.wake.signal();
        }
    }

    pub(super) fn wake(&self) {
        self.wake.signal();
    }

    fn source(&self, token: u64) -> Option<Source> {
        self.sources.lock().get(&token).cloned()
    }

    /// Those who have connected and not said hello in time.
    pub(super) fn late(&self, now: Instant) -> Vec<u64> {
        let sources = self.sources.lock();
        let late = |source: &Source| matches!(source, Source::Incoming(who) if who.until < now);
        let late = sources.iter().filter(|(_, source)| late(source));
        late.map(|(token, _)| *token).collect()
    }
}

/// Starts the thread. It ends when the device is gone.
pub(super) fn start(device: &Arc<DeviceState>) -> Result<()> {
    let mut thread = Thread {
        device: Arc::downgrade(device),
        events: device.events.clone(),
        sweep_at: now() + SWEEP,
    };
    std::thread::Builder::new()
        .name("roundel-tcp".into())
        .spawn(move || {
            let mut ready = Vec::with_capacity(BATCH);
            while thread.turn(&mut ready) {}
        })
        .map_err(|source| VerbsError::System {
            call: "starting the device's thread",
            source,
        })?;
    Ok(())
}

struct Thread {
    device: Weak<DeviceState>,
    events: Arc<Events>,
    sweep_at: Instant,
}

impl Thread {
    /// Waits and does what there is to do; false when the device is gone.
    fn turn(&mut self, ready: &mut Vec<epoll::Event>) -> bool {
        let timeout = self.until().saturating_duration_since(now());
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        ready.clear();
        let waited = epoll::wait(
            self.events.epoll.as_fd(),
            spare_capacity(ready),
            Some(&timeout),
        );
        if let Err(errno) = waited
            && errno != Errno::INTR
        {
            tracing::error!(%errno, "waiting for sockets failed");
        }
        // The device is not held while waiting: whoever drops it last ends it.
        let Some(device) = self.device.upgrade() else {
            return false;
        };
        let mut awake = false;
        for event in &*ready {
            let (token, flags) = (event.data.u64(), event.flags);
            if token == WAKE {
                awake = true;
                continue;
            }
            let writable = flags.intersects(
                epoll::EventFlags::OUT | epoll::EventFlags::HUP | epoll::EventFlags::ERR,
            );
            self.tell(&device, token, writable);
        }
        if awake {
            self.events.wake.clear();
            let again = std::mem::take(&mut *self.events.again.lock());
            for token in again {
                self.tell(&device, token, false);
            }
        }
        self.ring_alarms();
        if now() >= self.sweep_at {
            self.sweep_at = now() + SWEEP;
            device.sweep();
        }
        true
    }

    /// When the next thing is due.
    fn until(&self) -> Instant {
        let alarms = self.events.alarms.lock();
        alarms
            .first_key_value()
            .map_or(self.sweep_at, |((at, _), _)| self.sweep_at.min(*at))
    }

    fn tell(&self, device: &Arc<DeviceState>, token: u64, writable: bool) {
        match self.events.source(token) {
            None => {}
            Some(Source::Listener) => device.accept_all(),
            Some(Source::Incoming(incoming)) => device.greet(token, &incoming),
            Some(Source::Early(pair)) => {
                if let Some(pair) = pair.upgrade() {
                    pair.early_call_ended(token);
                }
            }
            Some(Source::Stream(pair)) => {
                if let Some(pair) = pair.upgrade() {
                    pair.ready(writable);
                }
            }
            Some(Source::Datagrams(pair)) => {
                if let Some(pair) = pair.upgrade() {
                    pair.ready(writable);
                }
            }
            Some(Source::Departed(departed)) => {
                if !departed.ready() {
                    self.events.forget(token);
                }
            }
        }
    }

    fn ring_alarms(&self) {
        let now = now();
        loop {
            let due = {
                let mut alarms = self.events.alarms.lock();
                match alarms.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => return,
                }
            };
            if let Some(pair) = due.upgrade() {
                pair.time_passed(now);
            }
        }
    }
}
