//! The one thread of a device: it waits until sockets are ready or time has passed, and tells those
//! whom it concerns. It knows neither who they are nor what they do.
//!
//! A thread that polls a completion queue over and over looks after the sockets itself, in between,
//! and the device's thread stands by: there would be two threads awake for the work of one, and a
//! hop between them in every message. It takes over when nobody has polled for a moment, and at
//! once when a queue is armed, for then somebody is about to sleep.

use crate::error::{Result, VerbsError};
use crate::event::Event;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often it is looked whether silent peers are gone and strangers have said hello.
const SWEEP: Duration = Duration::from_millis(500);
/// Events taken with one call.
const BATCH: usize = 64;
/// How long the thread stands by without looking whether anybody still polls.
const STAND_BY: Duration = Duration::from_millis(1);
/// How the thread's own wake-up is known.
const WAKE: u64 = 0;

/// The provider's own clock, for timers: a NIC has one too.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The owner of a socket, which its events concern.
#[derive(Clone)]
pub(super) struct Source {
    tell: Arc<Tell>,
    /// When it has to be replaced by another, if it has.
    until: Option<Instant>,
}

/// What is done when something happened on the socket of a token; false when the socket is of no
/// use any more.
type Tell = dyn Fn(u64, News) -> bool + Send + Sync;

impl Source {
    pub(super) fn new(tell: impl Fn(u64, News) -> bool + Send + Sync + 'static) -> Self {
        Self {
            tell: Arc::new(tell),
            until: None,
        }
    }

    /// Of an owner that may be gone. It forgets its own token when it is dropped, so the source stays until then.
    pub(super) fn of<T: Send + Sync + 'static>(
        owner: Weak<T>,
        tell: impl Fn(&Arc<T>, u64, News) + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |token, news| {
            owner.upgrade().inspect(|owner| tell(owner, token, news));
            true
        })
    }

    /// The same, which has to be replaced before this time.
    pub(super) fn until(self, when: Instant) -> Self {
        Self {
            until: Some(when),
            ..self
        }
    }
}

/// Who is told when a time has come.
pub(super) trait Timed: Send + Sync {
    fn time_passed(&self, now: Instant);
}

/// What has become of a socket. It does not say whether there is something to read: reading finds that out.
#[derive(Clone, Copy, Default)]
pub(super) struct News {
    /// It takes bytes again.
    pub writable: bool,
    /// The peer sends no more. The end comes after the bytes that are there, and no other event tells of it.
    pub ended: bool,
}

/// What the thread waits for.
pub(super) struct Events {
    epoll: OwnedFd,
    wake: Event,
    sources: Mutex<HashMap<u64, Source>>,
    tokens: AtomicU64,
    /// Sockets with more to read than one turn allows.
    again: Mutex<Vec<u64>>,
    alarms: Mutex<BTreeMap<(Instant, u64), Weak<dyn Timed>>>,
    /// Held by the thread that polls and looks after the sockets meanwhile.
    poller: Mutex<()>,
    /// Somebody has polled since the thread looked last.
    polled: AtomicBool,
    /// The thread leaves the sockets to whoever polls.
    stands_by: AtomicBool,
    /// How often somebody was about to sleep.
    handovers: AtomicU64,
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
            poller: Mutex::default(),
            polled: AtomicBool::new(false),
            stands_by: AtomicBool::new(false),
            handovers: AtomicU64::new(0),
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
        self.add(socket, token, flags)
    }

    /// As `watch`, but of a datagram socket, which has room most of the time: only what arrives is
    /// told, until `watch_room` asks for the other.
    pub(super) fn watch_datagrams(&self, socket: &OwnedFd, source: Source) -> Result<u64> {
        let token = self.tokens.fetch_add(1, Ordering::Relaxed);
        self.sources.lock().insert(token, source);
        self.add(socket, token, epoll::EventFlags::IN | epoll::EventFlags::ET)
            .inspect_err(|_| self.forget(token))?;
        Ok(token)
    }

    /// Tells also when a datagram socket has room, or no more.
    pub(super) fn watch_room(&self, socket: &OwnedFd, token: u64, wanted: bool) {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        flags.set(epoll::EventFlags::OUT, wanted);
        let data = epoll::EventData::new_u64(token);
        if let Err(errno) = epoll::modify(&self.epoll, socket, data, flags) {
            tracing::error!(%errno, "a datagram socket cannot be watched");
        }
    }

    fn add(&self, socket: &OwnedFd, token: u64, flags: epoll::EventFlags) -> Result<()> {
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
        // A thread that polls comes to it, and so does this device's thread when it stops standing by.
        if !self.stands_by.load(Ordering::SeqCst) {
            self.wake.signal();
        }
    }

    /// Somebody is about to sleep until there is a completion.
    pub(super) fn hand_over(&self) {
        self.handovers.fetch_add(1, Ordering::SeqCst);
        if self.stands_by.load(Ordering::SeqCst) {
            self.wake.signal();
        }
    }

    /// Tells somebody when a time has come.
    pub(super) fn wake_at(&self, when: Instant, whom: Weak<dyn Timed>) {
        let id = self.tokens.fetch_add(1, Ordering::Relaxed);
        let mut alarms = self.alarms.lock();
        let first = alarms
            .first_key_value()
            .is_none_or(|((at, _), _)| when < *at);
        alarms.insert((when, id), whom);
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
        let late = |source: &Source| source.until.is_some_and(|until| until < now);
        let late = sources.iter().filter(|(_, source)| late(source));
        late.map(|(token, _)| *token).collect()
    }
}

