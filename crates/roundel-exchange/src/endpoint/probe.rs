//! Over Reliable Connection: a sign of life from a peer that says nothing. Devices notice that a peer
//! is gone when they send to it; whoever only waits would wait for ever.

use roundel_verbs::{Payload, QueuePair, RemoteAddress, SendOperation, SendRequest};
use std::time::Duration;

/// How long a peer may be silent before it is probed, and then between two probes.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Posts an empty WRITE: it needs no memory and no receive of the peer, and completes with an error
/// when the peer is gone. Returns whether there was room for it.
pub(super) fn probe(queue_pair: &QueuePair, id: u64) -> bool {
    let nowhere = RemoteAddress {
        address: 0,
        remote_key: 0,
    };
    let mut requests = vec![SendRequest {
        id,
        operation: SendOperation::Write(nowhere),
        payload: Payload::Empty,
        destination: None,
    }];
    // A queue pair that refuses is broken: its completions say so.
    queue_pair
        .post_send(&mut requests)
        .is_ok_and(|posted| posted == 1)
}
