//! Advice is held against runs of all candidates, and its reasons against what was measured, or made up.

use super::candidate::Candidate;
use super::*;
use crate::measured::{Endpoints, NodeMeasured};
use crate::run::simulate;
use crate::setting::Transport as Moves;
use parking_lot::Mutex;
use roundel_exchange::Buffers;
use roundel_verbs::sim::Parameters;

/// Of the best candidate, so much is good.
const GOOD: f64 = 0.9;

fn wish(fabric: &str, nodes: usize, threads: usize) -> ShuffleWish {
    ShuffleWish {
        fabric: fabric.parse().unwrap(),
        nodes,
        threads,
        pattern: Pattern::Repartition,
        memory_limit_bytes: None,
        ordered: false,
    }
}

fn simulated(wish: &ShuffleWish) -> ShuffleAdvice {
    advise_shuffle(wish, 2, &simulate, &|_, _, _| {}).unwrap()
}

fn design(setting: &Setting) -> Design {
    match setting.transport {
        Moves::Design(design) => design,
        other => panic!("{other} is no design"),
    }
}

/// What a made up cluster measures of a setting: so many bytes in a second.
fn made_up(setting: &Setting, bytes_per_second: f64) -> Measured {
    let design = design(setting);
    let bytes = setting.message_bytes.unwrap_or(4096);
    let Buffers::Fixed(buffers) = setting.buffers else {
        panic!("buffers are a fixed number");
    };
    let links = setting.nodes * setting.threads;
    let endpoints = Endpoints {
        queue_pairs: design.queue_pairs(setting.nodes, setting.threads) as u64,
        registered_bytes: (2 * links * buffers * bytes) as u64,
        ..Endpoints::default()
    };
    let node = NodeMeasured {
        endpoints,
        ..NodeMeasured::default()
    };
    Measured {
        seconds: setting.seconds,
        bytes_per_second,
        cpu_seconds: 0.0,
        setup_seconds: 0.0,
        teardown_seconds: 0.0,
        nodes: vec![node; setting.nodes],
    }
}

#[test]
fn advice_is_close_to_the_best_of_all_candidates() {
    let broadcast = ShuffleWish {
        pattern: Pattern::Broadcast,
        ..wish("sim:edr", 3, 2)
    };
    let tight = ShuffleWish {
        memory_limit_bytes: Some(400 << 10),
        ..wish("sim:edr", 2, 2)
    };
    let ordered = ShuffleWish {
        ordered: true,
        ..wish("sim:fdr", 3, 2)
    };
    let wishes = [
        wish("sim:edr", 2, 2),
        wish("sim:fdr", 2, 2),
        wish("sim:fdr", 4, 2),
        broadcast,
        tight,
        ordered,
    ];
    for wish in wishes {
        let advice = simulated(&wish);
        let long = 0.0015;
        let mut best = 0.0;
        let mut advised = 0.0;
        for candidate in Design::every().flat_map(Candidate::every) {
            let setting = candidate.setting(&wish, long);
            let measured = simulate(&setting).unwrap();
            let tried = Tried::new(candidate, &setting, &measured, None);
            if candidate == advice.advised.candidate {
                advised = wish.worth(&tried);
            }
            if wish.allows(tried.registered_bytes) {
                best = f64::max(best, wish.worth(&tried));
            }
        }
        assert!(
            advised >= GOOD * best,
            "{advised} of {best}: {:#?}",
            (&wish, &advice.reasons)
        );
    }
}

#[test]
fn what_registers_more_than_the_limit_is_not_advised() {
    let free = wish("sim:edr", 4, 4);
    let without = simulated(&free);
    for limit in [4 << 20, 1 << 20, without.advised.registered_bytes - 1] {
        let wish = ShuffleWish {
            memory_limit_bytes: Some(limit),
            ..free.clone()
        };
        let advice = simulated(&wish);
        let usable = [&advice.advised].into_iter().chain(&advice.others);
        for one in usable {
            assert!(one.registered_bytes <= limit, "{one:?}");
        }
    }
    let nothing = ShuffleWish {
        memory_limit_bytes: Some(1 << 10),
        ..free
    };
    let error = advise_shuffle(&nothing, 2, &simulate, &|_, _, _| {}).unwrap_err();
    assert!(error.to_string().contains("it registers"), "{error}");
}

