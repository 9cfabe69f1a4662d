//! A report as one HTML file that needs no other. Names come escaped by the templates.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{Sheet, dark_style, draw};
use super::label::clean;
use super::quantity::{place, quantity};
use crate::figure::{Figure, Finding, Unit, Verdict};
use crate::outcome::{Machine, Outcome, Report, Run};

/// How pages look.
const CSS: &str = include_str!("page.css");

/// Nothing is loaded, and no script runs, whatever a name contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// `report` as a page for browsers, with all that it needs in it.
pub fn to_html(report: &Report) -> String {
    let title = format!("Roundel experiments on {}", clean(&report.machine.host));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(CSS)) (PreEscaped(dark_style())) }
            }
            body {
                header {
                    h1 { (title) }
                    (machine(&report.machine))
                    @for run in &report.runs { (self::run(run)) }
                }
                main {
                    (contents(&report.outcomes))
                    (scorecard(report))
                    p.muted.reading {
                        "Lines and bars are medians of several runs; bands and whiskers go from the lowest run to the highest. "
                        "Point at a mark to read its numbers."
                    }
                    @for (index, outcome) in report.outcomes.iter().enumerate() {
                        (experiment(index, outcome))
                    }
                }
            }
        }
    };
    page.into_string()
}

fn machine(machine: &Machine) -> Markup {
    let facts = [
        ("Host", machine.host.clone()),
        ("CPU", machine.cpu.clone()),
        ("Cores", machine.cores.to_string()),
        ("Memory", quantity(machine.memory_bytes as f64, Unit::Bytes)),
        ("Kernel", machine.kernel.clone()),
        ("Fabric", machine.fabric.clone()),
        ("Roundel", machine.roundel.clone()),
        ("Date", machine.date.clone()),
    ];
    html! {
        dl.machine {
            @for (name, fact) in facts {
                div { dt { (name) } dd { (clean(&fact)) } }
            }
        }
    }
}

fn run(run: &Run) -> Markup {
    html! {
        p.muted {
            code { (clean(&run.command)) }
            " by commit " (clean(&run.commit)) ", " (clean(&run.compiler))
        }
    }
}

