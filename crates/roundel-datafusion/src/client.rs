//! The consumer's side: takes the rows of a task from this process where it can, and from the producer elsewhere.

use crate::broadcast;
use crate::calls::Channels;
use crate::fabric::Fabric;
use crate::node::ExchangeNode;
use crate::producer::{Input, ProducerWorker};
use crate::settings::{Heard, QuerySettings};
use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, ProducerHead, SetPlanRequest, Worker, WorkerChannel,
    WorkerToCoordinatorMsg,
};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::HeaderMap;
use std::sync::Arc;
use url::Url;

/// Control over gRPC, rows over the exchange.
#[derive(Clone)]
pub(crate) struct RoundelChannels {
    pub channels: Channels,
    pub fabric: Fabric,
    pub node: Arc<ExchangeNode>,
    /// Those of a query for which nothing was decided.
    pub settings: Arc<QuerySettings>,
    pub own: Option<OwnWorker>,
}

/// The worker of this process.
#[derive(Clone)]
pub(crate) struct OwnWorker {
    pub url: Url,
    pub worker: Worker,
}

#[async_trait]
impl ChannelResolver for RoundelChannels {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        Ok(Box::new(RoundelChannel {
            control: self.channels.get_worker_client_for_url(url).await?,
            worker: ProducerWorker {
                url: url.clone(),
                reader: self.own.as_ref().map(|own| own.url.clone()),
                channels: self.channels.clone(),
                fabric: self.fabric,
                node: self.node.clone(),
            },
            settings: self.settings.clone(),
            own: self.own.clone().filter(|own| own.url == *url),
        }))
    }
}

struct RoundelChannel {
    control: Box<dyn WorkerChannel>,
    /// Where it leads.
    worker: ProducerWorker,
    settings: Arc<QuerySettings>,
    /// It leads to this process.
    own: Option<OwnWorker>,
}

impl RoundelChannel {
    /// What was decided for the query of a task.
    fn settings(&self, context: &TaskContext) -> Arc<QuerySettings> {
        QuerySettings::of(context.session_config()).unwrap_or_else(|| self.settings.clone())
    }
}

#[async_trait]
impl WorkerChannel for RoundelChannel {
    async fn coordinator_channel(
        &mut self,
        mut headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg, DataFusionError>>, DataFusionError>
    {
        let told = Heard {
            fabric: self.worker.fabric,
            worker: set_plan_request.target_worker_url.clone(),
            settings: self.settings(task_ctx),
        };
        told.tell(&mut headers)?;
        self.control
            .coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx)
            .await
    }

    async fn execute_task(
        &mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch, DataFusionError>>>, DataFusionError>
    {
        // Rows that are not scattered stay where they are when their consumer is here.
        if let Some(own) = &self.own
            && !matches!(request.producer_head, ProducerHead::RepartitionExec { .. })
        {
            let broadcast = matches!(request.producer_head, ProducerHead::BroadcastExec { .. });
            let (streams, context) = own.worker.execute_task(request).await?;
            if broadcast && let Some(state) = broadcast::of_task(&context) {
                state.came_here();
            }
            return Ok(streams.into_iter().map(|rows| rows.boxed()).collect());
        }
        let partitions = request.target_partition_start..request.target_partition_end;
        let input = Arc::new(Input::new(
            &self.worker,
            self.settings(task_ctx).of_stage(request.task_key.stage_id),
            request,
            metrics,
            task_ctx,
        )?);
        let numbers = 0..partitions.len();
        Ok(numbers.map(|number| input.clone().read(number)).collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse, DataFusionError> {
        self.control.get_worker_info(request).await
    }
}
