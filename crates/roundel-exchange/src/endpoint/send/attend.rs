//! What a SEND endpoint does now and then by itself: the tasks that send may be busy with other
//! things for long, or wait for a peer that is gone.

use super::state::{CONTROL, State};
use super::{Inner, SendEndpoint};
use crate::link::queue_pair::empty_write;
use crate::link::silence::PROBE_INTERVAL;
use std::sync::Arc;
use std::time::Duration;

impl SendEndpoint {
    /// Over datagrams, looks every `repeat_interval` whether a receiver misses something; where
    /// messages are written or read, whether a receiver has gone to sleep as they were sent; over
    /// connections, probes every second whether those live that owe credit. Whoever opens an endpoint
    /// runs it; it ends with the endpoint.
    pub fn attend(&self) -> impl Future<Output = ()> + Send + use<> {
        let context = self.0.fabric.context.clone();
        let options = &self.0.options;
        let interval = match options.repairs() || options.has_queues() {
            true => options.repeat_interval,
            false => PROBE_INTERVAL,
        };
        let inner = Arc::downgrade(&self.0);
        async move {
            loop {
                context.sleep(interval).await;
                let Some(endpoint) = inner.upgrade().map(SendEndpoint) else {
                    return;
                };
                endpoint.look();
            }
        }
    }

    fn look(&self) {
        let Inner { state, queue, .. } = &*self.0;
        let mut state = state.lock();
        state.probe_connections(self.0.fabric.context.now());
        self.ask_to_join(&mut state);
        if self.0.options.has_queues() || state.keeps_any() || state.awaits_joining() {
            self.progress(&mut state);
            drop(state);
            // Others have to find the completions that were taken for them.
            queue.wake();
        }
    }
}

impl State {
    /// Probes the connections on which more is to be sent and nothing is in flight that would fail
    /// by itself.
    fn probe_connections(&mut self, now: Duration) {
        for destination in &mut self.destinations {
            if destination.failed.is_none()
                && destination.end.is_none()
                && let Some(sends) = &mut destination.sends
                && sends.in_flight == 0
                && now.saturating_sub(destination.probed_at) >= PROBE_INTERVAL
            {
                destination.probed_at = now;
                sends.try_post(empty_write(CONTROL, None));
            }
        }
    }
}
