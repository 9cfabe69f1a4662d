//! The window of a link: how many receives it has, and the credit that its source hears of.

use super::super::ring::empty_write;
use super::link::{Carrier, Connection, Way};
use super::{ReceiveEndpoint, datagram};
use crate::error::Result;
use crate::wire::{Body, Credit};
use roundel_verbs::ReceiveRequest;
use roundel_verbs::capabilities::GRH_BYTES;

impl ReceiveEndpoint {
    /// Doubles the window of a link whose source ran out of credit.
    pub(super) fn grow(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.starved = false;
        if link.end.is_none() {
            let window = (2 * link.buffers).min(self.options.window_max());
            self.widen(index, window);
        }
    }

    /// Posts receives up to a window, as far as there is memory to spare.
    pub(super) fn widen(&mut self, index: usize, window: usize) {
        let link = &mut self.links[index];
        let mut wanted = window.saturating_sub(link.buffers);
        if self.datagrams.is_some() {
            // Half of the queue's places are for new links. A receive that was taken and not
            // posted again has its place reserved.
            wanted = wanted.min((datagram::DEPTH / 2).saturating_sub(self.datagram_receives));
        }
        if wanted == 0 {
            return;
        }
        if let Carrier::Connected(Connection { way, .. })
        | Carrier::Offered(Some(Connection { way, .. })) = &mut link.carrier
        {
            let added = match way {
                Way::Send => None,
                Way::Write(written) => Some(written.widen(&self.fabric, wanted)),
                Way::Read(reads) => Some(reads.widen(&self.fabric, wanted)),
            };
            if let Some(added) = added {
                link.buffers += added;
                self.report.registered_bytes += added * self.options.message_bytes;
                self.pump_rings(index);
                return;
            }
        }
        let bytes = match self.datagrams {
            Some(_) => GRH_BYTES + self.options.message_bytes,
            None => self.options.message_bytes,
        };
        let mut receives = Vec::with_capacity(wanted);
        for _ in 0..wanted {
            let Some(buffer) = self.fabric.spare_buffer(bytes, false) else {
                break;
            };
            receives.push(ReceiveRequest {
                id: index as u64,
                buffer: Some(buffer),
            });
        }
        // A queue pair that has no room for all leaves the rest, and they go back to the arena.
        let posted = match (&link.carrier, &self.datagrams) {
            (Carrier::Connected(connection) | Carrier::Offered(Some(connection)), _) => {
                connection.queue_pair.post_receive(&mut receives)
            }
            (_, Some(datagrams)) => datagrams.post_receive(&mut receives),
            _ => return,
        };
        let posted = posted.unwrap_or(0);
        if self.datagrams.is_some() {
            self.datagram_receives += posted;
        }
        link.buffers += posted;
        link.credit = link.credit.wrapping_add(posted as u32);
        link.unsaid += posted as u32;
        self.report.registered_bytes += posted * self.options.message_bytes;
    }

    /// Counts a receive posted again for a link, and writes credit back when enough have been.
    pub(super) fn count_receive(&mut self, index: usize) {
        let frequency = self.options.credit_every(self.links[index].buffers);
        let link = &mut self.links[index];
        link.credit = link.credit.wrapping_add(1);
        link.unsaid += 1;
        // After the end nobody needs credit.
        if link.unsaid >= frequency && link.end.is_none() {
            let group = link.least_acknowledged();
            if let Err(error) = self.say_credit(index, group, 0) {
                self.links[index].fail(error);
            }
        }
    }

    /// Says the credit of a link and, where lost messages are repaired, what has arrived of a
    /// group.
    pub(super) fn say_credit(&mut self, index: usize, group: u16, flags: u8) -> Result<()> {
        let link = &mut self.links[index];
        link.unsaid = 0;
        let credit = link.credit;
        match &link.carrier {
            Carrier::Connected(Connection {
                queue_pair, way, ..
            }) => {
                if way.counts_on_receives() {
                    // A full queue has newer credit to say than the sender has taken: it can wait.
                    let mut requests = vec![empty_write(index as u64, Some(credit))];
                    queue_pair.post_send(&mut requests)?;
                }
                Ok(())
            }
            Carrier::Datagram(_) => {
                let acknowledged = link.acknowledge(group);
                let body = Body::Credit(Credit {
                    credit,
                    acknowledged,
                });
                self.say(index, group, flags, body)
            }
            Carrier::Offered(_) | Carrier::Closed => Ok(()),
        }
    }
}
