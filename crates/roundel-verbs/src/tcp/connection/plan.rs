//! What is to be written with one call: whole frames, or the rest of one. A frame is of a request or of a response; this
//! module knows no more of them.
//!
//! A plan has the addresses of payloads, and holds none of their memory: it must not outlive the queues of frames that it
//! was made of, nor may these change meanwhile.

use crate::tcp::frame::{Frame, HEADER_BYTES};

/// Frames written with one call.
pub(super) const FRAMES: usize = 32;
/// Bytes written with one call, unless the first frame alone is longer.
const BYTES: usize = 1 << 20;

/// A frame of which the socket has taken a part.
pub(super) struct Partial {
    pub what: What,
    pub header: [u8; HEADER_BYTES],
    pub done: usize,
}

/// Which queue a frame is from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The first response.
    Response,
    /// The first request that is not sent.
    Request,
}

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

impl Piece {
    /// The address of its payload, and how many bytes that has.
    pub(super) fn payload(&self) -> (*const u8, usize) {
        self.payload
    }
}
