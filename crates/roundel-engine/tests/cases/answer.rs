//! What a statement answered, and whether that is right.

use std::sync::OnceLock;

use arrow::array::RecordBatch;

use crate::case::Expected;
use crate::common::rows_in_order;

/// Longest error.
const ERROR_CHARACTERS_MAX: usize = 400;

/// The rows of a statement, as text, in its order.
#[derive(Clone, Debug)]
pub struct Answer {
    pub types: Vec<String>,
    pub rows: Vec<String>,
    /// Of millions of rows, which are compared many times.
    sorted: OnceLock<Vec<String>>,
}

impl Answer {
    pub fn of(types: Vec<String>, batches: &[RecordBatch]) -> Self {
        Self::new(types, rows_in_order(batches))
    }

    fn new(types: Vec<String>, rows: Vec<String>) -> Self {
        Self {
            types,
            rows,
            sorted: OnceLock::new(),
        }
    }

    fn sorted(&self) -> &[String] {
        self.sorted.get_or_init(|| {
            let mut rows = self.rows.clone();
            rows.sort_unstable();
            rows
        })
    }

    fn has_rows_of(&self, other: &Self) -> bool {
        self.rows == other.rows || self.sorted() == other.sorted()
    }
}

/// What a statement came to: its answer, or its error.
pub type Outcome = Result<Answer, String>;

/// What is wrong: what was seen, and what was expected.
pub struct Wrong {
    pub seen: String,
    pub expected: String,
}

/// Compares what a statement came to with what it should. `fill` puts in what stands for names and numbers.
pub fn check(
    seen: &Outcome,
    expected: &Expected,
    reference: &Outcome,
    fill: &dyn Fn(&str) -> String,
) -> Result<(), Wrong> {
    let rows = |rows: &[&str]| Answer::new(Vec::new(), rows.iter().map(|row| fill(row)).collect());
    match expected {
        Expected::Rows(right) => same(seen, &rows(right), reference, false),
        Expected::Ordered(right) => same(seen, &rows(right), reference, true),
        Expected::Reference => as_reference(seen, reference, false),
        Expected::ReferenceOrdered => as_reference(seen, reference, true),
        Expected::Refused(errors) => refused(seen, errors, fill),
        Expected::Either(right, errors) => match seen {
            Ok(_) => same(seen, &rows(right), reference, false),
            Err(_) => refused(seen, errors, fill),
        },
        Expected::Documented(issue, right) => {
            let wrong_as_documented = as_reference(seen, reference, false);
            same(seen, &rows(right), reference, false)
                .or(wrong_as_documented)
                .map_err(|wrong| Wrong {
                    expected: format!("{}, or as {issue} has it", wrong.expected),
                    ..wrong
                })
        }
        Expected::ReferenceOr(errors) => match seen {
            Ok(_) => as_reference(seen, reference, false),
            Err(_) => refused(seen, errors, fill),
        },
        Expected::Count(right) => match seen {
            Ok(answer) if answer.rows.len() == *right => Ok(()),
            seen => wrong(seen, format!("{right} rows")),
        },
        Expected::Check(check) => match seen {
            Ok(answer) => check(&answer.rows).or_else(|why| wrong(seen, why)),
            Err(_) => wrong(seen, "rows".to_owned()),
        },
    }
}

fn as_reference(seen: &Outcome, reference: &Outcome, in_order: bool) -> Result<(), Wrong> {
    match reference {
        Ok(right) => same(seen, right, reference, in_order),
        Err(error) => wrong(seen, format!("no reference: {error}")),
    }
}

/// `right` has no types where it was written by hand: those of the reference are right then, if its rows are.
fn same(seen: &Outcome, right: &Answer, reference: &Outcome, in_order: bool) -> Result<(), Wrong> {
    let Ok(answer) = seen else {
        return wrong(seen, print(right));
    };
    let equal = match in_order {
        true => answer.rows == right.rows,
        false => answer.has_rows_of(right),
    };
    if !equal {
        return wrong(seen, print(right));
    }
    match reference {
        Ok(typed) if typed.types != answer.types && typed.has_rows_of(right) => Err(Wrong {
            seen: format!("types {:?}", answer.types),
            expected: format!("{:?}", typed.types),
        }),
        _ => Ok(()),
    }
}

fn refused(seen: &Outcome, errors: &[&str], fill: &dyn Fn(&str) -> String) -> Result<(), Wrong> {
    let expected = || format!("an error with one of {errors:?}");
    let Err(error) = seen else {
        return wrong(seen, expected());
    };
    let lower = error.to_lowercase();
    if !errors
        .iter()
        .any(|part| lower.contains(&fill(part).to_lowercase()))
    {
        return wrong(seen, expected());
    }
    if lower.contains("panic") || lower.contains("internal error") {
        return wrong(seen, "no fault of the program".to_owned());
    }
    if error.lines().count() > 1 || error.chars().count() > ERROR_CHARACTERS_MAX {
        return wrong(
            seen,
            format!("one line of {ERROR_CHARACTERS_MAX} characters"),
        );
    }
    Ok(())
}

fn wrong(seen: &Outcome, expected: String) -> Result<(), Wrong> {
    let seen = match seen {
        Ok(answer) => print(answer),
        Err(error) => format!("error ({} characters): {error}", error.chars().count()),
    };
    Err(Wrong { seen, expected })
}

fn print(answer: &Answer) -> String {
    const SHOWN: usize = 6;
    let rows = answer.sorted();
    let shown: Vec<_> = rows.iter().take(SHOWN).map(String::as_str).collect();
    match rows.len() {
        0..=SHOWN => format!("[{}]", shown.join(", ")),
        more => format!("{more} rows [{}, …]", shown.join(", ")),
    }
}
