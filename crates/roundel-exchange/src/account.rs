//! Where the time of an exchange's tasks goes: what they compute, and what they wait for.
//!
//! A task computes while a processor runs it. It is woken when what it waited for has come, and then waits for a processor until it is
//! polled. Before that it waits for the thing that it named last. So its parts add up to the time that has passed. A stream is
//! polled by whoever reads it. Once it is woken, it waits for that reader.
//!
//! This knows nothing of rows, links and designs.

use parking_lot::Mutex;
use roundel_verbs::Context;
use std::cell::Cell;
use std::iter::Sum;
use std::ops::{AddAssign, Index, IndexMut};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Wake, Waker};
use std::time::Duration;
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// What a task spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumCount, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Spending {
    /// It runs: it makes rows, packs or unpacks them.
    Computing,
    /// It waits for a processor, which runs other tasks or programs meanwhile.
    Processor,
    /// It waits for rows: of its input, or of the other side of a link.
    Rows,
    /// It waits for memory to fill: buffers that are on their way have to come back first.
    Buffer,
    /// It waits for credit: the receiver has no memory for more.
    Credit,
    /// It waits for its turn at the network, among the queries of a multiplexer and the phases of its schedule.
    Turn,
    /// It waits until all who send rows of a join have agreed on how these are spread, for which each has to see some first.
    Agreement,
    /// It waits for who takes its rows: within the process, or before they have come to take any.
    Reader,
}

impl Spending {
    /// All of them.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// What measures call it, such as `rows`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Time, by what it was spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent([Duration; Spending::COUNT]);

impl Spent {
    /// All of it.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    /// What was spent since it was `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (part, before) in since.0.iter_mut().zip(before.0) {
            *part = part.saturating_sub(before);
        }
        since
    }
}

impl Index<Spending> for Spent {
    type Output = Duration;

    fn index(&self, on: Spending) -> &Duration {
        &self.0[on as usize]
    }
}

impl IndexMut<Spending> for Spent {
    fn index_mut(&mut self, on: Spending) -> &mut Duration {
        &mut self.0[on as usize]
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        for on in Spending::ALL {
            self[*on] += other[*on];
        }
    }
}

impl Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let mut sum = Self::default();
        all.for_each(|one| sum += one);
        sum
    }
}

thread_local! {
    /// The thing that the task waits for which is polled on this thread, if it stays pending.
    static WAITS_FOR: Cell<Spending> = const { Cell::new(Spending::Rows) };
}

/// The task that is polled waits for something, unless it goes on in spite of that.
pub(crate) fn waits_for(what: Spending) {
    WAITS_FOR.set(what);
}

/// Names the thing that a future waits for while it is pending. The future itself can name another one.
pub async fn waiting_for<T>(what: Spending, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let before = WAITS_FOR.replace(what);
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            WAITS_FOR.set(before);
        }
        polled
    })
    .await
}

/// What some tasks spent their time on, added up. Clones share it.
#[derive(Clone)]
pub struct Account {
    spent: Arc<Mutex<Spent>>,
    context: Arc<dyn Context>,
}

impl Account {
    /// An account of tasks that run here.
    pub fn new(context: Arc<dyn Context>) -> Self {
        Self {
            spent: Arc::default(),
            context,
        }
    }

    /// What was spent so far, up to when each task was polled last.
    pub fn spent(&self) -> Spent {
        *self.spent.lock()
    }

    /// Time went to something.
    fn charge(&self, spent: Spent) {
        *self.spent.lock() += spent;
    }

    /// A task whose time is accounted for here, from its first poll on.
    pub fn measure<T, F>(&self, task: F) -> impl Future<Output = T> + use<T, F>
    where
        F: Future<Output = T>,
    {
        let mut clock = Clock::new(self.clone(), Spending::Processor);
        async move {
            let mut task = pin!(task);
            std::future::poll_fn(|cx| {
                let turn = clock.begin(cx);
                let polled = task.as_mut().poll(&mut turn.context());
                clock.end(turn, polled.is_pending());
                polled
            })
            .await
        }
    }
}

