//! Copying tuples together against sending each from where it lies (section 4.3.1).

use super::judgement::above;
use super::tell::{About, axis, each, throughput};
use super::{Case, Experiment, Options, Results};
use crate::figure::{Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::setting::{Setting, Transport};
use roundel_exchange::Design;

pub const EXPERIMENT: Experiment = Experiment {
    name: "zero-copy",
    title: "Copying tuples together against sending each from where it lies",
    figures: &["section 4.3.1"],
    simulated: true,
    on_devices: true,
    paper: Paper::Shuffle,
    plan,
    tell,
};

const DESIGN: Design = Design::MemqSr;
const SIZES: [usize; 9] = [16, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
const COPY: &str = "copied together";
const ZERO_COPY: &str = "zero copy";
/// Bytes of a thread's part of the relation.
const BYTES: usize = 8 << 20;

fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in options.some(&SIZES) {
        for (name, transport) in [
            (COPY, Transport::Design(DESIGN)),
            (ZERO_COPY, Transport::ZeroCopy(DESIGN)),
        ] {
            let setting = Setting {
                tuple_bytes: size,
                rows: BYTES / size.max(128),
                ..options.base(transport)
            };
            cases.push(Case::new(name, X::Number(size as f64), setting));
        }
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut figure = results.figure(
        About {
            id: "zero-copy",
            title: "Tuples copied together into messages, and tuples as messages",
            place: "section 4.3.1",
            paper_saw: "Sending tuples from where they lie is of little use while they are small, up to 128 bytes, \
                        as tuples are.",
            x: axis("bytes of a tuple", Unit::Bytes, Scale::Log2),
            y: throughput(),
        },
        each,
        |measured| measured.bytes_per_second,
    );
    let small = figure.points(COPY).iter().filter_map(|point| {
        let X::Number(size) = point.x else {
            return None;
        };
        let ratio = point.median / figure.at(ZERO_COPY, &point.x)?;
        Some((size, ratio))
    });
    let ratios: Vec<_> = small.collect();
    let worst = ratios
        .iter()
        .filter(|(size, _)| *size <= 128.0)
        .map(|(_, ratio)| *ratio);
    let even = ratios.iter().find(|(_, ratio)| *ratio <= 1.0);
    let found = worst.min_by(f64::total_cmp).map(|worst| {
        let crossing = match even {
            Some((size, _)) => format!("zero copy is ahead from {size} bytes on"),
            None => "zero copy is never ahead".into(),
        };
        let measured =
            format!("up to 128 bytes copying is at least {worst:.1} times as fast; {crossing}");
        (measured, above(worst, 1.0))
    });
    figure.find_own("-", "Copying is best while tuples are small", found);
    vec![figure]
}
