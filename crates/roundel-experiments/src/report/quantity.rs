//! How values are written: 64 KiB, 2.5 GB/s, 1.5 ms, 1.2 M/s, 35 %.

use crate::figure::{Unit, X};

/// What is written for a value that is not a finite number.
const NOT_A_NUMBER: &str = "–";

/// Digits that count.
const DIGITS: i32 = 3;

/// A unit with its prefix, as in `KiB`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scaled {
    /// How much of the unit it is: 1024.
    pub factor: f64,
    /// How it is written: `KiB`; empty where there is no unit.
    pub symbol: &'static str,
}

/// What values of `unit` may be written in, ascending.
fn choices(unit: Unit) -> &'static [(f64, &'static str)] {
    const KIB: f64 = 1024.0;
    match unit {
        Unit::None => &[(1.0, "")],
        Unit::Bytes => &[
            (1.0, "B"),
            (KIB, "KiB"),
            (KIB * KIB, "MiB"),
            (KIB * KIB * KIB, "GiB"),
            (KIB * KIB * KIB * KIB, "TiB"),
        ],
        Unit::BytesPerSecond => &[
            (1.0, "B/s"),
            (1e3, "kB/s"),
            (1e6, "MB/s"),
            (1e9, "GB/s"),
            (1e12, "TB/s"),
        ],
        Unit::Seconds => &[(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")],
        Unit::PerSecond => &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")],
        Unit::Share => &[(0.01, "%")],
    }
}

impl Scaled {
    /// What `value` of `unit` is best written in. Zero has no best one and is taken for 1.
    pub fn of(value: f64, unit: Unit) -> Self {
        let value = if value == 0.0 { 1.0 } else { value.abs() };
        let choices = choices(unit);
        // 999,950 B/s round to 1 MB/s, not to 1,000 kB/s.
        let fits = |&&(factor, _): &&(f64, &str)| rounded(value / factor) >= 1.0;
        let &(factor, symbol) = choices.iter().rev().find(fits).unwrap_or(&choices[0]);
        Self { factor, symbol }
    }

    /// `value` with three digits, without the symbol.
    pub fn number(self, value: f64) -> String {
        number(value / self.factor)
    }
}

/// `value` with its unit: `2.5 GB/s`. A dash where it is not finite.
pub fn quantity(value: f64, unit: Unit) -> String {
    if !value.is_finite() {
        return NOT_A_NUMBER.to_owned();
    }
    let scaled = Scaled::of(value, unit);
    let number = scaled.number(value);
    if scaled.symbol.is_empty() {
        number
    } else {
        format!("{number} {}", scaled.symbol)
    }
}

/// A place on the x axis with its unit, or its name as it came.
pub(super) fn place(x: &X, unit: Unit) -> String {
    match x {
        X::Number(number) => quantity(*number, unit),
        X::Name(name) => name.clone(),
    }
}

/// `value` rounded to the digits that count.
fn rounded(value: f64) -> f64 {
    // Parsing what was written is the rounding that writing does.
    format!("{value:.*e}", DIGITS as usize - 1)
        .parse()
        .unwrap_or(value)
}

/// `value` with three digits, or all those before the point.
fn number(value: f64) -> String {
    let size = rounded(value).abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{:e}", rounded(value));
    }
    let before_point = if size == 0.0 {
        1
    } else {
        size.log10().floor() as i32 + 1
    };
    let decimals = (DIGITS - before_point).max(0) as usize;
    let text = fixed(value, decimals);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// `value` with so many decimals, and commas between the thousands.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, text) = match text.strip_prefix('-') {
        // What rounds to zero has no sign.
        Some(digits) if digits.contains(|c| matches!(c, '1'..='9')) => ("−", digits),
        Some(digits) => ("", digits),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_prefixes_and_three_digits() {
        let cases = [
            (65_536.0, Unit::Bytes, "64 KiB"),
            (1_040_000.0, Unit::Bytes, "1,016 KiB"),
            (1_048_576.0, Unit::Bytes, "1 MiB"),
            (100.0, Unit::Bytes, "100 B"),
            (2.5e9, Unit::BytesPerSecond, "2.5 GB/s"),
            (999_950.0, Unit::BytesPerSecond, "1 MB/s"),
            (1.5e-3, Unit::Seconds, "1.5 ms"),
            (2.345_6e-6, Unit::Seconds, "2.35 µs"),
            (90.0, Unit::Seconds, "90 s"),
            (1.2e6, Unit::PerSecond, "1.2 M/s"),
            (12.0, Unit::PerSecond, "12 /s"),
            (0.35, Unit::Share, "35 %"),
            (0.0005, Unit::Share, "0.05 %"),
            (1_048_576.0, Unit::None, "1,048,576"),
            (0.001_234, Unit::None, "0.00123"),
            (1.0 / 3.0, Unit::None, "0.333"),
            (-2.0, Unit::None, "−2"),
            (-0.0, Unit::Seconds, "0 s"),
            (0.0, Unit::Share, "0 %"),
            (1e300, Unit::None, "1e300"),
        ];
        for (value, unit, text) in cases {
            assert_eq!(quantity(value, unit), text, "{value} {unit:?}");
        }
    }

    #[test]
    fn what_is_not_finite_is_a_dash() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(quantity(value, Unit::Seconds), "–");
        }
    }

    #[test]
    fn the_smallest_and_the_largest_values_are_written() {
        for value in [f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::MIN] {
            for unit in [Unit::None, Unit::Bytes, Unit::Seconds, Unit::Share] {
                assert!(!quantity(value, unit).is_empty());
            }
        }
    }
}
