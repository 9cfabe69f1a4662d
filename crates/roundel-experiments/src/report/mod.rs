//! How outcomes are shown: figures as SVG and as text, a report as one HTML file, as JSON and as CSV,
//! and the files of all of them. Knows nothing of how anything was measured.
//!
//! A report may come from a file that somebody else wrote. Names in it are escaped wherever they are
//! written, and values that cannot be drawn are counted below the figure instead.

mod axis;
mod chart;
mod check;
mod csv;
mod files;
mod html;
mod json;
mod label;
mod quantity;
mod text;

pub use chart::to_svg;
pub use check::{CheckError, MAX_FIGURES, MAX_ID_LENGTH, MAX_POINTS, MAX_SERIES};
pub use csv::to_csv;
pub(crate) use files::replace;
pub use files::{WriteError, write};
pub use html::to_html;
pub use json::{JsonError, MAX_JSON_BYTES, from_json, to_json};
pub use quantity::quantity;
pub use text::to_text;
