//! The pages of `docs/papers` explain the parts that the kept scorecards have as not holding or not judged, each once, and no
//! other.

use roundel_experiments::scorecard::Scorecard;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The names in the second column of a page's table.
fn explained(page: &str) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let columns = rows.filter_map(|row| row.split('|').nth(2));
    let names = columns.flat_map(|names| names.split(','));
    let is_part = |name: &&str| name.ends_with(|last: char| last.is_ascii_alphanumeric());
    let has_number = |name: &&str| name.contains(|letter: char| letter.is_ascii_digit());
    names
        .map(str::trim)
        .filter(is_part)
        .filter(has_number)
        .collect()
}

#[test]
fn each_part_that_does_not_hold_is_explained() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for paper in ["shuffle", "ring", "protocols", "hybrid"] {
        let read = |path: String| fs::read_to_string(docs.join(path)).expect("a file of docs");
        let kept: Scorecard =
            serde_json::from_str(&read(format!("scorecards/{paper}.json"))).expect("a scorecard");
        let parts = kept.claims.iter().filter(|part| part.holds != Some(true));
        let parts: BTreeSet<_> = parts.map(|part| part.id.as_str()).collect();
        let page = read(format!("papers/{paper}.md"));
        let rows = explained(&page);
        let told: BTreeSet<_> = rows.iter().copied().collect();
        assert_eq!(told.len(), rows.len(), "{paper}: a part is told twice");
        assert_eq!(told, parts, "{paper}");
    }
}
