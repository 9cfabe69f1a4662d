//! Cyclo-join (section IV-B): the one relation spins past the other, which stays, and each host joins what comes by.
//! After one revolution the result is there, distributed over the hosts.

use crate::error::{Result, RingError};
use crate::join::{Bits, JoinSpec, Stationary, set_up};
use crate::roundabout::{Element, Next, Roundabout};
use crate::spin::{Piece, Spinning, decode, notes_bytes};
use crate::threads::{JoinThreads, on_all, on_thread};
use arrow::array::RecordBatch;
use futures::FutureExt as _;
use roundel_verbs::Context;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Rows of a fragment that are worth a thread.
const ROWS_MIN: usize = 1024;
/// Elements of a host's own that are joined before there is room for them on the ring.
const AHEAD_MAX: usize = 16;
/// Rows that a thread joins before it takes the next ones.
const ROWS_MAX: usize = 1 << 18;

/// What is wanted of a host's part of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// All rows of the part.
    Rows,
    /// Nothing; but others of the ring may want theirs. This host passes on what comes, and joins it only if they have to
    /// know which rows have a partner here.
    NoRows,
    /// Nothing, of any host: the join is given up.
    Nothing,
}

/// Takes rows of the result.
pub trait Output: Send + Sync {
    /// Takes some, on a thread that joins, and may hold it up.
    ///
    /// # Errors
    /// When the join is to fail.
    fn take(&self, rows: RecordBatch) -> Result<()>;

    /// What is wanted at present.
    fn demand(&self) -> Demand {
        Demand::Rows
    }
}

/// Where the time of a host went (section V).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Setting up its rows of both relations.
    pub set_up: Duration,
    /// Joining elements with the rows that stay.
    pub join: Duration,
    /// Waiting for the ring.
    pub synchronisation: Duration,
    /// Elements that it has joined.
    pub elements: u64,
    /// Rows of them.
    pub rows: u64,
}

impl Phases {
    /// An element that is joined.
    pub(crate) fn count(&mut self, fragment: &RecordBatch) {
        self.elements += 1;
        self.rows += fragment.num_rows() as u64;
    }
}

/// The rows of this host that spin. They are sent as early as there is room, and joined when nothing else is there to be;
/// but where their notes have to go along, they are joined first.
struct OwnPieces {
    left: Option<Spinning>,
    /// Those that were joined, and not sent, with their notes.
    joined: VecDeque<(Piece, Vec<u8>)>,
    /// Those that were sent, and not joined.
    sent: VecDeque<RecordBatch>,
}

impl OwnPieces {
    fn is_left(&self) -> bool {
        self.left.as_ref().is_some_and(|left| !left.is_over())
    }

    fn has_to_join(&self) -> bool {
        !self.sent.is_empty() || self.is_left() && self.joined.len() < AHEAD_MAX
    }
}

/// A join on a ring, as one of its hosts runs it.
#[derive(Clone)]
pub struct Cyclo {
    /// Which rows the join has, and how their pairs are found.
    pub spec: JoinSpec,
    /// The threads that join.
    pub threads: Arc<dyn JoinThreads>,
    /// The clock by which [`Phases`] are measured.
    pub context: Arc<dyn Context>,
    /// Who takes the result.
    pub output: Arc<dyn Output>,
}

