//! Where the frames of one source and partition come together again, in memory or, when that is
//! short, on disk.

use crate::budget::{MemoryBudget, SpillFile};
use crate::error::{ExchangeError, Result};
use crate::frame::{Fragment, FrameAssembler, FrameError};
use crate::wire::Data;
use arrow::buffer::{Buffer, MutableBuffer};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How far ahead of the first frame that is not complete others may be.
const FRAMES_AHEAD_MAX: u32 = 1 << 16;
/// Frames of one partition that may be in assembly at a time: one for each task that sends to it
/// and, over a link that reorders, what is in flight.
const ARRIVING_MAX: usize = 1 << 10;

/// The frames of one source and partition.
pub(super) struct Inbox {
    ordered: bool,
    /// Every frame before this one has been completed.
    next: u32,
    /// Frames in assembly and completed ones that came early.
    frames: BTreeMap<u32, Frame>,
    /// Completed frames, to be taken in this order.
    ready: std::collections::VecDeque<Stored>,
    arriving: usize,
    /// Its reader waits, and has not been given anything since.
    pub(super) reading: bool,
    /// False once nobody reads the partition any more.
    pub(super) wanted: bool,
}

enum Frame {
    Arriving(FrameAssembler),
    /// Complete; with its bytes while the order holds it back.
    Complete(Option<Stored>),
}

/// A complete frame that waits for its reader.
enum Stored {
    Memory { frame: Buffer, charged: bool },
    Disk { at: u64, length: usize },
}

impl Stored {
    fn bytes(&self) -> usize {
        match self {
            Self::Memory { frame, .. } => frame.len(),
            Self::Disk { length, .. } => *length,
        }
    }
}

/// What a fragment was.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It had not arrived before.
    Fresh,
    /// It had arrived before.
    Duplicate,
    /// Of a frame far ahead of one that is missing; not taken.
    TooEarly,
}

/// Where waiting frames go.
pub(super) struct Store {
    budget: Arc<dyn MemoryBudget>,
    spill: Option<SpillFile>,
    spill_end: u64,
    /// Frames in the spill file.
    on_disk: usize,
    buffered_bytes: usize,
    pub(super) buffered_bytes_max: usize,
    pub(super) spilled_bytes: u64,
}

impl Store {
    pub(super) fn new(budget: Arc<dyn MemoryBudget>) -> Self {
        Self {
            budget,
            spill: None,
            spill_end: 0,
            on_disk: 0,
            buffered_bytes: 0,
            buffered_bytes_max: 0,
            spilled_bytes: 0,
        }
    }

    /// Keeps a frame. One that is read at once is not charged: it is as good as handed over.
    fn keep(&mut self, frame: Buffer, read_at_once: bool) -> Result<Stored> {
        let bytes = frame.len();
        let charged = !read_at_once && self.budget.try_grow(bytes);
        if charged || read_at_once {
            self.buffered_bytes += bytes;
            self.buffered_bytes_max = self.buffered_bytes_max.max(self.buffered_bytes);
            return Ok(Stored::Memory { frame, charged });
        }
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(
                self.budget
                    .spill_file()
                    .map_err(ExchangeError::OutOfMemory)?,
            ),
        };
        let at = self.spill_end;
        spill
            .file
            .write_all_at(&frame, at)
            .map_err(|error| ExchangeError::Spill(Arc::new(error)))?;
        self.spill_end += bytes as u64;
        self.on_disk += 1;
        self.spilled_bytes += bytes as u64;
        Ok(Stored::Disk { at, length: bytes })
    }

    fn take(&mut self, stored: Stored) -> Result<Buffer> {
        match stored {
            Stored::Memory { frame, charged } => {
                self.forget(frame.len(), charged);
                Ok(frame)
            }
            Stored::Disk { at, length } => {
                let spill = self
                    .spill
                    .as_ref()
                    .ok_or_else(|| ExchangeError::OutOfMemory("the spill file is gone".into()))?;
                let mut frame = MutableBuffer::from_len_zeroed(length);
                spill
                    .file
                    .read_exact_at(&mut frame, at)
                    .map_err(|error| ExchangeError::Spill(Arc::new(error)))?;
                self.forget_on_disk();
                Ok(frame.into())
            }
        }
    }

    fn drop_stored(&mut self, stored: Stored) {
        match stored {
            Stored::Memory { frame, charged } => self.forget(frame.len(), charged),
            Stored::Disk { .. } => self.forget_on_disk(),
        }
    }

    /// A spill file without frames goes, and its disk space with it.
    fn forget_on_disk(&mut self) {
        self.on_disk -= 1;
        if self.on_disk == 0 {
            self.spill = None;
            self.spill_end = 0;
        }
    }

    fn forget(&mut self, bytes: usize, charged: bool) {
        self.buffered_bytes -= bytes;
        if charged {
            self.budget.shrink(bytes);
        }
    }
}

/// How far a fragment brought its frame.
enum Assembly {
    Complete(Buffer),
    Fresh,
    Duplicate,
}

