//! Advice for one conversation.

use roundel_protocols::Protocol;
use roundel_protocols::advise::{Advice, Model, Prediction, Wish, advise};
use roundel_protocols::paradigm::{Paradigm, Setting};

use super::{measure_host, parameters, protocols_of, simulated_protocols};
use crate::cli::AdviseProtocolArgs;
use crate::perf::protocols::here;
use roundel_terminal::Failure;
use roundel_terminal::{Text, write_json};

/// Says what to use.
pub async fn run(args: &AdviseProtocolArgs) -> Result<(), Failure> {
    let setting = setting(args);
    setting.check()?;
    let wish = |protocols: Vec<Protocol>| Wish {
        setting: setting.clone(),
        protocols,
        writes: args.writes,
        may_use_less: !args.fixed,
    };
    let (advice, whose) = if args.model.measure {
        let device = args.model.fabric.open()?;
        let protocols = protocols_of(&args.model, &device);
        let (request, choice) = (setting.request_bytes, &args.model.fabric);
        let measure = async |group: &mut _| measure_host(group, &protocols, request).await;
        let model = here(choice, device, 2, measure).await?;
        let advice = advise(&wish(protocols.clone()), &model)?;
        (advice, format!("{choice} of this host"))
    } else {
        let parameters = parameters(&args.model)?;
        let protocols = simulated_protocols(&args.model, &parameters);
        let advice = advise(&wish(protocols), &Model::new(parameters))?;
        (advice, args.model.nic.clone())
    };
    show(args, &advice, &whose)?;
    match &args.model.json {
        Some(path) => write_json(&advice, path),
        None => Ok(()),
    }
}

fn setting(args: &AdviseProtocolArgs) -> Setting {
    let least = match args.paradigm {
        Paradigm::ManyToMany => 2,
        _ => 1,
    };
    let bytes = |size| usize::try_from(size).unwrap_or(usize::MAX);
    let nodes = args.nodes.unwrap_or(least);
    Setting {
        threads: args.threads,
        pending: args.pending,
        request_bytes: bytes(args.request),
        response_bytes: bytes(args.value),
        ..Setting::new(args.paradigm, Protocol::SendSend, nodes)
    }
}

fn show(args: &AdviseProtocolArgs, advice: &Advice, whose: &str) -> Result<(), Failure> {
    let mut text = Text::new(args.model.json.is_some());
    let Setting {
        paradigm,
        nodes,
        request_bytes,
        response_bytes,
        ..
    } = &advice.setting;
    let kind = if args.writes {
        "that change something"
    } else {
        "of values"
    };
    text.line(&format!(
        "{paradigm} of {nodes} nodes, requests of {request_bytes} bytes {kind}, responses of {response_bytes}; {whose}\n"
    ))?;
    text.line(&format!(
        "use {}, {} threads, {} calls pending on each connection\n",
        advice.setting.protocol, advice.setting.threads, advice.setting.pending
    ))?;
    text.line(&format!(
        "{:<20} {:>3} {:>5} {:>10} {:>8}  {}",
        "protocol", "S", "R", "Mcalls/s", "Gb/s", "what limits it"
    ))?;
    let first = (&advice.setting, &advice.prediction);
    let others = advice
        .others
        .iter()
        .map(|(setting, prediction)| (setting, prediction));
    for (setting, prediction) in [first].into_iter().chain(others) {
        text.line(&row(setting, prediction))?;
    }
    Ok(())
}

fn row(setting: &Setting, prediction: &Prediction) -> String {
    let calls = prediction.calls_per_second;
    format!(
        "{:<20} {:>3} {:>5} {:>10.3} {:>8.2}  {}",
        setting.protocol,
        setting.threads,
        setting.pending,
        calls / 1e6,
        calls * setting.response_bytes as f64 * 8.0 / 1e9,
        prediction.limit
    )
}
