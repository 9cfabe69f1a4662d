//! TPC-H: the queries, the generated tables, and the same tables in one process.

pub(crate) mod files;
pub(crate) mod generate;
pub(crate) mod memory;
mod outermost;
mod single_process;

use std::path::PathBuf;

pub use single_process::{SingleProcess, Uncut};

/// Number of TPC-H queries; they are numbered from 1.
pub const QUERY_COUNT: usize = 22;

/// Where TPC-H tables come from.
#[derive(Debug, Clone, PartialEq)]
pub enum TpchTables {
    /// Generated into memory.
    Memory {
        /// The scale factor; 1 is about 1 GB.
        scale: f64,
    },
    /// Parquet files of a directory, generated first when it is empty.
    Files {
        /// The directory.
        dir: PathBuf,
        /// The scale factor; 1 is about 1 GB.
        scale: f64,
    },
}

/// How the rows of tables in memory are dealt to the workers. Nation and region are at all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TpchLayout {
    /// At random, in chunks.
    #[default]
    Random,
    /// By the hash of the first column of each table's key: joins of orders with lineitem, or of part with
    /// partsupp, move no rows (Liu, Yin, Blanas 2019, section 7.2: "local data").
    CoPartitioned,
}

/// The text of query `number`, 1 to 22, with the standard's default parameters: one statement.
pub fn query(number: usize) -> Option<&'static str> {
    QUERIES.get(number.checked_sub(1)?).copied()
}

macro_rules! queries {
    ($($number:literal)*) => {
        [$(include_str!(concat!("queries/q", $number, ".sql"))),*]
    };
}

const QUERIES: [&str; QUERY_COUNT] = queries!(
    "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11"
    "12" "13" "14" "15" "16" "17" "18" "19" "20" "21" "22"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_numbered_from_1_to_22() {
        assert!(query(0).is_none() && query(23).is_none());
        assert!((1..=QUERY_COUNT).all(|number| query(number).is_some()));
        assert!(query(6).is_some_and(|sql| sql.contains("l_quantity < 24")));
    }
}
