//! Ways to do a join: a grid of joins, each of which is done in all ways that it has, and the one that the
//! [cost model](roundel_ring::cost) chooses.

use super::super::judgement::{at_least, holds};
use super::super::tell::{About, axis, percent};
use super::super::{Case, Experiment, Got, Options, Results, Work};
use crate::figure::{Axis, Figure, Point, Scale, Unit, X};
use crate::paper::Paper;
use crate::ring::{
    Keys, Method, Program, RelationRows, RingJoin, RingMeasured, Way, by_element, large, rates,
};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use roundel_ring::cost::{Rates, Ways};

pub const EXPERIMENT: Experiment = Experiment {
    name: "ring-choice",
    title: "Joins on a ring and without one, and which of both is chosen",
    figures: &["section VII, outlook"],
    simulated: true,
    on_devices: false,
    paper: Paper::Ring,
    plan,
    tell,
};

const HOSTS: [usize; 4] = [2, 4, 8, 16];
/// A choice holds that takes at most so many times as long as the fastest way; of all joins it is to hold in such a share.
const WITHIN: f64 = 1.15;
const SHARE: f64 = 0.9;
/// What a calibration runs: elements of this size around two hosts.
const LINK: &str = "a ring with nothing to join";
const LINK_HOSTS: usize = 2;
/// Rates that were measured badly are at most so many times as high or as low as they are: those of two calibrations of one
/// host differ by as much.
const OFF: f64 = 1.25;
/// Joins that were chosen wrongly, of which each is told.
const WRONG_TOLD: usize = 12;

/// A kind of predicate, and the sizes of what is joined by it.
struct Kind {
    name: &'static str,
    method: Method,
    predicate: Option<f64>,
    /// Rows of the larger relation, and how many times as many rows it has as the other.
    rows: &'static [u64],
    ratios: &'static [u64],
}

const KINDS: [Kind; 3] = [
    // Each row finds a partner.
    Kind {
        name: "equality",
        method: Method::Hash,
        predicate: None,
        rows: &[1 << 20, 1 << 24, 1 << 27],
        ratios: &[1, 4, 16, 64, 256],
    },
    // Each row finds one that is near enough.
    Kind {
        name: "band",
        method: Method::Merge,
        predicate: Some(1.0),
        rows: &[1 << 14, 1 << 18, 1 << 22],
        ratios: &[1, 32, 1024],
    },
    Kind {
        name: "expression",
        method: Method::NestedLoops,
        predicate: Some(1e-3),
        rows: &[1 << 12, 1 << 20],
        ratios: &[1, 64],
    },
];

/// The ways that a join has.
fn ways(method: Method) -> &'static [Way] {
    match method {
        Method::Hash => &[Way::Cyclo, Way::Repartition, Way::Broadcast],
        Method::Merge | Method::NestedLoops => &[Way::Cyclo, Way::Broadcast],
    }
}

fn plan(options: &Options) -> Vec<Case> {
    let of = |method, hosts| RingJoin {
        program: Program::Roundel,
        threads: options.threads.unwrap_or(rates::CORES),
        keys: Keys::Zipf(0.0),
        ..RingJoin::new(options.fabric.clone(), method, hosts)
    };
    let link = of(Method::Merge, LINK_HOSTS);
    let mut cases = vec![Case {
        series: LINK.into(),
        x: X::Number(LINK_HOSTS as f64),
        work: Work::Ring(Box::new(by_element(link.clone(), link.element_bytes))),
    }];
    for kind in &KINDS {
        for hosts in options.nodes_or(&options.some(&HOSTS)) {
            for rows in options.some(kind.rows) {
                for ratio in options.some(kind.ratios) {
                    let join = RingJoin {
                        rows: RelationRows {
                            spinning: (rows / ratio).max(hosts as u64),
                            stationary: rows,
                        },
                        predicate: kind.predicate,
                        ..of(kind.method, hosts)
                    };
                    let least = join.element_bytes;
                    let join = large(join);
                    let join = RingJoin {
                        element_bytes: join.element_bytes.max(least),
                        ..join
                    };
                    cases.extend(ways(kind.method).iter().map(|way| Case {
                        series: way.to_string(),
                        x: X::Name(format!(
                            "{} of {} with {rows} rows on {hosts} hosts",
                            kind.name, join.rows.spinning
                        )),
                        work: Work::Ring(Box::new(RingJoin {
                            way: *way,
                            ..join.clone()
                        })),
                    }));
                }
            }
        }
    }
    cases
}

