//! A figure as a table for the terminal: x down, series across, medians with units.

use std::iter;

use comfy_table::{CellAlignment, Table, presets};
use unicode_width::UnicodeWidthStr as _;

use super::label::{clean, fit_columns};
use super::quantity::{place, quantity};
use crate::figure::{Figure, Series, X};

/// A series' name has at most so many columns of the terminal.
const LONGEST: usize = 28;
/// Between two columns of the table.
const GAP: u16 = 2;
/// What is written where a series has no point.
const NOTHING: &str = "";

/// `figure` as a table, with its title above it. Series that do not fit into `width` columns of the
/// terminal go on in another table below; each table has at least one.
pub fn to_text(figure: &Figure, width: usize) -> String {
    let xs = places(figure);
    let unit = figure.x.unit;
    let first: Vec<String> = iter::once(fit_columns(&figure.x.label, LONGEST))
        .chain(xs.iter().map(|x| fit_columns(&place(x, unit), LONGEST)))
        .collect();
    let mut text = format!("{}: {}\n", clean(&figure.id), clean(&figure.title));
    text += &format!("{}, medians\n", clean(&figure.y.label));
    let mut columns = vec![first.clone()];
    for series in &figure.series {
        columns.push(cells(figure, series, &xs));
        if columns.len() > 2 && table(&columns).lines().any(|line| line.width() > width) {
            let last = columns.pop().expect("one was put there");
            text += &table(&columns);
            columns = vec![first.clone(), last];
        }
    }
    text + &table(&columns)
}

/// Everything is aligned to the right, as numbers are, but for the names of the first column.
fn table(columns: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for row in 0..columns[0].len() {
        table.add_row(columns.iter().map(|column| &column[row]));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { GAP }, 0));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("\n{}\n", table.trim_fmt())
}

/// All places of the x axis, each once: numbers ascending, names in the order in which they come.
fn places(figure: &Figure) -> Vec<&X> {
    let mut places: Vec<&X> = Vec::new();
    for point in figure.all_points() {
        if !places.iter().any(|place| same(place, &point.x)) {
            places.push(&point.x);
        }
    }
    if let Some(mut numbers) = places.iter().map(number).collect::<Option<Vec<_>>>() {
        numbers.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        places = numbers.into_iter().map(|(_, place)| place).collect();
    }
    places
}

fn number<'a>(place: &&'a X) -> Option<(f64, &'a X)> {
    match place {
        X::Number(number) => Some((*number, place)),
        X::Name(_) => None,
    }
}

/// Whether `a` and `b` are the same place. What is not a number is the same as itself here.
fn same(a: &X, b: &X) -> bool {
    match (a, b) {
        (X::Number(a), X::Number(b)) => a == b || a.is_nan() && b.is_nan(),
        (a, b) => a == b,
    }
}

/// The name of `series`, and what it has at each of `xs`.
fn cells(figure: &Figure, series: &Series, xs: &[&X]) -> Vec<String> {
    let at = |x: &&X| {
        let points = series.points.iter().filter(|point| same(&point.x, x));
        let medians: Vec<_> = points
            .map(|point| quantity(point.median, figure.y.unit))
            .collect();
        if medians.is_empty() {
            NOTHING.to_owned()
        } else {
            medians.join(", ")
        }
    };
    iter::once(fit_columns(&series.name, LONGEST))
        .chain(xs.iter().map(at))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Axis, Point, Scale, Unit};

    fn figure(series: &[(&str, &[(f64, f64)])]) -> Figure {
        let series = series.iter().map(|(name, points)| Series {
            name: (*name).to_owned(),
            points: points
                .iter()
                .map(|(x, y)| Point::of_runs(X::Number(*x), vec![*y]))
                .collect(),
        });
        Figure {
            id: "fig1".to_owned(),
            title: "Throughput by message size".to_owned(),
            paper: String::new(),
            paper_saw: String::new(),
            x: Axis {
                label: "message size".to_owned(),
                unit: Unit::Bytes,
                scale: Scale::Log2,
            },
            y: Axis {
                label: "throughput".to_owned(),
                unit: Unit::BytesPerSecond,
                scale: Scale::Linear,
            },
            series: series.collect(),
            findings: Vec::new(),
        }
    }

    #[test]
    fn columns_are_aligned() {
        let figure = figure(&[
            ("MESQ/SR", &[(65536.0, 2.5e9), (4096.0, 1e8)]),
            ("MPI", &[(4096.0, f64::NAN), (1024.0, 12.0)]),
        ]);
        let text = "\
fig1: Throughput by message size
throughput, medians

message size   MESQ/SR     MPI
1 KiB                   12 B/s
4 KiB         100 MB/s       –
64 KiB        2.5 GB/s
";
        assert_eq!(to_text(&figure, 80), text);
    }

    #[test]
    fn series_that_do_not_fit_go_on_below() {
        let figure = figure(&[("first", &[(1024.0, 1e9)]), ("second", &[(1024.0, 2e9)])]);
        let text = to_text(&figure, 25);
        let tables: Vec<_> = text.split("\n\n").skip(1).collect();
        assert_eq!(
            tables,
            [
                "message size   first\n1 KiB         1 GB/s",
                "message size  second\n1 KiB         2 GB/s\n"
            ]
        );
        assert!(
            text.lines().skip(2).all(|line| line.width() <= 25),
            "{text}"
        );
    }

    #[test]
    fn names_cannot_talk_to_the_terminal() {
        let text = to_text(&figure(&[("\u{1b}[2J\nname", &[(1.0, 1.0)])]), 80);
        assert!(
            !text.contains('\u{1b}') && text.contains("name"),
            "{text:?}"
        );
    }

    #[test]
    fn a_figure_without_series_has_its_head() {
        assert!(to_text(&figure(&[]), 0).contains("message size"));
    }
}