impl Cyclo {
    /// Joins what the hosts of the ring have of both relations. This host has these rows; its part of the result goes to
    /// the output. All hosts run the same join.
    ///
    /// # Errors
    /// When the ring breaks, the predicate fails, or nobody takes the result.
    pub async fn run(
        &self,
        mut ring: Roundabout,
        spinning: Vec<RecordBatch>,
        stationary: Vec<RecordBatch>,
    ) -> Result<Phases> {
        let began = self.context.now();
        let (rows, stationary) = set_up(&self.spec, spinning, stationary, &*self.threads).await?;
        let stationary = Arc::new(stationary);
        let mut own = OwnPieces {
            left: Some(Spinning::new(
                self.spec.spinning.clone(),
                rows,
                ring.payload_bytes_max(),
                self.is_noted(),
            )),
            joined: VecDeque::new(),
            sent: VecDeque::new(),
        };
        let mut phases = Phases {
            set_up: self.context.now() - began,
            ..Phases::default()
        };
        loop {
            let waits = self.context.now();
            let has_own = own.is_left() || !own.joined.is_empty();
            let next = match ring.next(has_own).now_or_never() {
                Some(next) => Some(next?),
                // Nothing has come, and the follower has no room yet.
                None if own.has_to_join() => None,
                None => Some(ring.next(has_own).await?),
            };
            let joins = self.context.now();
            phases.synchronisation += joins - waits;
            match next {
                Some(Next::End) => break,
                Some(Next::Element(element)) => {
                    let (element, fragment) = self.read(element).await?;
                    phases.count(&fragment);
                    let element = self.join(&ring, element, fragment, &stationary).await?;
                    ring.pass_on(element);
                }
                Some(Next::Blank(blank)) => {
                    if self.is_noted() && own.joined.is_empty() {
                        self.join_own(&mut own, &stationary, &mut phases).await?;
                    }
                    let (piece, notes) = match own.joined.pop_front() {
                        Some(joined) => joined,
                        None => {
                            let Some(piece) = self.own_piece(&mut own).await? else {
                                continue;
                            };
                            own.sent.push_back(piece.rows.clone());
                            (piece, Vec::new())
                        }
                    };
                    let element = ring.begin(blank, &piece.payload, &notes, piece.last);
                    ring.pass_on(element);
                }
                None => self.join_own(&mut own, &stationary, &mut phases).await?,
            }
            phases.join += self.context.now() - joins;
        }
        let joins = self.context.now();
        while own.has_to_join() {
            self.join_own(&mut own, &stationary, &mut phases).await?;
        }
        self.end(stationary).await?;
        phases.join += self.context.now() - joins;
        let waits = self.context.now();
        ring.finish().await?;
        phases.synchronisation += self.context.now() - waits;
        Ok(phases)
    }

    /// Joins rows that are all on this host, without a ring.
    ///
    /// # Errors
    /// When the predicate fails, or the result is not taken.
    pub async fn run_alone(
        &self,
        spinning: Vec<RecordBatch>,
        stationary: Vec<RecordBatch>,
    ) -> Result<Phases> {
        let began = self.context.now();
        let (spins, stays) = set_up(&self.spec, spinning, stationary, &*self.threads).await?;
        let stays = Arc::new(stays);
        let joins = self.context.now();
        let mut phases = Phases {
            set_up: joins - began,
            ..Phases::default()
        };
        for fragment in spins {
            phases.count(&fragment);
            let matched = Arc::new(Bits::new(fragment.num_rows()));
            self.join_fragment(&fragment, &stays, &matched).await?;
            self.end_fragment(fragment, &stays, matched).await?;
        }
        self.end(stays).await?;
        phases.join = self.context.now() - joins;
        Ok(phases)
    }

    /// Joins some rows of this host's own: first those that have been sent already, else a piece that can go around as
    /// soon as there is room for it.
    async fn join_own(
        &self,
        own: &mut OwnPieces,
        stationary: &Arc<Stationary>,
        phases: &mut Phases,
    ) -> Result<()> {
        let (rows, piece) = match own.sent.pop_front() {
            Some(rows) => (rows, None),
            None => match self.own_piece(own).await? {
                Some(piece) => (piece.rows.clone(), Some(piece)),
                None => return Ok(()),
            },
        };
        phases.count(&rows);
        let matched = Arc::new(Bits::new(rows.num_rows()));
        self.join_fragment(&rows, stationary, &matched).await?;
        if let Some(piece) = piece {
            let notes = match self.is_noted() {
                true => matched.to_bytes(),
                false => Vec::new(),
            };
            own.joined.push_back((piece, notes));
        }
        Ok(())
    }

