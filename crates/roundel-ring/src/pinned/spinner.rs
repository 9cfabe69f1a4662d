//! The task that spins a pinned relation: takes what comes, hands it to the queries that need it, and begins what others
//! have called for.

use super::closing::Closing;
use super::message::Message;
use super::{Fragment, QueryId};
use crate::error::{Result, RingError};
use crate::roundabout::{Element, Next, Roundabout};
use crate::spin::{decode, notes_bytes};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::channel::{mpsc, oneshot};
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use roundel_verbs::Context;
use roundel_verbs::completion_queue::BoxFuture;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How long a fragment waits for a query that has no room.
pub const PATIENCE: Duration = Duration::from_millis(100);
/// Fragments that a query can have before it joins them.
pub(super) const ROOM: usize = 4;
/// Queries that have come to other hosts before this one.
const EARLY_MAX: usize = 1024;
/// Queries that ended early, whose bits may still come.
const GONE_MAX: usize = 1024;

/// What the queries of this host say.
pub(super) enum Command {
    /// A query has come.
    Attach {
        query: QueryId,
        feed: mpsc::UnboundedSender<Fed>,
    },
    /// It is done with a fragment.
    Room(QueryId),
    /// The bits of a fragment of another host, to be sent there.
    Matches {
        query: QueryId,
        place: usize,
        number: u32,
        bits: Vec<u8>,
    },
    /// The query is over: at its end, or before.
    Detach { query: QueryId, finished: bool },
    /// The ring is to end.
    Close {
        leaves: bool,
        done: oneshot::Sender<Vec<RecordBatch>>,
    },
}

/// What a query gets.
pub(super) enum Fed {
    /// A fragment of another host.
    Fragment {
        origin: usize,
        number: u32,
        rows: RecordBatch,
    },
    /// There are no others.
    All,
    /// The bits of another host, of a fragment of this one.
    Matches {
        origin: usize,
        number: u32,
        bits: Vec<u8>,
    },
}

/// A query of this host.
struct Attached {
    feed: mpsc::UnboundedSender<Fed>,
    room: usize,
    /// By origin: which of its fragments it has had, once it is known how many there are.
    had: Vec<Option<Vec<bool>>>,
    /// Fragments that it has not had of those origins, and origins of which nothing is known.
    left: usize,
    unknown: usize,
    passed_over: bool,
}

impl Attached {
    fn needs(&self, origin: usize, number: u32) -> bool {
        match &self.had[origin] {
            Some(had) => !had[number as usize],
            None => true,
        }
    }

    fn take(&mut self, fragment: &Arrived) {
        let Arrived {
            origin, number, of, ..
        } = *fragment;
        let had = self.had[origin].get_or_insert_with(|| {
            self.left += of as usize;
            self.unknown -= 1;
            vec![false; of as usize]
        });
        had[number as usize] = true;
        self.left -= 1;
        self.room -= 1;
        // A query that is gone says so.
        let _ = self.feed.unbounded_send(Fed::Fragment {
            origin,
            number,
            rows: fragment.rows.clone(),
        });
        self.tell_all();
    }

    fn tell_all(&self) {
        if self.left == 0 && self.unknown == 0 {
            let _ = self.feed.unbounded_send(Fed::All);
        }
    }
}

/// A fragment that has come, and was passed on.
struct Arrived {
    origin: usize,
    number: u32,
    of: u32,
    rows: RecordBatch,
}

/// Bits that came before their query, by host and fragment.
type Early = Vec<(usize, u32, Vec<u8>)>;

enum Event {
    Command(Option<Command>),
    Ring(Result<Next>),
    PassOver,
}

pub(super) struct Spinner {
    ring: Roundabout,
    schema: SchemaRef,
    context: Arc<dyn Context>,
    own: Arc<[Fragment]>,
    commands: mpsc::UnboundedReceiver<Command>,
    queries: HashMap<QueryId, Attached>,
    early: HashMap<QueryId, Early>,
    gone: VecDeque<QueryId>,
    /// The own fragment that begins next, and how many have been called for.
    next: usize,
    owed: usize,
    begun: Arc<AtomicU64>,
    /// What goes before them.
    to_send: VecDeque<(Message, Vec<u8>)>,
    /// By origin: how many fragments it has said that it has.
    fragments_of: Vec<Option<u32>>,
    /// A fragment that nobody has room for, and the end of patience.
    held: Option<(Arrived, BoxFuture<'static, ()>)>,
    closing: Closing,
    /// Whether any host is closing.
    heard_closing: Arc<AtomicBool>,
    /// Whether all last elements of others have come.
    heard_last: bool,
}

impl Spinner {
    pub(super) fn new(
        ring: Roundabout,
        schema: SchemaRef,
        context: Arc<dyn Context>,
        own: Arc<[Fragment]>,
        commands: mpsc::UnboundedReceiver<Command>,
        begun: Arc<AtomicU64>,
        heard_closing: Arc<AtomicBool>,
    ) -> Self {
        let hosts = ring.place().hosts;
        Self {
            schema,
            context,
            own,
            commands,
            queries: HashMap::new(),
            early: HashMap::new(),
            gone: VecDeque::new(),
            next: 0,
            owed: 0,
            begun,
            to_send: VecDeque::new(),
            fragments_of: vec![None; hosts],
            held: None,
            closing: Closing::new(ring.place()),
            heard_closing,
            heard_last: hosts == 1,
            ring,
        }
    }

