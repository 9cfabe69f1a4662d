//! What an application adds to DataFusion in every process of its cluster: functions, and codecs of its own operators.
//! Sessions get them here, after those of this crate.
//!
//! Plans name functions, and a codec is found by its place among all. So the coordinator and each worker need the same ones: a
//! worker says what it has, and one that lacks something is not part of the cluster. A function that is registered in a session's
//! context alone runs in the coordinator.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::{FunctionRegistry as _, SessionState, SessionStateBuilder};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::DistributedExt as _;
use datafusion_proto::physical_plan::PhysicalExtensionCodec;

use crate::functions;
use crate::order_only::OrderOnlyCodec;
use crate::ring::CycloJoinCodec;
use crate::tables::codec::MemoryShardCodec;
use crate::tables::scan::ScanCodec;

/// Functions, and codecs of operators, that an application has in its coordinator and in its workers.
///
/// ```
/// # use std::sync::Arc;
/// # use datafusion::arrow::datatypes::DataType;
/// # use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, Volatility, create_udf};
/// # use roundel_engine::Extensions;
/// let same = |values: &[ColumnarValue]| Ok(values[0].clone());
/// let same = create_udf("same", vec![DataType::Int64], DataType::Int64, Volatility::Immutable, Arc::new(same));
/// let extensions = Extensions::default().with_scalar(same);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Extensions {
    scalars: Vec<Arc<ScalarUDF>>,
    aggregates: Vec<Arc<AggregateUDF>>,
    windows: Vec<Arc<WindowUDF>>,
    codecs: Vec<Arc<dyn PhysicalExtensionCodec>>,
}

impl Extensions {
    /// With a function of the values of a row.
    #[must_use]
    pub fn with_scalar(mut self, function: ScalarUDF) -> Self {
        self.scalars.push(Arc::new(function));
        self
    }

    /// With a function of the rows of a group.
    #[must_use]
    pub fn with_aggregate(mut self, function: AggregateUDF) -> Self {
        self.aggregates.push(Arc::new(function));
        self
    }

    /// With a function of the rows of a window.
    #[must_use]
    pub fn with_window(mut self, function: WindowUDF) -> Self {
        self.windows.push(Arc::new(function));
        self
    }

    /// With a codec of operators, which must refuse those that it does not know.
    #[must_use]
    pub fn with_codec(mut self, codec: impl PhysicalExtensionCodec + 'static) -> Self {
        self.codecs.push(Arc::new(codec));
        self
    }

    /// The names of all functions and codecs.
    pub(crate) fn names(&self) -> Vec<String> {
        let scalars = self
            .scalars
            .iter()
            .map(|f| format!("function {}", f.name()));
        let aggregates = self
            .aggregates
            .iter()
            .map(|f| format!("aggregate function {}", f.name()));
        let windows = self
            .windows
            .iter()
            .map(|f| format!("window function {}", f.name()));
        let codecs = (1..=self.codecs.len()).map(|place| format!("codec {place}"));
        scalars
            .chain(aggregates)
            .chain(windows)
            .chain(codecs)
            .collect()
    }

    /// Has a session know the codecs of this crate, and then these.
    pub(crate) fn add_all_codecs(&self, builder: &mut SessionStateBuilder) {
        builder.set_distributed_user_codec(MemoryShardCodec);
        builder.set_distributed_user_codec(CycloJoinCodec);
        builder.set_distributed_user_codec(ScanCodec);
        builder.set_distributed_user_codec(OrderOnlyCodec);
        for codec in &self.codecs {
            builder.set_distributed_user_codec_arc(Arc::clone(codec));
        }
    }

    /// Has a session know the functions of this crate, and these.
    ///
    /// # Errors
    /// When it takes no functions.
    pub(crate) fn add_functions(&self, state: &mut SessionState) -> Result<()> {
        functions::install(state)?;
        for function in &self.scalars {
            state.register_udf(Arc::clone(function))?;
        }
        for function in &self.aggregates {
            state.register_udaf(Arc::clone(function))?;
        }
        for function in &self.windows {
            state.register_udwf(Arc::clone(function))?;
        }
        Ok(())
    }

    /// A session with the functions that workers have, and these settings.
    ///
    /// # Errors
    /// When it takes no functions.
    pub(crate) fn as_on_workers(&self, config: SessionConfig) -> Result<SessionState> {
        let builder = SessionStateBuilder::new().with_config(config);
        let mut state = builder.with_default_features().build();
        self.add_functions(&mut state)?;
        Ok(state)
    }
}
