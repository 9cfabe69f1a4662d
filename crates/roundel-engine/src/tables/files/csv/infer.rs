//! Which types the values of a CSV column have in common.
//!
//! A value counts as a type only if Arrow's reader will read it as one.

use std::sync::LazyLock;

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{Parser as _, string_to_datetime};
use arrow::datatypes::{DataType, Date32Type, Float64Type, Int64Type, TimeUnit};

static UTC: LazyLock<Option<Tz>> = LazyLock::new(|| "+00:00".parse().ok());

/// The kinds of values that were seen in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::tables::files) struct Seen(u16);

impl Seen {
    const BOOLEAN: u16 = 1;
    const INTEGER: u16 = 1 << 1;
    /// An integer that a float cannot hold exactly.
    const LONG_INTEGER: u16 = 1 << 2;
    const FLOAT: u16 = 1 << 3;
    const DATE: u16 = 1 << 4;
    const SECOND: u16 = 1 << 5;
    const MILLISECOND: u16 = 1 << 6;
    const MICROSECOND: u16 = 1 << 7;
    const NANOSECOND: u16 = 1 << 8;
    const TEXT: u16 = 1 << 9;

    const TIMES: u16 =
        Self::DATE | Self::SECOND | Self::MILLISECOND | Self::MICROSECOND | Self::NANOSECOND;
    const INTEGERS: u16 = Self::INTEGER | Self::LONG_INTEGER;

    pub(in crate::tables::files) fn add(&mut self, value: &str) {
        self.0 |= kind(value);
    }

    pub(in crate::tables::files) fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The type that all values have; none were seen of a column that is all NULL.
    pub(in crate::tables::files) fn data_type(self) -> Option<DataType> {
        let only = |kinds: u16| self.0 & !kinds == 0;
        let time = |unit| DataType::Timestamp(unit, None);
        Some(match self.0 {
            0 => return None,
            Self::BOOLEAN => DataType::Boolean,
            _ if only(Self::INTEGERS) => DataType::Int64,
            _ if only(Self::INTEGER | Self::FLOAT) => DataType::Float64,
            Self::DATE => DataType::Date32,
            _ if only(Self::TIMES) => match self.0 {
                seen if seen & Self::NANOSECOND != 0 => time(TimeUnit::Nanosecond),
                seen if seen & Self::MICROSECOND != 0 => time(TimeUnit::Microsecond),
                seen if seen & Self::MILLISECOND != 0 => time(TimeUnit::Millisecond),
                _ => time(TimeUnit::Second),
            },
            _ => DataType::Utf8,
        })
    }

    /// Whether the column holds text.
    pub(in crate::tables::files) fn is_text(self) -> bool {
        self.data_type() == Some(DataType::Utf8)
    }
}

/// Whether a value can be read as a type.
pub(super) fn reads_as(value: &str, data_type: &DataType) -> bool {
    let mut seen = Seen::default();
    seen.add(value);
    match (seen.data_type(), data_type) {
        (_, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8) | (None, _) => true,
        (Some(DataType::Int64), wanted) => wanted.is_numeric(),
        (Some(DataType::Float64), wanted) => wanted.is_floating() || wanted.is_decimal(),
        (Some(DataType::Date32), wanted) => wanted.is_temporal(),
        (Some(DataType::Timestamp(_, _)), wanted) => wanted.is_temporal(),
        (Some(seen), wanted) => seen == *wanted,
    }
}

fn kind(value: &str) -> u16 {
    let bytes = value.as_bytes();
    match bytes {
        [] => 0,
        _ if value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false") => {
            Seen::BOOLEAN
        }
        b"NaN" | b"nan" | b"inf" | b"-inf" => Seen::FLOAT,
        [b'0'..=b'9' | b'-' | b'.', ..] => number_or_time(value, bytes),
        _ => Seen::TEXT,
    }
}

fn number_or_time(value: &str, bytes: &[u8]) -> u16 {
    /// The largest integer up to which floats hold all.
    const EXACT_MAX: u64 = 1 << 53;
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        return match Int64Type::parse(value) {
            Some(number) if number.unsigned_abs() > EXACT_MAX => Seen::LONG_INTEGER,
            Some(_) => Seen::INTEGER,
            None => Seen::TEXT,
        };
    }
    if let [_, _, _, _, b'-', _, _, b'-', _, _, rest @ ..] = bytes {
        return match rest {
            [] if Date32Type::parse(value).is_some() => Seen::DATE,
            [b'T' | b' ', _, _, b':', _, _, b':', _, _, fraction @ ..]
                if UTC.is_some_and(|utc| string_to_datetime(&utc, value).is_ok()) =>
            {
                let fraction = fraction.strip_prefix(b".").unwrap_or_default();
                match fraction.iter().take_while(|b| b.is_ascii_digit()).count() {
                    0 => Seen::SECOND,
                    1..=3 => Seen::MILLISECOND,
                    4..=6 => Seen::MICROSECOND,
                    _ => Seen::NANOSECOND,
                }
            }
            _ => Seen::TEXT,
        };
    }
    let is_plain = digits
        .iter()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    match is_plain && Float64Type::parse(value).is_some() {
        true => Seen::FLOAT,
        false => Seen::TEXT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_of(values: &[&str]) -> Option<DataType> {
        let mut seen = Seen::default();
        for value in values {
            seen.add(value);
        }
        seen.data_type()
    }

    #[test]
    fn values_have_types_in_common() {
        let time = |unit| Some(DataType::Timestamp(unit, None));
        assert_eq!(type_of(&["", ""]), None);
        assert_eq!(type_of(&["1", "", "-2"]), Some(DataType::Int64));
        assert_eq!(
            type_of(&["1", "2.5", "1e3", "NaN"]),
            Some(DataType::Float64)
        );
        assert_eq!(type_of(&["true", "FALSE"]), Some(DataType::Boolean));
        assert_eq!(type_of(&["2024-02-29"]), Some(DataType::Date32));
        assert_eq!(
            type_of(&["2024-02-29", "2024-02-29 10:11:12"]),
            time(TimeUnit::Second)
        );
        assert_eq!(
            type_of(&["2024-02-29T10:11:12.123456Z"]),
            time(TimeUnit::Microsecond)
        );
        for text in [
            &["1", "true"][..],
            &["2024-02-30"],
            &["1", "oops"],
            &["1.2.3"],
            &["2024-01-01", "7"],
        ] {
            assert_eq!(type_of(text), Some(DataType::Utf8), "{text:?}");
        }
    }

    #[test]
    fn no_number_is_rounded_for_a_common_type() {
        let long = "9007199254740993";
        assert_eq!(type_of(&[long]), Some(DataType::Int64));
        assert_eq!(type_of(&[long, "0.5"]), Some(DataType::Utf8));
        // One more than 64 bits hold.
        assert_eq!(type_of(&["9223372036854775808"]), Some(DataType::Utf8));
    }
}
