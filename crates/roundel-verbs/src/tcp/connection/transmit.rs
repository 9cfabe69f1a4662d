//! Writing: as many frames with one call as there are, straight from where their bytes lie. Knows
//! nothing of what the frames mean.
#![allow(unsafe_code)] // Hands addresses of registered memory to the system.

use super::send_side::{Partial, SendSide, What};
use crate::tcp::frame::{Frame, HEADER_BYTES};
use crate::tcp::socket;
use rustix::io::Errno;

/// Frames written with one call.
const FRAMES: usize = 32;
/// Bytes written with one call, unless the first frame alone is longer.
const BYTES: usize = 1 << 20;

/// The connection does not work any more.
#[derive(Debug)]
pub(super) struct Lost;

/// A frame of a plan.
pub(super) struct Piece {
    pub what: What,
    /// What it is, unless a part of it was written before.
    pub frame: Option<Frame>,
    pub header: [u8; HEADER_BYTES],
    payload: (*const u8, usize),
    /// Bytes written before.
    pub skipped: usize,
    /// Bytes to write.
    pub bytes: usize,
    pub resumed: bool,
}

/// What is written with one call.
#[derive(Default)]
pub(super) struct Plan {
    pieces: Vec<Piece>,
    bytes: usize,
}

impl Plan {
    pub(super) fn is_full(&self) -> bool {
        self.pieces.len() == FRAMES || self.bytes >= BYTES
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub(super) fn add(&mut self, what: What, frame: Frame, address: *const u8, length: usize) {
        self.push(Piece {
            what,
            frame: Some(frame),
            header: frame.encode(),
            payload: (address, length),
            skipped: 0,
            bytes: HEADER_BYTES + length,
            resumed: false,
        });
    }

    pub(super) fn resume(&mut self, partial: &Partial, address: *const u8, length: usize) {
        self.push(Piece {
            what: partial.what,
            frame: None,
            header: partial.header,
            payload: (address, length),
            skipped: partial.done,
            bytes: HEADER_BYTES + length - partial.done,
            resumed: true,
        });
    }

    fn push(&mut self, piece: Piece) {
        self.bytes += piece.bytes;
        self.pieces.push(piece);
    }
}

impl SendSide {
    /// Writes what can be written now.
    pub(super) fn transmit(&mut self) -> Result<(), Lost> {
        let Some(socket) = self.socket.clone() else {
            return Ok(());
        };
        while !self.blocked {
            let mut plan = Plan::default();
            self.plan(&mut plan);
            if plan.pieces.is_empty() {
                return Ok(());
            }
            let mut ranges = [socket::range(std::ptr::null(), 0); 2 * FRAMES];
            let mut count = 0;
            for piece in &plan.pieces {
                let header = &piece.header[piece.skipped.min(HEADER_BYTES)..];
                if !header.is_empty() {
                    ranges[count] = socket::range(header.as_ptr(), header.len());
                    count += 1;
                }
                let (address, length) = piece.payload;
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