/// Puts a fragment into its frame.
fn assemble(
    frame: &mut Frame,
    peer: &str,
    data: &Data,
    payload: impl Fragment,
) -> Result<Assembly> {
    let Frame::Arriving(assembler) = frame else {
        return Ok(Assembly::Duplicate);
    };
    if assembler.frame_length() != data.frame_length as usize {
        return Err(ExchangeError::protocol(
            peer,
            format!("fragments of frame {} disagree", data.frame_sequence),
        ));
    }
    match assembler.insert_from(data.offset as usize, data.payload_length as usize, payload) {
        Ok(true) => {}
        Ok(false) => return Ok(Assembly::Fresh),
        Err(FrameError::FragmentOverlap { .. }) => return Ok(Assembly::Duplicate),
        Err(error) => return Err(ExchangeError::frame(peer, error)),
    }
    match std::mem::replace(frame, Frame::Complete(None)) {
        Frame::Arriving(assembler) => match assembler.finish() {
            Ok(bytes) => Ok(Assembly::Complete(bytes)),
            Err(error) => Err(ExchangeError::frame(peer, error)),
        },
        Frame::Complete(_) => Ok(Assembly::Duplicate),
    }
}

impl Inbox {
    pub(super) fn new(ordered: bool) -> Self {
        Self {
            ordered,
            next: 0,
            frames: BTreeMap::new(),
            ready: std::collections::VecDeque::new(),
            arriving: 0,
            reading: false,
            wanted: true,
        }
    }

    /// Whether a frame can be taken.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes a fragment in, whose bytes are those of `payload`. `reading` says that
    /// the partition's reader is asking right now; `gap` is how many bytes of a frame may be missing
    /// before the fragment.
    pub(super) fn insert(
        &mut self,
        peer: &str,
        data: &Data,
        payload: impl Fragment,
        reading: bool,
        gap: usize,
        store: &mut Store,
    ) -> Result<Arrival> {
        let ahead = data.frame_sequence.wrapping_sub(self.next);
        if ahead > u32::MAX / 2 {
            return Ok(Arrival::Duplicate);
        }
        if ahead >= FRAMES_AHEAD_MAX {
            return Ok(Arrival::TooEarly);
        }
        let whole = match data.payload_length == data.frame_length {
            true => payload.whole(),
            false => None,
        };
        let frame = match self.frames.entry(data.frame_sequence) {
            Entry::Occupied(entry) if whole.is_none() => entry.into_mut(),
            Entry::Occupied(_) => return Ok(Arrival::Duplicate),
            Entry::Vacant(entry) if whole.is_some() => entry.insert(Frame::Complete(None)),
            Entry::Vacant(_) if self.arriving == ARRIVING_MAX => return Ok(Arrival::TooEarly),
            Entry::Vacant(entry) => {
                self.arriving += 1;
                entry.insert(Frame::Arriving(FrameAssembler::with_gap(
                    data.frame_length,
                    gap,
                )))
            }
        };
        let bytes = match whole {
            Some(bytes) => bytes,
            None => match assemble(frame, peer, data, payload)? {
                Assembly::Complete(bytes) => {
                    self.arriving -= 1;
                    bytes
                }
                Assembly::Fresh => return Ok(Arrival::Fresh),
                Assembly::Duplicate => return Ok(Arrival::Duplicate),
            },
        };
        if self.wanted {
            let deliver = ahead == 0 || !self.ordered;
            let read_at_once = (reading || self.reading) && deliver && self.ready.is_empty();
            let stored = store.keep(bytes, read_at_once)?;
            if deliver {
                self.ready.push_back(stored);
            } else {
                *frame = Frame::Complete(Some(stored));
            }
        }
        self.advance();
        Ok(Arrival::Fresh)
    }

    /// Takes in a frame that is complete and next in order.
    pub(super) fn deliver(&mut self, frame: Buffer, store: &mut Store) -> Result<()> {
        if self.wanted {
            let read_at_once = self.reading && self.ready.is_empty();
            self.ready.push_back(store.keep(frame, read_at_once)?);
        }
        Ok(())
    }

    /// Moves past completed frames, delivering those that the order held back.
    fn advance(&mut self) {
        while let Some(Frame::Complete(held)) = self.frames.get_mut(&self.next) {
            self.ready.extend(held.take());
            self.frames.remove(&self.next);
            self.next = self.next.wrapping_add(1);
        }
    }

    /// Whether fragments or frames are left that will never be delivered, now that all messages
    /// have arrived.
    pub(super) fn is_broken(&self) -> bool {
        !self.frames.is_empty()
    }

    /// The next frame, if one is ready.
    pub(super) fn take(&mut self, store: &mut Store) -> Option<Result<Buffer>> {
        let stored = self.ready.pop_front()?;
        self.reading = false;
        Some(store.take(stored))
    }

    /// Nobody reads the partition any more: frees what waits, and what comes is dropped. Returns the bytes that
    /// waited.
    pub(super) fn discard(&mut self, store: &mut Store) -> usize {
        self.wanted = false;
        let mut unread = 0;
        for stored in self.ready.drain(..) {
            unread += stored.bytes();
            store.drop_stored(stored);
        }
        for frame in self.frames.values_mut() {
            if let Frame::Complete(held) = frame
                && let Some(stored) = held.take()
            {
                unread += stored.bytes();
                store.drop_stored(stored);
            }
        }
        unread
    }
}
