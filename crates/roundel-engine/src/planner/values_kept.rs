//! Has expressions keep their values, before DataFusion's rules make something else of them. Which do is said in
//! [`functions`](crate::functions).

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::optimizer::AnalyzerRule;

use super::grouping_sets::groups_by_sets;
use crate::functions::value_kept;

/// This must come before the other rules of the analyzer.
pub(super) fn values_kept() -> Arc<dyn AnalyzerRule + Send + Sync> {
    Arc::new(ValuesKept)
}

#[derive(Debug)]
struct ValuesKept;

impl AnalyzerRule for ValuesKept {
    fn name(&self) -> &str {
        "values_kept"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            // Keys of grouping sets have no names but their texts, which must stay.
            if groups_by_sets(&node) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_up(|part| value_kept(part, &schema))?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}
