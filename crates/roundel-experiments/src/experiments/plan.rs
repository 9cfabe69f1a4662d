//! Runs the cases of an experiment: on devices one after the other, simulated conversations and queries several at once.

use super::{Case, Got, Options, Results, TpchQuery, Work};
use crate::conversation;
use crate::error::Result;
use crate::hybrid::{self, Hybrid};
use crate::parallel;
use crate::run::{run as run_setting, run_ring};
use std::sync::mpsc;

/// Runs all cases in turn, again and again, so that what else the machine does meets all alike, and says before each which it
/// is.
pub(super) fn run<'a>(
    plan: Vec<Case>,
    options: &'a Options,
    before: &mut dyn FnMut(&str),
) -> Result<Results<'a>> {
    let mut runs: Vec<Vec<Got>> = plan.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.runs() {
        for (case, got) in runs.iter_mut().zip(once(&plan, options, before)?) {
            case.push(got);
        }
    }
    let cases = plan.into_iter().zip(runs).collect();
    Ok(Results { options, cases })
}

/// Runs each case once.
fn once(plan: &[Case], options: &Options, before: &mut dyn FnMut(&str)) -> Result<Vec<Got>> {
    // What is measured on devices of this host must have them for itself, and other simulations can be as large as its memory.
    let small = |case: &Case| matches!(case.work, Work::Conversation(_) | Work::Mix(_));
    let threads = match plan.iter().all(small) {
        true => options.jobs.max(1),
        false => 1,
    };
    let (say, said) = mpsc::channel();
    let each = move || {
        parallel::try_each(threads, plan, |_, case| {
            // Only a thread that is being unwound does not listen.
            let _ = say.send(case.name());
            case.work.run(options)
        })
    };
    std::thread::scope(|scope| {
        let runs = scope.spawn(each);
        for name in said {
            before(&name);
        }
        let runs = runs.join();
        runs.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Work {
    /// Whether it makes sense.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Setting(setting) => setting.check(),
            Self::Ring(join) => join.check(),
            Self::Conversation(conversation) => conversation.check(),
            Self::Hybrid(hybrid) => hybrid.check(),
            Self::Skewed(join) => join.check(),
            Self::Mix(mix) => mix.check(),
            Self::Tpch(_) | Self::Replay(_) => Ok(()),
        }
    }

    /// Whether each of its nodes is a process.
    pub(super) fn has_processes(&self) -> bool {
        match self {
            Self::Setting(setting) => !setting.fabric.is_simulated(),
            Self::Ring(join) => !join.fabric.is_simulated(),
            _ => false,
        }
    }

    /// How many nodes it has, and threads of each where it says so.
    pub(super) fn cluster(&self) -> (usize, Option<usize>) {
        match self {
            Self::Setting(setting) => (setting.nodes, Some(setting.threads)),
            Self::Replay(replay) => replay.cluster(),
            Self::Ring(join) => (join.hosts, Some(join.threads)),
            Self::Conversation(one) => (one.setting.nodes, Some(one.setting.threads)),
            Self::Hybrid(hybrid) => (hybrid.nodes, Some(hybrid.threads)),
            Self::Skewed(join) => (join.nodes, Some(join.threads)),
            Self::Mix(mix) => (mix.nodes, Some(mix.threads)),
            Self::Tpch(run) => (run.workers, None),
        }
    }

    /// Measures it; in simulation, unless it was measured before.
    fn run(&self, options: &Options) -> Result<Got> {
        let kept = &options.kept;
        Ok(match self {
            Self::Setting(setting) if setting.fabric.is_simulated() => {
                Got::Measured(kept.or_measure(setting, || run_setting(setting, &options.node))?)
            }
            Self::Setting(setting) => Got::Measured(run_setting(setting, &options.node)?),
            Self::Tpch(tpch) => Got::Queries(tpch.run(&options.roundel)?),
            Self::Replay(replay) => Got::Queries(vec![replay.run()?]),
            Self::Mix(mix) => {
                let rate = |one: &Hybrid| {
                    let measured = kept.or_measure(one, || hybrid::run(one))?;
                    Ok(measured.bytes_per_second)
                };
                let took = mix.queries.iter();
                let took =
                    took.map(|query| Ok(TpchQuery::replayed(*query, mix.seconds(*query, rate)?)));
                Got::Queries(took.collect::<Result<_>>()?)
            }
            Self::Ring(join) if join.fabric.is_simulated() => {
                Got::Ring(kept.or_measure(join, || run_ring(join, &options.node))?)
            }
            Self::Ring(join) => Got::Ring(run_ring(join, &options.node)?),
            Self::Hybrid(one) if one.fabric.is_simulated() => {
                Got::Hybrid(kept.or_measure(one, || hybrid::run(one))?)
            }
            Self::Hybrid(one) => Got::Hybrid(hybrid::run(one)?),
            Self::Skewed(join) => Got::Skewed(kept.or_measure(join, || hybrid::run_skewed(join))?),
            Self::Conversation(conversation) => Got::Conversation(Box::new(
                kept.or_measure(conversation, || conversation::simulate(conversation))?,
            )),
        })
    }
}
