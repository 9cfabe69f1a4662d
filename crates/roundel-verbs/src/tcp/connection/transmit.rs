//! Writing: as many frames with one call as there are, straight from where their bytes lie. Knows
//! nothing of what the frames mean.
#![allow(unsafe_code)] // Hands addresses of registered memory to the system.

use super::plan::{FRAMES, Plan};
use super::send_side::SendSide;
use crate::tcp::frame::HEADER_BYTES;
use crate::tcp::socket;
use rustix::io::Errno;

/// The connection does not work any more.
#[derive(Debug)]
pub(super) struct Lost;

impl SendSide {
    /// Writes what can be written now.
    pub(super) fn transmit(&mut self) -> Result<(), Lost> {
        let Some(socket) = self.socket.clone() else {
            return Ok(());
        };
        while !self.blocked {
            let mut plan = Plan::default();
            self.plan(&mut plan);
            if plan.pieces().is_empty() {
                return Ok(());
            }
            let mut ranges = [socket::range(std::ptr::null(), 0); 2 * FRAMES];
            let mut count = 0;
            for piece in plan.pieces() {
                let header = &piece.header[piece.skipped.min(HEADER_BYTES)..];
                if !header.is_empty() {
                    ranges[count] = socket::range(header.as_ptr(), header.len());
                    count += 1;
                }
                let (address, length) = piece.payload();
                let skipped = piece.skipped.saturating_sub(HEADER_BYTES);
                if length > skipped {
                    ranges[count] = socket::range(address.wrapping_add(skipped), length - skipped);
                    count += 1;
                }
            }
            // SAFETY: headers are the plan's; payloads are inline bytes in the queue, which nobody
            // else touches now, memory of requests that are not done, or pages that a response
            // keeps mapped.
            match unsafe { socket::send(&*socket, &ranges[..count]) } {
                Ok(count) => self.advance(&plan, count),
                Err(Errno::AGAIN) => self.blocked = true,
                Err(errno) => {
                    tracing::debug!(%errno, "writing to a peer failed");
                    return Err(Lost);
                }
            }
        }
        Ok(())
    }
}
