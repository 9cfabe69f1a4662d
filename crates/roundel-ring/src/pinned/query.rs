//! A query that joins a pinned relation: what a host does with the fragments that come by.

use super::spinner::{Command, Fed};
use super::{Fragment, Pinned, QueryId};
use crate::cyclo::{Cyclo, Phases};
use crate::error::{Result, RingError};
use crate::join::{Bits, JoinType, set_up_stationary};
use arrow::array::RecordBatch;
use futures::channel::mpsc;
use futures::{FutureExt as _, StreamExt as _};
use std::sync::Arc;

/// Says when the query is over, come what may.
struct Attachment<'a> {
    pinned: &'a Pinned,
    query: QueryId,
    finished: bool,
}

impl Attachment<'_> {
    fn tell(&self, command: Command) {
        // A ring that is broken says so.
        let _ = self.pinned.commands.unbounded_send(command);
    }
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        self.tell(Command::Detach {
            query: self.query,
            finished: self.finished,
        });
    }
}

/// What is known of the rows of an own fragment: those that have had a partner, and hosts that have not said yet.
struct Own {
    matched: Arc<Bits>,
    unheard: usize,
}

/// Joins all fragments of the pinned relation with what stays here.
pub(super) async fn join(
    pinned: &Pinned,
    query: QueryId,
    cyclo: &Cyclo,
    stationary: Vec<RecordBatch>,
) -> Result<Phases> {
    let context = &cyclo.context;
    let began = context.now();
    let (cyclo, semi) = at_the_end(cyclo);
    let noted = cyclo.spec.join_type.notes_spinning();
    let stationary = set_up_stationary(&cyclo.spec, stationary, 0, &*cyclo.threads).await?;
    let stationary = Arc::new(stationary);
    let mut phases = Phases {
        set_up: context.now() - began,
        ..Phases::default()
    };
    let (feed, mut fed) = mpsc::unbounded();
    let mut attachment = Attachment {
        pinned,
        query,
        finished: false,
    };
    attachment.tell(Command::Attach { query, feed });
    let own: Vec<_> = pinned.own.iter().collect();
    let mut notes: Vec<_> = own
        .iter()
        .map(|fragment| Own {
            matched: Arc::new(Bits::new(fragment.rows.num_rows())),
            unheard: pinned.place.hosts,
        })
        .collect();
    // Own fragments that have been joined, those that all hosts have told of, and whether all others have come.
    let (mut joined, mut settled, mut all_came) = (0, 0, false);
    loop {
        let waits = context.now();
        // Fragments that have come go first.
        let next = match fed.next().now_or_never() {
            Some(next) => Some(next),
            None if joined < own.len() => None,
            None if all_came && (settled == own.len() || !noted) => break,
            None => Some(fed.next().await),
        };
        let joins = context.now();
        phases.synchronisation += joins - waits;
        let settles = match next {
            Some(None) => return Err(pinned.why()),
            Some(Some(Fed::All)) => {
                all_came = true;
                None
            }
            Some(Some(Fed::Fragment {
                origin,
                number,
                rows,
            })) => {
                let matched = Arc::new(Bits::new(rows.num_rows()));
                cyclo.join_fragment(&rows, &stationary, &matched).await?;
                phases.count(&rows);
                if noted {
                    attachment.tell(Command::Matches {
                        query,
                        place: origin,
                        number,
                        bits: matched.to_bytes(),
                    });
                }
                attachment.tell(Command::Room(query));
                None
            }
            Some(Some(Fed::Matches {
                origin,
                number,
                bits,
            })) => {
                let own = &mut notes[number as usize];
                if own.unheard == 0 {
                    let reason = format!("fragment {number} has all of its bits");
                    return Err(RingError::Malformed {
                        place: origin,
                        reason,
                    });
                }
                own.matched.add(&Bits::of_bytes(&bits));
                Some(number as usize)
            }
            None => {
                let Fragment { rows, .. } = own[joined];
                let matched = &notes[joined].matched;
                cyclo.join_fragment(rows, &stationary, matched).await?;
                phases.count(rows);
                joined += 1;
                Some(joined - 1)
            }
        };
        if let (Some(number), true) = (settles, noted) {
            let note = &mut notes[number];
            note.unheard -= 1;
            if note.unheard == 0 {
                let rows = own[number].rows.clone();
                if semi {
                    note.matched.invert();
                }
                let matched = note.matched.clone();
                cyclo.end_fragment(rows, &stationary, matched).await?;
                settled += 1;
            }
        }
        phases.join += context.now() - joins;
    }
    let joins = context.now();
    cyclo.end(stationary).await?;
    phases.join += context.now() - joins;
    attachment.finished = true;
    Ok(phases)
}

/// Spinning rows that have a partner are told as late as those that have none, once all hosts have seen them: so it is the
/// other kind of join, with the rows that it does not have.
fn at_the_end(cyclo: &Cyclo) -> (Cyclo, bool) {
    let mut cyclo = cyclo.clone();
    let semi = cyclo.spec.join_type == JoinType::SpinningSemi;
    if semi {
        cyclo.spec.join_type = JoinType::SpinningAnti;
    }
    (cyclo, semi)
}
