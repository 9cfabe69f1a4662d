//! How hosts become a ring: each makes two queue pairs, tells its neighbours, and hears of theirs.

use super::mover::{CREDIT, ELEMENT, Mover};
use super::{HOSTS_MAX, LostHosts, OWN_BUFFERS, Place, RingHost, RingOptions, Roundabout};
use crate::error::{Result, RingError};
use futures::channel::{mpsc, oneshot};
use roundel_verbs::rendezvous::{pack_list, unpack_list};
use roundel_verbs::{
    CompletionQueue, QueuePair, QueuePairAddress, QueuePairOptions, ReceiveRequest, Rendezvous,
    Transport,
};

/// A place in a ring that is being connected.
pub struct Opening {
    place: Place,
    host: RingHost,
    options: RingOptions,
    queue: CompletionQueue,
    /// From the predecessor, and to the follower; a host that is alone has none.
    pairs: Option<(QueuePair, QueuePair)>,
}

impl Opening {
    /// A place, with its buffers.
    ///
    /// # Errors
    /// When the options make no sense, or the device cannot have as much.
    pub fn new(host: &RingHost, place: Place, options: RingOptions) -> Result<Self> {
        if place.hosts > HOSTS_MAX || place.number >= place.hosts {
            return Err(RingError::Unsupported(format!(
                "place {} of {} hosts",
                place.number, place.hosts
            )));
        }
        if options.elements < 2 || !(1 << 10..=1 << 30).contains(&options.element_bytes) {
            return Err(RingError::Unsupported(
                "a ring has at least 2 elements, of 1 KiB to 1 GiB".into(),
            ));
        }
        let depth = 2 * (options.elements + OWN_BUFFERS) + 2;
        let queue = host
            .device
            .create_completion_queue(4 * depth, Some(&host.channel))?;
        let of_pair = QueuePairOptions {
            transport: Transport::ReliableConnection,
            send_depth: depth,
            receive_depth: depth,
            rnr_retry: 7,
            queue_key: 0,
        };
        let pair = || host.device.create_queue_pair(&of_pair, &queue, &queue);
        let pairs = match place.hosts {
            1 => None,
            _ => Some((pair()?, pair()?)),
        };
        Ok(Self {
            place,
            host: host.clone(),
            options,
            queue,
            pairs,
        })
    }

    /// Makes a ring of hosts of this process, in their order.
    ///
    /// # Errors
    /// When the options make no sense, or a device cannot have as much.
    pub fn all(hosts: &[RingHost], options: RingOptions) -> Result<Vec<Roundabout>> {
        let place = |number| Place {
            number,
            hosts: hosts.len(),
        };
        let openings = hosts.iter().enumerate();
        let openings: Vec<_> = openings
            .map(|(number, host)| Self::new(host, place(number), options))
            .collect::<Result<_>>()?;
        let offers: Vec<_> = openings.iter().map(Self::offer).collect();
        let connect = |opening: Self| {
            let (before, after) = (opening.place.predecessor(), opening.place.follower());
            opening.connect(&offers[before], &offers[after], None)
        };
        openings.into_iter().map(connect).collect()
    }

    /// What the neighbours have to know.
    pub fn offer(&self) -> Vec<u8> {
        let elements = (self.options.elements as u32).to_le_bytes().to_vec();
        let bytes = (self.options.element_bytes as u64).to_le_bytes().to_vec();
        let mut list = vec![elements, bytes];
        if let Some((inbound, outbound)) = &self.pairs {
            list.extend([inbound.address().to_bytes(), outbound.address().to_bytes()]);
        }
        pack_list(&list)
    }

