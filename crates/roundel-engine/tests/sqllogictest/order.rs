//! Whether rows came in the order that a query asks for, of which there may be several.

use arrow::array::RecordBatch;
use arrow::compute::{SortOptions, concat_batches};
use arrow::row::{RowConverter, SortField};
use datafusion::error::Result;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Sort, SortExpr};

/// What is known of the order of a query's rows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The query asks for none.
    Free,
    /// The rows are sorted as it asks.
    Kept,
    /// They are not.
    Broken,
    /// Its rows do not have all that they are sorted by, or it is no query.
    #[default]
    Unknown,
}

/// Looks at the rows that a plan gave.
pub fn of(plan: &LogicalPlan, state: &SessionState, batches: &[RecordBatch]) -> Order {
    let mut node = plan;
    let mut projection: Option<&Projection> = None;
    let sort = loop {
        node = match node {
            LogicalPlan::Limit(limit) => &limit.input,
            LogicalPlan::Projection(above) if projection.is_none() => {
                projection = Some(above);
                &above.input
            }
            LogicalPlan::Sort(sort) => break sort,
            _ => return Order::Free,
        }
    };
    match is_sorted(sort, projection, state, batches) {
        Ok(Some(true)) => Order::Kept,
        Ok(Some(false)) => Order::Broken,
        Ok(None) | Err(_) => Order::Unknown,
    }
}

fn is_sorted(
    sort: &Sort,
    projection: Option<&Projection>,
    state: &SessionState,
    batches: &[RecordBatch],
) -> Result<Option<bool>> {
    let Some(first) = batches.first() else {
        return Ok(Some(true));
    };
    let rows = concat_batches(&first.schema(), batches)?;
    let (mut columns, mut fields) = (Vec::new(), Vec::new());
    for key in &sort.expr {
        let column = match projection {
            None => {
                let value = state.create_physical_expr(key.expr.clone(), sort.input.schema())?;
                value.evaluate(&rows)?.into_array(rows.num_rows())?
            }
            Some(projection) => match position(projection, key) {
                Some(position) => rows.column(position).clone(),
                None => return Ok(None),
            },
        };
        let options = SortOptions::new(!key.asc, key.nulls_first);
        fields.push(SortField::new_with_options(
            column.data_type().clone(),
            options,
        ));
        columns.push(column);
    }
    let keys = RowConverter::new(fields)?.convert_columns(&columns)?;
    Ok(Some(keys.iter().is_sorted()))
}

/// Which of the projected columns a sort's key is.
fn position(projection: &Projection, key: &SortExpr) -> Option<usize> {
    let own = |expr: &Expr| match expr {
        Expr::Alias(Alias { expr, .. }) => **expr == key.expr,
        expr => *expr == key.expr,
    };
    projection.expr.iter().position(own)
}
