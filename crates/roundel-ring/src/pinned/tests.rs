use super::*;
use crate::cyclo::Output;
use crate::cyclo::tests::{
    Condition, Fails, Ids, Kept, Row, batch, conditions, expected, ids, relation, schema, spec,
};
use crate::join::{Algorithm, JoinSpec, JoinType};
use crate::roundabout::tests::{SMALL, ring};
use crate::threads::TokioThreads;
use futures::future::try_join_all;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use roundel_verbs::TokioContext;
use std::time::Duration;

/// Longest that anything here may take.
const END_MAX: Duration = Duration::from_secs(60);

/// Pins a relation of rows by host.
async fn pinned(relation: &[Vec<Row>]) -> Vec<Arc<Pinned>> {
    let batches = relation.iter().map(|rows| vec![batch("r", rows)]).collect();
    pinned_of(batches).await
}

async fn pinned_of(batches: Vec<Vec<RecordBatch>>) -> Vec<Arc<Pinned>> {
    let rings = ring(batches.len(), SMALL).into_iter().zip(batches);
    let pins = rings.map(|(ring, batches)| async {
        let context = Arc::new(TokioContext::current());
        Pinned::pin(ring, schema("r"), batches, &TokioThreads(2), context).await
    });
    let pinned = try_join_all(pins).await.unwrap();
    pinned.into_iter().map(Arc::new).collect()
}

/// Joins on one host.
async fn join_at(
    pinned: Arc<Pinned>,
    query: u128,
    spec: JoinSpec,
    rows: Vec<Row>,
    output: Arc<dyn Output>,
) -> Result<Phases> {
    let cyclo = Cyclo {
        spec,
        threads: Arc::new(TokioThreads(2)),
        context: Arc::new(TokioContext::current()),
        output,
    };
    pinned
        .join(QueryId(query), &cyclo, vec![batch("s", &rows)])
        .await
}

/// Begins a join on all hosts.
fn begin(
    pinned: &[Arc<Pinned>],
    query: u128,
    spec: &JoinSpec,
    stationary: &[Vec<Row>],
    output: &Arc<Slow>,
) -> Vec<tokio::task::JoinHandle<Result<Phases>>> {
    let hosts = pinned.iter().zip(stationary);
    let hosts = hosts.map(|(pinned, rows)| {
        let (pinned, spec, rows) = (pinned.clone(), spec.clone(), rows.clone());
        tokio::spawn(join_at(pinned, query, spec, rows, output.clone()))
    });
    hosts.collect()
}

/// Joins on all hosts, each of which begins when it likes.
async fn join(
    pinned: &[Arc<Pinned>],
    query: u128,
    spec: JoinSpec,
    stationary: &[Vec<Row>],
    begins: &[Duration],
) -> Result<Ids> {
    let kept = Kept::of(&spec);
    let hosts = pinned.iter().zip(stationary).zip(begins);
    let hosts = hosts.map(|((pinned, rows), begins)| {
        let (pinned, spec, rows, kept) = (pinned.clone(), spec.clone(), rows.clone(), kept.clone());
        let begins = *begins;
        tokio::spawn(async move {
            tokio::time::sleep(begins).await;
            join_at(pinned, query, spec, rows, kept).await
        })
    });
    for host in hosts.collect::<Vec<_>>() {
        host.await.unwrap()?;
    }
    Ok(kept.sorted())
}

/// Queries of all types come at any time, on each host at another, and share what spins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_come_at_any_time_see_all_rows_once() {
    let mut random = StdRng::seed_from_u64(11);
    for hosts in [1, 2, 3, 5] {
        for (of_r, of_s, keys) in [(0, 20, 5), (500, 0, 5), (900, 300, 60)] {
            let r = relation(&mut random, hosts, of_r, keys);
            let relations: Vec<_> = (0..3)
                .map(|_| relation(&mut random, hosts, of_s, keys))
                .collect();
            let pinned = pinned(&r).await;
            let all_r = r.concat();
            let mut queries = Vec::new();
            for condition in conditions() {
                for join_type in JoinType::ALL {
                    let query = queries.len();
                    let s = relations[query % relations.len()].clone();
                    let expected = expected(join_type, &all_r, &s.concat(), &condition.2);
                    let told = format!("{join_type:?} by {:?} on {hosts} hosts", condition.0);
                    let spec = spec(join_type, &condition);
                    let begins: Vec<_> = (0..hosts)
                        .map(|_| Duration::from_millis(random.random_range(0..40)))
                        .collect();
                    let pinned = pinned.clone();
                    queries.push(tokio::spawn(async move {
                        let joins = join(&pinned, query as u128, spec, &s, &begins);
                        let got = tokio::time::timeout(END_MAX, joins).await;
                        let got = got.unwrap_or_else(|_| panic!("{told} has no end"));
                        let got = got.unwrap();
                        assert!(
                            got == expected,
                            "{told}: {} rows, not {}",
                            got.len(),
                            expected.len()
                        );
                    }));
                }
            }
            for query in queries {
                query.await.unwrap();
            }
        }
    }
}