/// The time of one task, or of a stream.
pub(crate) struct Clock {
    account: Account,
    /// The thing that it waits for once it is woken.
    woken_for: Spending,
    woken: Arc<Woken>,
    /// That of `woken`.
    waker: Waker,
    waits: Option<Wait>,
}

/// A task is not polled.
struct Wait {
    since: Duration,
    what: Spending,
    /// It ends when the task is woken.
    until_woken: bool,
}

/// A poll of a task.
pub(crate) struct Turn {
    begun: Duration,
    /// Time that the thread had computed before it.
    computed: Duration,
    /// Time that was spent on waits before it.
    spent: Spent,
    /// The thing that the task around this one waits for.
    outside: Spending,
    waker: Waker,
}

impl Turn {
    /// The context to poll the task with.
    pub(crate) fn context(&self) -> TaskContext<'_> {
        TaskContext::from_waker(&self.waker)
    }
}

impl Clock {
    pub(crate) fn new(account: Account, woken_for: Spending) -> Self {
        let woken = Arc::new(Woken {
            context: account.context.clone(),
            state: Mutex::default(),
        });
        Self {
            account,
            woken_for,
            waker: Waker::from(woken.clone()),
            woken,
            waits: None,
        }
    }

    /// The task is polled. Until it says what it waits for, that is rows.
    pub(crate) fn begin(&mut self, cx: &TaskContext<'_>) -> Turn {
        let context = &self.account.context;
        let (begun, computed) = (context.now(), context.computed());
        Turn {
            spent: self.waited(begun, Some(cx.waker())),
            begun,
            computed,
            outside: WAITS_FOR.replace(Spending::Rows),
            waker: self.waker.clone(),
        }
    }

    /// It was polled, and waits now if that is pending.
    pub(crate) fn end(&mut self, turn: Turn, pending: bool) {
        let mut spent = turn.spent;
        let what = WAITS_FOR.replace(turn.outside);
        let context = &self.account.context;
        let (ended, computed) = (context.now(), context.computed());
        let polled = ended.saturating_sub(turn.begun);
        let computed = computed.saturating_sub(turn.computed).min(polled);
        spent[Spending::Computing] += computed;
        spent[Spending::Processor] += polled - computed;
        self.account.charge(spent);
        self.waits = pending.then_some(Wait {
            since: ended,
            what,
            until_woken: true,
        });
    }

    /// The task waits for something although it has given what it was polled for.
    pub(crate) fn waits(&mut self, what: Spending) {
        self.waits = Some(Wait {
            since: self.account.context.now(),
            what,
            until_woken: false,
        });
    }

    /// Returns the time that was spent on waits until now. From now on this waker is woken.
    fn waited(&mut self, now: Duration, waker: Option<&Waker>) -> Spent {
        let woken = self.woken.since_woken(waker);
        let mut spent = Spent::default();
        if let Some(wait) = self.waits.take() {
            let woken = woken.filter(|_| wait.until_woken).unwrap_or(now);
            let woken = woken.clamp(wait.since, now.max(wait.since));
            spent[wait.what] += woken - wait.since;
            spent[self.woken_for] += now.saturating_sub(woken);
        }
        spent
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let now = self.account.context.now();
        let waited = self.waited(now, None);
        self.account.charge(waited);
    }
}

/// Wakes a task, and notes when.
struct Woken {
    context: Arc<dyn Context>,
    state: Mutex<WokenState>,
}

#[derive(Default)]
struct WokenState {
    /// When it was woken first since it was polled.
    at: Option<Duration>,
    waker: Option<Waker>,
}

impl Woken {
    /// When the task was woken since this was last asked, and who wakes it from now on.
    fn since_woken(&self, waker: Option<&Waker>) -> Option<Duration> {
        let mut state = self.state.lock();
        let known = state.waker.as_ref();
        if known
            .zip(waker)
            .is_none_or(|(known, waker)| !known.will_wake(waker))
        {
            state.waker = waker.cloned();
        }
        state.at.take()
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let now = self.context.now();
        let waker = {
            let mut state = self.state.lock();
            state.at.get_or_insert(now);
            state.waker.clone()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
