//! Registered messages, used by one query after the other, in each NUMA region for those that fill them there. Each
//! query has at most its quota of them in use, so that none starves another.

use super::MultiplexerOptions;
use roundel_verbs::{Arena, Buffer, Regions};
use std::collections::HashMap;
use std::task::Waker;

pub(super) struct Pool {
    regions: Regions,
    /// By region.
    shelves: Vec<Shelf>,
    message_bytes: usize,
    /// Messages that a query may have in use.
    quota: usize,
    /// Messages in use, by query.
    used: HashMap<u64, usize>,
    used_max: usize,
    /// All messages, those in use included.
    made: usize,
    waiting: Vec<Waker>,
}

/// The free messages of a region.
struct Shelf {
    arena: Arena,
    free: Vec<Buffer>,
    /// Fewest that were free since it was last looked whether there are too many.
    unused: usize,
}

impl Shelf {
    fn take(&mut self) -> Option<Buffer> {
        let buffer = self.free.pop();
        self.unused = self.unused.min(self.free.len());
        buffer
    }
}

impl Pool {
    pub(super) fn new(arena: &Arena, options: &MultiplexerOptions, regions: &Regions) -> Self {
        let shelf = |number| Shelf {
            arena: arena.in_region(regions.in_turn(number)),
            free: Vec::new(),
            unused: 0,
        };
        Self {
            regions: regions.clone(),
            shelves: (0..regions.count()).map(shelf).collect(),
            message_bytes: options.message_bytes,
            // One message waits while another is filled.
            quota: (options.query_bytes / options.message_bytes).max(2),
            used: HashMap::new(),
            used_max: 0,
            made: 0,
            waiting: Vec::new(),
        }
    }

    /// A message for a query, of the region of the thread that fills it if that can be; `None` while it has its quota in
    /// use, or there is no memory.
    pub(super) fn take(&mut self, query: u64) -> Option<Buffer> {
        let used = self.used.get(&query).copied().unwrap_or(0);
        if used >= self.quota {
            return None;
        }
        let own = self.regions.current();
        let buffer = self.shelves[own].take();
        let buffer = buffer.or_else(|| self.make(own)).or_else(|| {
            let mut others = self.shelves.iter_mut();
            others.find_map(Shelf::take)
        })?;
        self.used.insert(query, used + 1);
        self.used_max = self.used_max.max(used + 1);
        Some(buffer)
    }

    fn make(&mut self, region: usize) -> Option<Buffer> {
        let arena = &self.shelves[region].arena;
        let buffer = arena.allocate(self.message_bytes).ok()?;
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
            Some(buffer) => self.shelves[buffer.region().number()].free.push(buffer),
            None => self.made -= 1,
        }
        self.waiting.drain(..)
    }

    /// Gives messages back to the arena that were free all the time since this was last called.
    pub(super) fn shrink(&mut self) {
        for shelf in &mut self.shelves {
            let unused = shelf.unused.min(shelf.free.len());
            shelf.free.truncate(shelf.free.len() - unused);
            self.made -= unused;
            shelf.unused = shelf.free.len();
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.made * self.message_bytes
    }

    pub(super) fn query_bytes_max(&self) -> usize {
        self.used_max * self.message_bytes
    }
}
