//! The multiplexers of a process: one for each design that queries have asked for, opened when the first one does. A
//! coordinator has all its queries use the same design, so that there is one, unless several coordinators share workers.

use crate::error::{Result, TransportError};
use parking_lot::Mutex;
use roundel_exchange::{
    Design, Fabric, Multiplexer, MultiplexerOptions, NodeId, ScheduleReport, Scheduling,
};
use roundel_verbs::Regions;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Handle;
use url::Url;

/// The multiplexers of a process.
pub(super) struct Multiplexers {
    fabric: Fabric,
    scheduling: Scheduling,
    regions: Regions,
    /// Where they are driven.
    driver: Handle,
    open: Mutex<HashMap<Design, Arc<Multiplexed>>>,
    /// The counts of the schedules that plans' metrics have already.
    noted: Mutex<ScheduleReport>,
}

/// One of them.
pub(super) struct Multiplexed {
    /// What carries the links of queries that use it.
    pub multiplexer: Multiplexer,
    /// The nodes of the workers that were met.
    pub acquaintances: Mutex<HashMap<Url, NodeId>>,
}

impl Multiplexers {
    /// None yet, on a process's fabric.
    pub(super) fn new(fabric: &Fabric, scheduling: Scheduling, driver: Handle) -> Self {
        let regions = Regions::of_this_process();
        tracing::debug!(regions = regions.count(), "NUMA regions of this process");
        Self {
            fabric: fabric.clone(),
            scheduling,
            regions,
            driver,
            open: Mutex::default(),
            noted: Mutex::default(),
        }
    }

    /// The one that moves rows by a design.
    ///
    /// # Errors
    /// When no multiplexer can, or not on this device.
    pub(super) fn of(&self, design: Design) -> Result<Arc<Multiplexed>> {
        let mut open = self.open.lock();
        if let Some(known) = open.get(&design) {
            return Ok(known.clone());
        }
        let options = MultiplexerOptions {
            design,
            scheduling: self.scheduling,
            ..MultiplexerOptions::new(self.fabric.device.capabilities())
        };
        let multiplexer = Multiplexer::open(&self.fabric, options, &self.regions)
            .map_err(|error| TransportError::NoFabric(error.to_string()))?;
        self.driver.spawn(multiplexer.drive());
        let own = Arc::new(Multiplexed {
            multiplexer,
            acquaintances: Mutex::default(),
        });
        open.insert(design, own.clone());
        Ok(own)
    }

    /// How the phases of the schedule went since this was last asked.
    pub(super) fn phases_since(&self) -> ScheduleReport {
        let mut now = ScheduleReport::default();
        for own in self.open.lock().values() {
            let one = own.multiplexer.report().schedule;
            now.phases += one.phases;
            now.stalled += one.stalled;
            now.overruns += one.overruns;
            now.changes += one.changes;
        }
        let before = std::mem::replace(&mut *self.noted.lock(), now);
        ScheduleReport {
            phases: now.phases.saturating_sub(before.phases),
            stalled: now.stalled.saturating_sub(before.stalled),
            overruns: now.overruns.saturating_sub(before.overruns),
            changes: now.changes.saturating_sub(before.changes),
        }
    }
}
