//! Today's practice: batches of picked rows as Arrow Flight streams over gRPC, uncompressed. It moves
//! batches, not messages, so it stands beside the operators over messages.

mod service;

use super::{Relation, RowsIn, RowsOut};
use crate::error::{Error, Result};
use crate::meeting::Meeting;
use crate::setting::Setting;
use crate::transport::runtime::ThreadRuntime;
use crate::transport::sockets::address_of;
use arrow::array::{RecordBatch, UInt32Array};
use arrow_flight::FlightClient;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_select::take::take_record_batch;
use futures::TryStreamExt;
use roundel_exchange::Selection;
use roundel_exchange::frame::RowSource;
use service::Service;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Server};

/// Batches that wait for a stream, or for the consumer.
const WAITING_MAX: usize = 2;

/// Where the rows of a thread go: a stream to each node.
pub struct RowsToStreams {
    streams: Vec<Outgoing>,
    /// The nodes of each group.
    members: Vec<Vec<usize>>,
}

struct Outgoing {
    node: usize,
    batches: Option<mpsc::Sender<RecordBatch>>,
    done: Option<JoinHandle<Result<()>>>,
}

/// Where the rows of a thread come from: the streams of all nodes.
pub struct RowsFromStreams(mpsc::Receiver<Result<RecordBatch>>);

impl RowsOut for RowsToStreams {
    async fn send(
        &mut self,
        group: usize,
        batch: &RecordBatch,
        _: &RowSource<'_>,
        rows: Selection<'_>,
    ) -> Result<()> {
        let rows = UInt32Array::from(rows.numbers().into_owned());
        let picked = take_record_batch(batch, &rows);
        let picked =
            picked.map_err(|error| Error::Wrong(format!("rows cannot be picked: {error}")))?;
        for member in &self.members[group] {
            self.streams[*member].send(picked.clone()).await?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        for stream in &mut self.streams {
            stream.batches = None;
        }
        for stream in &mut self.streams {
            stream.done().await?;
        }
        Ok(())
    }
}

impl Outgoing {
    /// Opens a stream, which a task of this runtime feeds.
    fn open(node: usize, channel: Channel, setting: &Setting) -> Self {
        let (batches, waiting) = mpsc::channel(WAITING_MAX);
        let schema = Relation::schema(setting);
        let put = async move {
            let batches = futures::stream::unfold(waiting, async |mut waiting| {
                waiting.recv().await.map(|batch| (Ok(batch), waiting))
            });
            let encoded = FlightDataEncoderBuilder::new()
                .with_schema(schema)
                .build(batches);
            let mut client = FlightClient::new(channel);
            let answers = client
                .do_put(encoded)
                .await
                .map_err(|error| failed(node, &error))?;
            answers
                .try_for_each(|_| async { Ok(()) })
                .await
                .map_err(|error| failed(node, &error))
        };
        Self {
            node,
            batches: Some(batches),
            done: Some(tokio::spawn(put)),
        }
    }

    async fn send(&mut self, batch: RecordBatch) -> Result<()> {
        match &self.batches {
            Some(batches) if batches.send(batch).await.is_ok() => Ok(()),
            _ => {
                self.done().await?;
                Err(failed(self.node, &"it closed the stream before the end"))
            }
        }
    }

    async fn done(&mut self) -> Result<()> {
        match self.done.take() {
            Some(done) => done
                .await
                .unwrap_or_else(|error| Err(failed(self.node, &error))),
            None => Ok(()),
        }
    }
}

fn failed(node: usize, reason: &dyn std::fmt::Display) -> Error {
    Error::Grpc {
        peer: format!("node {node}"),
        reason: reason.to_string(),
    }
}

impl RowsIn for RowsFromStreams {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.0.recv().await.transpose()
    }
}

/// The two sides of a thread, and what serves them.
pub type Thread = (RowsToStreams, RowsFromStreams, Option<ThreadRuntime>);

/// Opens the streams of a node: one for each pair of threads of the same number.
pub async fn open(setting: &Setting, meeting: &mut Meeting) -> Result<Vec<Thread>> {
    let mut addresses = Vec::new();
    let mut incoming = Vec::new();
    for _ in 0..setting.threads {
        let runtime = ThreadRuntime::new()?;
        let _inside = runtime.enter();
        let listening = Error::io("listen");
        let listener = std::net::TcpListener::bind((meeting.address(), 0)).map_err(&listening)?;
        listener.set_nonblocking(true).map_err(&listening)?;
        let address = listener.local_addr().map_err(&listening)?;
        let listener = TcpListener::from_std(listener).map_err(&listening)?;
        addresses.push(address.to_string());
        let (service, batches) = Service::new(setting.nodes, WAITING_MAX);
        let server = Server::builder().add_service(FlightServiceServer::new(service));
        let accepted = futures::stream::unfold(listener, async |listener| {
            let stream = listener.accept().await.map(|(stream, _)| stream);
            let _ = stream.as_ref().map(|stream| stream.set_nodelay(true));
            Some((stream, listener))
        });
        runtime.spawn(server.serve_with_incoming(accepted));
        drop(_inside);
        incoming.push((RowsFromStreams(batches), runtime));
    }
    let all = meeting.all(addresses.join(" ").into_bytes()).await?;
    let members = setting.groups();
    let mut threads = Vec::new();
    for (thread, (rows, runtime)) in incoming.into_iter().enumerate() {
        let _inside = runtime.enter();
        let mut streams = Vec::new();
        for (node, said) in all.iter().enumerate() {
            let of_thread = said.split(|byte| *byte == b' ').nth(thread);
            let address = address_of(of_thread.unwrap_or_default(), node)?;
            let endpoint = Channel::from_shared(format!("http://{address}"));
            let endpoint = endpoint.map_err(|error| failed(node, &error))?;
            streams.push(Outgoing::open(node, endpoint.connect_lazy(), setting));
        }
        drop(_inside);
        let out = RowsToStreams {
            streams,
            members: members.clone(),
        };
        threads.push((out, rows, Some(runtime)));
    }
    Ok(threads)
}
