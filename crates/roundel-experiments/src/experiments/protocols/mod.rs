//! Message passing protocols between many simulated nodes (Huang, Ghandeharizadeh 2019, section 4): the sweeps of its figures,
//! with the protocols that it leaves for later beside its own.

mod figures;
mod summary;

pub use figures::{NODES, PENDING, THREADS, VALUES};
pub use summary::EXPERIMENT as SUMMARY;

use super::judgement::holds;
use super::tell::{About, axis};
use super::{Case, Experiment, Got, Options, Results, Work};
use crate::conversation::{self, Conversation, Sweep, Varied};
use crate::figure::{Axis, Figure, Finding, Point, Scale, Unit, X};
use crate::paper::Paper;
use crate::scorecard::judge_known;
use roundel_protocols::Protocol;
use roundel_protocols::paradigm::{Measured, Setting};
use roundel_verbs::Capabilities;
use roundel_verbs::sim::Simulation;

/// A figure of the paper.
struct Plot {
    id: &'static str,
    title: &'static str,
    place: &'static str,
    paper_saw: &'static str,
    sweep: &'static Sweep,
    /// Claims that are about it, by the beginnings of their names.
    claims: &'static [&'static str],
}

/// Those of the paper; and, unless it is to be quick, those that it leaves for later. TCP is not simulated.
fn protocols(options: &Options) -> Vec<Protocol> {
    let all = match options.quick {
        true => &Protocol::OF_THE_PAPER[..],
        false => &Protocol::ALL[..],
    };
    let all = all.iter().copied();
    all.filter(|protocol| *protocol != Protocol::Tcp).collect()
}

/// Whether hardware can carry a setting: not all have datagrams, and those are short.
fn carries(hardware: Option<&Capabilities>, setting: &Setting) -> bool {
    hardware.is_none_or(|hardware| {
        let protocol = setting.protocol;
        let fits = protocol.bytes_max(hardware).1 >= setting.response_bytes;
        fits && protocol.check(hardware).is_ok()
    })
}

/// What devices of simulated hardware can do.
fn capabilities(options: &Options) -> Option<Capabilities> {
    let simulation = Simulation::new(options.fabric.hardware()?, 1);
    Some(simulation.add_node(1).device().capabilities().clone())
}

fn places(options: &Options, sweep: &Sweep) -> Vec<usize> {
    match sweep.varied {
        Varied::Nodes => options.nodes_or(&options.some(sweep.xs)),
        _ => options.some(sweep.xs),
    }
}

/// The line of a protocol in a sweep, by its name.
fn series(sweep: &Sweep, protocol: Protocol) -> String {
    let varied = match sweep.varied {
        Varied::Pending => "pending calls",
        Varied::Threads => "threads",
        Varied::Nodes => "nodes",
        Varied::Value => {
            return format!(
                "{}, values with {} pending, {protocol}",
                sweep.paradigm, sweep.pending
            );
        }
    };
    format!("{}, {varied}, {protocol}", sweep.paradigm)
}

/// An experiment on the hardware of the paper, simulated.
const fn simulated(
    name: &'static str,
    title: &'static str,
    figures: &'static [&'static str],
    plan: fn(&Options) -> Vec<Case>,
    tell: fn(&Results) -> Vec<Figure>,
) -> Experiment {
    Experiment {
        name,
        title,
        figures,
        simulated: true,
        on_devices: false,
        paper: Paper::Protocols,
        plan,
        tell,
    }
}

/// The points of sweeps.
fn plan<'a>(options: &Options, sweeps: impl IntoIterator<Item = &'a Sweep>) -> Vec<Case> {
    let hardware = capabilities(options);
    let mut cases = Vec::new();
    let nodes = options.fixed_nodes_or(conversation::NODES);
    for sweep in sweeps {
        for protocol in protocols(options) {
            for x in places(options, sweep) {
                let setting = sweep.setting(protocol, x, nodes);
                if !carries(hardware.as_ref(), &setting) {
                    continue;
                }
                let conversation = Conversation {
                    fabric: options.fabric.clone(),
                    setting,
                };
                cases.push(Case {
                    series: series(sweep, protocol),
                    x: X::Number(x as f64),
                    work: Work::Conversation(Box::new(conversation)),
                });
            }
        }
    }
    cases
}

