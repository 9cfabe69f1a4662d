//! Groups of peers in one process, with misbehaving ones among them.

use super::wire::{Hello, emit_answer};
use super::{EXCHANGE_BYTES_MAX, Rendezvous, SocketListener, SocketOptions, SocketRendezvous};
use super::{pack_list, unpack_list};
use crate::error::{Result, VerbsError};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Nothing that these tests wait for takes longer.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn options() -> SocketOptions {
    SocketOptions {
        join_deadline: PATIENCE,
        exchange_deadline: PATIENCE,
        ..SocketOptions::new("the token")
    }
}

fn gather(
    listener: SocketListener,
    peers: usize,
    options: &SocketOptions,
) -> JoinHandle<Result<SocketRendezvous>> {
    let options = options.clone();
    tokio::spawn(async move { listener.gather(peers, &options).await })
}

fn join(
    address: SocketAddr,
    rank: usize,
    peers: usize,
    options: &SocketOptions,
) -> JoinHandle<Result<SocketRendezvous>> {
    let options = options.clone();
    tokio::spawn(async move { SocketRendezvous::join(address, rank, peers, &options).await })
}

/// A complete group, by rank.
async fn group(peers: usize, options: &SocketOptions) -> Vec<SocketRendezvous> {
    let listener = SocketListener::bind(LOOPBACK).await.unwrap();
    let address = listener.address();
    let mut tasks = vec![gather(listener, peers, options)];
    // The last rank first: the order in which they come does not matter.
    let others: Vec<_> = (1..peers)
        .rev()
        .map(|rank| join(address, rank, peers, options))
        .collect();
    tasks.extend(others.into_iter().rev());
    let mut group = Vec::new();
    for task in tasks {
        group.push(soon(task).await.unwrap().unwrap());
    }
    group
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("nothing hangs")
}