/// A join, what it took in each way, and what was expected.
struct Judged<'a> {
    name: &'a str,
    join: &'a RingJoin,
    times: Vec<(Way, f64)>,
    ways: Ways,
    /// By rates that are off.
    chosen_badly: Way,
}

impl Judged<'_> {
    fn seconds(&self, way: Way) -> f64 {
        let found = self.times.iter().find(|(one, _)| *one == way);
        found.map_or(f64::INFINITY, |(_, seconds)| *seconds)
    }

    fn fastest(&self) -> (Way, f64) {
        let fastest = self
            .times
            .iter()
            .min_by(|one, other| one.1.total_cmp(&other.1));
        fastest.copied().unwrap_or((Way::Cyclo, f64::INFINITY))
    }

    /// What a way takes, of what the fastest does.
    fn ratio(&self, way: Way) -> f64 {
        self.seconds(way) / self.fastest().1
    }

    fn holds(&self) -> bool {
        self.ratio(self.ways.choice()) <= WITHIN
    }

    /// The fastest of those that need no ring.
    fn without_ring(&self) -> f64 {
        f64::min(self.ratio(Way::Repartition), self.ratio(Way::Broadcast))
    }

    /// What a way took of what was estimated.
    fn of_estimate(&self, way: Way) -> Option<f64> {
        let estimate = match way {
            Way::Cyclo => Some(self.ways.cyclo),
            Way::Repartition => self.ways.repartition,
            Way::Broadcast => Some(self.ways.broadcast),
        };
        Some(self.seconds(way) / estimate?.total().as_secs_f64())
    }
}

/// What calibrated hosts know of themselves.
fn calibrated(results: &Results) -> Option<Rates> {
    let parameters = results.options.fabric.parameters()?;
    let link = results.cases.iter().find(|(case, _)| case.series == LINK);
    let link = ring(&link?.1)?.link_rate();
    Some(Rates {
        link,
        ..rates::of_roundel(&parameters)
    })
}

fn ring(runs: &[Got]) -> Option<&RingMeasured> {
    runs.iter().find_map(Got::try_as_ring_ref)
}

/// Rates each of which is off by chance.
fn off(rates: &Rates, random: &mut ChaCha8Rng) -> Rates {
    let mut off = |rate: f64| rate * OFF.powf(random.random_range(-1.0..=1.0));
    Rates {
        open: off(rates.open),
        build: off(rates.build),
        cluster: off(rates.cluster),
        probe: off(rates.probe),
        sort: off(rates.sort),
        pass: off(rates.pass),
        test: off(rates.test),
        emit: off(rates.emit),
        code: off(rates.code),
        link: off(rates.link),
    }
}

fn judged<'a>(results: &'a Results, rates: &Rates) -> Vec<Judged<'a>> {
    let mut all: Vec<Judged> = Vec::new();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for (case, runs) in &results.cases {
        let (X::Name(name), Work::Ring(join), Some(measured)) = (&case.x, &case.work, ring(runs))
        else {
            continue;
        };
        let time = (join.way, measured.total());
        match all.iter_mut().find(|one| one.name == name) {
            Some(one) => one.times.push(time),
            None => {
                let ways = |rates: &Rates| Ways::of(rates, &join.shape(), join.method);
                all.push(Judged {
                    name,
                    join,
                    times: vec![time],
                    ways: ways(rates),
                    chosen_badly: ways(&off(rates, &mut random)).choice(),
                });
            }
        }
    }
    all
}

fn tell(results: &Results) -> Vec<Figure> {
    let Some(rates) = calibrated(results) else {
        return Vec::new();
    };
    let all = judged(results, &rates);
    vec![by_join(&all), by_kind(&all), estimates(&all)]
}

fn figure(id: &str, title: &str, x: Axis, y: Axis) -> Figure {
    About {
        id,
        title,
        place: "section VII, outlook",
        paper_saw: "A cost model is still to be made.",
        x,
        y,
    }
    .figure_of(Paper::Ring)
}

