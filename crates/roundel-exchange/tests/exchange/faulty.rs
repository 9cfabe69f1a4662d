//! Devices in shared memory whose datagrams a judge decides about that knows an exchange's messages.

use roundel_exchange::wire::{HEADER_LENGTH, Header, Kind};
use roundel_testbed::faulty::{Posted, wrap};
use roundel_verbs::{Device, Transport, shm};
use std::collections::HashMap;

pub use roundel_testbed::faulty::Fate;

/// Decides about a message, of whose kind so many were sent before by the device.
pub type Judge = Box<dyn FnMut(&Header, u64) -> Fate + Send>;

/// A device whose datagrams `judge` decides about.
pub fn open(mut judge: Judge) -> Device {
    let mut counts: HashMap<Kind, u64> = HashMap::new();
    let of_message = move |posted: &Posted<'_>| {
        if posted.transport != Transport::UnreliableDatagram {
            return Fate::Delivered;
        }
        let bytes = posted.first_bytes(HEADER_LENGTH);
        let header = Header::parse(bytes.try_into().unwrap()).expect("an exchange sends messages");
        let count = counts.entry(header.kind()).or_default();
        *count += 1;
        judge(&header, *count - 1)
    };
    let device = shm::open(shm::ShmOptions::default()).unwrap();
    wrap(&device, Box::new(of_message))
}