    /// Spins until the ring is closed, or breaks.
    pub(super) async fn run(mut self, broken: Arc<Mutex<Option<RingError>>>) {
        match self.spin().await {
            Ok(()) => self.end(&broken).await,
            // A task that waits for something finds its channel closed, and asks here.
            Err(error) => *broken.lock() = Some(error),
        }
    }

    async fn spin(&mut self) -> Result<()> {
        loop {
            self.close_with_all();
            let has_own = !self.to_send.is_empty() || self.owed > 0;
            if self.closing.is_said() && self.heard_last && !has_own {
                return Ok(());
            }
            let stands = self.heard_last && !has_own;
            let Self {
                ring,
                commands,
                held,
                ..
            } = self;
            let event = {
                let mut next = pin!(ring.next(has_own));
                std::future::poll_fn(|cx| {
                    if let Poll::Ready(command) = commands.poll_next_unpin(cx) {
                        return Poll::Ready(Event::Command(command));
                    }
                    match held {
                        Some((_, patience)) => patience.poll_unpin(cx).map(|()| Event::PassOver),
                        None if stands => Poll::Pending,
                        None => next.as_mut().poll(cx).map(Event::Ring),
                    }
                })
                .await
            };
            match event {
                Event::Command(Some(command)) => {
                    self.told(command);
                    if let Some((fragment, patience)) = self.held.take() {
                        self.held = self.offer(fragment).map(|fragment| (fragment, patience));
                    }
                }
                // The relation was dropped.
                Event::Command(None) => return Err(RingError::Cancelled),
                Event::PassOver => {
                    if let Some((fragment, _)) = self.held.take() {
                        self.pass_over(&fragment);
                    }
                }
                Event::Ring(next) => match next? {
                    Next::End => self.heard_last = true,
                    Next::Element(element) => self.came(element)?,
                    Next::Blank(blank) => {
                        let Some((message, bytes)) = self.own_next() else {
                            continue;
                        };
                        let payload = match message {
                            Message::Fragment { number, .. } | Message::Handover { number } => {
                                self.own[number as usize].payload.as_slice()
                            }
                            _ => &bytes,
                        };
                        let last = message == Message::Last;
                        let element = self.ring.begin(blank, payload, &message.encode(), last);
                        self.ring.pass_on(element);
                    }
                },
            }
        }
    }

    /// What begins here next.
    fn own_next(&mut self) -> Option<(Message, Vec<u8>)> {
        if let Some(first) = self.to_send.pop_front() {
            return Some(first);
        }
        self.owed = self.owed.checked_sub(1)?;
        self.begun.fetch_add(1, Ordering::Relaxed);
        let number = self.next;
        self.next = (number + 1) % self.own.len();
        let message = Message::Fragment {
            number: number as u32,
            of: self.own.len() as u32,
        };
        Some((message, Vec::new()))
    }

    fn send(&mut self, message: Message, bytes: Vec<u8>) {
        // Nobody takes anything after the last element of a host.
        if self.ring.place().hosts > 1 && !self.closing.is_said() {
            self.to_send.push_back((message, bytes));
        }
    }

    /// An element of another host has come.
    fn came(&mut self, element: Element) -> Result<()> {
        let origin = element.origin();
        let malformed = |reason: String| RingError::Malformed {
            place: origin,
            reason,
        };
        match Message::decode(&element.notes()).map_err(malformed)? {
            Message::Fragment { number, of } => {
                let known = *self.fragments_of[origin].get_or_insert(of);
                if of != known {
                    return Err(malformed(format!("{of} fragments instead of {known}")));
                }
                if self.queries.values().any(|one| one.needs(origin, number)) {
                    let payload = element.payload();
                    self.ring.pass_on(element);
                    let rows = decode(payload.into(), &self.schema, origin)?;
                    let arrived = Arrived {
                        origin,
                        number,
                        of,
                        rows,
                    };
                    self.held = self
                        .offer(arrived)
                        .map(|fragment| (fragment, self.context.sleep(PATIENCE)));
                    return Ok(());
                }
            }
            Message::Call => self.owed = self.own.len(),
            Message::Matches {
                query,
                place,
                number,
            } => {
                if place as usize == self.ring.place().number {
                    self.matched(query, origin, number, element.payload())?;
                }
            }
            Message::Over { query } => self.forget(query),
            Message::Closing { leaves } => {
                self.closing.hear(origin, leaves);
                self.heard_closing.store(true, Ordering::Relaxed);
            }
            Message::Handover { number } => {
                if self.closing.adopts(number) {
                    let rows = decode(element.payload().into(), &self.schema, origin)?;
                    self.closing.adopt(rows);
                }
            }
            Message::Last => {}
        }
        self.ring.pass_on(element);
        Ok(())
    }

