//! The bars of tables that are generated or loaded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar};
use roundel_engine::LoadProgress;
use roundel_terminal::progress::style;

/// One bar per table, while tables are generated or loaded.
pub struct LoadBars {
    verb: &'static str,
    all: MultiProgress,
    bars: Mutex<HashMap<String, ProgressBar>>,
}

impl LoadBars {
    /// `verb` says what is done to the tables.
    pub fn new(verb: &'static str) -> Self {
        Self {
            verb,
            all: MultiProgress::new(),
            bars: Mutex::default(),
        }
    }
}

impl Drop for LoadBars {
    fn drop(&mut self) {
        // The terminal is cleared; it does not matter if it is gone.
        let _ = self.all.clear();
    }
}

impl LoadProgress for LoadBars {
    fn advance(&self, table: &str, rows_done: u64, rows_total: u64) {
        // A panic elsewhere cannot leave the map of bars half-written.
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = bars.entry(table.to_owned()).or_insert_with(|| {
            let bar = ProgressBar::new(rows_total).with_style(style());
            self.all
                .add(bar.with_message(format!("{} {table}", self.verb)))
        });
        bar.set_length(rows_total);
        bar.set_position(rows_done);
    }
}
