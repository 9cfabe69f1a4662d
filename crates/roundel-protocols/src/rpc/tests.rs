//! A client and a server, on every provider that runs in this process.

use super::*;
use crate::error::Result;
use crate::{CallError, EndOptions, Fabric, Handler, Protocol};
use roundel_verbs::sim::{Faults, Moment, Parameters, SimNode, Simulation, Trouble};
use roundel_verbs::{
    Context, SocketListener, SocketOptions, SocketRendezvous, TokioContext, shm, tcp,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

fn verbs() -> impl Iterator<Item = Protocol> {
    Protocol::ALL
        .into_iter()
        .filter(|one| *one != Protocol::Tcp)
}

fn in_shared_memory() -> Fabric {
    let device = shm::open(shm::ShmOptions::default()).unwrap();
    Fabric::new(device, Arc::new(TokioContext::current()))
}

fn over_sockets() -> Fabric {
    let address = [127, 0, 0, 1].into();
    let device = tcp::open(tcp::TcpOptions { address }).unwrap();
    Fabric::new(device, Arc::new(TokioContext::current()))
}

fn simulated(node: &SimNode) -> Fabric {
    Fabric::new(node.device(), node.context())
}

/// Has a client call a server of this handler.
fn connected(
    fabrics: [Fabric; 2],
    options: &EndOptions,
    handler: impl Handler + Send + 'static,
) -> (Caller, Serving) {
    let (caller, server) = with_mute_server(fabrics, options);
    (caller, server.start(handler).unwrap())
}

fn reverse(_: usize, request: &[u8], response: &mut Vec<u8>) -> Result<(), String> {
    match request {
        b"no" => Err("it may not".into()),
        _ => {
            response.extend(request.iter().rev());
            Ok(())
        }
    }
}

/// More calls than can be pending, of all kinds.
async fn converse(caller: Caller, serving: Serving, protocol: Protocol) {
    if protocol == Protocol::Read {
        let bytes: Vec<u8> = (0..64).collect();
        serving.values().unwrap().publish(128, &bytes);
        let reads: Vec<_> = (0..40)
            .map(|at| caller.read(0, 128 + at, 24, SOON))
            .collect();
        for (at, read) in reads.into_iter().enumerate() {
            assert_eq!(read.await.unwrap(), bytes[at..at + 24]);
        }
        assert!(matches!(
            caller.call(0, b"x", SOON).await,
            Err(CallError::Unsupported(_))
        ));
        let beyond = caller.read(0, 4090, 24, SOON).await;
        assert!(
            matches!(beyond, Err(CallError::Unsupported(_))),
            "{beyond:?}"
        );
        return;
    }
    let calls: Vec<_> = (0..40u32)
        .map(|number| caller.call(0, number.to_le_bytes(), SOON))
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        let answer = call.await.unwrap();
        assert_eq!(answer, (number as u32).to_be_bytes(), "{protocol}");
    }
    let refused = caller.call(0, b"no", SOON).await;
    assert!(
        matches!(refused, Err(CallError::Refused { .. })),
        "{refused:?}"
    );
    let long = caller.call(0, [0; 1000], SOON).await;
    assert!(matches!(long, Err(CallError::TooLong { .. })), "{long:?}");
    let elsewhere = caller.call(1, b"", SOON).await;
    assert!(
        matches!(elsewhere, Err(CallError::Unsupported(_))),
        "{elsewhere:?}"
    );
    assert_eq!(caller.call(0, b"still", SOON).await.unwrap(), b"llits");
    assert_eq!(serving.counts().0, 42);
    drop(serving);
}