    async fn own_piece(&self, own: &mut OwnPieces) -> Result<Option<Piece>> {
        let Some(mut left) = own.left.take_if(|left| !left.is_over()) else {
            return Ok(None);
        };
        let (left, piece) = on_thread(&*self.threads, move || {
            left.piece().map(|piece| (left, piece))
        })
        .await?;
        own.left = Some(left);
        Ok(Some(piece))
    }

    fn is_noted(&self) -> bool {
        self.spec.join_type.notes_spinning()
    }

    /// The rows of an element that has come.
    async fn read(&self, element: Element) -> Result<(Element, RecordBatch)> {
        let (schema, noted) = (self.spec.spinning.clone(), self.is_noted());
        on_thread(&*self.threads, move || {
            let place = element.origin();
            let fragment = decode(element.payload().into(), &schema, place)?;
            let (notes, expected) = (element.notes_len(), notes_bytes(noted, fragment.num_rows()));
            if notes != expected {
                let reason = format!("{notes} bytes of notes instead of {expected}");
                return Err(RingError::Malformed { place, reason });
            }
            Ok((element, fragment))
        })
        .await
    }

    /// Joins an element with what stays, on all threads.
    async fn join(
        &self,
        ring: &Roundabout,
        mut element: Element,
        fragment: RecordBatch,
        stationary: &Arc<Stationary>,
    ) -> Result<Element> {
        let matched = Arc::new(Bits::of_bytes(&element.notes()));
        self.join_fragment(&fragment, stationary, &matched).await?;
        if self.is_noted() {
            match element.ends_at(ring.place()) {
                true => self.end_fragment(fragment, stationary, matched).await?,
                false => element.set_notes(&matched.to_bytes()),
            }
        }
        Ok(element)
    }

    /// Joins a fragment with what stays, on all threads. `matched` has those of its rows that have had a partner.
    pub(crate) async fn join_fragment(
        &self,
        fragment: &RecordBatch,
        stationary: &Arc<Stationary>,
        matched: &Arc<Bits>,
    ) -> Result<()> {
        let noted = self.is_noted();
        let parts = split(fragment.num_rows(), self.threads.count()).collect();
        let (stationary, fragment, matched) =
            (stationary.clone(), fragment.clone(), matched.clone());
        let output = self.output.clone();
        on_all(&*self.threads, parts, move |rows| {
            let goes_on = || match output.demand() {
                Demand::Rows => true,
                Demand::NoRows => noted,
                Demand::Nothing => false,
            };
            let mut emit = |rows| output.take(rows);
            match stationary.join(&fragment, rows, &matched, &goes_on, &mut emit) {
                // Rows that are not joined are not missing.
                Err(RingError::Cancelled) if output.demand() == Demand::NoRows => Ok(()),
                joined => joined,
            }
        })
        .await
        .map(drop)
    }

    /// All hosts have seen a fragment.
    pub(crate) async fn end_fragment(
        &self,
        fragment: RecordBatch,
        stationary: &Arc<Stationary>,
        matched: Arc<Bits>,
    ) -> Result<()> {
        let (stationary, output) = (stationary.clone(), self.output.clone());
        let parts = split(stationary.ends_of(&fragment), self.threads.count());
        on_all(&*self.threads, parts.collect(), move |rows| {
            stationary.end_of_fragment(&fragment, rows, &matched, &mut |rows| output.take(rows))
        })
        .await
        .map(drop)
    }

    /// All fragments have come.
    pub(crate) async fn end(&self, stationary: Arc<Stationary>) -> Result<()> {
        let output = self.output.clone();
        let parts = split(stationary.ends(), self.threads.count());
        on_all(&*self.threads, parts.collect(), move |rows| {
            stationary.end(rows, &mut |rows| output.take(rows))
        })
        .await
        .map(drop)
    }
}

/// So many rows in parts for threads.
fn split(rows: usize, threads: usize) -> impl Iterator<Item = Range<usize>> {
    let each = rows.div_ceil(threads.max(1)).clamp(ROWS_MIN, ROWS_MAX);
    (0..rows)
        .step_by(each)
        .map(move |from| from..(from + each).min(rows))
}

#[cfg(test)]
pub(crate) mod tests;
