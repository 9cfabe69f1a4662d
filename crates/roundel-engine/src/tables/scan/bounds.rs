//! What the bounds of a Parquet column say: nothing of the values that are not a number.
//!
//! Writers leave NaN out of the least and greatest value of a row group. DataFusion compares it as above all numbers, or
//! below them if its sign bit is set, which `0.0 / 0.0` does. So a row group from 1 to 3 may have a row of `x > 5`, and one of
//! `x < 0`. Such conditions must leave no row group out; `x = 5` may.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNode as _;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource as _, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr,
    Literal,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};

use super::file_scan;
use crate::rules::{Rule, node_rule};

/// Takes what is known of the bounds of floating point numbers out of scans. This must be the first rule: others answer
/// `max(x)` by it, and readers take a column of one value for a constant.
pub(crate) fn float_bounds() -> Rule {
    node_rule("float_bounds", |node| {
        let scan = file_scan(node).and_then(without_float_bounds);
        Ok(scan.map(|scan| DataSourceExec::from_data_source(scan) as _))
    })
}

/// The scan without such bounds; none if it has none.
fn without_float_bounds(scan: &FileScanConfig) -> Option<FileScanConfig> {
    let schema = scan.file_source().table_schema().table_schema();
    let fields = schema.fields().iter().enumerate();
    let floats = fields.filter(|(_, field)| field.data_type().is_floating());
    let floats: Vec<usize> = floats.map(|(index, _)| index).collect();
    if floats.is_empty() {
        return None;
    }
    let knows = |statistics: &Statistics| {
        let mut columns = floats
            .iter()
            .filter_map(|&at| statistics.column_statistics.get(at));
        columns.any(|c| c.min_value != Precision::Absent || c.max_value != Precision::Absent)
    };
    let files = scan.file_groups.iter().flat_map(FileGroup::iter);
    let mut each = files.filter_map(|file| file.statistics.as_deref());
    if !knows(&scan.statistics()) && !each.any(knows) {
        return None;
    }
    let forget = |statistics: &mut Statistics| {
        for &index in &floats {
            if let Some(column) = statistics.column_statistics.get_mut(index) {
                column.min_value = Precision::Absent;
                column.max_value = Precision::Absent;
            }
        }
    };
    let mut all = scan.statistics();
    forget(&mut all);
    let groups = scan.file_groups.iter().map(|group| {
        let of_group = group.file_statistics(None).cloned();
        let files = group.iter().cloned().map(|mut file| {
            if let Some(statistics) = &mut file.statistics {
                forget(Arc::make_mut(statistics));
            }
            file
        });
        let group = FileGroup::new(files.collect());
        match of_group {
            Some(mut statistics) => {
                forget(&mut statistics);
                group.with_statistics(Arc::new(statistics))
            }
            None => group,
        }
    });
    let builder = FileScanConfigBuilder::from(scan.clone()).with_statistics(all);
    Some(builder.with_file_groups(groups.collect()).build())
}

/// The source, which leaves out row groups by those conditions only that bounds without NaN judge rightly.
pub(super) fn pruned_rightly(source: &ParquetSource) -> Result<ParquetSource> {
    let schema = Arc::clone(source.table_schema().table_schema());
    let Some(predicate) = source.filter() else {
        return Ok(source.clone());
    };
    let (of_floats, mut kept): (Vec<_>, Vec<_>) = split_conjunction(&predicate)
        .into_iter()
        .map(Arc::clone)
        .partition(|condition| is_of_floats(condition, &schema));
    if of_floats.is_empty() {
        return Ok(source.clone());
    }
    let mut options = source.table_parquet_options().clone();
    let filters = options.global.pushdown_filters;
    let before = kept.len();
    for condition in of_floats {
        let stays = match filters {
            // Nobody else filters rows by it, unless it changes while the query runs.
            true => !condition.exists(|part| Ok(part.is::<DynamicFilterPhysicalExpr>()))?,
            false => ignores_nan(&condition, &schema),
        };
        if stays {
            kept.push(condition);
        }
    }
    let mut source = source.clone();
    if filters && kept.len() > before {
        // By the same bounds DataFusion also finds row groups all of whose rows meet a condition, for a LIMIT.
        options.global.pruning = false;
        options.global.enable_page_index = false;
        source = source.with_table_parquet_options(options);
    }
    Ok(source.with_predicate(conjunction(kept)))
}