    /// Connects to both neighbours by what they offered. `lost` says when a host is lost, if anything but the
    /// connections themselves can tell. Nothing may be passed on before all hosts are connected.
    ///
    /// # Errors
    /// When an offer is none, or has elements of another size.
    pub fn connect(
        self,
        predecessor: &[u8],
        follower: &[u8],
        lost: Option<LostHosts>,
    ) -> Result<Roundabout> {
        let Self {
            place,
            host,
            options,
            queue,
            pairs,
        } = self;
        let before = Offer::read(predecessor, place.predecessor(), place)?;
        let after = Offer::read(follower, place.follower(), place)?;
        for (offer, place) in [(&before, place.predecessor()), (&after, place.follower())] {
            if offer.element_bytes != options.element_bytes as u64 {
                let reason = format!(
                    "its elements have {} bytes, and {} here",
                    offer.element_bytes, options.element_bytes
                );
                return Err(RingError::Malformed { place, reason });
            }
        }
        if let (Some((inbound, outbound)), Some(from), Some(to)) =
            (&pairs, &before.outbound, &after.inbound)
        {
            inbound.connect(from)?;
            outbound.connect(to)?;
            let mut receives = Vec::new();
            for _ in 0..options.elements {
                let buffer = Some(host.arena.allocate(options.element_bytes)?);
                receives.push(ReceiveRequest {
                    id: ELEMENT,
                    buffer,
                });
            }
            post_all(inbound, receives)?;
            // Of the follower's credit no more can be under way than it has buffers.
            let credits = (0..after.elements + 2).map(|_| ReceiveRequest {
                id: CREDIT,
                buffer: None,
            });
            post_all(outbound, credits.collect())?;
        }
        let (arrived, arrivals) = mpsc::unbounded();
        let (departures, departed) = mpsc::unbounded();
        let (blank, blanks) = mpsc::unbounded();
        for _ in 0..OWN_BUFFERS {
            // The receiver is at hand.
            let _ = blank.unbounded_send(host.arena.allocate(options.element_bytes)?);
        }
        let (end, ended) = oneshot::channel();
        let mover = Mover::new(
            place,
            queue,
            pairs,
            after.elements,
            arrived,
            departed,
            blank,
        );
        host.context.spawn(Box::pin(mover.run(lost, end)));
        Ok(Roundabout {
            place,
            element_bytes: options.element_bytes,
            arrived: arrivals,
            unfinished: place.hosts - 1,
            blanks,
            departures,
            sequence: 0,
            ended,
        })
    }

    /// Makes a ring of a group of peers, in the order of their ranks.
    ///
    /// # Errors
    /// When a peer is lost, or offers something else.
    pub async fn meet(
        host: &RingHost,
        rendezvous: &mut dyn Rendezvous,
        options: RingOptions,
    ) -> Result<Roundabout> {
        let place = Place {
            number: rendezvous.rank(),
            hosts: rendezvous.peers(),
        };
        let opening = Self::new(host, place, options)?;
        let offers = rendezvous.exchange(opening.offer()).await?;
        let lost = (place.hosts > 1).then(|| rendezvous.lost());
        let ring = opening.connect(
            &offers[place.predecessor()],
            &offers[place.follower()],
            lost,
        )?;
        rendezvous.exchange(Vec::new()).await?;
        Ok(ring)
    }
}

fn post_all(pair: &QueuePair, mut receives: Vec<ReceiveRequest>) -> Result<()> {
    pair.post_receive(&mut receives)?;
    match receives.is_empty() {
        true => Ok(()),
        false => Err(RingError::Unsupported(
            "the device takes fewer receives than a ring has elements".into(),
        )),
    }
}

/// What a neighbour said.
struct Offer {
    elements: usize,
    element_bytes: u64,
    inbound: Option<QueuePairAddress>,
    outbound: Option<QueuePairAddress>,
}

impl Offer {
    fn read(bytes: &[u8], of: usize, place: Place) -> Result<Self> {
        let wrong = || RingError::Malformed {
            place: of,
            reason: "its offer is none".into(),
        };
        let list = unpack_list(bytes).ok_or_else(wrong)?;
        let address = |at: usize| match list.get(at) {
            Some(bytes) => Ok(Some(QueuePairAddress::from_bytes(bytes)?)),
            None if place.hosts == 1 => Ok(None),
            None => Err(wrong()),
        };
        let (Some(elements), Some(element_bytes)) = (list.first(), list.get(1)) else {
            return Err(wrong());
        };
        let elements = elements.as_slice().try_into().map_err(|_| wrong())?;
        let elements = u32::from_le_bytes(elements) as usize;
        if !(2..=1 << 14).contains(&elements) {
            return Err(wrong());
        }
        Ok(Self {
            elements,
            element_bytes: u64::from_le_bytes(
                element_bytes.as_slice().try_into().map_err(|_| wrong())?,
            ),
            inbound: address(2)?,
            outbound: address(3)?,
        })
    }
}
