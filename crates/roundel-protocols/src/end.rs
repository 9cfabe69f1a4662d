//! What both ends of a conversation are made with.

use crate::protocol::Protocol;
use roundel_verbs::{Arena, ArenaOptions, CompletionChannel, Context, Device};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// The resources of a thread's end.
#[derive(Clone)]
pub struct Fabric {
    /// The device that it opens queue pairs on.
    pub device: Device,
    /// Registered memory for its buffers.
    pub arena: Arena,
    /// Its time, sleep, tasks and random numbers.
    pub context: Arc<dyn Context>,
    /// Lets its owner sleep until something completes.
    pub channel: Option<CompletionChannel>,
    /// The address at which it listens, if the protocol is TCP.
    pub address: IpAddr,
}

impl Fabric {
    /// With an arena of its own, without a completion channel, and on the loopback address if the protocol is TCP.
    pub fn new(device: Device, context: Arc<dyn Context>) -> Self {
        Self {
            arena: device.arena(ArenaOptions::default()),
            device,
            context,
            channel: None,
            address: Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// The options of an end. Its peers have the same.
#[derive(Clone, Debug, PartialEq)]
pub struct EndOptions {
    /// How requests and responses go.
    pub protocol: Protocol,
    /// Calls that may be pending on a connection (the paper's R).
    pub pending: usize,
    /// Most bytes of a request (the paper's L).
    pub request_bytes: usize,
    /// Most bytes of a response, and of a READ (the paper's V).
    pub response_bytes: usize,
    /// Where messages may be lost: a request that is not answered is sent again after so long, or longer where answers
    /// take longer, and twice as long each time after that.
    pub resend_after: Duration,
    /// Where messages may be lost: a peer that has not answered a request for so long is gone.
    pub give_up_after: Duration,
}

impl EndOptions {
    /// The paper's sizes: keys of 36 bytes and values of 365, 16 calls pending.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            pending: 16,
            request_bytes: 36,
            response_bytes: 365,
            resend_after: Duration::from_millis(20),
            give_up_after: Duration::from_secs(10),
        }
    }
}
