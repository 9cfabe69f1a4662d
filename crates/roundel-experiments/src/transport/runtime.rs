//! The runtime of one thread.

use crate::error::{Error, Result};
use std::ops::Deref;
use tokio::runtime::Runtime;

/// A runtime that may be dropped anywhere, also by a task of another one.
pub struct ThreadRuntime(Option<Runtime>);

impl ThreadRuntime {
    /// A runtime for the thread that runs it.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new() -> Result<Self> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build();
        runtime
            .map(|runtime| Self(Some(runtime)))
            .map_err(Error::io("start a runtime"))
    }
}

impl Deref for ThreadRuntime {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for ThreadRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