fn contents(outcomes: &[Outcome]) -> Markup {
    html! {
        nav aria-label="Contents" {
            h2 { "Contents" }
            ol {
                li { a href="#scorecard" { "Scorecard" } }
                @for (index, outcome) in outcomes.iter().enumerate() {
                    li {
                        a href={ "#" (anchor(index)) } { (clean(&outcome.title)) }
                        ul {
                            @for figure in &outcome.figures {
                                li { a href={ "#" (figure.id) } { (clean(&figure.title)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A name for links to the experiment of this index, which no figure's id can be.
fn anchor(index: usize) -> String {
    format!("experiment.{}", index + 1)
}

fn scorecard(report: &Report) -> Markup {
    let findings = || {
        report
            .figures()
            .flat_map(|figure| figure.findings.iter().map(move |finding| (figure, finding)))
    };
    let count = |verdict| {
        findings()
            .filter(|(_, finding)| finding.verdict == verdict)
            .count()
    };
    html! {
        section #scorecard {
            h2 { "Scorecard" }
            p.counts {
                @for verdict in [Verdict::Agrees, Verdict::Differs, Verdict::CannotTell] {
                    span.count { b { (count(verdict)) } " " (badge(verdict)) }
                }
            }
            @if findings().next().is_none() {
                p.muted { "No claims were checked." }
            } @else {
                div.scroll {
                    table.scorecard {
                        thead { tr { th { "Claim" } th { "Statement" } th { "Measured" } th { "Verdict" } th { "Agrees if" } } }
                        tbody {
                            @for (figure, finding) in findings() {
                                tr {
                                    td { a href={ "#" (figure.id) } { (clean(&finding.claim)) } }
                                    td { (clean(&finding.statement)) }
                                    td { (clean(&finding.measured)) }
                                    td { (badge(finding.verdict)) }
                                    td { (clean(&finding.threshold)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn badge(verdict: Verdict) -> Markup {
    let (class, sign) = match verdict {
        Verdict::Agrees => ("agrees", "✓"),
        Verdict::Differs => ("differs", "✗"),
        Verdict::CannotTell => ("cannot-tell", "?"),
    };
    html! { span class={ "badge " (class) } { span aria-hidden="true" { (sign) } " " (verdict) } }
}

fn experiment(index: usize, outcome: &Outcome) -> Markup {
    html! {
        section.experiment #(anchor(index)) {
            h2 { (clean(&outcome.title)) }
            p.muted {
                code { (clean(&outcome.experiment)) } ", ran for " (quantity(outcome.seconds, Unit::Seconds))
                @if !outcome.nodes.is_empty() { "; nodes: " (list(&outcome.nodes)) }
                @if !outcome.threads.is_empty() { "; threads of each: " (list(&outcome.threads)) }
            }
            @if outcome.figures.is_empty() {
                p.muted { "This experiment has no figures." }
            }
            @for figure in &outcome.figures { (self::figure(figure)) }
        }
    }
}

fn list(numbers: &[usize]) -> String {
    let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
    numbers.join(", ")
}

fn figure(figure: &Figure) -> Markup {
    html! {
        article.figure #(figure.id) {
            h3 { a href={ "#" (figure.id) } { (clean(&figure.title)) } }
            div.columns {
                div.drawing role="img" aria-label=(clean(&figure.title)) {
                    div.wide { (PreEscaped(draw(figure, Sheet::Page))) }
                    div.narrow { (PreEscaped(draw(figure, Sheet::NarrowPage))) }
                }
                div.words {
                    h4 { "What the paper saw" }
                    p { (clean(&figure.paper_saw)) }
                    p.muted { (clean(&figure.paper)) }
                    @if !figure.findings.is_empty() {
                        h4 { "What this run says" }
                        @for finding in &figure.findings { (self::finding(finding)) }
                    }
                }
            }
            (numbers(figure))
        }
    }
}

fn finding(finding: &Finding) -> Markup {
    html! {
        div.finding {
            p { (badge(finding.verdict)) " " span.muted { (clean(&finding.claim)) } }
            p { (clean(&finding.statement)) }
            p.measured { (clean(&finding.measured)) }
            @if !finding.threshold.is_empty() { p.muted { "Agrees if: " (clean(&finding.threshold)) } }
        }
    }
}

fn numbers(figure: &Figure) -> Markup {
    let unit = figure.y.unit;
    let head =
        |label: &str, otherwise: &str| clean(if label.is_empty() { otherwise } else { label });
    html! {
        details {
            summary { "Numbers" }
            div.scroll.tall {
                table.numbers {
                    caption { (head(&figure.y.label, "y")) }
                    thead {
                        tr {
                            th { "Series" }
                            th { (head(&figure.x.label, "x")) }
                            th { "median" }
                            th { "lowest" }
                            th { "highest" }
                            th { "runs" }
                        }
                    }
                    @for series in &figure.series {
                        tbody {
                            @for (index, point) in series.points.iter().enumerate() {
                                tr {
                                    @if index == 0 {
                                        th rowspan=(series.points.len()) scope="rowgroup" { (clean(&series.name)) }
                                    }
                                    td { (clean(&place(&point.x, figure.x.unit))) }
                                    td { (quantity(point.median, unit)) }
                                    td { (quantity(point.low, unit)) }
                                    td { (quantity(point.high, unit)) }
                                    td { (point.runs) }
                                }
                            }
                            @if series.points.is_empty() {
                                tr { th scope="rowgroup" { (clean(&series.name)) } td.none colspan="5" { "no values" } }
                            }
                        }
                    }
                }
            }
        }
    }
}
