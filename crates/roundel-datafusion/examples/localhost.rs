//! An application of datafusion-distributed with workers on this host, whose rows Roundel's exchange carries.
//!
//! ```text
//!   localhost worker 127.0.0.1:7071 &
//!   localhost worker 127.0.0.1:7072 &
//!   localhost run 7071,7072 orders.parquet "SELECT o_orderpriority, count(*) FROM orders GROUP BY 1"
//! ```
//!
//! Without what has `exchange` in it, it does the same over gRPC alone.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use datafusion_distributed::{
    DefaultSessionBuilder, DistributedExt as _, SessionStateBuilderExt as _, Worker, WorkerResolver,
};
use roundel_datafusion::{ExchangeOptions, RoundelExchange};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use url::Url;

const USAGE: &str = "usage: localhost worker ADDRESS:PORT | localhost run PORT,PORT FILE SQL";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["worker", address] => worker(address).await,
        ["run", ports, file, sql] => run(ports, Path::new(file), sql).await,
        _ => Err(USAGE.into()),
    }
}

/// Serves tasks, and rows to whoever is told to ask for them.
async fn worker(address: &str) -> Result<(), Box<dyn Error>> {
    let exchange = RoundelExchange::open(ExchangeOptions::default())?;
    // An application's own functions, codecs and settings are in its own session builder.
    let sessions = exchange.worker_sessions(DefaultSessionBuilder);
    let worker = Worker::from_session_builder(sessions);
    let incoming = TcpIncoming::bind(address.parse()?)?.with_nodelay(Some(true));
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening on {}", incoming.local_addr()?)?;
    stdout.flush()?;
    Server::builder()
        .add_service(exchange.worker_service(&worker))
        .add_service(worker.into_worker_server())
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

/// Runs a query over a Parquet file, which is a table by its name, on the workers at these ports.
async fn run(ports: &str, file: &Path, sql: &str) -> Result<(), Box<dyn Error>> {
    let urls = ports
        .split(',')
        .map(|port| format!("http://127.0.0.1:{port}").parse());
    let urls: Vec<Url> = urls.collect::<Result<_, _>>()?;
    let exchange = RoundelExchange::open(ExchangeOptions::default())?;
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_distributed_channel_resolver(exchange.channel_resolver(&urls)?)
        .with_distributed_worker_resolver(Localhost(urls))
        .with_distributed_planner()
        // A small file is worth several tasks, too.
        .with_distributed_file_scan_config_bytes_per_partition(1)?
        .build();
    let context = SessionContext::from(state);
    let name = file.file_stem().and_then(|name| name.to_str());
    let path = file.to_str().ok_or("the file's name is not UTF-8")?;
    context
        .register_parquet(name.unwrap_or("file"), path, ParquetReadOptions::default())
        .await?;
    let rows = context.sql(sql).await?.collect().await?;
    println!("{}", pretty_format_batches(&rows)?);
    Ok(())
}

/// Workers that are known from the start.
struct Localhost(Vec<Url>);

impl WorkerResolver for Localhost {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}
