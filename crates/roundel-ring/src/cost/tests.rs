use super::*;

/// Rates of nobody, which are easy to count with.
fn rates() -> Rates {
    Rates {
        open: 0.0,
        build: 10.0,
        cluster: 10.0,
        probe: 5.0,
        sort: 1.0,
        pass: 2.0,
        test: 4.0,
        emit: 8.0,
        code: 0.5,
        link: 1e10,
    }
}

fn shape(hosts: f64, spinning: f64, stationary: f64) -> Shape {
    let size = |rows| Size { rows, width: 16.0 };
    Shape {
        hosts,
        threads: 2.0,
        spinning: size(spinning),
        stationary: size(stationary),
        found: spinning,
        tested: false,
        result: spinning,
    }
}

/// Section V-B: twice the hosts set up half as much each, and each joins all that spins.
#[test]
fn hosts_share_the_set_up_and_see_all_that_spins() {
    let one = rates().cyclo(&shape(1.0, 1e6, 1e6), Method::Hash);
    let six = rates().cyclo(&shape(6.0, 1e6, 1e6), Method::Hash);
    assert_eq!(one.set_up.as_nanos(), 10_000_000);
    assert_eq!(six.set_up.as_micros(), 10_000 / 6);
    assert_eq!(one.network, Duration::ZERO);
    assert!(six.join > one.join / 2 && six.join < one.join);
}

/// What a link needs for its bytes counts only as far as hosts have nothing to join meanwhile.
#[test]
fn a_ring_hides_the_network() {
    let join = shape(6.0, 1e6, 1e6);
    let fast = rates().cyclo(&join, Method::Hash);
    assert!(fast.network > Duration::ZERO);
    assert_eq!(fast.synchronisation, Duration::ZERO);
    let slow = Rates {
        link: 1e8,
        ..rates()
    };
    let slow = slow.cyclo(&join, Method::Hash);
    let waited = slow.network - slow.join;
    assert_eq!(
        slow.synchronisation.as_micros(),
        waited.as_micros(),
        "{slow:?}"
    );
}

/// A small relation is best sent to all, two alike are best partitioned, and what cannot be is best on a ring.
#[test]
fn each_way_has_its_joins() {
    let best = |rates: Rates, join: Shape| {
        let ways = [
            rates.cyclo(&join, Method::Hash),
            rates.repartition(&join),
            rates.broadcast(&join, Method::Hash),
        ];
        let totals = ways.map(|way| way.total());
        ["cyclo", "repartition", "broadcast"][(0..3).min_by_key(|way| totals[*way]).unwrap()]
    };
    assert_eq!(best(rates(), shape(4.0, 100.0, 1e6)), "broadcast");
    assert_eq!(best(rates(), shape(8.0, 1e7, 1e7)), "repartition");
    // The one relation moves, and while it does its rows are joined.
    let slow = Rates {
        link: 1e8,
        ..rates()
    };
    assert_eq!(best(slow, shape(4.0, 1e7, 1e8)), "cyclo");
    let band = Shape {
        tested: true,
        ..shape(4.0, 1e6, 1e6)
    };
    assert!(
        rates().cyclo(&band, Method::Merge).total()
            < rates().broadcast(&band, Method::NestedLoops).total() / 100
    );
}

/// A ring has to gain where others can do the join as well, and may lose a little where they test all pairs.
#[test]
fn a_ring_is_chosen_by_what_it_gains() {
    let lasts = |millis: f64| Estimate {
        join: Duration::from_secs_f64(millis / 1e3),
        ..Estimate::default()
    };
    let choice = |cyclo: f64, repartition: Option<f64>, broadcast: f64| {
        let ways = Ways {
            cyclo: lasts(cyclo),
            repartition: repartition.map(lasts),
            broadcast: lasts(broadcast),
        };
        ways.choice()
    };
    assert_eq!(choice(79.0, Some(100.0), 200.0), Way::Cyclo);
    assert_eq!(choice(81.0, Some(100.0), 200.0), Way::Repartition);
    assert_eq!(choice(81.0, Some(200.0), 100.0), Way::Broadcast);
    assert_eq!(choice(124.0, None, 100.0), Way::Cyclo);
    assert_eq!(choice(126.0, None, 100.0), Way::Broadcast);
    let join = shape(4.0, 1e6, 1e6);
    assert_eq!(Ways::of(&rates(), &join, Method::Merge).repartition, None);
}

#[test]
fn joins_without_end_have_an_estimate() {
    let join = Shape {
        tested: true,
        ..shape(4.0, 1e15, 1e15)
    };
    let estimate = rates().cyclo(&join, Method::NestedLoops);
    assert!(estimate.total() >= Duration::from_secs(1_000_000_000));
    let none = rates().cyclo(&shape(1.0, 0.0, 0.0), Method::Merge);
    assert_eq!(none.total(), Duration::ZERO);
}

#[tokio::test]
async fn rates_of_this_host_are_numbers() {
    let rates = calibrate(1 << 13).await.unwrap();
    for rate in [rates.build, rates.cluster, rates.probe, rates.sort] {
        assert!(rate > 0.0 && rate.is_finite(), "{rates:?}");
    }
    for rate in [rates.pass, rates.test, rates.code] {
        assert!(rate > 0.0 && rate.is_finite(), "{rates:?}");
    }
    assert!(rates.emit >= 0.0);
}