fn equal() -> Condition {
    conditions().remove(0)
}

/// One query after the other has a revolution each; between them the ring stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_without_queries_stands_still() {
    let mut random = StdRng::seed_from_u64(3);
    let r = relation(&mut random, 3, 900, 60);
    let pinned = pinned(&r).await;
    let begun = || pinned.iter().map(|one| one.begun()).collect::<Vec<_>>();
    assert_eq!(begun(), [0, 0, 0]);
    let s = relation(&mut random, 3, 50, 60);
    for query in 0..3 {
        let none = [Duration::ZERO; 3];
        let got = join(&pinned, query, spec(JoinType::Inner, &equal()), &s, &none);
        let expected = expected(JoinType::Inner, &r.concat(), &s.concat(), &|a, b| a == b);
        assert_eq!(got.await.unwrap(), expected);
    }
    // Fragments that were called for when the last host had all it needed still go around.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stands = begun();
    for (begun, pinned) in stands.iter().zip(&pinned) {
        assert!(*begun <= 3 * 2 * pinned.fragments() as u64, "{begun}");
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(begun(), stands);
}

/// Takes rows only once it may.
struct Slow {
    kept: Arc<Kept>,
    may: AtomicBool,
    /// Hosts that have come to it: each has one at a time.
    waiting: AtomicU64,
}

impl Slow {
    fn of(spec: &JoinSpec) -> Arc<Self> {
        Arc::new(Self {
            kept: Kept::of(spec),
            may: false.into(),
            waiting: 0.into(),
        })
    }
}

impl Output for Slow {
    fn take(&self, rows: RecordBatch) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while !self.may.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.kept.take(rows)
    }
}

/// A query whose rows nobody takes does not hold up the others, and sees all once it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_query_that_stands_still_holds_nobody_up() {
    let mut random = StdRng::seed_from_u64(5);
    let r = relation(&mut random, 3, 3000, 20);
    let s = relation(&mut random, 3, 60, 20);
    let pinned = pinned(&r).await;
    let spec = spec(JoinType::Full, &equal());
    let slow = Slow::of(&spec);
    let hosts = begin(&pinned, 1, &spec, &s, &slow);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let expected = expected(JoinType::Full, &r.concat(), &s.concat(), &|a, b| a == b);
    let fast = join(&pinned, 2, spec.clone(), &s, &[Duration::ZERO; 3]);
    let fast = tokio::time::timeout(END_MAX, fast).await.unwrap();
    assert_eq!(fast.unwrap(), expected);
    assert!(hosts.iter().all(|host| !host.is_finished()));
    slow.may.store(true, Ordering::Relaxed);
    for host in hosts {
        host.await.unwrap().unwrap();
    }
    assert_eq!(slow.kept.sorted(), expected);
}

/// Ten queries that are there at once need fewer revolutions than ten, though some are passed over now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_share_revolutions() {
    let mut random = StdRng::seed_from_u64(19);
    let r = relation(&mut random, 3, 9000, 20);
    let s = relation(&mut random, 3, 30, 20);
    let pinned = pinned(&r).await;
    // The ring moves as fast as its first query, which waits for the others.
    let spec = spec(JoinType::StationarySemi, &equal());
    let slow = Slow::of(&spec);
    let mut hosts = Vec::new();
    for query in 0..10 {
        hosts.extend(begin(&pinned, query, &spec, &s, &slow));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    slow.may.store(true, Ordering::Relaxed);
    for host in hosts {
        host.await.unwrap().unwrap();
    }
    for pinned in &pinned {
        let revolutions = pinned.begun() as f64 / pinned.fragments() as f64;
        assert!(revolutions <= 7.0, "{revolutions} revolutions");
    }
    let expected = expected(spec.join_type, &r.concat(), &s.concat(), &|a, b| a == b);
    assert_eq!(slow.kept.sorted().len(), 10 * expected.len());
}

/// Rows of batches, by what tells them apart.
fn rows_of(batches: &[RecordBatch]) -> Ids {
    let mut rows: Ids = batches.iter().flat_map(ids).collect();
    rows.sort_unstable();
    rows
}

/// Hosts leave what they have to those that stay, and new ones come without rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_leave_and_join_between_revolutions() {
    let mut random = StdRng::seed_from_u64(9);
    let r = relation(&mut random, 4, 2000, 50);
    let whole = rows_of(&[batch("r", &r.concat())]);
    let mut batches: Vec<_> = r.iter().map(|rows| vec![batch("r", rows)]).collect();
    // The hosts that leave, and how many rows come.
    for (leaves, come) in [
        (vec![false, true, false, false], 0),
        (vec![false; 3], 2),
        (vec![true, true, false, false, true], 0),
        // All of them: each keeps its own.
        (vec![true, true], 0),
    ] {
        let pinned = pinned_of(batches).await;
        let hosts = pinned.len();
        let s = relation(&mut random, hosts, 100, 50);
        let none = vec![Duration::ZERO; hosts];
        let joined = join(&pinned, 1, spec(JoinType::Full, &equal()), &s, &none);
        let expected = expected(JoinType::Full, &r.concat(), &s.concat(), &|a, b| a == b);
        assert_eq!(joined.await.unwrap(), expected, "{hosts} hosts");
        let closed = pinned.into_iter().zip(&leaves).map(|(pinned, leaves)| {
            let leaves = *leaves;
            tokio::spawn(async move { tokio::time::timeout(END_MAX, pinned.close(leaves)).await })
        });
        let mut kept = Vec::new();
        for closed in closed.collect::<Vec<_>>() {
            kept.push(closed.await.unwrap().unwrap().unwrap());
        }
        assert_eq!(rows_of(&kept.concat()), whole, "{leaves:?}");
        let stay = kept
            .into_iter()
            .zip(&leaves)
            .filter(|(_, leaves)| !**leaves);
        batches = stay.map(|(rows, _)| rows).collect();
        batches.extend((0..come).map(|_| Vec::new()));
    }
}

