//! The page, read by a parser that browsers' rules are made of.

use html5ever::tendril::TendrilSink as _;
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use roundel_experiments::figure::Finding;
use roundel_experiments::report::to_html;

use super::sample;

/// What a page consists of.
#[derive(Default)]
pub struct Page {
    pub errors: Vec<String>,
    /// The names of elements with their attributes.
    pub elements: Vec<(String, Vec<(String, String)>)>,
    pub text: String,
}

pub fn parse(html: &str) -> Page {
    let dom = parse_document(RcDom::default(), ParseOpts::default()).one(html);
    let mut page = Page::default();
    page.errors
        .extend(dom.errors.borrow().iter().map(ToString::to_string));
    let mut open: Vec<Handle> = vec![dom.document.clone()];
    while let Some(node) = open.pop() {
        match &node.data {
            NodeData::Element { name, attrs, .. } => {
                let attributes = attrs.borrow();
                let attributes = attributes.iter().map(|attribute| {
                    (
                        attribute.name.local.to_string(),
                        attribute.value.to_string(),
                    )
                });
                page.elements
                    .push((name.local.to_string(), attributes.collect()));
            }
            NodeData::Text { contents } => {
                page.text += &contents.borrow();
                page.text.push(' ');
            }
            _ => {}
        }
        open.extend(node.children.borrow().iter().rev().cloned());
    }
    page
}

impl Page {
    pub fn values(&self, attribute: &str) -> Vec<&str> {
        let attributes = self.elements.iter().flat_map(|(_, attributes)| attributes);
        attributes
            .filter(|(name, _)| name == attribute)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    pub fn count(&self, element: &str) -> usize {
        self.elements
            .iter()
            .filter(|(name, _)| name == element)
            .count()
    }
}

/// Whether a page loads nothing and runs nothing.
pub fn assert_harmless(page: &Page) {
    const LOADS: [&str; 8] = [
        "script", "link", "img", "image", "iframe", "object", "embed", "use",
    ];
    for element in LOADS {
        assert_eq!(page.count(element), 0, "{element}");
    }
    for (element, attributes) in &page.elements {
        for (name, value) in attributes {
            assert!(
                !name.starts_with("on") && name != "src" && name != "style",
                "{element} {name}"
            );
            assert!(
                name != "href" || value.starts_with('#'),
                "{element} {name}={value}"
            );
        }
    }
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_else() {
    let html = to_html(&sample::report());
    let page = parse(&html);
    assert_eq!(page.errors, Vec::<String>::new());
    assert_harmless(&page);
    assert!(!html.contains("url(") && !html.contains("@import"));
}

#[test]
fn links_lead_somewhere_and_ids_are_unique() {
    let page = parse(&to_html(&sample::report()));
    let mut ids = page.values("id");
    for link in page.values("href") {
        assert!(ids.contains(&&link[1..]), "{link}");
    }
    for figure in sample::report().figures() {
        assert!(ids.contains(&figure.id.as_str()), "{}", figure.id);
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn the_page_tells_everything() {
    let report = sample::report();
    let page = parse(&to_html(&report));
    let has = |words: &str| assert!(page.text.contains(words), "{words}");
    for fact in [
        "rack7-node3",
        "AMD EPYC 7763",
        "23 GiB",
        "Linux 6.8.0-45-generic",
        "2026-11-22",
        "experiment run designs --threads 14",
        "8f3c2a91d0b7",
        "rustc 1.94.0",
        "nodes: 2, 4, 8; threads of each: 14",
    ] {
        has(fact);
    }
    for outcome in &report.outcomes {
        has(&outcome.title);
        for figure in &outcome.figures {
            has(&figure.title);
            has(&figure.paper);
            has(&figure.paper_saw);
            for finding in &figure.findings {
                // In the scorecard and beside the figure.
                let Finding {
                    claim,
                    statement,
                    measured,
                    threshold,
                    ..
                } = finding;
                for words in [claim, statement, measured, threshold] {
                    assert_eq!(page.text.matches(words.as_str()).count(), 2, "{words}");
                }
            }
        }
    }
}

#[test]
fn the_scorecard_counts_verdicts() {
    let mut report = sample::report();
    let finding = report.outcomes[0].figures[0].findings[0].clone();
    report.outcomes[1].figures[1].findings = vec![finding; 40];
    let page = parse(&to_html(&report));
    let counts = page
        .text
        .split("Scorecard")
        .nth(2)
        .unwrap()
        .split("Claim")
        .next()
        .unwrap();
    let words: Vec<_> = counts.split_whitespace().collect();
    assert_eq!(
        words,
        [
            "41", "✓", "agrees", "1", "✗", "differs", "1", "?", "cannot", "tell"
        ]
    );
}

#[test]
fn the_numbers_of_all_points_are_there() {
    let report = sample::report();
    let page = parse(&to_html(&report));
    let figures = || report.figures();
    let all_series = || figures().flat_map(|figure| &figure.series);
    let points: usize = all_series().map(|series| series.points.len()).sum();
    let empty = all_series()
        .filter(|series| series.points.is_empty())
        .count();
    let findings: usize = figures().map(|figure| figure.findings.len()).sum();
    let heads = 1 + figures().count();
    assert_eq!(page.count("tr"), points + empty + findings + heads);
}
