//! A mutex of endpoints, which several threads share. Where time is simulated, a thread waits for it in virtual
//! time, as threads that post on one queue pair do.

use crate::context::{Context, VirtualLock};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A mutex whose waits take virtual time, where time is that.
pub struct Guarded<T> {
    value: Mutex<T>,
    lock: Option<Arc<dyn VirtualLock>>,
}

/// A value in the hands of a thread.
pub struct Guard<'a, T> {
    value: MutexGuard<'a, T>,
    lock: Option<&'a dyn VirtualLock>,
}

impl<T> Guarded<T> {
    /// A value for the threads of a context.
    pub fn new(value: T, context: &dyn Context) -> Self {
        Self {
            value: Mutex::new(value),
            lock: context.lock(),
        }
    }

    /// Waits for the value.
    pub fn lock(&self) -> Guard<'_, T> {
        let lock = self.lock.as_deref();
        if let Some(lock) = lock {
            lock.enter();
        }
        Guard {
            value: self.value.lock(),
            lock,
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock {
            lock.leave();
        }
    }
}