#[tokio::test]
async fn every_protocol_answers_in_shared_memory() {
    for protocol in verbs() {
        let fabrics = [in_shared_memory(), in_shared_memory()];
        let (caller, serving) = connected(fabrics, &EndOptions::new(protocol), reverse);
        converse(caller, serving, protocol).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_protocol_answers_over_sockets() {
    for protocol in verbs() {
        let fabrics = [over_sockets(), over_sockets()];
        let (caller, serving) = connected(fabrics, &EndOptions::new(protocol), reverse);
        converse(caller, serving, protocol).await;
    }
}

#[test]
fn every_protocol_answers_on_virtual_time_in_microseconds() {
    for protocol in verbs() {
        let simulation = Simulation::new(Parameters::fdr(), 1);
        let nodes = [(); 2].map(|()| simulation.add_node(1));
        let fabrics = nodes.each_ref().map(simulated);
        let (caller, serving) = connected(fabrics, &EndOptions::new(protocol), reverse);
        let task = converse(caller, serving, protocol);
        simulation.run(&nodes[1], SOON, task).unwrap();
        let took = simulation.now();
        assert!(took < Duration::from_micros(300), "{protocol} {took:?}");
    }
}

/// Does something with a client whose server needs ten milliseconds for each request.
async fn with_slow_server(work: impl AsyncFn(&Caller, &AtomicU64)) {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let options = EndOptions {
        pending: 2,
        ..EndOptions::new(Protocol::SendWrite)
    };
    let slow = move |_: usize, request: &[u8], response: &mut Vec<u8>| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(10));
        response.extend(request);
        Ok(())
    };
    let (caller, _serving) = connected([in_shared_memory(), in_shared_memory()], &options, slow);
    work(&caller, &asked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_connection_keeps_calls_waiting_but_not_beyond_their_deadline() {
    with_slow_server(async |caller, asked| {
        let calls: Vec<_> = (0..6u8)
            .map(|number| caller.call(0, [number], SOON))
            .collect();
        let hurried = caller.call(0, b"x", Duration::from_millis(15)).await;
        let Err(CallError::Deadline { after, .. }) = hurried else {
            panic!("{hurried:?}");
        };
        assert!(after >= Duration::from_millis(15), "{after:?}");
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap(), [number as u8]);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 6, "it was never sent");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_want_to_wait_is_told_that_there_is_no_room() {
    with_slow_server(async |caller, _| {
        let one = caller.try_call(0, b"1", SOON).unwrap();
        let two = caller.try_call(0, b"2", SOON).unwrap();
        let none = caller.try_call(0, b"3", SOON).err();
        assert!(
            matches!(none, Some(CallError::NoRoom { pending: 2, .. })),
            "{none:?}"
        );
        assert_eq!(
            (one.await.unwrap(), two.await.unwrap()),
            (b"1".to_vec(), b"2".to_vec())
        );
        let again = caller.try_call(0, b"3", SOON).unwrap();
        assert_eq!(again.await.unwrap(), b"3");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_are_given_up_and_their_answers_are_nobodys() {
    with_slow_server(async |caller, asked| {
        let begun = caller.call(0, b"begun", SOON);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let kept: Vec<_> = (0..3u8)
            .map(|number| caller.call(0, [number], SOON))
            .collect();
        drop(caller.call(0, b"in line", SOON));
        drop(begun);
        for (number, call) in kept.into_iter().enumerate() {
            assert_eq!(call.await.unwrap(), [number as u8]);
        }
        assert_eq!(
            asked.load(Ordering::Relaxed),
            4,
            "the one in line was never sent"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_end_with_their_client_or_their_server() {
    with_slow_server(async |caller, _| {
        let again = caller.clone();
        let calls: Vec<_> = (0..4u8)
            .map(|number| again.call(0, [number], SOON))
            .collect();
        drop(again);
        assert!(
            calls.into_iter().next().unwrap().await.is_ok(),
            "a clone is left"
        );
    })
    .await;
    let fabrics = [in_shared_memory(), in_shared_memory()];
    let options = EndOptions::new(Protocol::WriteWrite);
    let (caller, serving) = connected(fabrics, &options, reverse);
    assert!(caller.call(0, b"x", SOON).await.is_ok());
    drop(serving);
    let begun = std::time::Instant::now();
    let gone = caller.call(0, b"x", SOON).await;
    assert!(matches!(gone, Err(CallError::PeerGone { .. })), "{gone:?}");
    assert!(begun.elapsed() < Duration::from_secs(1));
    let gone = caller.call(0, b"x", SOON).await;
    assert!(matches!(gone, Err(CallError::PeerGone { .. })), "{gone:?}");

    let fabrics = [in_shared_memory(), in_shared_memory()];
    let (caller, _serving) = connected(fabrics, &options, |_: usize, _: &[u8], _: &mut Vec<u8>| {
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    });
    let calls: Vec<_> = (0..20u8)
        .map(|number| caller.call(0, [number], SOON))
        .collect();
    drop(caller);
    let mut closed = 0;
    for call in calls {
        match call.await {
            Err(CallError::Closed { .. }) => closed += 1,
            other => assert!(other.is_ok(), "{other:?}"),
        }
    }
    assert!(closed >= 19, "{closed}");
}

#[tokio::test]
async fn a_request_whose_handler_panics_is_refused_and_the_next_is_answered() {
    for protocol in verbs().filter(|one| one.can_write()) {
        let fabrics = [in_shared_memory(), in_shared_memory()];
        let fragile = |at: usize, request: &[u8], response: &mut Vec<u8>| {
            response.extend(b"half of ");
            assert!(request != b"panic", "on purpose");
            reverse(at, request, response)
        };
        let (caller, serving) = connected(fabrics, &EndOptions::new(protocol), fragile);
        let calls = [caller.call(0, b"panic", SOON), caller.call(0, b"ti", SOON)];
        let [refused, answered] = calls;
        let refused = refused.await.unwrap_err();
        let told = "peer server refused: its handler panicked";
        assert_eq!(refused.to_string(), told, "{protocol}");
        assert_eq!(answered.await.unwrap(), b"half of it", "{protocol}");
        assert_eq!((serving.counts().0, serving.failure()), (2, None));
    }
}

/// Protocols over connections that tell when a peer does not take requests, which ask its processor.
fn reliable() -> impl Iterator<Item = Protocol> {
    verbs().filter(|one| one.can_write() && !one.is_lossy())
}

/// A client, connected to a server that has not been started: its device takes requests, and nobody answers.
fn with_mute_server(fabrics: [Fabric; 2], options: &EndOptions) -> (Caller, Server) {
    let mut server = Server::open(&fabrics[0], 1, 4096, options).unwrap();
    let mut client = Client::open(&fabrics[1], 1, options).unwrap();
    server.connect(0, &client.offer(0), "client").unwrap();
    client.connect(0, &server.offer(0), "server").unwrap();
    (client.start().unwrap(), server)
}

#[test]
fn a_node_that_dies_when_it_has_taken_all_requests_is_noticed() {
    let from = Duration::from_millis(1);
    for protocol in reliable() {
        for trouble in [
            None,
            Some(Trouble::Crash),
            Some(Trouble::DeadNic),
            Some(Trouble::Cut(4 * SOON)),
        ] {
            let simulation = Simulation::new(Parameters::fdr(), 1);
            let nodes = [(); 2].map(|()| simulation.add_node(1));
            let moment = |what| Moment {
                at: from,
                node: 0,
                what,
            };
            simulation.set_faults(Faults {
                moments: trouble.map(moment).into_iter().collect(),
                ..Faults::default()
            });
            let fabrics = nodes.each_ref().map(simulated);
            let (caller, _server) = with_mute_server(fabrics, &EndOptions::new(protocol));
            let calls = async move {
                let [one, other] = [SOON, 2 * SOON].map(|deadline| caller.call(0, b"x", deadline));
                (one.await.unwrap_err(), other.await.unwrap_err())
            };
            let (one, other) = simulation.run(&nodes[1], 3 * SOON, calls).unwrap();
            let told = format!("{protocol} {trouble:?}: {one}; {other}");
            if trouble.is_some() {
                let gone = |error| matches!(error, CallError::PeerGone { .. });
                assert!(gone(one) && gone(other), "{told}");
                assert!(simulation.now() < SOON, "{told}");
            } else {
                let late = |error| matches!(error, CallError::Deadline { .. });
                assert!(late(one) && late(other), "{told}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_nothing_for_long_is_not_gone() {
    for protocol in reliable() {
        for fabric in [in_shared_memory, over_sockets] {
            let options = EndOptions {
                pending: 2,
                ..EndOptions::new(protocol)
            };
            let (caller, server) = with_mute_server([fabric(), fabric()], &options);
            let long = Duration::from_millis(200);
            let late = caller.call(0, b"x", long).await;
            assert!(matches!(late, Err(CallError::Deadline { .. })), "{late:?}");
            let _serving = server.start(reverse).unwrap();
            for _ in 0..4 {
                assert_eq!(caller.call(0, b"ab", SOON).await.unwrap(), b"ba");
            }
        }
    }
}

/// How often the client's task takes a step, as its clock tells.
struct Counted {
    context: Arc<dyn Context>,
    steps: Arc<AtomicU64>,
}

impl Context for Counted {
    fn now(&self) -> Duration {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.context.now()
    }

    fn sleep(&self, duration: Duration) -> roundel_verbs::completion_queue::BoxFuture<'static, ()> {
        self.context.sleep(duration)
    }

    fn spawn(&self, task: roundel_verbs::completion_queue::BoxFuture<'static, ()>) {
        self.context.spawn(task);
    }

    fn random(&self) -> u64 {
        self.context.random()
    }
}

#[tokio::test]
async fn a_client_without_calls_sleeps_and_a_server_nods() {
    for protocol in [
        Protocol::WriteWrite,
        Protocol::SendSend,
        Protocol::UnreliableWrite,
    ] {
        let counts = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let fabrics = counts.each_ref().map(|steps| {
            let fabric = in_shared_memory();
            Fabric {
                context: Arc::new(Counted {
                    context: fabric.context.clone(),
                    steps: steps.clone(),
                }),
                ..fabric
            }
        });
        let (caller, _serving) = connected(fabrics, &EndOptions::new(protocol), reverse);
        assert!(caller.call(0, b"x", SOON).await.is_ok());
        tokio::time::sleep(Duration::from_millis(20)).await;
        let count = || counts.each_ref().map(|steps| steps.load(Ordering::Relaxed));
        let before = count();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let after = count();
        let [server, client] = [after[0] - before[0], after[1] - before[1]];
        assert!(client < 10, "{protocol}: {client} times");
        assert!(server < 1000, "{protocol}: {server} times");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_meet_can_call_each_other() {
    let listener = SocketListener::bind(([127, 0, 0, 1], 0).into())
        .await
        .unwrap();
    let options = SocketOptions::default();
    let address = listener.address();
    let (first, second, third) = tokio::join!(
        listener.gather(3, &options),
        SocketRendezvous::join(address, 1, 3, &options),
        SocketRendezvous::join(address, 2, 3, &options),
    );
    // The first answers, the second asks, the third does both.
    let peer = async |mut group: SocketRendezvous, clients: usize, servers: usize| {
        let rank = roundel_verbs::Rendezvous::rank(&group) as u8;
        let options = EndOptions::new(Protocol::DatagramSend);
        let fabric = in_shared_memory();
        let mut server =
            (clients > 0).then(|| Server::open(&fabric, clients, 0, &options).unwrap());
        let mut client = (servers > 0).then(|| Client::open(&fabric, servers, &options).unwrap());
        let met = meet(&mut group, client.as_mut(), server.as_mut())
            .await
            .unwrap();
        let _serving = server.map(|server| {
            let answer = move |from: usize, _: &[u8], response: &mut Vec<u8>| {
                response.extend([rank, from as u8]);
                Ok(())
            };
            server.start(answer).unwrap()
        });
        let mut heard = Vec::new();
        if let Some(client) = client {
            let caller = client.start().unwrap();
            for connection in 0..caller.connections() {
                heard.push(caller.call(connection, b"who", SOON).await.unwrap());
            }
        }
        roundel_verbs::Rendezvous::exchange(&mut group, Vec::new())
            .await
            .unwrap();
        (met, heard)
    };
    let (first, second, third) = tokio::join!(
        peer(first.unwrap(), 2, 0),
        peer(second.unwrap(), 0, 2),
        peer(third.unwrap(), 1, 1)
    );
    assert_eq!(first.0.clients, [1, 2]);
    assert_eq!(
        (second.0.servers, second.1),
        (vec![0, 2], vec![vec![0, 0], vec![2, 0]])
    );
    assert_eq!((third.0.servers, third.0.clients), (vec![0], vec![1]));
    assert_eq!(third.1, [[0, 1]]);
}
