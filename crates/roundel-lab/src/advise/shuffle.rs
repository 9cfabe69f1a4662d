//! Advice for a shuffle: candidates are run for a moment each, simulated or on this host.

use bytesize::ByteSize;
use roundel_experiments::Error;
use roundel_experiments::advise::{ShuffleAdvice, ShuffleWish, Tried, advise_shuffle};
use roundel_experiments::run;
use roundel_experiments::setting::{Pattern, Setting};

use crate::cli::{AdviseShuffleArgs, PatternArg};
use crate::experiment::node_command;
use crate::progress::experiment_bar;
use roundel_terminal::Failure;
use roundel_terminal::{Text, write_json};
use roundel_verbs::one_line;

/// Says what to use.
pub async fn run(args: &AdviseShuffleArgs) -> Result<(), Failure> {
    let wish = ShuffleWish {
        fabric: args.fabric.clone(),
        nodes: args.nodes,
        threads: args.threads,
        pattern: match args.pattern {
            PatternArg::Repartition => Pattern::Repartition,
            PatternArg::Broadcast => Pattern::Broadcast,
        },
        memory_limit_bytes: args.memory_limit,
        ordered: args.ordered,
    };
    let command = node_command()?;
    let bar = experiment_bar();
    let shown = bar.clone();
    // Processes of this host disturb each other; simulations do not.
    let jobs = match wish.fabric.is_simulated() {
        true => std::thread::available_parallelism().map_or(1, usize::from),
        false => 1,
    };
    let work = tokio::task::spawn_blocking(move || {
        let run = |setting: &Setting| run::run(setting, &command);
        let told = |done: usize, total: usize, next: &str| {
            shown.set_length(total as u64);
            shown.set_position(done as u64);
            shown.set_message(next.to_owned());
        };
        advise_shuffle(&wish, jobs, &run, &told)
    });
    let advice = work.await;
    bar.finish_and_clear();
    let advice = match advice {
        Ok(Ok(advice)) => advice,
        Ok(Err(error @ Error::Setting(_))) => return Err(Failure::Usage(error.to_string())),
        Ok(Err(error)) => return Err(Failure::Run(one_line(&error.to_string()))),
        Err(error) => return Err(Failure::panicked(&*error.into_panic())),
    };
    show(args, &advice)?;
    match &args.json {
        Some(path) => write_json(&advice, path),
        None => Ok(()),
    }
}

fn show(args: &AdviseShuffleArgs, advice: &ShuffleAdvice) -> Result<(), Failure> {
    let mut text = Text::new(args.json.is_some());
    let order = match (advice.wish.ordered, advice.in_sequence) {
        (false, _) => "",
        (true, false) => ", rows in order",
        (true, true) => ", rows put back in order",
    };
    text.line(&format!(
        "{} nodes of {} threads over {}{order}\n",
        advice.wish.nodes, advice.wish.threads, advice.wish.fabric
    ))?;
    text.line(&format!(
        "use {}, that is --buffers fixed:{} for a link\n",
        advice.advised.candidate, advice.link_buffers
    ))?;
    for reason in &advice.reasons {
        text.line(&format!("  {reason}"))?;
    }
    text.line(&format!(
        "\n{:<38} {:>10} {:>12} {:>11}  {}",
        "candidate", "GB/s", "registered", "queue pairs", "what limits it"
    ))?;
    for tried in [&advice.advised].into_iter().chain(&advice.others) {
        text.line(&row(tried))?;
    }
    for left_out in &advice.left_out {
        text.line(&format!(
            "{:<38} left out: {}",
            left_out.design, left_out.reason
        ))?;
    }
    Ok(())
}

fn row(tried: &Tried) -> String {
    format!(
        "{:<38} {:>10.2} {:>12} {:>11}  {}",
        tried.candidate.to_string(),
        tried.bytes_per_second / 1e9,
        ByteSize(tried.registered_bytes).to_string(),
        tried.queue_pairs,
        tried.limit
    )
}
