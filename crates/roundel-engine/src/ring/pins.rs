//! Relations that stay pinned to rings of workers, for all queries that join them.
//!
//! ```text
//!   task 1 of a query ──Pin(relation, own ring)──► worker of place 0     which ring it is pinned to: that of the first
//!           │                                                            query that asked
//!           └──► its place there: made by the first task that comes to it, by loading its rows and meeting its neighbours
//! ```
//!
//! Nothing is pinned twice, as the worker of place 0 decides, and nothing is left behind: it closes a ring that nobody has
//! asked for in a while, and the others follow. A place that cannot be made, or a ring that breaks, is forgotten by all;
//! queries that were on it start again, on another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::execution::memory_pool::MemoryReservation;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use roundel_ring::Pinned;
use uuid::Uuid;

use crate::{EngineError, Result};

/// How often the keeper of a place looks whether the ring is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A place of a pinned ring, once it is made.
pub(super) type Made = Shared<BoxFuture<'static, Result<Arc<Pinned>>>>;

/// The relations that are pinned in this process.
#[derive(Clone, Default)]
pub(crate) struct Pins(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By relation: where it is pinned, as far as this process has place 0.
    rings: HashMap<Uuid, PinnedRing>,
    /// By ring and place: the rows that this process keeps there.
    places: HashMap<(Uuid, usize), Kept>,
}

struct PinnedRing {
    ring: Uuid,
    asked: Instant,
    keep: Duration,
}

struct Kept {
    made: Made,
    /// What was loaded, as a plan has it.
    rows_of: String,
}

impl Pins {
    /// The ring that a relation is pinned to, which is the asker's where there is none yet. It is kept so long after the
    /// last who asked.
    pub(super) fn ring_of(&self, relation: Uuid, own: Uuid, keep: Duration) -> Uuid {
        let mut state = self.0.lock();
        let pinned = state.rings.entry(relation).or_insert_with(|| PinnedRing {
            ring: own,
            asked: Instant::now(),
            keep,
        });
        pinned.asked = Instant::now();
        pinned.keep = pinned.keep.max(keep);
        pinned.ring
    }

    /// A relation is not pinned to this ring any more.
    pub(super) fn unpin(&self, relation: Uuid, ring: Uuid) {
        let mut state = self.0.lock();
        if state.rings.get(&relation).is_some_and(|it| it.ring == ring) {
            state.rings.remove(&relation);
        }
    }

    /// The rows at a place of a ring; where there are none, `make` begins them.
    ///
    /// # Errors
    /// When the place has other rows than those that a plan has.
    pub(super) fn at(
        &self,
        ring: Uuid,
        place: usize,
        rows_of: String,
        make: impl FnOnce() -> Made,
    ) -> Result<Made> {
        let mut state = self.0.lock();
        let kept = state.places.entry((ring, place)).or_insert_with(|| Kept {
            made: make(),
            rows_of: rows_of.clone(),
        });
        match kept.rows_of == rows_of {
            true => Ok(kept.made.clone()),
            // They were asked for by the same name, which says that they are the same.
            false => Err(EngineError::Query(format!(
                "place {place} of a pinned relation has other rows: {} instead of {rows_of}",
                kept.rows_of
            ))),
        }
    }

    pub(super) fn forget(&self, ring: Uuid, place: usize) {
        self.0.lock().places.remove(&(ring, place));
    }

    /// Whether nobody has asked for a relation in a while, or others have another ring for it.
    fn is_idle(&self, relation: Uuid, ring: Uuid) -> bool {
        let state = self.0.lock();
        let pinned = state.rings.get(&relation);
        pinned.is_none_or(|pinned| pinned.ring != ring || pinned.asked.elapsed() > pinned.keep)
    }

    /// Keeps a place of a pinned ring, and the memory that it takes, for as long as the ring lasts.
    pub(super) async fn keep(
        self,
        relation: Uuid,
        ring: Uuid,
        pinned: Arc<Pinned>,
        memory: MemoryReservation,
    ) {
        let place = pinned.place().number;
        let bytes = pinned.bytes();
        tracing::info!(%ring, place, bytes, "a relation is pinned");
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if place == 0 && self.is_idle(relation, ring) || pinned.is_closing() {
                break;
            }
        }
        self.unpin(relation, ring);
        self.forget(ring, place);
        // Queries that are on it see all of it yet. A ring that is broken needs no end.
        let closed = pinned.close(false).await.map(drop);
        drop(memory);
        tracing::info!(%ring, place, ?closed, "a pinned relation is let go");
    }
}

/// What is made in a task of its own, whoever waits for it.
pub(super) fn made(make: impl Future<Output = Result<Arc<Pinned>>> + Send + 'static) -> Made {
    let making = tokio::spawn(make);
    let made = making.map(|made| {
        made.unwrap_or_else(|error| {
            Err(EngineError::Query(format!(
                "a relation could not be pinned: {error}"
            )))
        })
    });
    made.boxed().shared()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    const KEEP: Duration = Duration::from_secs(60);

    #[test]
    fn who_asks_first_decides_until_the_ring_is_gone() {
        let pins = Pins::default();
        assert_eq!(pins.ring_of(id(1), id(10), KEEP), id(10));
        assert_eq!(pins.ring_of(id(1), id(11), KEEP), id(10));
        assert_eq!(pins.ring_of(id(2), id(12), KEEP), id(12));
        // Of another ring, which was there before.
        pins.unpin(id(1), id(9));
        assert_eq!(pins.ring_of(id(1), id(13), KEEP), id(10));
        pins.unpin(id(1), id(10));
        assert_eq!(pins.ring_of(id(1), id(14), KEEP), id(14));
    }

    #[test]
    fn a_ring_that_nobody_asks_for_is_idle() {
        let pins = Pins::default();
        assert!(pins.is_idle(id(1), id(10)), "there is none");
        pins.ring_of(id(1), id(10), Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        assert!(pins.is_idle(id(1), id(10)));
        pins.ring_of(id(1), id(10), KEEP);
        assert!(!pins.is_idle(id(1), id(10)));
        assert!(pins.is_idle(id(1), id(11)), "another one");
    }

    #[tokio::test]
    async fn a_place_is_made_once_and_has_one_set_of_rows() {
        let pins = Pins::default();
        let fails = || made(async { Err(EngineError::Query("no".into())) });
        let at = |rows: &str| pins.at(id(1), 0, rows.into(), fails);
        assert!(at("a").unwrap().await.is_err());
        let again = pins.at(id(1), 0, "a".into(), || unreachable!("it is there"));
        assert!(again.unwrap().await.is_err());
        assert!(at("b").is_err());
        pins.forget(id(1), 0);
        assert!(at("b").is_ok());
    }
}
