//! Which design carries the rows of each stage of a query, chosen by the coordinator when the query has
//! been planned.

use crate::error::{Result, TransportError};
use crate::node::ExchangeNode;
use crate::settings::{QuerySettings, Setting, StageSettings};
use crate::skew::{self, SkewedJoins};
use datafusion::common::stats::Precision;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use datafusion_distributed::{NetworkBoundaryExt as _, Stage};
use roundel_exchange::{
    Architecture, BuffersChoice, Choice, Circumstances, Design, DesignChoice, choose,
};
use std::fmt;
use std::sync::Arc;
use url::Url;

/// One exchange may count on this part (one in so many) of a node's registered memory. Other exchanges, of the same
/// query and of others, need the rest.
const SHARE_OF_MEMORY: usize = 8;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Which connections exchanges use.
    pub architecture: Architecture,
    /// One design for all stages, or what suits each.
    pub design: DesignChoice,
    /// Endpoints at each side of a node, when not those of the design.
    pub endpoints: Option<usize>,
    /// Which registered buffers links keep.
    pub buffers: BuffersChoice,
    /// Threads of each worker.
    pub threads: usize,
}

/// The settings of a query's stages, and why. Shown as EXPLAIN shows them.
pub struct Designs {
    stages: Vec<(usize, Setting, String)>,
    skewed: SkewedJoins,
}

impl Asked {
    /// The settings for a plan whose rows a node's fabric carries.
    ///
    /// # Errors
    /// When what is asked for cannot be had.
    pub fn designs(&self, plan: &Arc<dyn ExecutionPlan>, node: &ExchangeNode) -> Result<Designs> {
        let mut designs = Designs {
            stages: Vec::new(),
            skewed: SkewedJoins::default(),
        };
        self.visit(plan, 1, node, &mut designs)?;
        designs.stages.sort_by_key(|(stage, ..)| *stage);
        Ok(designs)
    }

    /// Chooses for the stages below a node of a stage of so many tasks.
    fn visit(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        tasks: usize,
        node: &ExchangeNode,
        designs: &mut Designs,
    ) -> Result<()> {
        let mut inside = tasks;
        if let Some(boundary) = plan.as_network_boundary() {
            let stage = boundary.input_stage();
            inside = stage.task_count();
            let choice = self.choose(stage, tasks, node);
            let buffers = node
                .buffers(self.buffers, choice.design)
                .map_err(|error| TransportError::NoFabric(error.to_string()))?;
            // A design with one endpoint has no more, whatever the others of the query are to have; a classic
            // exchange has one for each unit.
            let own = match self.architecture {
                Architecture::Classic => self.threads,
                _ => choice.design.endpoints(self.threads),
            };
            let setting = Setting {
                architecture: self.architecture,
                design: choice.design,
                endpoints: self.endpoints.map_or(own, |asked| asked.min(own)),
                buffers,
            };
            designs.stages.push((stage.num(), setting, choice.reason));
        }
        for child in plan.children() {
            self.visit(child, inside, node, designs)?;
        }
        Ok(())
    }

    fn choose(&self, stage: &Stage, consumers: usize, node: &ExchangeNode) -> Choice {
        if let DesignChoice::Of(design) = self.design {
            let reason = "asked for".to_owned();
            return Choice { design, reason };
        }
        let fixed = match self.architecture {
            Architecture::Endpoint => None,
            Architecture::Multiplexer => Some((Design::SemqSr, "what multiplexers do by default")),
            Architecture::Classic => Some((Design::MemqSr, "connections between units")),
        };
        if let Some((design, reason)) = fixed {
            let reason = reason.to_owned();
            return Choice { design, reason };
        }
        let producers = stage.task_count().max(1);
        let plan = stage.local_plan();
        let circumstances = Circumstances {
            ordered: plan.is_some_and(|plan| plan.output_ordering().is_some()),
            nodes: producers.max(consumers),
            threads: self.threads,
            bytes: plan
                .and_then(bytes_of)
                .map(|bytes| bytes.div_ceil(producers.min(consumers) as u64)),
            registered_bytes: node.fabric().arena.quota() / SHARE_OF_MEMORY,
        };
        choose(&circumstances, node.capabilities())
    }
}

/// Bytes of a plan's rows, as far as its statistics tell.
fn bytes_of(plan: &Arc<dyn ExecutionPlan>) -> Option<u64> {
    let all = StatisticsArgs::new().with_partition(None);
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &all).ok()?;
    let known = |value: Precision<usize>| value.get_value().map(|value| *value as u64);
    known(statistics.total_byte_size).or_else(|| {
        let schema = plan.schema();
        let widths = schema.fields().iter();
        // Of strings and the like, a guess.
        let width = widths.map(|field| field.data_type().primitive_width().unwrap_or(16) as u64);
        Some(known(statistics.num_rows)?.saturating_mul(width.sum()))
    })
}

impl Designs {
    /// Adds what is done about heavy keys of the plan's joins. The tasks agree on these keys at one of the `live`
    /// workers.
    pub fn with_skewed_joins(self, plan: &Arc<dyn ExecutionPlan>, live: &[Url]) -> Self {
        Self {
            skewed: skew::find(plan, live),
            ..self
        }
    }

    /// What is told to the workers: an extension of the session that the query's tasks run in.
    pub fn settings(&self) -> QuerySettings {
        let stages = self.stages.iter().map(|(stage, setting, _)| {
            let (setting, role) = (*setting, self.skewed.role_of(*stage).cloned());
            (*stage, StageSettings { setting, role })
        });
        QuerySettings {
            setting: Setting::default(),
            stages: stages.collect(),
        }
    }
}

impl fmt::Display for Designs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (stage, setting, reason)) in self.stages.iter().enumerate() {
            let Setting {
                architecture,
                design,
                endpoints,
                buffers,
            } = setting;
            let line = if number == 0 { "" } else { "\n" };
            match architecture {
                Architecture::Endpoint => write!(
                    f,
                    "{line}stage {stage}: {design}, endpoints {endpoints}, buffers {buffers}: {reason}"
                ),
                Architecture::Multiplexer => {
                    write!(f, "{line}stage {stage}: multiplexer, {design}: {reason}")
                }
                Architecture::Classic => write!(
                    f,
                    "{line}stage {stage}: classic, {design}, units {endpoints}, buffers {buffers}: {reason}"
                ),
            }?;
        }
        write!(f, "{}", self.skewed)
    }
}