/// A host that is lost breaks the ring, and so do those whose neighbours have gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_lost_ends_all_queries() {
    let r = vec![vec![(Some(1), 1); 3000]; 3];
    let mut pinned = pinned(&r).await;
    let gone = pinned.remove(1);
    let spec = spec(JoinType::Inner, &equal());
    let kept = Kept::of(&spec);
    // Without its part of the query nobody sees all.
    let waits: Vec<_> = pinned
        .iter()
        .map(|pinned| {
            let (pinned, spec) = (pinned.clone(), spec.clone());
            tokio::spawn(join_at(pinned, 1, spec, vec![(Some(1), 1)], kept.clone()))
        })
        .collect();
    drop(gone);
    for waits in waits {
        let ended = tokio::time::timeout(Duration::from_secs(5), waits).await;
        let ended = ended.unwrap().unwrap();
        // It may have been done with all fragments before.
        assert!(
            matches!(ended, Ok(_) | Err(RingError::Lost { .. })),
            "{ended:?}"
        );
    }
    for pinned in pinned {
        let closed = tokio::time::timeout(Duration::from_secs(5), pinned.close(false));
        assert!(closed.await.unwrap().is_err());
    }
}

/// A query that fails on one host, or is given up, is no matter to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_fails_leaves_the_ring_to_others() {
    let mut random = StdRng::seed_from_u64(13);
    let r = relation(&mut random, 3, 900, 20);
    let s = relation(&mut random, 3, 90, 20);
    let pinned = pinned(&r).await;
    let full = spec(JoinType::Full, &equal());
    for query in 0..20 {
        let fails = JoinSpec {
            algorithm: Algorithm::NestedLoops,
            predicate: Some(Arc::new(Fails)),
            ..full.clone()
        };
        let kept = Kept::of(&fails);
        let mut hosts: Vec<_> = (0..3)
            .map(|host| {
                let (pinned, spec) = (pinned[host].clone(), fails.clone());
                tokio::spawn(join_at(pinned, query, spec, s[host].clone(), kept.clone()))
            })
            .collect();
        let failed = futures::future::select_all(&mut hosts).await.0.unwrap();
        assert!(matches!(failed, Err(RingError::Predicate(_))), "{failed:?}");
        for host in hosts {
            host.abort();
        }
    }
    let expected = expected(JoinType::Full, &r.concat(), &s.concat(), &|a, b| a == b);
    let got = join(&pinned, 100, full, &s, &[Duration::ZERO; 3]).await;
    assert_eq!(got.unwrap(), expected);
}

/// Once one host closes the ring the others hear of it; queries that are there see all, and new ones are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_ring_closes_once_its_queries_have_ended() {
    let mut random = StdRng::seed_from_u64(17);
    let r = relation(&mut random, 3, 900, 20);
    let s = relation(&mut random, 3, 60, 20);
    let pinned = pinned(&r).await;
    let spec = spec(JoinType::Full, &equal());
    let slow = Slow::of(&spec);
    let hosts = begin(&pinned, 1, &spec, &s, &slow);
    // Host 0 goes first, which waits for its query to end.
    while slow.waiting.load(Ordering::Relaxed) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let close = |host: usize| {
        let pinned = pinned[host].clone();
        tokio::spawn(async move { pinned.close(false).await })
    };
    let first = close(0);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let kept = Kept::of(&spec);
    let refused = join_at(pinned[0].clone(), 2, spec.clone(), s[0].clone(), kept).await;
    assert!(matches!(refused, Err(RingError::Unpinned)), "{refused:?}");
    assert!(!first.is_finished());
    slow.may.store(true, Ordering::Relaxed);
    for host in hosts {
        host.await.unwrap().unwrap();
    }
    let expected = expected(JoinType::Full, &r.concat(), &s.concat(), &|a, b| a == b);
    assert_eq!(slow.kept.sorted(), expected);
    let heard = async {
        while !(pinned[1].is_closing() && pinned[2].is_closing()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(END_MAX, heard).await.unwrap();
    for closed in [close(1), close(2), first] {
        tokio::time::timeout(END_MAX, closed)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
    assert!(pinned[0].is_closing());
}
