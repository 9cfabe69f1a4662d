//! `roundel doctor --calibrate`: what joins cost on this host.

use std::fmt::Write as _;

use roundel_engine::{Calibration, calibrate_host};

use crate::cli::DoctorArgs;
use roundel_terminal::Failure;
use roundel_terminal::{Text, write_json};

/// Measures, keeps and shows.
pub async fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let measured = calibrate_host(&args.fabric).await?;
    Text::new(args.json.is_some()).line(text(&measured).trim_end())?;
    match &args.json {
        Some(path) => write_json(&measured, path),
        None => Ok(()),
    }
}

fn text(measured: &Calibration) -> String {
    let rates = &measured.rates;
    let mut text = format!(
        "Joins on this host, and rings over {}; kept in {}.\n\n",
        measured.fabric,
        measured.file.display()
    );
    for (what, rate, unit) in [
        (
            "hash join: a stationary row into the table",
            rates.build,
            "ns",
        ),
        (
            "hash join: a spinning row into its order",
            rates.cluster,
            "ns",
        ),
        ("hash join: a row looked up", rates.probe, "ns"),
        (
            "sort-merge join: a row sorted, for each doubling",
            rates.sort,
            "ns",
        ),
        ("sort-merge join: a row gone past", rates.pass, "ns"),
        ("a pair tested", rates.test, "ns"),
        ("a row of the result", rates.emit, "ns"),
        ("a byte of an element, made and read", rates.code, "ns"),
        ("a ring opened", rates.open / 1e6, "ms"),
        ("a link", rates.link / 1e9, "GB/s"),
    ] {
        let _ = writeln!(text, "  {what:<50} {rate:>9.2} {unit}");
    }
    text
}
