//! How the tasks of a ring find their neighbours: each tells its follower where it is, over gRPC, and hears the same.
//!
//! ```text
//!   place 1 ──Meet(ring, place 2, my offer)──► place 2     answers with its own offer, once its task has come
//!   place 1 ──Join(ring, place 2)────────────► place 2     answers once it is connected with both neighbours
//! ```
//!
//! And how they agree on the ring that a relation is pinned to: they ask place 0 ([`Pins`]).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use datafusion_distributed::grpc::BoxCloneSyncChannel;
use parking_lot::Mutex;
use roundel_datafusion::RoundelExchange;
use roundel_datafusion::engine::status_error;
use roundel_ring::roundabout::Opening;
use roundel_ring::{Place, RingError, RingOptions, Roundabout};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use url::Url;
use uuid::Uuid;

use super::host_on;
use super::pins::Pins;
use crate::protocol::ring::ring_client::RingClient;
use crate::protocol::ring::ring_server::Ring;
use crate::protocol::ring::{Joined, Meet, Met, PinRequest, PinnedTo, Ready, UnpinRequest};
use crate::{EngineError, Fabric, Result};

/// Most bytes of an offer.
const OFFER_BYTES_MAX: usize = 4096;

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
        let node = self.exchange.devices().get(fabric)?;
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
        let mut client = self.client(follower).await?;
        let lost = |status: Status| EngineError::from(status_error(follower, &status));
        let (after, before) = futures::join!(client.meet(meet), told(&meeting.predecessor));
        let after = after.map_err(lost)?.into_inner();
        let roundabout = opening
            .connect(&before, &after.offer, None)
            .map_err(failed)?;
        meeting.connected.send_replace(true);
        let joined = Joined {
            ring: ring.as_bytes().to_vec(),
            place: place.follower() as u64,
        };
        client.join(joined).await.map_err(lost)?;
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
        let pin = PinRequest {
            relation: relation.as_bytes().to_vec(),
            ring: own.as_bytes().to_vec(),
            keep_seconds: keep.as_secs(),
        };
        let pinned = self.client(&hosts[0]).await?.pin(pin).await;
        let pinned = pinned.map_err(|status| status_error(&hosts[0], &status))?;
        Uuid::from_slice(&pinned.into_inner().ring)
            .map_err(|error| EngineError::Query(format!("a ring's id: {error}")))
    }

    /// A relation is not pinned to a ring any more, at this place: others may as well forget it.
    pub(super) async fn unpin(&self, relation: Uuid, ring: Uuid, place: Place, hosts: &[Url]) {
        self.pins.forget(ring, place.number);
        let unpin = UnpinRequest {
            relation: relation.as_bytes().to_vec(),
            ring: ring.as_bytes().to_vec(),
        };
        // A worker that is gone has forgotten it.
        if let Ok(mut client) = self.client(&hosts[0]).await {
            let _ = client.unpin(unpin).await;
        }
    }

    /// Calls of the ring service that a worker has.
    async fn client(&self, url: &Url) -> Result<RingClient<BoxCloneSyncChannel>> {
        let channel = self.exchange.channels().get(url).await?;
        Ok(RingClient::new(channel))
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
pub(crate) struct RingService {
    pub(crate) meetings: Meetings,
    pub(crate) pins: Pins,
}

impl RingService {
    fn at(&self, ring: &[u8], place: u64) -> Result<Arc<Meeting>, Status> {
        Ok(self.meetings.at((id(ring)?, place as usize)))
    }
}

#[async_trait]
impl Ring for RingService {
    async fn meet(&self, meet: Request<Meet>) -> Result<Response<Met>, Status> {
        let meet = meet.into_inner();
        if meet.offer.len() > OFFER_BYTES_MAX {
            return Err(Status::invalid_argument("an offer that is too long"));
        }
        let meeting = self.at(&meet.ring, meet.place)?;
        meeting.predecessor.send_replace(Some(meet.offer));
        let offer = told(&meeting.own).await;
        Ok(Response::new(Met { offer }))
    }

    async fn join(&self, joined: Request<Joined>) -> Result<Response<Ready>, Status> {
        let joined = joined.into_inner();
        let meeting = self.at(&joined.ring, joined.place)?;
        let mut connected = meeting.connected.subscribe();
        // The sender is at hand: it cannot end.
        let _ = connected.wait_for(|connected| *connected).await;
        Ok(Response::new(Ready {}))
    }

    async fn pin(&self, pin: Request<PinRequest>) -> Result<Response<PinnedTo>, Status> {
        let pin = pin.into_inner();
        let keep = Duration::from_secs(pin.keep_seconds);
        let ring = self.pins.ring_of(id(&pin.relation)?, id(&pin.ring)?, keep);
        Ok(Response::new(PinnedTo {
            ring: ring.as_bytes().to_vec(),
        }))
    }

    async fn unpin(&self, unpin: Request<UnpinRequest>) -> Result<Response<Ready>, Status> {
        let unpin = unpin.into_inner();
        self.pins.unpin(id(&unpin.relation)?, id(&unpin.ring)?);
        Ok(Response::new(Ready {}))
    }
}

fn id(bytes: &[u8]) -> Result<Uuid, Status> {
    Uuid::from_slice(bytes)
        .map_err(|error| Status::invalid_argument(format!("a ring's id: {error}")))
}