/// Starts the thread, which also sweeps now and then. It ends when the device is gone.
pub(super) fn start<D: Send + Sync + 'static>(
    events: &Arc<Events>,
    device: &Arc<D>,
    sweep: fn(&Arc<D>),
) -> Result<()> {
    let mut thread = Thread {
        device: Arc::downgrade(device),
        events: events.clone(),
        sweep,
        sweep_at: now() + SWEEP,
    };
    std::thread::Builder::new()
        .name("roundel-tcp".into())
        .spawn(move || while thread.turn() {})
        .map_err(|source| VerbsError::System {
            call: "starting the device's thread",
            source,
        })?;
    Ok(())
}

struct Thread<D> {
    device: Weak<D>,
    events: Arc<Events>,
    sweep: fn(&Arc<D>),
    sweep_at: Instant,
}

impl<D> Thread<D> {
    /// Waits and does what there is to do; false when the device is gone.
    fn turn(&mut self) -> bool {
        let until = self.until();
        let mut room = [MaybeUninit::uninit(); BATCH];
        let ready: &[epoll::Event] = if self.stand_by(until) {
            &[]
        } else {
            self.events
                .wait(&mut room, until.saturating_duration_since(now()))
        };
        // The device is not held while waiting: whoever drops it last ends it.
        let Some(device) = self.device.upgrade() else {
            return false;
        };
        self.events.tell_all(ready);
        self.ring_alarms();
        if now() >= self.sweep_at {
            self.sweep_at = now() + SWEEP;
            (self.sweep)(&device);
        }
        true
    }

    /// Sleeps for a moment without looking at the sockets, if somebody polls who does.
    fn stand_by(&self, until: Instant) -> bool {
        let events = &self.events;
        let handovers = events.handovers.load(Ordering::SeqCst);
        let polled = events.polled.swap(false, Ordering::SeqCst);
        // A thread that polls may be at work for longer than this thread stands by.
        if !polled && !events.poller.is_locked() {
            return false;
        }
        events.stands_by.store(true, Ordering::SeqCst);
        // Either who hands over sees this thread standing by, or it is seen here.
        if events.handovers.load(Ordering::SeqCst) == handovers {
            let time = until.saturating_duration_since(now()).min(STAND_BY);
            let mut wake = [PollFd::new(&events.wake, PollFlags::IN)];
            // Interrupted, it only looks earlier.
            let _ = poll(&mut wake, Some(&timespec(time)));
        }
        events.stands_by.store(false, Ordering::SeqCst);
        if events.handovers.load(Ordering::SeqCst) != handovers {
            events.polled.store(false, Ordering::SeqCst);
        }
        events.wake.clear();
        true
    }

    /// When the next thing is due.
    fn until(&self) -> Instant {
        let alarms = self.events.alarms.lock();
        alarms
            .first_key_value()
            .map_or(self.sweep_at, |((at, _), _)| self.sweep_at.min(*at))
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

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}

impl Events {
    /// Waits for events, and takes them.
    fn wait<'a>(
        &self,
        room: &'a mut [MaybeUninit<epoll::Event>],
        time: Duration,
    ) -> &'a [epoll::Event] {
        match epoll::wait(&self.epoll, room, Some(&timespec(time))) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => &[],
            Err(errno) => {
                tracing::error!(%errno, "waiting for sockets failed");
                &[]
            }
        }
    }

    /// Looks after the sockets in a thread that polls, unless another one does.
    pub(super) fn look_after_sockets(&self) {
        let Some(_alone) = self.poller.try_lock() else {
            return;
        };
        self.polled.store(true, Ordering::SeqCst);
        let mut room = [MaybeUninit::uninit(); BATCH];
        self.tell_all(self.wait(&mut room, Duration::ZERO));
    }

    fn tell_all(&self, ready: &[epoll::Event]) {
        use epoll::EventFlags;
        for event in ready {
            let (token, flags) = (event.data.u64(), event.flags);
            if token == WAKE {
                self.wake.clear();
                continue;
            }
            let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            let news = News {
                writable: broken || flags.contains(EventFlags::OUT),
                ended: broken || flags.contains(EventFlags::RDHUP),
            };
            self.tell(token, news);
        }
        let again = std::mem::take(&mut *self.again.lock());
        for token in again {
            self.tell(token, News::default());
        }
    }

    fn tell(&self, token: u64, news: News) {
        let Some(source) = self.source(token) else {
            return;
        };
        if !(source.tell)(token, news) {
            self.forget(token);
        }
    }
}
