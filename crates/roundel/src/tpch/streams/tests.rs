use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Barrier;

fn plan(streams: usize, queries: &[usize]) -> Plan {
    Plan {
        streams,
        queries: queries.to_vec(),
        is_over: None,
    }
}

fn ended(query: usize) -> Ended {
    Ended {
        query,
        seconds: 0.0,
        rows: 1,
    }
}

#[tokio::test]
async fn without_a_clock_each_stream_runs_each_query_once() {
    let mut told = Vec::new();
    let ask = |query| async move { Ok(ended(query)) };
    let plan = plan(3, &[1, 4, 7, 9]);
    run_streams(&plan, ask, |one| told.push(one.query))
        .await
        .unwrap();
    told.sort_unstable();
    assert_eq!(told, [1, 1, 1, 4, 4, 4, 7, 7, 7, 9, 9, 9]);
}

#[tokio::test]
async fn until_it_is_over_streams_begin_again_and_then_end_with_the_query_they_are_in() {
    let (mut told, left) = (Vec::new(), AtomicUsize::new(5));
    let is_over = move || left.fetch_sub(1, Ordering::Relaxed) <= 1;
    let plan = Plan {
        is_over: Some(Arc::new(is_over)),
        ..plan(1, &[1, 2])
    };
    let ask = |query| async move { Ok(ended(query)) };
    run_streams(&plan, ask, |one| told.push(one.query))
        .await
        .unwrap();
    assert_eq!(told, [1, 2, 1, 2, 1]);
}

#[tokio::test]
async fn the_first_failure_ends_all_streams_and_says_which_it_was() {
    let ask = |query| async move {
        match query {
            2 => Err(Failure::Run("wrong answer: a row is missing".into())),
            // The others would go on for ever.
            _ => std::future::pending().await,
        }
    };
    let plan = plan(2, &[1, 2]);
    let failure = run_streams(&plan, ask, |_| ()).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "stream 2: wrong answer: a row is missing"
    );
}

#[tokio::test]
async fn a_panic_of_a_stream_is_a_failure() {
    let ask = |query| async move {
        assert!(query != 2, "a mistake");
        Ok(ended(query))
    };
    let plan = plan(2, &[1, 2]);
    let failure = run_streams(&plan, ask, |_| ()).await.unwrap_err();
    assert!(failure.to_string().contains("a mistake"), "{failure}");
}

#[tokio::test]
async fn streams_run_at_once() {
    let both = Arc::new(Barrier::new(2));
    let ask = move |query| {
        let both = Arc::clone(&both);
        async move {
            both.wait().await;
            Ok(ended(query))
        }
    };
    run_streams(&plan(2, &[1]), ask, |_| ()).await.unwrap();
}

#[test]
fn each_stream_begins_at_a_place_of_its_own() {
    let all: Vec<usize> = (1..=22).collect();
    let plan = plan(16, &all);
    let orders: Vec<_> = (0..16).map(|stream| plan.order(stream)).collect();
    let mut firsts: Vec<_> = orders.iter().map(|order| order[0]).collect();
    firsts.dedup();
    assert_eq!(firsts.len(), 16);
    for mut order in orders {
        order.sort_unstable();
        assert_eq!(order, all);
    }
}