    /// Gives a fragment to the queries that need it and have room. It is left where only such need it that have none.
    fn offer(&mut self, fragment: Arrived) -> Option<Arrived> {
        let (mut wanted, mut taken) = (false, false);
        for query in self.queries.values_mut() {
            if query.needs(fragment.origin, fragment.number) {
                wanted = true;
                if query.room > 0 {
                    query.take(&fragment);
                    taken = true;
                }
            }
        }
        if wanted && !taken {
            return Some(fragment);
        }
        self.pass_over(&fragment);
        None
    }

    /// Goes on without those that have no room.
    fn pass_over(&mut self, fragment: &Arrived) {
        for query in self.queries.values_mut() {
            query.passed_over |= query.needs(fragment.origin, fragment.number);
        }
    }

    fn told(&mut self, command: Command) {
        match command {
            // Whose feed is dropped hears that there is nothing to join any more.
            Command::Attach { .. } if self.closing.is_asked() => {}
            Command::Attach { query, feed } => {
                for (origin, number, bits) in self.early.remove(&query).unwrap_or_default() {
                    let _ = feed.unbounded_send(Fed::Matches {
                        origin,
                        number,
                        bits,
                    });
                }
                let hosts = self.ring.place().hosts;
                let attached = Attached {
                    feed,
                    room: ROOM,
                    had: vec![None; hosts],
                    left: 0,
                    unknown: hosts - 1,
                    passed_over: false,
                };
                attached.tell_all();
                self.queries.insert(query, attached);
                self.send(Message::Call, Vec::new());
            }
            Command::Room(query) => {
                if let Some(query) = self.queries.get_mut(&query) {
                    query.room += 1;
                    if query.room == ROOM && std::mem::take(&mut query.passed_over) {
                        self.send(Message::Call, Vec::new());
                    }
                }
            }
            Command::Matches {
                query,
                place,
                number,
                bits,
            } => {
                let message = Message::Matches {
                    query,
                    place: place as u32,
                    number,
                };
                self.send(message, bits);
            }
            Command::Detach { query, finished } => {
                self.queries.remove(&query);
                if !finished {
                    self.forget(query);
                    self.send(Message::Over { query }, Vec::new());
                }
            }
            Command::Close { leaves, done } => self.closing.ask(leaves, done),
        }
    }

    /// Bits of a fragment of this host have come.
    fn matched(&mut self, query: QueryId, origin: usize, number: u32, bits: Vec<u8>) -> Result<()> {
        let malformed = |reason: String| RingError::Malformed {
            place: origin,
            reason,
        };
        let Some(fragment) = self.own.get(number as usize) else {
            return Err(malformed(format!("bits of fragment {number}")));
        };
        let expected = notes_bytes(true, fragment.rows.num_rows());
        if bits.len() != expected {
            let reason = format!("{} bytes of bits instead of {expected}", bits.len());
            return Err(malformed(reason));
        }
        if let Some(query) = self.queries.get(&query) {
            let _ = query.feed.unbounded_send(Fed::Matches {
                origin,
                number,
                bits,
            });
        } else if !self.gone.contains(&query) {
            self.early
                .entry(query)
                .or_default()
                .push((origin, number, bits));
            if self.early.len() > EARLY_MAX {
                return Err(malformed(format!(
                    "bits of more than {EARLY_MAX} queries that have not come here"
                )));
            }
        }
        Ok(())
    }

    /// A query has come to an early end somewhere.
    fn forget(&mut self, query: QueryId) {
        self.early.remove(&query);
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back(query);
    }

    /// Goes on with closing as far as the other hosts do.
    fn close_with_all(&mut self) {
        if !self.queries.is_empty() {
            return;
        }
        for message in self.closing.go_on(self.own.len()) {
            self.send(message, Vec::new());
            if message == Message::Last {
                // No host has a query any more that would need what was called for.
                self.owed = 0;
                self.closing.say();
            }
        }
    }

    /// The ring has been closed by all.
    async fn end(self, broken: &Mutex<Option<RingError>>) {
        match self.ring.finish().await {
            Ok(()) => self.closing.end(&self.own),
            Err(error) => *broken.lock() = Some(error),
        }
    }
}
