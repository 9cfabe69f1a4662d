//! Registered messages, used by one query after the other. Each query has at most its quota of them in use, so
//! that none starves another.

use super::MultiplexerOptions;
use roundel_verbs::{Arena, Buffer};
use std::collections::HashMap;
use std::task::Waker;

pub(super) struct Pool {
    arena: Arena,
    message_bytes: usize,
    /// Messages that a query may have in use.
    quota: usize,
    free: Vec<Buffer>,
    /// Messages in use, by query.
    used: HashMap<u64, usize>,
    used_max: usize,
    /// All messages, those in use included.
    made: usize,
    /// Fewest that were free since it was last looked whether there are too many.
    unused: usize,
    waiting: Vec<Waker>,
}

impl Pool {
    pub(super) fn new(arena: &Arena, options: &MultiplexerOptions) -> Self {
        Self {
            arena: arena.clone(),
            message_bytes: options.message_bytes,
            // One message waits while another is filled.
            quota: (options.query_bytes / options.message_bytes).max(2),
            free: Vec::new(),
            used: HashMap::new(),
            used_max: 0,
            made: 0,
            unused: 0,
            waiting: Vec::new(),
        }
    }

    /// A message for a query; `None` while it has its quota in use, or there is no memory.
    pub(super) fn take(&mut self, query: u64) -> Option<Buffer> {
        let used = self.used.get(&query).copied().unwrap_or(0);
        if used >= self.quota {
            return None;
        }
        let buffer = self.free.pop().or_else(|| self.make())?;
        self.unused = self.unused.min(self.free.len());
        self.used.insert(query, used + 1);
        self.used_max = self.used_max.max(used + 1);
        Some(buffer)
    }

    fn make(&mut self) -> Option<Buffer> {
        let buffer = self.arena.allocate(self.message_bytes).ok()?;
        self.made += 1;
        Some(buffer)
    }

    /// Messages that a query may have waiting for one of so many peers: all that may wait for one would leave none
    /// for those whose turn it is next.
    pub(super) fn share(&self, peers: usize) -> usize {
        (self.quota / peers.max(1)).max(2)
    }

    /// The same in bytes.
    pub(super) fn share_bytes(&self, peers: usize) -> usize {
        self.share(peers) * self.message_bytes
    }

    /// A task is woken when a message comes back.
    pub(super) fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// Takes a message of a query back; `None` for one that is lost with its connection. Who waits is to be woken.
    pub(super) fn give_back(
        &mut self,
        query: u64,
        buffer: Option<Buffer>,
    ) -> impl Iterator<Item = Waker> + use<'_> {
        if let Some(used) = self.used.get_mut(&query) {
            *used -= 1;
            if *used == 0 {
                self.used.remove(&query);
            }
        }
        match buffer {
            Some(buffer) => self.free.push(buffer),
            None => self.made -= 1,
        }
        self.waiting.drain(..)
    }

    /// Gives messages back to the arena that were free all the time since this was last called.
    pub(super) fn shrink(&mut self) {
        let unused = self.unused.min(self.free.len());
        self.free.truncate(self.free.len() - unused);
        self.made -= unused;
        self.unused = self.free.len();
    }

    pub(super) fn bytes(&self) -> usize {
        self.made * self.message_bytes
    }

    pub(super) fn query_bytes_max(&self) -> usize {
        self.used_max * self.message_bytes
    }
}
