//! A case: its data, its statements, and the answer that each of them has to give.

use std::path::Path;

/// A fault that was seen once, here or in another engine, and what is right instead.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its number in the lists that the cases come from, or a name of its own.
    pub name: &'static str,
    pub inputs: &'static [Input],
    pub steps: &'static [Step],
    /// It is about joins: they are done in every way.
    pub joins: bool,
    /// Its statements read tables of a few rows, which are to be distributed all the same.
    pub spread: bool,
}

/// A case whose tables are small, and spread over all workers.
pub const CASE: Case = Case {
    name: "",
    inputs: &[],
    steps: &[],
    joins: false,
    spread: true,
};

/// A case about joins.
pub const JOIN: Case = Case {
    joins: true,
    ..CASE
};

/// A case of the table `t`, in files of several sizes, or of files of its own; with the settings that a session has.
pub const WHOLE: Case = Case {
    spread: false,
    ..CASE
};

/// Data of a case. Paths are relative to the directory of the case's files.
#[derive(Clone, Copy)]
pub enum Input {
    /// A table of a few rows: a directory of CSV or of Parquet files, by turns, each of `per_file` rows.
    Table {
        name: &'static str,
        /// As in CREATE TABLE.
        columns: &'static str,
        /// The rows, as in VALUES.
        rows: &'static str,
        per_file: usize,
        /// CSV cannot hold it.
        parquet_only: bool,
    },
    /// The table `t`, one file of any size: `id` from 0 on, `g` = id % 7, `v` = id * 7919 % 1000, and a text `s`.
    T,
    /// A file with this content.
    Text {
        path: &'static str,
        text: &'static str,
    },
    /// What this makes at the path.
    Made { path: &'static str, make: fn(&Path) },
    /// What a statement of single-process DataFusion writes. Its `{dir}` is the directory of the case's files.
    Written { sql: &'static str },
}

/// Something that is done in a session, in turn. In statements and in what is expected, `{dir}` is the directory
/// of the case's files, `{out}` a new directory for files that statements write, and `{n}` the rows of `t`.
#[derive(Clone, Copy)]
pub enum Step {
    /// A statement that has to succeed.
    Run(&'static str),
    /// A statement that succeeds, or ends the case with an error that has one of these texts in it.
    Try(&'static str, &'static [&'static str]),
    /// A statement with an answer.
    Ask(&'static str, Expected),
    /// A statement with an answer that needs no exchange: it rightly runs in one task.
    AskAlone(&'static str, Expected),
    /// A file, or a directory of them, becomes a table as `--table name=path` has it.
    Register(&'static str, &'static str),
    /// Something is done to the files, of which `{out}` is the directory.
    Do(fn(&Path)),
}

/// The answer that is right.
#[derive(Clone, Copy)]
pub enum Expected {
    /// These rows, in any order.
    Rows(&'static [&'static str]),
    /// These rows, in this order.
    Ordered(&'static [&'static str]),
    /// What single-process DataFusion answers, in any order.
    Reference,
    /// What it answers, in its order.
    ReferenceOrdered,
    /// So many rows.
    Count(usize),
    /// An error that has one of these texts in it.
    Refused(&'static [&'static str]),
    /// These rows, in any order, or such an error.
    Either(&'static [&'static str], &'static [&'static str]),
    /// What single-process DataFusion answers, or such an error.
    ReferenceOr(&'static [&'static str]),
    /// These rows, in any order; or what single-process DataFusion answers, which is wrong, and which
    /// `docs/user/sql.md` says under this number of an issue of DataFusion.
    Documented(&'static str, &'static [&'static str]),
    /// Rows that this finds nothing wrong with.
    Check(fn(&[String]) -> Result<(), String>),
}

/// A table of a file a row.
pub const fn table(name: &'static str, columns: &'static str, rows: &'static str) -> Input {
    files_of(1, name, columns, rows)
}

/// A table of files of so many rows.
pub const fn files_of(
    per_file: usize,
    name: &'static str,
    columns: &'static str,
    rows: &'static str,
) -> Input {
    Input::Table {
        name,
        columns,
        rows,
        per_file,
        parquet_only: false,
    }
}

/// A table of a Parquet file a row.
pub const fn nested(name: &'static str, columns: &'static str, rows: &'static str) -> Input {
    Input::Table {
        name,
        columns,
        rows,
        per_file: 1,
        parquet_only: true,
    }
}

/// The input `t` alone.
pub const T: &[Input] = &[Input::T];

/// Statements over `t`.
pub const fn over_t(name: &'static str, steps: &'static [Step]) -> Case {
    Case {
        name,
        inputs: T,
        steps,
        ..WHOLE
    }
}

/// A statement that has these rows.
pub const fn rows(sql: &'static str, rows: &'static [&'static str]) -> Step {
    Step::Ask(sql, Expected::Rows(rows))
}

/// A statement that has these rows, and rightly runs in one task.
pub const fn alone(sql: &'static str, rows: &'static [&'static str]) -> Step {
    Step::AskAlone(sql, Expected::Rows(rows))
}

/// A statement that has these rows in this order.
pub const fn ordered(sql: &'static str, rows: &'static [&'static str]) -> Step {
    Step::Ask(sql, Expected::Ordered(rows))
}

/// A statement whose rows are those of single-process DataFusion.
pub const fn same(sql: &'static str) -> Step {
    Step::Ask(sql, Expected::Reference)
}

/// A statement whose rows come in the order of single-process DataFusion.
pub const fn in_order(sql: &'static str) -> Step {
    Step::Ask(sql, Expected::ReferenceOrdered)
}

/// A statement that has so many rows.
pub const fn count(sql: &'static str, rows: usize) -> Step {
    Step::Ask(sql, Expected::Count(rows))
}

/// A statement that is refused.
pub const fn refused(sql: &'static str, errors: &'static [&'static str]) -> Step {
    Step::Ask(sql, Expected::Refused(errors))
}

/// A statement that has these rows or is refused.
pub const fn either(
    sql: &'static str,
    rows: &'static [&'static str],
    errors: &'static [&'static str],
) -> Step {
    Step::Ask(sql, Expected::Either(rows, errors))
}

/// A statement that has these rows, or those of DataFusion that are documented as wrong.
pub const fn documented(
    issue: &'static str,
    sql: &'static str,
    rows: &'static [&'static str],
) -> Step {
    Step::Ask(sql, Expected::Documented(issue, rows))
}

/// A statement that has to succeed.
pub const fn run(sql: &'static str) -> Step {
    Step::Run(sql)
}
