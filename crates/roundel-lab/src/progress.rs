//! The bar of experiments.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar whose message says what runs and for how long.
pub fn experiment_bar() -> ProgressBar {
    let template = "{bar:20} {human_pos}/{human_len} {elapsed} {wide_msg}";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
