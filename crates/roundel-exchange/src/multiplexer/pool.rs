//! Registered messages, used by one query after the other, in each NUMA region for those that fill them there. Each
//! query has at most its quota of them in use, so that none starves another.

use super::MultiplexerOptions;
use crate::fabric::allocate;
use roundel_verbs::{Arena, Buffer, Regions};
use std::collections::HashMap;
use std::task::Waker;

pub(super) struct Pool {
    regions: Regions,
    /// By region.
    shelves: Vec<Shelf>,
    /// Bytes of a message in memory.
    message_bytes: usize,
    /// Whether peers read messages where they are.
    exposable: bool,
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
        let message_bytes = options.design.buffer_bytes(options.message_bytes);
        let shelf = |number| Shelf {
            arena: arena.in_region(regions.in_turn(number)),
            free: Vec::new(),
            unused: 0,
        };
        Self {
            regions: regions.clone(),
            shelves: (0..regions.count()).map(shelf).collect(),
            message_bytes,
            exposable: options.design.reads(),
            // One message waits while another is filled.
            quota: (options.query_bytes / message_bytes).max(2),
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
        let buffer = allocate(arena, self.message_bytes, self.exposable).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use roundel_verbs::ArenaOptions;
    use roundel_verbs::shm::{self, ShmOptions};

    const KIB: usize = 1 << 10;

    /// A pool in two regions, each of whose segments has room for two messages, in memory for so many segments.
    fn pool(segments: usize) -> (Pool, Regions) {
        let device = shm::open(ShmOptions::default()).unwrap();
        let options = MultiplexerOptions {
            message_bytes: 16 * KIB,
            query_bytes: 64 * KIB,
            ..MultiplexerOptions::new(device.capabilities())
        };
        let arena = device.arena(ArenaOptions {
            segment_bytes: 32 * KIB,
            registered_bytes_max: segments * 32 * KIB,
        });
        let regions = Regions::made_up(2);
        (Pool::new(&arena, &options, &regions), regions)
    }

    fn region(buffer: &Buffer) -> usize {
        buffer.region().number()
    }

    #[test]
    fn a_message_is_of_the_region_of_who_fills_it() {
        let (mut pool, regions) = pool(4);
        for own in [0, 1, 1, 0] {
            regions.bind(own);
            let buffers = [0; 3].map(|_| pool.take(1).unwrap());
            assert_eq!(buffers.each_ref().map(region), [own; 3]);
            // It goes back where it came from, whoever gives it back.
            regions.bind(1 - own);
            for buffer in buffers {
                assert_eq!(pool.give_back(1, Some(buffer)).count(), 0);
            }
        }
        assert_eq!(pool.bytes(), 6 * 16 * KIB, "used again");
    }

    #[test]
    fn where_there_is_no_memory_left_a_message_is_of_another_region() {
        let (mut pool, regions) = pool(1);
        regions.bind(0);
        let buffers = [0; 2].map(|_| pool.take(1).unwrap());
        for buffer in buffers {
            pool.give_back(1, Some(buffer)).for_each(drop);
        }
        regions.bind(1);
        let buffers = [0; 2].map(|_| pool.take(1).unwrap());
        assert_eq!(buffers.each_ref().map(region), [0; 2]);
        assert!(pool.take(1).is_none());
    }

    #[test]
    fn what_no_region_needs_goes_back_to_the_arena() {
        let (mut pool, regions) = pool(4);
        let taken = [0, 1].map(|own| {
            regions.bind(own);
            [0; 2].map(|_| pool.take(1).unwrap())
        });
        for buffer in taken.into_iter().flatten() {
            pool.give_back(1, Some(buffer)).for_each(drop);
        }
        pool.shrink();
        assert_eq!(pool.bytes(), 4 * 16 * KIB);
        // One is in use meanwhile, of the second region.
        let buffer = pool.take(1).unwrap();
        pool.give_back(1, Some(buffer)).for_each(drop);
        pool.shrink();
        assert_eq!(pool.bytes(), 16 * KIB);
        assert_eq!(pool.take(1).map(|buffer| region(&buffer)), Some(1));
    }
}
