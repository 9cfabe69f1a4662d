//! The tables of docs/design/verbs.md that say what the providers can do and how they differ. They are made
//! from what the providers say; each provider fills its own column.

use roundel_conformance::{Finding, Report, Verdict};
use roundel_verbs::Capabilities;
use std::path::PathBuf;

/// When set, the document is written instead of being compared.
pub const UPDATE: &str = "ROUNDEL_UPDATE_DOCS";

/// The columns of the tables.
const PROVIDERS: [&str; 5] = ["`shm`", "`tcp`", "Soft-RoCE", "Soft-iWARP", "`sim`"];

/// What stands where a provider does not differ.
const NO_DIFFERENCE: &str = "–";

/// The directory of the documents.
pub fn directory() -> PathBuf {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design");
    std::fs::canonicalize(here).expect("the repository has documents")
}

/// Compares the provider's column of both tables with what it says of itself and what the suite
/// found.
pub fn check(provider: &str, capabilities: &Capabilities, report: &Report) {
    let path = directory().join("verbs.md");
    let before = std::fs::read_to_string(&path).expect("the document is there");
    let limits = capabilities.rows().into_iter().map(|(name, value)| Row {
        keys: vec![name.to_owned()],
        value,
    });
    let after = with_column(&before, "capabilities", &["Capability"], provider, limits);
    let keys = ["Case", "Real verbs"];
    let rows = differences(report).into_iter();
    let after = with_column(&after, "differences", &keys, provider, rows);
    if before == after {
        return;
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, after).expect("the document can be written");
        return;
    }
    let line = after
        .lines()
        .zip(before.lines())
        .find(|(after, before)| after != before);
    panic!(
        "docs/design/verbs.md is out of date for {provider}: {line:#?}\nupdate it with `{UPDATE}=1 cargo test \
         --release -p roundel-conformance -- --test-threads 1`, look at the difference, \
         and commit it"
    );
}

/// A row for each concern, for what is true of all its cases, and one for each case.
fn differences(report: &Report) -> Vec<Row> {
    let difference = |finding: &Finding| match &finding.verdict {
        Verdict::Differs(how) => how.clone(),
        Verdict::Passed | Verdict::Failed(_) => NO_DIFFERENCE.to_owned(),
    };
    let mut rows = Vec::new();
    for cases in report
        .findings()
        .chunk_by(|a, b| a.concern() == b.concern())
    {
        let first = difference(&cases[0]);
        let alike = cases.iter().all(|finding| difference(finding) == first);
        rows.push(Row {
            keys: vec![cases[0].concern().to_owned(), "all cases".to_owned()],
            value: if alike {
                first
            } else {
                NO_DIFFERENCE.to_owned()
            },
        });
        rows.extend(cases.iter().map(|finding| Row {
            keys: vec![finding.case.to_owned(), finding.verbs.to_owned()],
            value: if alike {
                NO_DIFFERENCE.to_owned()
            } else {
                difference(finding)
            },
        }));
    }
    rows
}

/// A row of a table as one provider has it.
struct Row {
    keys: Vec<String>,
    value: String,
}

/// The document with this provider's column of a table. The other columns stay; rows that say
/// nothing of any provider are left out.
fn with_column(
    document: &str,
    table: &str,
    keys: &[&str],
    provider: &str,
    rows: impl Iterator<Item = Row>,
) -> String {
    let (begin, end) = (
        format!("<!-- {table} -->\n"),
        format!("<!-- /{table} -->\n"),
    );
    let (head, rest) = document
        .split_once(&begin)
        .unwrap_or_else(|| panic!("docs/design/verbs.md has no line {begin:?}"));
    let (old, tail) = rest
        .split_once(&end)
        .unwrap_or_else(|| panic!("docs/design/verbs.md has no line {end:?}"));
    let old: Vec<Vec<&str>> = old.lines().skip(2).map(cells).collect();
    let mut lines = vec![
        line(keys.iter().chain(&PROVIDERS).copied()),
        line((0..keys.len() + PROVIDERS.len()).map(|_| "---")),
    ];
    for row in rows {
        let before = old.iter().find(|cells| cells[0] == row.keys[0]);
        let values = PROVIDERS.iter().enumerate().map(|(index, other)| {
            if *other == provider {
                row.value.as_str()
            } else {
                let at = keys.len() + index;
                before
                    .and_then(|cells| cells.get(at).copied())
                    .unwrap_or(NO_DIFFERENCE)
            }
        });
        let values: Vec<&str> = values.collect();
        if values.iter().any(|value| *value != NO_DIFFERENCE) {
            lines.push(line(row.keys.iter().map(String::as_str).chain(values)));
        }
    }
    format!("{head}{begin}{}{end}{tail}", lines.concat())
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<&str> = cells.collect();
    assert!(
        !cells.iter().any(|cell| cell.contains(['|', '\n'])),
        "a cell that breaks the table: {cells:?}"
    );
    format!("| {} |\n", cells.join(" | "))
}

#[test]
fn a_column_is_replaced_and_the_others_stay() {
    let rows = |values: [&str; 3]| {
        let row = |(key, value): (&str, &str)| Row {
            keys: vec![key.to_owned()],
            value: value.to_owned(),
        };
        ["a", "b", "c"]
            .into_iter()
            .zip(values)
            .map(row)
            .collect::<Vec<_>>()
            .into_iter()
    };
    let empty = "text\n<!-- t -->\n<!-- /t -->\nmore\n";
    let head = "| K | `shm` | `tcp` | Soft-RoCE | Soft-iWARP | `sim` |\n| --- | --- | --- | --- | --- | --- |\n";
    let one = with_column(empty, "t", &["K"], "`shm`", rows(["1", "–", "3"]));
    let table = format!("{head}| a | 1 | – | – | – | – |\n| c | 3 | – | – | – | – |\n");
    assert_eq!(one, format!("text\n<!-- t -->\n{table}<!-- /t -->\nmore\n"));
    let two = with_column(&one, "t", &["K"], "Soft-RoCE", rows(["–", "5", "6"]));
    let table = format!(
        "{head}| a | 1 | – | – | – | – |\n| b | – | – | 5 | – | – |\n| c | 3 | – | 6 | – | – |\n"
    );
    assert_eq!(two, format!("text\n<!-- t -->\n{table}<!-- /t -->\nmore\n"));
    let three = with_column(&two, "t", &["K"], "`shm`", rows(["–", "–", "–"]));
    assert!(
        three.contains("| b | – | – | 5 | – | – |\n| c | – | – | 6 | – | – |\n")
            && !three.contains("| a |")
    );
}
