//! Progress bars on standard error; none when it is no terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// The bar of a run of queries, tests or seeds.
pub fn run_bar(runs: u64) -> ProgressBar {
    ProgressBar::new(runs).with_style(style())
}

/// How bars of whole numbers look.
pub fn style() -> ProgressStyle {
    let template = "{msg:28} {bar:30} {human_pos:>11}/{human_len:11} {elapsed}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