/// Every peer exchanges once.
async fn exchange(
    group: Vec<SocketRendezvous>,
    bytes: impl Fn(usize) -> Vec<u8>,
) -> Vec<(SocketRendezvous, Result<Vec<Vec<u8>>>)> {
    let tasks: Vec<_> = group
        .into_iter()
        .map(|mut peer| {
            let bytes = bytes(peer.rank());
            tokio::spawn(async move {
                let result = peer.exchange(bytes).await;
                (peer, result)
            })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(soon(task).await.unwrap());
    }
    results
}

fn assert_lost<T: std::fmt::Debug>(result: &Result<T>, rank: usize) {
    match result {
        Err(VerbsError::PeerDied { peer, .. }) if *peer == rank.to_string() => {}
        other => panic!("{other:?} instead of the loss of peer {rank}"),
    }
}

#[tokio::test]
async fn three_peers_exchange_again_and_again() {
    let mut group = group(3, &options()).await;
    for round in 0..100u8 {
        // Of different lengths, none and the most among them.
        let bytes = |rank: usize| match (round, rank) {
            (99, 2) => vec![round; EXCHANGE_BYTES_MAX],
            _ => vec![round; rank * usize::from(round)],
        };
        let expected: Vec<_> = (0..3).map(bytes).collect();
        let mut peers = Vec::new();
        for (peer, result) in exchange(group, bytes).await {
            assert_eq!(result.unwrap(), expected);
            peers.push(peer);
        }
        group = peers;
    }
    let too_much = group[1].exchange(vec![0; EXCHANGE_BYTES_MAX + 1]).await;
    assert!(matches!(too_much, Err(VerbsError::InvalidRequest(_))));
}

#[tokio::test]
async fn each_peer_gets_what_is_for_it() {
    let group = group(3, &options()).await;
    let tasks: Vec<_> = group
        .into_iter()
        .map(|mut peer| {
            tokio::spawn(async move {
                let from = peer.rank() as u8;
                let each = peer.exchange_each((0..3).map(|to| vec![from, to]).collect());
                let expected: Vec<_> = (0..3).map(|to| vec![to, from]).collect();
                assert_eq!(each.await.unwrap(), expected);
                // In its order, but not of its kind.
                match from {
                    0 => peer.exchange_each(vec![Vec::new(); 3]).await,
                    _ => peer.exchange(vec![1, 2, 3]).await,
                }
            })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(soon(task).await.unwrap());
    }
    assert_lost(&results[0], 1);
}

proptest! {
    #[test]
    fn lists_round_trip_and_other_bytes_do_no_harm(
        list in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..9),
        other in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        prop_assert_eq!(unpack_list(&pack_list(&list)), Some(list));
        let _ = unpack_list(&other);
    }
}

#[tokio::test]
async fn a_group_of_one_is_complete() {
    let mut alone = group(1, &options()).await.remove(0);
    assert_eq!(alone.exchange(vec![7]).await.unwrap(), [[7]]);
}

#[tokio::test]
async fn a_dead_peer_is_named_to_all_others() {
    for dead in 0..3 {
        let mut group = group(3, &options()).await;
        drop(group.remove(dead));
        for peer in &group {
            assert_eq!(soon(peer.lost()).await.rank, dead);
        }
        for (_, result) in exchange(group, |_| vec![1]).await {
            assert_lost(&result, dead);
        }
    }
}

#[tokio::test]
async fn a_peer_that_dies_in_an_exchange_ends_it() {
    let mut group = group(3, &options()).await;
    let dies = group.remove(2);
    let others = tokio::spawn(exchange(group, |_| vec![1]));
    sleep(Duration::from_millis(50)).await;
    drop(dies);
    for (_, result) in soon(others).await.unwrap() {
        assert_lost(&result, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_exchange_succeeds_although_others_leave_at_once() {
    for _ in 0..200 {
        let group = group(5, &options()).await;
        let tasks: Vec<_> = group
            .into_iter()
            .map(|mut peer| tokio::spawn(async move { peer.exchange(vec![1]).await }))
            .collect();
        for task in tasks {
            assert_eq!(soon(task).await.unwrap().unwrap(), vec![vec![1]; 5]);
        }
    }
}

#[tokio::test]
async fn a_late_peer_is_given_up_by_name() {
    let options = SocketOptions {
        exchange_deadline: Duration::from_millis(200),
        ..options()
    };
    let mut group = group(3, &options).await;
    let _late = group.remove(2);
    for (_, result) in exchange(group, |_| vec![1]).await {
        assert_lost(&result, 2);
    }
}

#[tokio::test]
async fn an_abandoned_exchange_leaves_its_peer_out_of_step() {
    let mut group = group(2, &options()).await;
    let abandoned = timeout(Duration::from_millis(20), group[1].exchange(vec![1])).await;
    assert!(abandoned.is_err());
    let result = group[1].exchange(vec![2]).await;
    assert!(matches!(result, Err(VerbsError::InvalidRequest(_))));
}

#[tokio::test]
async fn missing_peers_are_named_at_the_deadline() {
    let options = SocketOptions {
        join_deadline: Duration::from_millis(300),
        ..options()
    };
    let listener = SocketListener::bind(LOOPBACK).await.unwrap();
    let address = listener.address();
    let hub = gather(listener, 3, &options);
    let other = SocketOptions {
        token: b"another token".to_vec(),
        ..options.clone()
    };
    let (here, refused) = (join(address, 1, 3, &options), join(address, 2, 3, &other));
    let refused = soon(refused).await.unwrap().unwrap_err().to_string();
    assert!(refused.contains("another token"), "{refused}");
    match soon(hub).await.unwrap() {
        Err(VerbsError::PeerUnreachable { peer, reason }) => {
            assert_eq!(peer, "2");
            assert!(reason.contains("its token is another one"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_lost(&soon(here).await.unwrap(), 2);
}

#[tokio::test]
async fn nobody_listens() {
    let listener = SocketListener::bind(LOOPBACK).await.unwrap();
    let address = listener.address();
    drop(listener);
    let options = SocketOptions {
        join_deadline: Duration::from_millis(200),
        ..options()
    };
    let result = soon(join(address, 1, 2, &options)).await.unwrap();
    assert!(matches!(result, Err(VerbsError::PeerUnreachable { .. })));
}

#[tokio::test]
async fn garbage_changes_nothing() {
    let listener = SocketListener::bind(LOOPBACK).await.unwrap();
    let address = listener.address();
    let hub = gather(listener, 2, &options());
    let hello = |rank, peers, token: &[u8]| {
        let token = token.to_vec();
        Hello { rank, peers, token }.emit()
    };
    let good = hello(1, 2, b"the token");
    let mut long_token = hello(1, 2, b"");
    long_token[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut silent = Vec::new();
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        good[..good.len() - 1].to_vec(),
        hello(1, 2, b"a wrong token"),
        hello(1, 3, b"the token"),
        hello(0, 2, b"the token"),
        hello(9, 2, b"the token"),
        long_token,
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        silent.push(stream);
    }
    // Those that never finish their hello do not keep the peer waiting.
    let peer = join(address, 1, 2, &options());
    let mut peer = soon(peer).await.unwrap().unwrap();
    let mut hub = soon(hub).await.unwrap().unwrap();
    drop(silent);
    let (one, other) = tokio::join!(hub.exchange(vec![1]), peer.exchange(vec![2]));
    assert_eq!(one.unwrap(), other.unwrap());
}

#[tokio::test]
async fn garbage_from_a_member_ends_the_group() {
    let listener = SocketListener::bind(LOOPBACK).await.unwrap();
    let address = listener.address();
    let hub = gather(listener, 2, &options());
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (rank, peers, token) = (1, 2, b"the token".to_vec());
    let hello = Hello { rank, peers, token }.emit();
    stream.write_all(&hello).await.unwrap();
    stream.write_all(&[1; 100]).await.unwrap();
    assert_lost(&soon(hub).await.unwrap(), 1);
}

#[tokio::test]
async fn another_version_is_refused_by_name() {
    // A newer peer comes to this version's listener …
    let listener = SocketListener::bind(LOOPBACK).await.unwrap();
    let address = listener.address();
    let options = SocketOptions {
        join_deadline: Duration::from_millis(300),
        ..options()
    };
    let hub = gather(listener, 2, &options);
    let (rank, peers, token) = (1, 2, b"the token".to_vec());
    let mut hello = Hello { rank, peers, token }.emit();
    hello[8..12].copy_from_slice(&9u32.to_le_bytes());
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&hello).await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer[8..12], super::wire::VERSION.to_le_bytes());
    let error = soon(hub).await.unwrap().unwrap_err().to_string();
    assert!(error.contains("speaks version 9"), "{error}");

    // … and this version's peer to a newer listener.
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = join(address, 1, 2, &options);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut answer = emit_answer(Ok(()));
    answer[8..12].copy_from_slice(&9u32.to_le_bytes());
    stream.write_all(&answer).await.unwrap();
    match soon(peer).await.unwrap() {
        Err(VerbsError::VersionMismatch { theirs: 9, .. }) => {}
        other => panic!("{other:?}"),
    }
}
