//! A relation that is pinned to a ring: it stays in the memory of the hosts, set up once, and spins for as long as there
//! are queries that have not seen all of it. Queries that join it at the same time share its revolutions, and begin with
//! whatever fragment comes by; when the last of them has seen all, the ring stands still.
//!
//! ```text
//!                     own fragments
//!                           │
//!   predecessor ──────► spinner ──────► follower      a task of its own: it passes fragments on at once,   
//!                       │  │  │                       and read once for all queries of the host that need it
//!                      query ...                      each has a stationary relation, and joins at its own pace
//! ```
//!
//! * A query that comes to a host has the host **call**: all others begin their fragments once more around, from wherever
//!   they are. So whatever comes, when, and on how many hosts, no fragment goes around that no query has called for.
//! * **Pace.** A fragment waits until a query that needs it has room, and then those that have none are passed over: they
//!   call again once they are done with what they have. So the fastest query sets the pace, and one that stands still
//!   holds nobody up for longer than [`PATIENCE`] for each fragment.
//! * **Rows without a partner.** The bits of a fragment's rows that have had a partner on a host go to where the fragment
//!   is from, which knows those that had none anywhere once it has the bits of all.
//! * **Hosts join and leave** between revolutions: once all hosts [close](Pinned::close) the ring, those that leave hand
//!   their fragments over to those that stay, on a last revolution; the others, and whoever joins, make a new ring of what
//!   they have. A host that is lost breaks the ring.
//!
//! Knows no engine, nor where rows come from.

mod closing;
mod message;
mod query;
mod spinner;

use crate::cyclo::{Cyclo, Phases};
use crate::error::{Result, RingError};
use crate::roundabout::{Place, Roundabout};
use crate::spin::{Spinning, decode};
use crate::threads::{JoinThreads, on_thread};
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use futures::channel::{mpsc, oneshot};
use message::NOTE_BYTES;
use parking_lot::Mutex;
use roundel_verbs::Context;
use spinner::{Command, Spinner};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use spinner::PATIENCE;

/// What tells a query from others: the same on all hosts of its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryId(pub u128);

/// Rows of this host, which go around as one element.
struct Fragment {
    /// The bytes of its element, which the rows lie in too.
    payload: Buffer,
    rows: RecordBatch,
}

/// A relation that is pinned to a ring, as one of its hosts has it. The ring breaks when it is dropped.
pub struct Pinned {
    place: Place,
    own: Arc<[Fragment]>,
    commands: mpsc::UnboundedSender<Command>,
    /// Why the ring broke, if it did.
    broken: Arc<Mutex<Option<RingError>>>,
    begun: Arc<AtomicU64>,
    closing: Arc<AtomicBool>,
}

impl Pinned {
    /// Pins a relation, of which this host has these rows, to a ring. All hosts pin the same relation.
    ///
    /// # Errors
    /// When a row does not fit into an element.
    pub async fn pin(
        ring: Roundabout,
        schema: SchemaRef,
        rows: Vec<RecordBatch>,
        threads: &dyn JoinThreads,
        context: Arc<dyn Context>,
    ) -> Result<Self> {
        let place = ring.place();
        let bytes_max = ring.payload_bytes_max() - NOTE_BYTES;
        let own = {
            let schema = schema.clone();
            on_thread(threads, move || {
                fragments(schema, rows, bytes_max, place.number)
            })
            .await?
        };
        let own: Arc<[Fragment]> = own.into();
        let (commands, told) = mpsc::unbounded();
        let broken = Arc::<Mutex<Option<RingError>>>::default();
        let begun = Arc::<AtomicU64>::default();
        let closing = Arc::<AtomicBool>::default();
        let spinner = Spinner::new(
            ring,
            schema,
            context.clone(),
            own.clone(),
            told,
            begun.clone(),
            closing.clone(),
        );
        context.spawn(Box::pin(spinner.run(broken.clone())));
        Ok(Self {
            place,
            own,
            commands,
            broken,
            begun,
            closing,
        })
    }

    /// This host's place in the ring.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Fragments that this host has.
    pub fn fragments(&self) -> usize {
        self.own.len()
    }

    /// Bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        self.own
            .iter()
            .map(|fragment| fragment.payload.capacity())
            .sum()
    }

    /// Fragments that began here so far: so many times as there are of them in a revolution.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether a host of the ring closes it, or it has ended. Then all should close it.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed) || self.commands.is_closed()
    }

    /// Joins the pinned relation with these rows of a query, which stay on this host; its part of the result goes to the
    /// output of the join. All hosts of the ring run the same query.
    ///
    /// # Errors
    /// When the ring breaks or is closed, the predicate fails, or nobody takes the result.
    pub async fn join(
        &self,
        query: QueryId,
        cyclo: &Cyclo,
        stationary: Vec<RecordBatch>,
    ) -> Result<Phases> {
        query::join(self, query, cyclo, stationary).await
    }

    /// Ends the ring once its queries have ended, and all of its hosts close it. Returns the rows that this host has then:
    /// none if it `leaves`, and some more if others do. If all leave, each keeps its own.
    ///
    /// # Errors
    /// When the ring is broken, or breaks meanwhile.
    pub async fn close(&self, leaves: bool) -> Result<Vec<RecordBatch>> {
        let (done, closed) = oneshot::channel();
        // A ring that is broken has no one to tell, and says so.
        let _ = self
            .commands
            .unbounded_send(Command::Close { leaves, done });
        closed.await.map_err(|_| self.why())
    }

    /// Why there is nothing more to come.
    fn why(&self) -> RingError {
        match &*self.broken.lock() {
            Some(RingError::Lost { place, reason }) => RingError::Lost {
                place: *place,
                reason: reason.clone(),
            },
            Some(RingError::Malformed { place, reason }) => RingError::Malformed {
                place: *place,
                reason: reason.clone(),
            },
            Some(other) => RingError::Unsupported(other.to_string()),
            None => RingError::Unpinned,
        }
    }
}

/// The rows of a host as fragments; a host without rows has one without.
fn fragments(
    schema: SchemaRef,
    rows: Vec<RecordBatch>,
    bytes_max: usize,
    place: usize,
) -> Result<Vec<Fragment>> {
    let mut spinning = Spinning::new(schema.clone(), rows, bytes_max, false);
    let mut fragments = Vec::new();
    while !spinning.is_over() {
        let payload = Buffer::from(spinning.piece()?.payload);
        // They lie in the payload, so that there is one copy of them.
        let rows = decode(payload.clone(), &schema, place)?;
        fragments.push(Fragment { payload, rows });
    }
    match fragments.len() as u64 <= u64::from(message::FRAGMENTS_MAX) {
        true => Ok(fragments),
        false => Err(RingError::Unsupported(format!(
            "{} fragments on one host: use larger elements on the ring",
            fragments.len()
        ))),
    }
}

#[cfg(test)]
mod tests;
