//! Statements that need files which the package does not ship.
//!
//! DataFusion makes a table of a file that is not there, and fails when it is read, or has no rows. A session refuses to make
//! it, and knows no such table later. Nothing can be learnt from these statements; they run where the data is
//! (`ROUNDEL_SLT_DATA`).

use std::collections::BTreeSet;
use std::path::Path;

/// Tables and views that could not be made, as their files are not there.
#[derive(Debug, Default)]
pub struct Lacking {
    tables: BTreeSet<String>,
}

impl Lacking {
    /// Whether a statement failed for want of a file, or of a table that was to be made of one.
    pub fn explains(&mut self, sql: &str, error: &str) -> bool {
        if let Some(path) = absent(error) {
            // The suite writes files of its own: they are not data that lacks.
            if path.contains("/scratch/") || Path::new(path).exists() {
                return false;
            }
            self.tables.extend(created(sql));
            return true;
        }
        let known = unknown(error).is_some_and(|table| self.tables.contains(&table));
        if known {
            self.tables.extend(created(sql));
        }
        known
    }

    /// A statement that passes may make a table of such a name after all.
    pub fn passed(&mut self, sql: &str) {
        if let Some(table) = created(sql) {
            self.tables.remove(&table);
        }
    }
}

/// The path that an error says leads nowhere.
fn absent(error: &str) -> Option<&str> {
    let (path, _) = error.split_once(": there is no such file or directory")?;
    let (_, path) = path.split_once("DataFusion error: ")?;
    Some(path)
}

/// The table that an error does not know.
fn unknown(error: &str) -> Option<String> {
    let before = error.split_once("' not found");
    let (before, _) = before.or_else(|| error.split_once("' doesn't exist"))?;
    let (_, name) = before.rsplit_once('\'')?;
    Some(last_part(name))
}

/// The table or view that a statement makes.
fn created(sql: &str) -> Option<String> {
    let mut words = sql
        .split(|c: char| c.is_whitespace() || c == '(')
        .filter(|word| !word.is_empty());
    if !words.next()?.eq_ignore_ascii_case("create") {
        return None;
    }
    words.find(|word| {
        ["table", "view"]
            .iter()
            .any(|kind| word.eq_ignore_ascii_case(kind))
    })?;
    let optional = ["if", "not", "exists"];
    let is_name = |word: &&str| !optional.iter().any(|o| word.eq_ignore_ascii_case(o));
    words.find(is_name).map(last_part)
}

fn last_part(name: &str) -> String {
    let name = name.rsplit('.').next().unwrap_or(name);
    name.trim_matches('"').to_lowercase()
}
