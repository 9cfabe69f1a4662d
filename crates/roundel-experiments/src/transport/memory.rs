//! Buffers in plain memory, for transports that register none.

use super::{Message, MessageBuffer};
use crate::error::Result;
use arrow::buffer::Buffer;
use roundel_exchange::Selection;
use roundel_exchange::frame::{RowSource, aligned};

/// A buffer in memory.
pub struct Memory(Box<[u8]>);

impl Memory {
    /// Of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(vec![0; bytes].into())
    }

    /// Its first bytes.
    pub fn filled(&self, length: usize) -> &[u8] {
        &self.0[..length]
    }

    /// All of it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl MessageBuffer for Memory {
    fn capacity(&self) -> usize {
        self.0.len()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn encode(&mut self, at: usize, source: &RowSource<'_>, rows: &Selection<'_>) -> usize {
        source.encode_over(rows, &mut self.0[at..])
    }
}

/// A buffer behind `N` bytes of memory, which are for the length of what it is filled with.
pub struct Behind<const N: usize>(pub Memory);

impl<const N: usize> MessageBuffer for Behind<N> {
    fn capacity(&self) -> usize {
        self.0.capacity() - N
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.0.write(N + at, bytes);
    }

    fn encode(&mut self, at: usize, source: &RowSource<'_>, rows: &Selection<'_>) -> usize {
        self.0.encode(N + at, source, rows)
    }
}

/// A message that came, behind `N` bytes of memory.
pub struct Filled<const N: usize> {
    /// Where it lies.
    pub memory: Memory,
    /// Its bytes, without those before it.
    pub length: usize,
}

impl<const N: usize> Filled<N> {
    fn bytes(&self) -> &[u8] {
        &self.memory.filled(N + self.length)[N..]
    }
}

impl<const N: usize> Message for Filled<N> {
    fn length(&self) -> usize {
        self.length
    }

    fn copy_to(&self, target: &mut [u8]) -> Result<()> {
        target.copy_from_slice(self.bytes());
        Ok(())
    }

    fn copy(&self) -> Result<Buffer> {
        Ok(aligned(Vec::from(self.bytes())))
    }
}
