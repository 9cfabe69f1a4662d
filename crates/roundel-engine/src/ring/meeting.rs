//! How the tasks of a ring find their neighbours: each tells its follower where it is, over gRPC, and hears the same.
//!
//! ```text
//!   place 1 ──Meet(ring, place 2, my offer)──► place 2     answers with its own offer, once its task has come
//!   place 1 ──Joined(ring, place 2)──────────► place 2     answers once it is connected with both neighbours
//! ```
//!
//! And how they agree on the ring that a relation is pinned to: they ask place 0 ([`Pins`]).

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use roundel_datafusion::RoundelExchange;
use roundel_datafusion::engine::{answer, status_error};
use roundel_ring::roundabout::Opening;
use roundel_ring::{Place, RingError, RingOptions, Roundabout};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use url::Url;
use uuid::Uuid;

use super::host_on;
use super::pins::Pins;
use crate::{EngineError, Fabric, Result};

/// Path prefix of the service, its gRPC name.
const SERVICE_NAME: &str = "roundel.Ring";
const MEET_PATH: &str = "/roundel.Ring/Meet";
const JOINED_PATH: &str = "/roundel.Ring/Joined";
const PIN_PATH: &str = "/roundel.Ring/Pin";
const UNPIN_PATH: &str = "/roundel.Ring/Unpin";
/// Most bytes of an offer.
const OFFER_BYTES_MAX: usize = 4096;

/// Tells a task where its predecessor is.
#[derive(Clone, PartialEq, prost::Message)]
struct Meet {
    /// The ring, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    ring: Vec<u8>,
    /// The place of the task that is asked.
    #[prost(uint64, tag = "2")]
    place: u64,
    /// What its predecessor offers.
    #[prost(bytes = "vec", tag = "3")]
    offer: Vec<u8>,
}

/// The answer: where the task is.
#[derive(Clone, PartialEq, prost::Message)]
struct Met {
    #[prost(bytes = "vec", tag = "1")]
    offer: Vec<u8>,
}

/// Asks whether a task is connected with both of its neighbours, and waits until it is.
#[derive(Clone, PartialEq, prost::Message)]
struct Joined {
    #[prost(bytes = "vec", tag = "1")]
    ring: Vec<u8>,
    #[prost(uint64, tag = "2")]
    place: u64,
}

/// The answer to [`Joined`] and to [`Unpin`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Ready {}

/// Asks for the ring that a relation is pinned to.
#[derive(Clone, PartialEq, prost::Message)]
struct Pin {
    /// Its name, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    relation: Vec<u8>,
    /// The ring that it is to be pinned to where there is none yet, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    ring: Vec<u8>,
    /// How long it is to stay there, in seconds.
    #[prost(uint64, tag = "3")]
    keep_seconds: u64,
}

/// The answer: that ring.
#[derive(Clone, PartialEq, prost::Message)]
struct PinnedTo {
    #[prost(bytes = "vec", tag = "1")]
    ring: Vec<u8>,
}

/// Says that a relation is not pinned to a ring any more.
#[derive(Clone, PartialEq, prost::Message)]
struct Unpin {
    #[prost(bytes = "vec", tag = "1")]
    relation: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    ring: Vec<u8>,
}

/// A place in a ring of this process.
type Key = (Uuid, usize);

/// What is known of a place, by whoever came first: its task, or its predecessor.
struct Meeting {
    own: watch::Sender<Option<Vec<u8>>>,
    predecessor: watch::Sender<Option<Vec<u8>>>,
    connected: watch::Sender<bool>,
}

/// The places that tasks of this process have, or are about to.
#[derive(Clone, Default)]
pub(crate) struct Meetings(Arc<Mutex<HashMap<Key, Weak<Meeting>>>>);

impl Meetings {
    fn at(&self, key: Key) -> Arc<Meeting> {
        let mut meetings = self.0.lock();
        if let Some(meeting) = meetings.get(&key).and_then(Weak::upgrade) {
            return meeting;
        }
        meetings.retain(|_, meeting| meeting.strong_count() > 0);
        let meeting = Arc::new(Meeting {
            own: watch::Sender::new(None),
            predecessor: watch::Sender::new(None),
            connected: watch::Sender::new(false),
        });
        meetings.insert(key, Arc::downgrade(&meeting));
        meeting
    }
}

/// Waits for a value that another task sends.
async fn told(sender: &watch::Sender<Option<Vec<u8>>>) -> Vec<u8> {
    let mut receiver = sender.subscribe();
    // The sender is borrowed: it cannot end.
    let told = receiver.wait_for(Option::is_some).await;
    told.ok().and_then(|told| told.clone()).unwrap_or_default()
}

/// What tasks of a worker need to be on rings. An extension of their sessions.
pub(crate) struct RingWorker {
    pub(crate) exchange: RoundelExchange,
    pub(crate) meetings: Meetings,
    pub(crate) pins: Pins,
}

