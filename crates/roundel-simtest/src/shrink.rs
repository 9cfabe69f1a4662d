//! Finds a smaller plan that is broken in the same way.

use crate::plan::Plan;
use crate::run::{Broken, run};
use roundel_exchange::Scheduling;
use std::time::Duration;

/// Plans that are tried at most.
const TRIES_MAX: usize = 300;

/// The smallest plan that was found to be broken like `broken`, and how it is.
pub fn shrink(plan: &Plan, broken: &Broken) -> (Plan, Broken) {
    let mut best = (plan.clone(), broken.clone());
    let mut tries = 0;
    'again: loop {
        for smaller in smaller(&best.0) {
            tries += 1;
            if tries > TRIES_MAX {
                return best;
            }
            if let Err(found) = run(&smaller)
                && found.is_like(broken)
            {
                best = (smaller, found);
                continue 'again;
            }
        }
        return best;
    }
}

/// Plans with a little less to them.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        if changed != *plan {
            plans.push(changed);
        }
    };
    with(&|plan| plan.faults = Default::default());
    with(&|plan| plan.faults.moments.clear());
    with(&|plan| plan.faults.packets.clear());
    for index in 0..plan.faults.packets.len() {
        with(&|plan| {
            plan.faults.packets.remove(index);
        });
    }
    with(&|plan| plan.faults.loss = 0.0);
    with(&|plan| plan.faults.corruption = 0.0);
    with(&|plan| plan.faults.duplication = 0.0);
    with(&|plan| plan.faults.delayed = 0.0);
    with(&|plan| {
        // What happens to a node must happen to one that is there.
        let last = plan.nodes - 1;
        if last >= 2 && plan.faults.moments.iter().all(|moment| moment.node < last) {
            plan.nodes = last;
        }
    });
    with(&|plan| {
        if let Some(shared) = &mut plan.multiplexer {
            shared.exchanges = 1;
        }
    });
    with(&|plan| {
        if let Some(shared) = &mut plan.multiplexer {
            shared.scheduling = Scheduling::Off;
        }
    });
    with(&|plan| {
        if let Some(shared) = &mut plan.multiplexer {
            shared.regions = 1;
        }
    });
    with(&|plan| plan.multiplexer = None);
    with(&|plan| plan.join = None);
    with(&|plan| {
        if let Some(join) = &mut plan.join {
            join.spreads = Default::default();
        }
    });
    with(&|plan| plan.threads = 1);
    with(&|plan| plan.batches = (plan.batches / 2).max(1));
    with(&|plan| plan.batches = (plan.batches - 1).max(1));
    with(&|plan| plan.rows = (plan.rows / 2).max(1));
    with(&|plan| plan.dawdle = Duration::ZERO);
    plans
}
