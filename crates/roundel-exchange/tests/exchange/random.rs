//! Random numbers that depend on a seed alone, and runtimes for property tests.

/// A small generator.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// Puts items in another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }

    /// A generator of its own for a task.
    pub fn fork(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    /// Now and then, lets time pass.
    pub async fn dawdle(&mut self) {
        match self.below(12) {
            0 => tokio::time::sleep(std::time::Duration::from_millis(self.below(4))).await,
            1..4 => tokio::task::yield_now().await,
            _ => {}
        }
    }
}

/// Runs an asynchronous test with a number of threads.
pub fn on_runtime<F: Future<Output = ()>>(threads: usize, test: F) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}
