//! What a SEND endpoint does now and then by itself: the tasks that send may be busy with other
//! things for long, or wait for a peer that is gone.

use super::super::probe::{PROBE_INTERVAL, probe};
use super::state::{CONTROL, Carrier, State};
use super::{Inner, SendEndpoint};
use std::sync::Arc;

impl SendEndpoint {
    /// Over datagrams, looks every `repeat_interval` whether a receiver misses something; over
    /// connections, probes every second whether those live that owe credit.
    pub(crate) fn attend(&self) -> impl Future<Output = ()> + Send + use<> {
        let context = self.0.fabric.context.clone();
        let options = &self.0.options;
        let interval = match options.repairs() {
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
        state.probe_connections();
        self.ask_to_join(&mut state);
        if state.keeps_any() || state.awaits_joining() {
            self.progress(&mut state);
            drop(state);
            // What was taken for others is theirs to find.
            queue.wake();
        }
    }
}

impl State {
    /// Probes the connections on which more is to be sent and nothing is in flight that would fail
    /// by itself.
    fn probe_connections(&mut self) {
        for destination in &mut self.destinations {
            if let Carrier::Connected(queue_pair) = &destination.carrier
                && destination.failed.is_none()
                && destination.end.is_none()
                && destination.in_flight == 0
                && probe(queue_pair, CONTROL)
            {
                destination.in_flight += 1;
            }
        }
    }
}