#[test]
fn order_takes_connections_unless_datagrams_are_far_ahead() {
    let wish = ShuffleWish {
        ordered: true,
        ..wish("sim:edr", 4, 4)
    };
    for (datagrams, in_sequence) in [(1.05, false), (1.3, true)] {
        let run = |setting: &Setting| {
            let times = match is_datagrams(design(setting)) {
                true => datagrams,
                false => 1.0,
            };
            Ok(made_up(setting, times * 5e9))
        };
        let advice = advise_shuffle(&wish, 1, &run, &|_, _, _| {}).unwrap();
        assert_eq!(advice.in_sequence, in_sequence);
        let advised = advice.advised.candidate.design;
        assert_eq!(is_datagrams(advised), in_sequence, "{advised}");
        let told = advice.reasons.join("\n");
        assert!(told.contains("rows have an order"), "{told}");
    }
}

#[test]
fn many_queue_pairs_are_said_to_be_too_many() {
    let wish = wish("sim:fdr", 6, 14);
    let advice = simulated(&wish);
    let held = Parameters::fdr().nic.contexts as u64 / 2;
    assert!(advice.advised.queue_pairs <= held, "{advice:#?}");
    let told = advice.reasons.join("\n");
    let reason = format!("of 84 queue pairs the NIC has the contexts of {held}");
    assert!(told.contains(&reason), "{told}");
}

#[test]
fn a_design_that_cannot_run_is_left_out_with_its_reason() {
    let wish = wish("sim:edr", 2, 2);
    let run = |setting: &Setting| match is_datagrams(design(setting)) {
        true => Err(Error::Setting("no datagrams here".into())),
        false => Ok(made_up(setting, 4e9)),
    };
    let heard = Mutex::new(Vec::new());
    let said = |done, total, what: &str| heard.lock().push((done, total, what.to_owned()));
    let advice = advise_shuffle(&wish, 1, &run, &said).unwrap();
    assert_eq!(advice.left_out.len(), 2);
    assert!(
        advice
            .left_out
            .iter()
            .all(|one| one.reason.contains("no datagrams here"))
    );
    assert_eq!(advice.advised.queue_pairs, 2, "one endpoint is as good");
    let heard = heard.into_inner();
    assert!(heard.iter().all(|(done, total, _)| done < total));
    assert!(heard.windows(2).all(|two| two[0].0 + 1 == two[1].0));
}

#[test]
fn buffers_of_a_link_are_those_of_all_threads_that_share_it() {
    let wish = wish("sim:edr", 2, 4);
    let run = |setting: &Setting| {
        let best = design(setting) == Design::SemqSr;
        Ok(made_up(setting, if best { 6e9 } else { 4e9 }))
    };
    let advice = advise_shuffle(&wish, 2, &run, &|_, _, _| {}).unwrap();
    let Candidate {
        design, buffers, ..
    } = advice.advised.candidate;
    assert_eq!((design, advice.link_buffers), (Design::SemqSr, 4 * buffers));
}

#[test]
fn advice_is_json_that_names_things_as_users_do() {
    let run = |setting: &Setting| Ok(made_up(setting, 5e9));
    let advice = advise_shuffle(&wish("sim:edr", 2, 2), 2, &run, &|_, _, _| {}).unwrap();
    let json = serde_json::to_value(&advice).unwrap();
    let name = json["advised"]["design"].as_str().unwrap();
    assert_eq!(name.parse::<Design>(), Ok(advice.advised.candidate.design));
    assert_eq!(json["wish"]["fabric"], "sim:edr");
    assert_eq!(json["wish"]["pattern"], "repartition");
}
