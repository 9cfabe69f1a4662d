//! A host of the ring as a process of its own: real rows, joined by the code that queries use.

use super::rows::{Draw, Side};
use super::{HostPhases, RingJoin};
use crate::error::{Error, Result};
use crate::meeting::Meeting;
use arrow::array::RecordBatch;
use roundel_ring::cost::Method;
use roundel_ring::roundabout::Opening;
use roundel_ring::{
    Algorithm, Cyclo, JoinSpec, JoinType, Output, Place, RingError, RingHost, RingOptions,
    TokioThreads, Window,
};
use roundel_verbs::TokioContext;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts rows of the result, which nobody wants.
#[derive(Default)]
struct Counted(AtomicU64);

impl Output for Counted {
    fn take(&self, rows: RecordBatch) -> Result<(), RingError> {
        self.0.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Joins as the host that this process is.
pub(crate) async fn measure(join: &RingJoin, meeting: &mut Meeting) -> Result<HostPhases> {
    let place = Place {
        number: meeting.node(),
        hosts: meeting.nodes(),
    };
    let draw = Draw::new(join);
    let spinning = draw.rows(Side::Spinning, place.number)?;
    let stationary = draw.rows(Side::Stationary, place.number)?;
    let context = Arc::new(TokioContext::current());
    let host = RingHost::new(join.fabric.open(meeting.address())?, context.clone())?;
    let options = RingOptions {
        element_bytes: join.element_bytes,
        ..RingOptions::default()
    };
    let opening = Opening::new(&host, place, options)?;
    let offers = meeting.all(opening.offer()).await?;
    let ring = opening.connect(
        &offers[place.predecessor()],
        &offers[place.follower()],
        None,
    )?;
    meeting.barrier().await?;
    let pairs = Arc::<Counted>::default();
    let cyclo = Cyclo {
        spec: JoinSpec {
            join_type: JoinType::Inner,
            algorithm: algorithm(join.method)?,
            predicate: None,
            spinning: spinning.schema(),
            stationary: stationary.schema(),
        },
        threads: Arc::new(TokioThreads(join.threads)),
        context,
        output: pairs.clone(),
    };
    let own = spinning.num_rows() as u64;
    let phases = cyclo.run(ring, vec![spinning], vec![stationary]).await?;
    // Who is done before others still answers them.
    meeting.barrier().await?;
    Ok(HostPhases {
        set_up: phases.set_up.as_secs_f64(),
        join: phases.join.as_secs_f64(),
        synchronisation: phases.synchronisation.as_secs_f64(),
        bytes: phases.rows.saturating_sub(own) * join.row_bytes as u64,
        elements: phases.elements,
        pairs: pairs.0.load(Ordering::Relaxed),
        ..HostPhases::default()
    })
}

/// Equality of the first columns.
fn algorithm(method: Method) -> Result<Algorithm> {
    match method {
        Method::Hash => Ok(Algorithm::Hash {
            spinning: vec![0],
            stationary: vec![0],
            nulls_equal: false,
        }),
        Method::Merge => Ok(Algorithm::Merge {
            spinning: 0,
            stationary: 0,
            window: Window::Whole {
                low: Bound::Included(0),
                high: Bound::Included(0),
            },
        }),
        Method::NestedLoops => Err(Error::Setting("nested loops are not measured".into())),
    }
}