fn places_axis(varied: Varied) -> Axis {
    match varied {
        Varied::Pending => axis("calls pending on a connection", Unit::None, Scale::Log2),
        Varied::Threads => axis("threads of a node", Unit::None, Scale::Log2),
        Varied::Nodes => axis("nodes", Unit::None, Scale::Linear),
        Varied::Value => axis("value size", Unit::Bytes, Scale::Log2),
    }
}

/// Figures of the paper with what was measured.
fn tell(results: &Results, plots: &[Plot]) -> Vec<Figure> {
    let known = known(results);
    let told = |plot: &Plot| {
        let about = About {
            id: plot.id,
            title: plot.title,
            place: plot.place,
            paper_saw: plot.paper_saw,
            x: places_axis(plot.sweep.varied),
            y: axis("bandwidth (Gb/s)", Unit::None, Scale::Linear),
        };
        let mut figure = about.figure_of(Paper::Protocols);
        for protocol in protocols(results.options) {
            let series = series(plot.sweep, protocol);
            for (x, measured) in measured(results, &series) {
                let point = Point::of_runs(x.clone(), vec![measured.gigabits()]);
                figure.add(protocol.name(), point);
            }
        }
        figure.findings = findings(plot.claims, &known);
        figure
    };
    plots.iter().map(told).collect()
}

/// What was measured of a line.
fn measured<'a>(
    results: &'a Results,
    series: &'a str,
) -> impl Iterator<Item = (&'a X, &'a Measured)> {
    let own = results
        .cases
        .iter()
        .filter(move |(case, _)| case.series == series);
    own.flat_map(|(case, runs)| {
        let measured = runs.iter().filter_map(Got::try_as_conversation_ref);
        measured.map(|measured| (&case.x, &**measured))
    })
}

/// All that was measured, in gigabits per second.
fn known(results: &Results) -> Vec<(Conversation, f64)> {
    let each = results.cases.iter().flat_map(|(case, runs)| {
        let Work::Conversation(conversation) = &case.work else {
            return None;
        };
        let measured = runs.first()?.try_as_conversation_ref()?;
        Some((Conversation::clone(conversation), measured.gigabits()))
    });
    each.collect()
}

/// What was measured says of claims, judged as the scorecard does.
fn findings(claims: &[&str], known: &[(Conversation, f64)]) -> Vec<Finding> {
    judge_known(claims, known)
        .into_iter()
        .map(|judged| {
            let agrees = judged.holds == Some(true);
            let told = holds(agrees, "as the scorecard judges it").if_told(judged.holds.is_some());
            Finding {
                claim: judged.id,
                statement: judged.paper,
                measured: match judged.holds {
                    Some(_) => judged.seen,
                    None => "what it compares was not among what was run".into(),
                },
                verdict: told.verdict,
                threshold: told.threshold,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{FIG_11, VALUE};

    #[test]
    fn datagrams_carry_short_values_where_there_are_any() {
        let carried = |fabric: &str, protocol, value| {
            let hardware = fabric.parse::<crate::FabricChoice>().unwrap().hardware();
            let simulation = Simulation::new(hardware.unwrap(), 1);
            let device = simulation.add_node(1).device();
            let setting = FIG_11[0].setting(protocol, value, 2);
            carries(Some(device.capabilities()), &setting)
        };
        assert!(carried("sim:fdr", Protocol::Herd, VALUE));
        assert!(!carried("sim:fdr", Protocol::Herd, 4096));
        assert!(carried("sim:fdr", Protocol::WriteWrite, 65536));
        assert!(!carried("sim:iwarp10", Protocol::Herd, VALUE));
    }
}
