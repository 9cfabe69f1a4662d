//! Which experiments run, and how: what a flag asks of them they obey, or it is refused before anything runs.
//!
//! Whether an experiment obeys a flag its plan says: one that stays the same with another value does not. So nobody keeps a list
//! of who obeys what.

use super::{Case, Experiment, Options, Work, catalogue};
use crate::error::{Error, Result};
use crate::fabric::{FabricChoice, Simulated};
use crate::paper::Paper;
use crate::run::NodeCommand;
use std::collections::BTreeSet;
use strum::Display;

/// A flag that says what clusters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Flag {
    /// How many nodes there are.
    #[strum(to_string = "--nodes")]
    Nodes,
    /// How many threads a node has.
    #[strum(to_string = "--threads")]
    Threads,
    /// On which hosts nodes run.
    #[strum(to_string = "--hosts")]
    Hosts,
}

/// An experiment as it will run.
pub struct Chosen {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Flags that it runs without, and why: it cannot obey them.
    pub without: Vec<(Flag, String)>,
    pub(super) options: Options,
    pub(super) plan: Vec<Case>,
}

/// What experiments of these names run on unless it is said: a device of this host, or the hardware of their paper in
/// simulation where they need that.
pub fn default_fabric(names: &[String]) -> FabricChoice {
    let named = names.iter();
    let named = named.map(|name| catalogue().iter().find(|one| one.name == name));
    let needed: Option<Vec<_>> = named
        .map(|one| one.filter(|one| !one.on_devices).map(|one| one.paper))
        .collect();
    match needed.as_deref() {
        Some([first, rest @ ..]) if rest.iter().all(|other| other == first) => {
            FabricChoice::Simulated(Simulated::new(hardware(*first)))
        }
        _ => FabricChoice::default(),
    }
}

/// The generation of a paper's hardware, as [`Parameters::NAMES`](roundel_verbs::sim::Parameters::NAMES) has it.
fn hardware(paper: Paper) -> &'static str {
    match paper {
        Paper::Shuffle => "edr",
        Paper::Ring => "iwarp10",
        Paper::Protocols => "fdr",
        Paper::Hybrid => "qdr",
    }
}

/// The experiments of these names; all that the fabric can carry when there are no names. Of all, those that cannot obey a
/// flag run without it.
///
/// # Errors
/// An unknown name; and when a named experiment cannot run on the fabric, or cannot obey a flag.
pub fn choose(names: &[String], options: &Options) -> Result<Vec<Chosen>> {
    if names.is_empty() {
        let all = catalogue().iter().filter(|one| runs_on(one, options));
        return Ok(all.map(|one| Chosen::new(one, options)).collect());
    }
    let named = names.iter().map(|name| {
        let chosen = Chosen::new(find(name, options)?, options);
        match chosen.without.first() {
            Some((flag, why)) => Err(Error::Setting(format!("{name} with {flag}: {why}"))),
            None => Ok(chosen),
        }
    });
    named.collect()
}

fn runs_on(experiment: &Experiment, options: &Options) -> bool {
    match options.fabric.is_simulated() {
        true => experiment.simulated,
        false => experiment.on_devices,
    }
}

fn find(name: &str, options: &Options) -> Result<&'static Experiment> {
    let Some(found) = catalogue().iter().find(|one| one.name == name) else {
        let known: Vec<_> = catalogue().iter().map(|one| one.name).collect();
        return Err(Error::Setting(format!(
            "there is no experiment {name}: there are {}",
            known.join(", ")
        )));
    };
    if !runs_on(found, options) {
        return Err(Error::Setting(format!(
            "{name} cannot be run on {}: it needs {}",
            options.fabric,
            match found.simulated {
                true => "simulated hardware, --fabric sim:NAME",
                false => "a device of this host",
            }
        )));
    }
    Ok(found)
}

impl Chosen {
    /// An experiment with those flags that it can obey.
    fn new(experiment: &'static Experiment, asked: &Options) -> Self {
        let mut options = Options {
            nodes: Vec::new(),
            threads: None,
            node: NodeCommand {
                hosts: None,
                ..asked.node.clone()
            },
            ..asked.clone()
        };
        let mut without = Vec::new();
        for flag in Flag::ALL {
            let Some(with) = flag.taken(asked, &options) else {
                continue;
            };
            match flag.refused(experiment, &with) {
                Some(why) => without.push((flag, why)),
                None => options = with,
            }
        }
        let plan = (experiment.plan)(&options);
        Self {
            experiment,
            without,
            options,
            plan,
        }
    }

