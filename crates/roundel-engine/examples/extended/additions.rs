//! What the application adds: a function of each kind, and a table whose rows an operator of its own makes.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::function::{
    AccumulatorArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    Accumulator, ColumnarValue, Expr, PartitionEvaluator, Signature, TableType, Volatility,
    WindowUDF, WindowUDFImpl, create_udaf, create_udf,
};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion::prelude::SessionContext;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use roundel_engine::Extensions;

/// For the coordinator and for each worker.
pub fn extensions() -> Extensions {
    let triple = |values: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(values)?;
        let tripled: Int64Array = arrays[0]
            .as_primitive::<Int64Type>()
            .unary(|value| 3 * value);
        Ok(ColumnarValue::Array(Arc::new(tripled)))
    };
    let int = DataType::Int64;
    let (args, pure) = (vec![int.clone()], Volatility::Immutable);
    let triple = create_udf("triple", args.clone(), int.clone(), pure, Arc::new(triple));
    let state = Arc::new(vec![int.clone()]);
    let xor = Arc::new(|_: AccumulatorArgs<'_>| Ok(Box::<Xor>::default() as Box<dyn Accumulator>));
    Extensions::default()
        .with_scalar(triple)
        .with_aggregate(create_udaf(
            "xor_all",
            args,
            Arc::new(int),
            pure,
            xor,
            state,
        ))
        .with_window(WindowUDF::from(Place(Signature::nullary(pure))))
        .with_codec(NumbersCodec)
}

/// The numbers from 0 to 999, as the table `numbers`.
pub fn register_numbers(context: &SessionContext) -> Result<()> {
    context
        .register_table("numbers", Arc::new(Numbers))
        .map(drop)
}

/// The exclusive or of all values.
#[derive(Debug, Default)]
struct Xor(i64);

impl Accumulator for Xor {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Int64Type>().iter().flatten();
        self.0 = values.fold(self.0, |all, value| all ^ value);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.0.into())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.0.into()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// The place of a row in its window, counted by tens.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Place(Signature);

impl WindowUDFImpl for Place {
    fn name(&self) -> &str {
        "place"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Places))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<Arc<Field>> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, false)))
    }
}

#[derive(Debug)]
struct Places;

impl PartitionEvaluator for Places {
    fn evaluate_all(&mut self, _: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(Arc::new(Int64Array::from_iter_values(
            (0..rows as i64).map(|row| 10 * row),
        )))
    }
}

#[derive(Debug)]
struct Numbers;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]))
}

#[async_trait]
impl TableProvider for Numbers {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        columns: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let exec: Arc<dyn ExecutionPlan> = Arc::new(NumbersExec::new());
        match columns {
            Some(columns) if columns.is_empty() => {
                let none: [(Arc<dyn PhysicalExpr>, String); 0] = [];
                Ok(Arc::new(ProjectionExec::try_new(none, exec)?))
            }
            _ => Ok(exec),
        }
    }
}

/// Makes the numbers.
#[derive(Debug)]
struct NumbersExec(Arc<PlanProperties>);

impl NumbersExec {
    fn new() -> Self {
        Self(Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )))
    }
}

impl DisplayAs for NumbersExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NumbersExec")
    }
}

impl ExecutionPlan for NumbersExec {
    fn name(&self) -> &str {
        "NumbersExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.0
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let ids = Arc::new(Int64Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_new(schema(), vec![ids])?;
        Ok(Box::pin(MemoryStream::try_new(
            vec![batch],
            schema(),
            None,
        )?))
    }
}

/// Carries the operator to workers: there is nothing in it to be told.
#[derive(Debug)]
struct NumbersCodec;

impl PhysicalExtensionCodec for NumbersCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (bytes, inputs) {
            (b"numbers", []) => Ok(Arc::new(NumbersExec::new())),
            _ => internal_err!("not the operator of numbers"),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        match node.is::<NumbersExec>() {
            true => bytes.extend_from_slice(b"numbers"),
            false => return internal_err!("not the operator of numbers"),
        }
        Ok(())
    }
}
