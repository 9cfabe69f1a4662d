//! Work on several threads of this host at a time.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of all items, in their order, by at least one thread. After the first error no thread takes another item.
pub(crate) fn try_each<T: Sync, R: Send, E: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(usize, &T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut own = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else {
                return own;
            };
            let done = work(number, item);
            if done.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            own.push((number, done));
        }
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(take)).collect();
        let done = workers.into_iter().map(|worker| worker.join());
        done.flat_map(|own| own.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, done)| done).collect()
}

/// The same of work that does not fail.
pub(crate) fn each<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let Ok(all) = try_each(threads, items, |number, item| {
        Ok::<_, Infallible>(work(number, item))
    });
    all
}