impl RingWorker {
    /// Takes a place in a ring of tasks, over a fabric, and waits until the ring is connected. The ring is the tasks'
    /// alone; `hosts` has the worker of each place.
    ///
    /// # Errors
    /// When a neighbour cannot be reached, or the fabric is not there.
    pub(crate) async fn join(
        &self,
        fabric: Fabric,
        ring: Uuid,
        place: Place,
        hosts: &[Url],
        options: RingOptions,
    ) -> Result<Roundabout> {
        let node = self.exchange.devices().get(fabric);
        let node = node.map_err(|why| EngineError::NoFabric(format!("no {fabric}: {why}")))?;
        let node = node.ok_or_else(|| {
            EngineError::NoFabric(format!("{fabric} carries no ring; use another fabric"))
        })?;
        let host = host_on(node.fabric());
        let failed = |error| ring_error(error, hosts);
        let opening = Opening::new(&host, place, options).map_err(failed)?;
        let offer = opening.offer();
        let meeting = self.meetings.at((ring, place.number));
        meeting.own.send_replace(Some(offer.clone()));
        let follower = &hosts[place.follower()];
        let meet = Meet {
            ring: ring.as_bytes().to_vec(),
            place: place.follower() as u64,
            offer,
        };
        let met = self.call::<Meet, Met>(follower, MEET_PATH, meet);
        let (after, before) = futures::join!(met, told(&meeting.predecessor));
        let roundabout = opening
            .connect(&before, &after?.offer, None)
            .map_err(failed)?;
        meeting.connected.send_replace(true);
        let joined = Joined {
            ring: ring.as_bytes().to_vec(),
            place: place.follower() as u64,
        };
        self.call::<Joined, Ready>(follower, JOINED_PATH, joined)
            .await?;
        // The predecessor may ask yet.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(meeting);
        });
        Ok(roundabout)
    }

    /// The ring that a relation is pinned to on these hosts: `own`, where there is none yet.
    ///
    /// # Errors
    /// When the worker of place 0 cannot be reached.
    pub(super) async fn ring_of(
        &self,
        relation: Uuid,
        own: Uuid,
        keep: Duration,
        hosts: &[Url],
    ) -> Result<Uuid> {
        let pin = Pin {
            relation: relation.as_bytes().to_vec(),
            ring: own.as_bytes().to_vec(),
            keep_seconds: keep.as_secs(),
        };
        let answer: PinnedTo = self.call(&hosts[0], PIN_PATH, pin).await?;
        Uuid::from_slice(&answer.ring)
            .map_err(|error| EngineError::Query(format!("a ring's id: {error}")))
    }

    /// A relation is not pinned to a ring any more, at this place: others may as well forget it.
    pub(super) async fn unpin(&self, relation: Uuid, ring: Uuid, place: Place, hosts: &[Url]) {
        self.pins.forget(ring, place.number);
        let unpin = Unpin {
            relation: relation.as_bytes().to_vec(),
            ring: ring.as_bytes().to_vec(),
        };
        // A worker that is gone has forgotten it.
        let _ = self
            .call::<Unpin, Ready>(&hosts[0], UNPIN_PATH, unpin)
            .await;
    }

    async fn call<Q, A>(&self, url: &Url, path: &'static str, request: Q) -> Result<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let answer = self.exchange.channels().call(url, path, request).await?;
        answer.map_err(|status| status_error(url, &status).into())
    }
}

/// What a failure of a ring means to whoever asked for its rows.
pub(super) fn ring_error(error: RingError, hosts: &[Url]) -> EngineError {
    match error {
        RingError::Lost { place, reason } => {
            let host = hosts.get(place % hosts.len().max(1));
            let host = host.map(Url::to_string).unwrap_or_default();
            EngineError::LinkBroken(format!("{host}, place {place} of a ring: {reason}"))
        }
        RingError::Unpinned => EngineError::LinkBroken(error.to_string()),
        RingError::RowTooLong { row_bytes, .. } => {
            let least = row_bytes.next_power_of_two();
            EngineError::Query(format!("{error}: SET roundel.ring_element_bytes = {least}"))
        }
        other => EngineError::Query(other.to_string()),
    }
}

/// The service of a worker by which rings are made.
#[derive(Clone)]
pub(crate) struct RingServer {
    pub(crate) meetings: Meetings,
    pub(crate) pins: Pins,
}

impl RingServer {
    fn at(&self, ring: &[u8], place: u64) -> Result<Arc<Meeting>, Status> {
        Ok(self.meetings.at((id(ring)?, place as usize)))
    }

    async fn pin(self, pin: Pin) -> Result<PinnedTo, Status> {
        let keep = Duration::from_secs(pin.keep_seconds);
        let ring = self.pins.ring_of(id(&pin.relation)?, id(&pin.ring)?, keep);
        Ok(PinnedTo {
            ring: ring.as_bytes().to_vec(),
        })
    }

    async fn unpin(self, unpin: Unpin) -> Result<Ready, Status> {
        self.pins.unpin(id(&unpin.relation)?, id(&unpin.ring)?);
        Ok(Ready {})
    }

    async fn meet(self, meet: Meet) -> Result<Met, Status> {
        if meet.offer.len() > OFFER_BYTES_MAX {
            return Err(Status::invalid_argument("an offer that is too long"));
        }
        let meeting = self.at(&meet.ring, meet.place)?;
        meeting.predecessor.send_replace(Some(meet.offer));
        let offer = told(&meeting.own).await;
        Ok(Met { offer })
    }

    async fn joined(self, joined: Joined) -> Result<Ready, Status> {
        let meeting = self.at(&joined.ring, joined.place)?;
        let mut connected = meeting.connected.subscribe();
        // The sender is at hand: it cannot end.
        let _ = connected.wait_for(|connected| *connected).await;
        Ok(Ready {})
    }
}

fn id(bytes: &[u8]) -> Result<Uuid, Status> {
    Uuid::from_slice(bytes)
        .map_err(|error| Status::invalid_argument(format!("a ring's id: {error}")))
}

impl NamedService for RingServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl tower::Service<http::Request<Body>> for RingServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                MEET_PATH => answer(request, |meet| this.clone().meet(meet)).await,
                JOINED_PATH => answer(request, |joined| this.clone().joined(joined)).await,
                PIN_PATH => answer(request, |pin| this.clone().pin(pin)).await,
                UNPIN_PATH => answer(request, |unpin| this.clone().unpin(unpin)).await,
                _ => Status::unimplemented("no such call").into_http(),
            })
        })
    }
}
