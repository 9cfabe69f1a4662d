//! Reading: bytes of a connection go where their frame says, straight from the socket when there
//! are many, by way of a small buffer when they came along with a header. Knows nothing of what the
//! frames mean.
#![allow(unsafe_code)] // Reads into registered memory.

use super::send_side::Garbage;
use super::transmit::Lost;
use crate::memory::Pages;
use crate::memory::copy_last_byte_last;
use crate::tcp::frame::{Frame, HEADER_BYTES};
use crate::tcp::socket;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of the buffer.
const STAGING: usize = 16 << 10;
/// Bytes read along with a long payload: more would be copied twice.
const AFTER_BULK: usize = 4 * HEADER_BYTES;
/// Payloads of at least this length are long.
const BULK: usize = 8 << 10;
/// WRITEs of at most this length are placed in one go, by whole words.
const PLACED_WHOLE: usize = 256;

/// Where the payload of a frame goes.
pub(super) struct Sink<T> {
    at: *mut u8,
    /// Bytes that go there as they come.
    direct: usize,
    /// Bytes behind them that are placed in one go, when all have come.
    last: usize,
    /// What to do then.
    pub then: T,
    /// Keeps the memory mapped.
    _pages: Option<Arc<Pages>>,
}

// SAFETY: the address is of registered memory, which belongs to no thread. The places that make
// sinks say who may touch it.
unsafe impl<T: Send> Send for Sink<T> {}

impl<T> Sink<T> {
    /// Into memory that nobody looks at before the end.
    pub(super) fn plain(at: *mut u8, length: usize, then: T) -> Self {
        Self {
            at,
            direct: length,
            last: 0,
            then,
            _pages: None,
        }
    }

    /// Into exposed memory, where somebody may wait for the last byte.
    pub(super) fn exposed(at: *mut u8, length: usize, pages: Option<Arc<Pages>>, then: T) -> Self {
        let last = match length {
            0..=PLACED_WHOLE => length,
            _ if (at as usize + length).is_multiple_of(8) => 8,
            _ => 1,
        };
        Self {
            at,
            direct: length - last,
            last,
            then,
            _pages: pages,
        }
    }
}

/// How a read ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// There may be more.
    More,
    /// There was no more, unless it was the end.
    All,
    /// There was nothing.
    None,
    /// The peer has closed the connection.
    End,
}

/// The receiving end of a connection.
pub(super) struct Reader<T> {
    pub socket: Option<Arc<OwnedFd>>,
    staging: Vec<u8>,
    /// The part of it that holds bytes.
    start: usize,
    end: usize,
    /// Where the payload under way goes.
    pub sink: Option<Sink<T>>,
    /// Bytes that nobody wants.
    skip: usize,
    bulk: bool,
}

impl<T> Default for Reader<T> {
    fn default() -> Self {
        Self {
            socket: None,
            staging: Vec::new(),
            start: 0,
            end: 0,
            sink: None,
            skip: 0,
            bulk: false,
        }
    }
}

impl<T> Reader<T> {
    pub(super) fn open(&mut self, socket: Arc<OwnedFd>) {
        self.staging.resize(STAGING, 0);
        self.socket = Some(socket);
    }

    /// Payload of a frame will go to the sink.
    pub(super) fn deliver(&mut self, sink: Sink<T>) {
        self.bulk = sink.direct + sink.last >= BULK;
        self.sink = Some(sink);
    }

    /// As many payload bytes are not wanted.
    pub(super) fn ignore(&mut self, length: usize) {
        self.skip = length;
    }

    /// The payload under way is not wanted any more: its memory is not touched from now on.
    pub(super) fn abandon(&mut self) -> Option<T> {
        let sink = self.sink.take()?;
        self.skip += sink.direct + sink.last;
        Some(sink.then)
    }

    /// Reads once.
    pub(super) fn fill(&mut self) -> Result<Filled, Lost> {
        let Some(socket) = &self.socket else {
            return Ok(Filled::None);
        };
        // The bytes that are left are a part of a header, or of a sink's last bytes.
        self.staging.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let window = if self.bulk {
            STAGING.min(self.end + AFTER_BULK.max(PLACED_WHOLE))
        } else {
            STAGING
        };
        let room = &mut self.staging[self.end..window];
        let room = socket::range(room.as_mut_ptr(), room.len());
        let (ranges, direct) = match &self.sink {
            Some(sink) if sink.direct > 0 => {
                ([socket::range(sink.at, sink.direct), room], sink.direct)
            }
            _ => ([room, socket::range(std::ptr::null(), 0)], 0),
        };
        let ranges = &ranges[..1 + usize::from(direct > 0)];
        let wanted = direct + room.iov_len;
        // SAFETY: the staging buffer is ours; a sink's memory is this reader's to fill until the
        // sink is finished or abandoned, which needs this same exclusive borrow.
        match unsafe { socket::receive(&**socket, ranges) } {
            Ok(0) => Ok(Filled::End),
            Ok(count) => {
                let placed = count.min(direct);
                if let Some(sink) = &mut self.sink
                    && placed > 0
                {
                    sink.direct -= placed;
                    sink.at = sink.at.wrapping_add(placed);
                }
                self.end += count - placed;
                Ok(if count < wanted {
                    Filled::All
                } else {
                    Filled::More
                })
            }
            Err(Errno::AGAIN) => Ok(Filled::None),
            Err(errno) => {
                tracing::debug!(%errno, "reading from a peer failed");
                Err(Lost)
            }
        }
    }

    /// The next frame whose header is there and whose predecessor's payload has all come, or the
    /// end of a payload.
    pub(super) fn next(&mut self) -> Result<Option<Next<T>>, Garbage> {
        if self.sink.is_some() {
            return Ok(self.feed().map(Next::Payload));
        }
        let skipped = self.skip.min(self.end - self.start);
        self.skip -= skipped;
        self.start += skipped;
        if self.skip > 0 {
            return Ok(None);
        }
        let bytes = &self.staging[self.start..self.end];
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let frame = Frame::decode(header).ok_or(Garbage)?;
        self.start += HEADER_BYTES;
        self.bulk &= frame.payload() == 0;
        Ok(Some(Next::Frame(frame)))
    }

    /// Moves bytes from the buffer to the sink. Returns what to do once the sink has all of them.
    fn feed(&mut self) -> Option<T> {
        let sink = self.sink.as_mut()?;
        let count = sink.direct.min(self.end - self.start);
        if count > 0 {
            // SAFETY: as in `fill`; the source is in the buffer.
            unsafe {
                let source = self.staging.as_ptr().add(self.start);
                std::ptr::copy_nonoverlapping(source, sink.at, count);
            }
            sink.direct -= count;
            sink.at = sink.at.wrapping_add(count);
            self.start += count;
        }
        if sink.direct > 0 || self.end - self.start < sink.last {
            return None;
        }
        // SAFETY: as above; the bytes before were written by this thread or under the same lock, so
        // the release store of the last byte publishes it.
        unsafe {
            let source = self.staging.as_ptr().add(self.start);
            copy_last_byte_last(source, sink.at, sink.last);
        }
        self.start += sink.last;
        self.sink.take().map(|sink| sink.then)
    }
}

/// What comes next.
pub(super) enum Next<T> {
    /// A frame; its payload, if it has one, is to be delivered or ignored.
    Frame(Frame),
    /// A payload has come whole.
    Payload(T),
}
