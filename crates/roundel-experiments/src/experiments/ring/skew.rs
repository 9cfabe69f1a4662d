//! Skewed keys, on one host and on a ring.

use super::super::judgement::near;
use super::super::tell::{About, axis};
use super::super::{Case, Experiment, Options, Results};
use super::{case, hosts, join, judged};
use crate::figure::{Figure, Scale, Unit, X};
use crate::paper::Paper;
use crate::ring::{Method, RelationRows, RingJoin, RingMeasured, skewed};

pub const EXPERIMENT: Experiment = Experiment {
    name: "ring-skew",
    title: "Joining by skewed keys, on one host and on a ring",
    figures: &["9"],
    simulated: true,
    on_devices: true,
    paper: Paper::Ring,
    plan,
    tell,
};

const ALONE: &str = "one host";
const RING: &str = "a ring";
const EXPONENTS: [f64; 10] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, MOST];
const MOST: f64 = 0.9;
fn plan(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut exponents = options.some(&EXPONENTS);
    if !exponents.contains(&MOST) {
        exponents.push(MOST);
    }
    for exponent in exponents {
        for (name, hosts) in [(ALONE, 1), (RING, hosts(options))] {
            let join = skewed(join(options, Method::Hash, hosts), exponent);
            let join = match options.fabric.is_simulated() {
                true => join,
                // Of so many more there are more pairs than a host can look at.
                false => RingJoin {
                    rows: RelationRows::alike(if options.quick { 50_000 } else { 200_000 }),
                    ..join
                },
            };
            cases.push(case(name, exponent, join));
        }
    }
    cases
}

fn tell(results: &Results) -> Vec<Figure> {
    let mut figure = About {
        id: "ring-fig9",
        title: "Joining by skewed keys",
        place: "Figure 9, section V-D",
        paper_saw: "Uniform keys gain nothing from a ring; from a Zipf factor of 0.6 on skew is felt, and at 0.9 six hosts \
                    are five times as fast as one.",
        x: axis("Zipf factor", Unit::None, Scale::Linear),
        y: axis("time to join", Unit::Seconds, Scale::Log2),
    }
    .figure_of(Paper::Ring);
    for name in [ALONE, RING] {
        results.add_rings(&mut figure, name, name, RingMeasured::after_set_up);
    }
    let most = X::Number(MOST);
    let times = figure.at(ALONE, &most).zip(figure.at(RING, &most));
    let found = times.map(|(alone, ring)| {
        let ratio = alone / ring;
        let told = format!("{ratio:.1} times as fast");
        (told, judged(results, near(ratio, 5.0, 0.25)))
    });
    figure.find("CJ07a", found);
    vec![figure]
}
