//! The stages of a plan that was executed, and what was spent at the links between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::NetworkBoundaryExt as _;
use roundel_datafusion::engine::{Ends, LinkSpent, links_spent};
use roundel_datafusion::{Spending, Spent};
use serde_json::{Value, json};

/// A stage, and what was spent at the links from its tasks to those who read them.
pub(super) struct Stage {
    pub(super) number: usize,
    pub(super) links: BTreeMap<Ends, LinkSpent>,
    /// The stages whose rows its tasks read.
    pub(super) inputs: Vec<Stage>,
}

/// What the tasks of a stage on a worker spent that send rows.
pub(super) struct Senders {
    /// Added up.
    pub(super) spent: Spent,
    pub(super) tasks: usize,
}

impl Senders {
    /// Seconds of each, on average.
    pub(super) fn mean(&self) -> f64 {
        self.spent.total().as_secs_f64() / self.tasks.max(1) as f64
    }
}

impl Stage {
    pub(super) fn senders(&self, from: &str) -> Senders {
        let links = || self.links.iter().filter(|(ends, _)| ends.from == from);
        Senders {
            spent: links().map(|(_, link)| link.sender()).sum(),
            tasks: links()
                .map(|(_, link)| link.senders.len())
                .max()
                .unwrap_or_default(),
        }
    }
}

/// The stages whose rows a plan reads, as far as its own nodes go.
pub(super) fn inputs_of(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<Stage>> {
    let mut stages = Vec::new();
    plan.apply(|node| {
        let Some(boundary) = node.as_network_boundary() else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let stage = boundary.input_stage();
        let inputs = stage.local_plan().map(inputs_of).transpose()?;
        let links = node.metrics().map(|measures| links_spent(&measures));
        stages.push(Stage {
            number: stage.num(),
            links: links.unwrap_or_default(),
            inputs: inputs.unwrap_or_default(),
        });
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(stages)
}

/// The links by which `at` reads these stages. One that runs as a part of who reads it has none: then those that it reads.
pub(super) fn read_at<'a>(
    inputs: &'a [Stage],
    at: &str,
) -> Vec<(&'a Stage, &'a Ends, &'a LinkSpent)> {
    let mut read = Vec::new();
    for stage in inputs {
        let before = read.len();
        let links = stage.links.iter().filter(|(ends, _)| ends.at == at);
        read.extend(links.map(|(ends, link)| (stage, ends, link)));
        if read.len() == before {
            read.extend(read_at(&stage.inputs, at));
        }
    }
    read
}

pub(super) fn stages_json(stages: &[Stage]) -> Value {
    let spent = |tasks: &BTreeMap<usize, Spent>| -> Value {
        let parts = |(thread, spent): (&usize, &Spent)| -> Value {
            let parts = Spending::ALL.iter();
            let parts = parts.map(|on| (on.name().to_owned(), json!(spent[*on].as_secs_f64())));
            parts
                .chain([("thread".to_owned(), json!(thread))])
                .collect()
        };
        tasks.iter().map(parts).collect()
    };
    let link = |(ends, link): (&Ends, &LinkSpent)| {
        json!({
            "from": ends.from,
            "at": ends.at,
            "delivering": link.delivering.as_secs_f64(),
            "senders": spent(&link.senders),
            "readers": spent(&link.readers),
        })
    };
    let stage = |stage: &Stage| {
        json!({
            "stage": stage.number,
            "links": stage.links.iter().map(link).collect::<Vec<_>>(),
            "inputs": stages_json(&stage.inputs),
        })
    };
    stages.iter().map(stage).collect()
}
