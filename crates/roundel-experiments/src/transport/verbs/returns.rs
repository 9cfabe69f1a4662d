//! How long buffers are away: from when one is sent until it can be filled again (section 7.1.2). A buffer is known by where
//! it lies. A buffer that came back before anybody wanted it counts as away until it is wanted, so this says something only of
//! senders that wait for buffers.

use parking_lot::Mutex;
use roundel_verbs::Context;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Returns {
    context: Arc<dyn Context>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// When those buffers were sent that have not been filled since, by address.
    sent: HashMap<usize, Duration>,
    count: u64,
    away: Duration,
}

impl Returns {
    pub(super) fn new(context: Arc<dyn Context>) -> Self {
        Self {
            context,
            seen: Mutex::default(),
        }
    }

    pub(super) fn sent(&self, address: usize) {
        self.seen.lock().sent.insert(address, self.context.now());
    }

    pub(super) fn acquired(&self, address: usize) {
        let mut seen = self.seen.lock();
        if let Some(sent) = seen.sent.remove(&address) {
            seen.count += 1;
            seen.away += self.context.now().saturating_sub(sent);
        }
    }

    /// How many came back, and for how long they were away, added up.
    pub(super) fn so_far(&self) -> (u64, Duration) {
        let seen = self.seen.lock();
        (seen.count, seen.away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundel_verbs::sim::{Parameters, Simulation};
    use roundel_verbs::{Work, settle};

    #[test]
    fn a_buffer_is_away_until_it_is_acquired_again() {
        let simulation = Simulation::new(Parameters::edr(), 1);
        let node = simulation.add_node(1);
        let returns = Arc::new(Returns::new(node.context()));
        let (watch, context) = (returns.clone(), node.context());
        let work = async move {
            watch.acquired(1);
            watch.sent(1);
            watch.sent(2);
            context.charge(Work::Cycles(1000));
            settle(&*context).await;
            watch.acquired(1);
            watch.acquired(1);
        };
        node.spawn(0, Box::pin(work));
        simulation.advance(Duration::from_millis(1));
        let cycles = Duration::from(Parameters::edr().cpu.cycle * 1000);
        assert_eq!(returns.so_far(), (1, cycles));
    }
}
