//! Parsing and checking of single values of the command line that this program alone has.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use roundel_engine::tpch::{QUERY_COUNT, TpchLayout};

/// How to ask for tables in memory that are dealt by their keys.
const CO_PARTITIONED: &str = "memory:co-partitioned";

/// Longest run, in seconds: a week.
const SECONDS_MAX: f64 = 604_800.0;

/// Where the TPC-H tables live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tables {
    /// In the workers' memory.
    Memory(TpchLayout),
    /// In Parquet files of a directory.
    Directory(PathBuf),
}

impl FromStr for Tables {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "memory" => Self::Memory(TpchLayout::Random),
            CO_PARTITIONED => Self::Memory(TpchLayout::CoPartitioned),
            directory => Self::Directory(PathBuf::from(directory)),
        })
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(TpchLayout::Random) => f.write_str("memory"),
            Self::Memory(TpchLayout::CoPartitioned) => f.write_str(CO_PARTITIONED),
            Self::Directory(directory) => write!(f, "{}", directory.display()),
        }
    }
}

/// Numbers of TPC-H queries, ascending, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryList(Vec<usize>);

impl QueryList {
    /// The numbers.
    pub fn numbers(&self) -> &[usize] {
        &self.0
    }
}

impl Default for QueryList {
    fn default() -> Self {
        Self((1..=QUERY_COUNT).collect())
    }
}

impl FromStr for QueryList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(number) if (1..=QUERY_COUNT).contains(&number) => Ok(number),
            _ => Err(format!(
                "{text:?} is not a query: they are numbered 1 to {QUERY_COUNT}"
            )),
        };
        let mut numbers = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("the range {part:?} ends before it starts"));
            }
            numbers.extend(first..=last);
        }
        Ok(Self(numbers.into_iter().collect()))
    }
}

impl fmt::Display for QueryList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for number in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *number => *last = *number,
                _ => ranges.push((*number, *number)),
            }
        }
        for (i, (first, last)) in ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// A `--table NAME=PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableArg {
    /// Name in SQL.
    pub name: String,
    /// File or directory.
    pub path: String,
}

impl FromStr for TableArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(Self {
                name: name.to_owned(),
                path: path.to_owned(),
            }),
            _ => Err("a table is given as NAME=PATH".to_owned()),
        }
    }
}

pub(super) fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale.is_finite() => Ok(scale),
        _ => Err("the scale factor is a number above 0".to_owned()),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(seconds),
        _ => Err(format!(
            "it is a number of seconds above 0, and at most {SECONDS_MAX}"
        )),
    }
}

pub(super) fn row_limit(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(usize::MAX),
        _ => text
            .parse()
            .map_err(|_| "it is a number of rows, or `all`".to_owned()),
    }
}

pub(super) fn worker_address(text: &str) -> Result<String, String> {
    match text.trim().rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0) => {
            Ok(text.trim().to_owned())
        }
        _ => Err("a worker is given as HOST:PORT".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_lists_are_parsed_sorted_and_printed() {
        let list: QueryList = "5,1,3-5, 22".parse().unwrap();
        assert_eq!(list.numbers(), [1, 3, 4, 5, 22]);
        assert_eq!(list.to_string(), "1,3-5,22");
        assert_eq!(QueryList::default().to_string(), "1-22");
        for wrong in ["", "0", "23", "1,", "5-3", "a", "1-", "-1", "1-2-3"] {
            assert!(wrong.parse::<QueryList>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn scales_are_above_zero() {
        assert_eq!(scale("0.01"), Ok(0.01));
        for wrong in ["0", "-1", "NaN", "inf", "", "x"] {
            assert!(scale(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_above_zero_and_have_an_end() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "NaN", "inf", "1e9", "", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn workers_and_tables_name_both_parts() {
        assert_eq!(worker_address(" h:1 "), Ok("h:1".to_owned()));
        for wrong in ["h", ":1", "h:", "h:0", "h:99999"] {
            assert!(worker_address(wrong).is_err(), "{wrong}");
        }
        let table: TableArg = "t=a=b.csv".parse().unwrap();
        assert_eq!((table.name.as_str(), table.path.as_str()), ("t", "a=b.csv"));
        for wrong in ["t", "=x", "t="] {
            assert!(wrong.parse::<TableArg>().is_err(), "{wrong}");
        }
    }
}