/// Adds values in their order.
fn add_sorted(figure: &mut Figure, name: &str, values: impl Iterator<Item = f64>) {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    for (at, value) in values.into_iter().enumerate() {
        figure.add(
            name,
            Point::of_runs(X::Number(at as f64 + 1.0), vec![value]),
        );
    }
}

fn by_join(all: &[Judged]) -> Figure {
    let mut figure = figure(
        "ring-choice",
        "Time of a join in a way, of what its fastest way takes",
        axis(
            "joins, each line in its own order",
            Unit::None,
            Scale::Linear,
        ),
        axis("time", Unit::None, Scale::Log2),
    );
    let mut add = |name: &str, ratio: fn(&Judged) -> f64| {
        add_sorted(&mut figure, name, all.iter().map(ratio));
    };
    add("as chosen", |one| one.ratio(one.ways.choice()));
    add("by rates up to 25 % off", |one| one.ratio(one.chosen_badly));
    add("always on a ring", |one| one.ratio(Way::Cyclo));
    add("never on a ring", |one| one.without_ring());
    let held = all.iter().filter(|one| one.holds()).count();
    let decided = all
        .iter()
        .filter(|one| one.times.iter().any(|(way, _)| one.ratio(*way) > WITHIN));
    let wrong = all.iter().filter(|one| !one.holds()).map(|one| {
        let (chosen, fastest) = (one.ways.choice(), one.fastest().0);
        let ratio = one.ratio(chosen);
        format!(
            "{}: {chosen} takes {ratio:.2} times as long as {fastest}",
            one.name
        )
    });
    let wrong: Vec<_> = wrong.collect();
    let mut told = format!(
        "in {held} of {} joins, of which {} have a way that takes longer than that",
        all.len(),
        decided.count()
    );
    if !wrong.is_empty() {
        told += "; but ";
        told += &wrong[..wrong.len().min(WRONG_TOLD)].join("; ");
    }
    figure.find_own(
        "ring-choice",
        "The way that is chosen is the fastest or takes at most 1.15 times as long, in 90 % of the joins",
        Some((told, at_least(held as f64 / all.len() as f64, SHARE))),
    );
    figure
}

fn by_kind(all: &[Judged]) -> Figure {
    let mut figure = figure(
        "ring-choice-kinds",
        "Joins whose chosen way is the fastest or takes at most 1.15 times as long",
        axis("predicate", Unit::None, Scale::Names),
        axis("joins", Unit::Share, Scale::Linear),
    );
    let mut hosts: Vec<usize> = all.iter().map(|one| one.join.hosts).collect();
    hosts.dedup();
    hosts.sort_unstable();
    hosts.dedup();
    for hosts in hosts {
        for kind in &KINDS {
            let own = all
                .iter()
                .filter(|one| one.join.hosts == hosts && one.join.method == kind.method);
            let own: Vec<bool> = own.map(Judged::holds).collect();
            let held = own.iter().filter(|holds| **holds).count();
            if !own.is_empty() {
                let share = held as f64 / own.len() as f64;
                let point = Point::of_runs(X::Name(kind.name.into()), vec![share]);
                figure.add(&format!("{hosts} hosts"), point);
            }
        }
    }
    figure
}

fn estimates(all: &[Judged]) -> Figure {
    let mut figure = figure(
        "ring-choice-estimates",
        "Time of a join, of what was estimated",
        axis(
            "joins, each line in its own order",
            Unit::None,
            Scale::Linear,
        ),
        axis("time", Unit::None, Scale::Log2),
    );
    let mut far = Vec::new();
    for way in ways(Method::Hash) {
        let values: Vec<f64> = all.iter().filter_map(|one| one.of_estimate(*way)).collect();
        add_sorted(&mut figure, &way.to_string(), values.iter().copied());
        let near = values
            .iter()
            .filter(|value| (1.0 / WITHIN..=WITHIN).contains(*value));
        let share = near.count() as f64 / values.len().max(1) as f64;
        far.push(format!("{} of {way}", percent(share)));
    }
    figure.find_own(
        "ring-choice",
        "A join takes what was estimated, or at most 1.15 times as long or as short",
        Some((far.join(", "), holds(false, "not judged").if_told(false))),
    );
    figure
}