    /// How many nodes its clusters have, and how many threads their nodes, each number once.
    pub(super) fn clusters(&self) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let clusters = || self.plan.iter().map(|case| case.work.cluster());
        let nodes = clusters().map(|(nodes, _)| nodes);
        (
            nodes.collect(),
            clusters().filter_map(|(_, threads)| threads).collect(),
        )
    }

    /// How many runs it has.
    pub(super) fn runs(&self) -> usize {
        self.options.runs() * self.plan.len()
    }
}

impl Flag {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nodes, Self::Threads, Self::Hosts];

    /// Options to which this flag is added as others have it, if they have it.
    fn taken(self, from: &Options, to: &Options) -> Option<Options> {
        let mut with = to.clone();
        match self {
            Self::Nodes if from.nodes.is_empty() => return None,
            Self::Nodes => with.nodes.clone_from(&from.nodes),
            Self::Threads => with.threads = Some(from.threads?),
            Self::Hosts => {
                with.node.hosts = Some(from.node.hosts.clone()?);
                // All nodes would have to be started by one `mpirun`.
                with.mpi = false;
            }
        }
        Some(with)
    }

    /// Why an experiment cannot obey the flag, if it cannot.
    fn refused(self, experiment: &Experiment, options: &Options) -> Option<String> {
        let plan = |options: &Options| -> Vec<Work> {
            let cases = (experiment.plan)(options).into_iter();
            cases.map(|case| case.work).collect()
        };
        let mut other = options.clone();
        match self {
            Self::Hosts => {
                let elsewhere = plan(options).iter().all(Work::has_processes);
                let why = "its nodes are no processes of their own; leave the flag out";
                return (!elsewhere).then(|| why.into());
            }
            Self::Nodes => other.nodes = options.nodes.iter().map(|nodes| nodes + 1).collect(),
            Self::Threads => other.threads = options.threads.map(|threads| threads + 1),
        }
        let planned = plan(options);
        if planned == plan(&other) {
            return Some("it says itself how many there are; leave the flag out".into());
        }
        if self == Self::Nodes
            && let [_, .., last] = options.nodes[..]
        {
            other.nodes = vec![last];
            if planned == plan(&other) {
                return Some("it takes one number; run it once for each".into());
            }
        }
        let wrong = planned.iter().find_map(|work| work.check().err())?;
        Some(match wrong {
            Error::Setting(why) => why,
            other => other.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;
    use crate::run::Hosts;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    /// Why one experiment is refused.
    fn refusal(name: &str, options: &Options) -> String {
        let refused = choose(&names(&[name]), options).err();
        refused.expect("a refusal").to_string()
    }

    /// Every experiment on every kind of fabric that it can run on, with these flags.
    fn everywhere(nodes: &[usize], threads: Option<usize>) -> Vec<(&'static Experiment, Options)> {
        let all = catalogue().iter().flat_map(|one| {
            ["shm".to_owned(), format!("sim:{}", hardware(one.paper))].map(|fabric| {
                let options = Options {
                    fabric: fabric.parse().unwrap(),
                    nodes: nodes.to_vec(),
                    threads,
                    ..options(true)
                };
                (one, options)
            })
        });
        all.filter(|(one, options)| runs_on(one, options)).collect()
    }

    #[test]
    fn every_experiment_obeys_each_flag_or_is_refused() {
        for (nodes, threads) in [
            (&[4][..], None),
            (&[4, 6], None),
            (&[], Some(3)),
            (&[4], Some(3)),
        ] {
            for (experiment, options) in everywhere(nodes, threads) {
                let name = experiment.name;
                match choose(&names(&[name]), &options) {
                    Ok(chosen) => {
                        let (has_nodes, has_threads) = chosen[0].clusters();
                        let obeys = nodes.iter().all(|nodes| has_nodes.contains(nodes))
                            && threads.is_none_or(|threads| has_threads.contains(&threads));
                        assert!(obeys, "{name} does not have {nodes:?} and {threads:?}");
                    }
                    Err(error) => {
                        let error = error.to_string();
                        let flag = Flag::ALL
                            .iter()
                            .any(|flag| error.contains(&flag.to_string()));
                        assert!(flag && error.contains(name), "{name}: {error}");
                        assert!(!error.contains('\n'), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn those_with_threads_of_their_own_are_refused_others() {
        let asked = Options {
            fabric: "sim:qdr".parse().unwrap(),
            threads: Some(4),
            ..options(true)
        };
        for name in ["ring-tcp", "hybrid-straggler", "protocols-threads"] {
            let refused = refusal(name, &asked);
            assert!(refused.contains("leave the flag out"), "{refused}");
        }
        // The flag says what they have by themselves, and is obeyed all the same.
        for name in ["credit", "message-size", "queue-pairs", "setup"] {
            let own = Options {
                threads: Some(2),
                ..options(true)
            };
            assert!(choose(&names(&[name]), &own).is_ok(), "{name}");
        }
    }

    #[test]
    fn several_numbers_of_nodes_are_for_those_that_add_nodes() {
        let several = Options {
            nodes: vec![2, 4],
            ..options(true)
        };
        assert!(choose(&names(&["designs", "scale-out"]), &several).is_ok());
        for name in ["queue-pairs", "credit", "ring-unit"] {
            let refused = refusal(name, &several);
            assert!(refused.contains("one number"), "{refused}");
        }
    }

    #[test]
    fn what_a_run_would_refuse_is_refused_before() {
        let odd = Options {
            nodes: vec![3],
            ..options(true)
        };
        let refused = refusal("buffers", &odd);
        assert!(
            refused.contains("--nodes") && refused.contains("ping pong"),
            "{refused}"
        );
        let many = Options {
            threads: Some(9),
            ..options(true)
        };
        let refused = refusal("ring-fixed", &many);
        assert!(
            refused.contains("--threads") && refused.contains("cores"),
            "{refused}"
        );
    }

    #[test]
    fn of_all_those_that_cannot_obey_run_without() {
        let asked = Options {
            fabric: "sim:edr".parse().unwrap(),
            nodes: vec![4],
            threads: Some(3),
            ..options(true)
        };
        let all = choose(&[], &asked).unwrap();
        let of = |name: &str| {
            let found = all.iter().find(|one| one.experiment.name == name).unwrap();
            let without: Vec<_> = found.without.iter().map(|(flag, _)| *flag).collect();
            (without, found.options.nodes.clone(), found.options.threads)
        };
        assert_eq!(of("designs"), (vec![], vec![4], Some(3)));
        assert_eq!(of("ring-tcp"), (vec![Flag::Threads], vec![4], None));
        let both = vec![Flag::Nodes, Flag::Threads];
        assert_eq!(of("hybrid-straggler"), (both, vec![], None));
    }

    #[test]
    fn nodes_run_on_other_hosts_where_they_are_processes() {
        let mut asked = options(true);
        asked.node.hosts = Some(Hosts {
            names: names(&["one", "other"]),
            shell: names(&["ssh"]),
            address: [10, 0, 0, 1].into(),
        });
        assert!(choose(&names(&["designs", "ring-unit"]), &asked).is_ok());
        for name in ["tpch", "hybrid-schedule"] {
            let refused = refusal(name, &asked);
            assert!(refused.contains("--hosts"), "{refused}");
        }
        asked.fabric = "sim:edr".parse().unwrap();
        assert!(refusal("designs", &asked).contains("--hosts"));
        let all = choose(&[], &asked).unwrap();
        assert!(all.iter().all(|one| one.options.node.hosts.is_none()));
    }

    #[test]
    fn what_needs_simulated_hardware_is_refused_on_devices() {
        let error = choose(&names(&["ring-tcp"]), &options(true)).err().unwrap();
        assert!(error.to_string().contains("sim:NAME"), "{error}");
        let all = choose(&[], &options(true)).unwrap();
        assert!(all.iter().all(|one| one.experiment.on_devices));
    }

    #[test]
    fn what_needs_simulated_hardware_has_that_of_its_paper() {
        let of = |named: &[&str]| default_fabric(&names(named)).to_string();
        assert_eq!(of(&["protocols-nodes", "protocols-values"]), "sim:fdr");
        assert_eq!(of(&["ring-choice"]), "sim:iwarp10");
        let device = FabricChoice::default().to_string();
        for named in [&["designs"][..], &["ring-choice", "protocols-nodes"], &[]] {
            assert_eq!(of(named), device);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known() {
        let error = choose(&names(&["designs", "pigeons"]), &options(true))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("pigeons") && error.contains("designs"),
            "{error}"
        );
    }
}
