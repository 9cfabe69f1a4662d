//! Functions that keep answers right: aggregates that take the places of DataFusion's, as theirs depend on which rows a task has, and what
//! comes to expressions before they are planned.
//!
//! | module | for |
//! |---|---|
//! | `decimal_literals` | decimals that are compared with numbers, which are as they are written |
//! | `exact_sum` | `sum`, which fails where it would wrap around |
//! | `float_order` | `min` and `max` of floating point numbers, among which NaN has a place |
//! | `opaque` | casts and lists, of which DataFusion's rules would make something else |
//!
//! They travel to workers by their names, so every process registers them. This knows nothing of plans or stages.

/// Methods that do what those of the function inside do.
macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty)?) -> $returns:ty;)*) => {
        $(fn $method(&self $(, $argument: $type)?) -> $returns {
            self.0.$method($($argument)?)
        })*
    };
}

mod decimal_literals;
mod exact_sum;
mod float_order;
mod opaque;

use std::any::Any;
use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{AggregateUDF, AggregateUDFImpl, Expr, WindowFunctionDefinition};

use decimal_literals::with_decimals;
use exact_sum::ExactSum;
use float_order::InOrder;
use opaque::{Opaque, made_opaque};

/// Has the plans of a session, and those that it decodes, use these functions.
///
/// # Errors
/// When the session takes no functions.
pub(crate) fn install(state: &mut SessionState) -> Result<()> {
    let ours = Ours {
        sum: Arc::new(ExactSum::default().into()),
        min: Arc::new(InOrder::<Min>::default().into()),
        max: Arc::new(InOrder::<Max>::default().into()),
    };
    for function in [&ours.sum, &ours.min, &ours.max] {
        state.register_udaf(Arc::clone(function))?;
    }
    state.register_udf(Arc::new(Opaque::default().into()))?;
    // Also in plans that were built with DataFusion's own.
    state.register_function_rewrite(Arc::new(ours))
}

/// A part of an expression over rows of this schema as DataFusion's rules keep its value; transformed if it is another.
pub(crate) fn value_kept(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    with_decimals(part, schema).transform_data(|part| Ok(made_opaque(part, schema)))
}

#[derive(Debug)]
struct Ours {
    sum: Arc<AggregateUDF>,
    min: Arc<AggregateUDF>,
    max: Arc<AggregateUDF>,
}

impl Ours {
    /// What takes the place of a function of DataFusion.
    fn instead_of(&self, function: &AggregateUDF) -> Option<Arc<AggregateUDF>> {
        fn is<F: AggregateUDFImpl>(function: &AggregateUDF) -> bool {
            (function.inner().as_ref() as &dyn Any).is::<F>()
        }
        let ours = match () {
            () if is::<Sum>(function) => &self.sum,
            () if is::<Min>(function) => &self.min,
            () if is::<Max>(function) => &self.max,
            () => return None,
        };
        Some(Arc::clone(ours))
    }
}

impl FunctionRewrite for Ours {
    fn name(&self) -> &str {
        "RoundelFunctions"
    }

    fn rewrite(&self, expr: Expr, _: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        Ok(match expr {
            Expr::AggregateFunction(mut of) => match self.instead_of(&of.func) {
                Some(ours) => {
                    of.func = ours;
                    Transformed::yes(Expr::AggregateFunction(of))
                }
                None => Transformed::no(Expr::AggregateFunction(of)),
            },
            Expr::WindowFunction(mut of) => {
                let ours = match &of.fun {
                    WindowFunctionDefinition::AggregateUDF(function) => self.instead_of(function),
                    WindowFunctionDefinition::WindowUDF(_) => None,
                };
                match ours {
                    Some(ours) => {
                        of.fun = WindowFunctionDefinition::AggregateUDF(ours);
                        Transformed::yes(Expr::WindowFunction(of))
                    }
                    None => Transformed::no(Expr::WindowFunction(of)),
                }
            }
            other => Transformed::no(other),
        })
    }
}

/// What tests of functions share.
#[cfg(test)]
mod tests {
    use datafusion::arrow::array::ArrayRef;
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::planner::analyzer_rules;

    /// The rows of a query, their columns between `|`.
    pub(super) async fn rows(sql: &str) -> Result<String, String> {
        let state = SessionStateBuilder::new().with_default_features();
        let state = state.with_analyzer_rules(analyzer_rules()).build();
        let context = SessionContext::new_with_state(state);
        install(&mut context.state_ref().write()).expect("installs");
        let frame = context.sql(sql).await.map_err(|e| e.to_string())?;
        let batches = frame.collect().await.map_err(|e| e.to_string())?;
        let rows = batches.iter().flat_map(|batch| {
            (0..batch.num_rows()).map(|row| {
                let value =
                    |column: &ArrayRef| array_value_to_string(column, row).expect("a value");
                batch
                    .columns()
                    .iter()
                    .map(value)
                    .collect::<Vec<_>>()
                    .join("|")
            })
        });
        Ok(rows.collect::<Vec<_>>().join(" "))
    }
}
