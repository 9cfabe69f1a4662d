//! Settings that are written as the names that they have on the command line.

use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
use std::fmt::Display;
use std::str::FromStr;

/// Writes a value as its text.
///
/// # Errors
/// Those of the format.
pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Reads a value from its text.
///
/// # Errors
/// When it is no such text.
pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}