fn is_of_floats(condition: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    collect_columns(condition).iter().any(|column| {
        let field = schema.field_with_name(column.name());
        field.map_or(true, |field| field.data_type().is_floating())
    })
}

/// Whether bounds that leave out NaN judge a condition rightly: no NaN meets it, of either sign, or it is about NULL.
fn ignores_nan(condition: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    if !is_of_floats(condition, schema) {
        return true;
    }
    if let Some(binary) = condition.downcast_ref::<BinaryExpr>() {
        let (left, right) = (binary.left(), binary.right());
        return match binary.op() {
            Operator::And | Operator::Or => ignores_nan(left, schema) && ignores_nan(right, schema),
            Operator::Eq => {
                is_column(left) && is_number(right) || is_number(left) && is_column(right)
            }
            _ => false,
        };
    }
    if let Some(list) = condition.downcast_ref::<InListExpr>() {
        return !list.negated() && is_column(list.expr()) && list.list().iter().all(is_number);
    }
    let of_null = condition.downcast_ref::<IsNullExpr>().map(IsNullExpr::arg);
    let of_null = of_null.or_else(|| {
        let of_value = condition.downcast_ref::<IsNotNullExpr>();
        of_value.map(IsNotNullExpr::arg)
    });
    of_null.is_some_and(is_column)
}

/// Whether an expression is a column, also in a wider type.
fn is_column(expression: &Arc<dyn PhysicalExpr>) -> bool {
    match expression.downcast_ref::<CastExpr>() {
        Some(cast) => cast.cast_type() == &DataType::Float64 && is_column(cast.expr()),
        None => expression.is::<Column>(),
    }
}

fn is_number(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(literal) = expression.downcast_ref::<Literal>() else {
        return false;
    };
    match literal.value() {
        ScalarValue::Float16(Some(value)) => !value.is_nan(),
        ScalarValue::Float32(Some(value)) => !value.is_nan(),
        ScalarValue::Float64(Some(value)) => !value.is_nan(),
        value => !value.is_null(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::common::DFSchema;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[test]
    fn what_nan_may_meet_leaves_out_no_row_group() {
        let schema = Schema::new(vec![
            Field::new("x", DataType::Float64, true),
            Field::new("f", DataType::Float32, true),
            Field::new("n", DataType::Int64, true),
        ]);
        let of_schema = DFSchema::try_from(schema.clone()).expect("a schema");
        let context = SessionContext::new();
        for (condition, expected) in [
            ("x < 5.0", false),
            ("5.0 >= x", false),
            ("x = 5.0", true),
            ("x IN (1.0, 2.0, 3.0, 4.0, 5.0)", true),
            ("x IS NULL OR x = 3.0 AND n > 7", true),
            ("f = 1.5", true),
            ("n > 5", true),
            ("x > 5.0", false),
            ("5.0 <= x", false),
            ("x <> 5.0", false),
            ("x = 'NaN'::double", false),
            ("x IN (1.0, 2.0, 3.0, 4.0, 'NaN'::double)", false),
            ("x NOT IN (1.0, 2.0, 3.0, 4.0, 5.0)", false),
            ("NOT (x < 5.0)", false),
            ("n < 5 OR f >= 1.5", false),
            ("abs(x) < 5.0", false),
        ] {
            let parsed = context.parse_sql_expr(condition, &of_schema).expect("SQL");
            let physical = context.create_physical_expr(parsed, &of_schema);
            let physical = physical.expect("an expression");
            assert_eq!(ignores_nan(&physical, &schema), expected, "{condition}");
        }
    }
}
