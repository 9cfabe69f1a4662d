use super::*;
use roundel_verbs::shm::{self, ShmOptions};
use roundel_verbs::{TokioContext, tcp};
use std::time::Duration;

pub(crate) const SMALL: RingOptions = RingOptions {
    elements: 2,
    element_bytes: 4096,
};

/// A host of this process, over shared memory.
pub(crate) fn host() -> RingHost {
    host_on(shm::open(ShmOptions::default()).unwrap())
}

fn tcp_host() -> RingHost {
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    host_on(tcp::open(tcp::TcpOptions { address }).unwrap())
}

fn host_on(device: Device) -> RingHost {
    RingHost::new(device, Arc::new(TokioContext::current())).unwrap()
}

/// A ring of hosts of this process, over shared memory.
pub(crate) fn ring(hosts: usize, options: RingOptions) -> Vec<Roundabout> {
    ring_of(host, hosts, options)
}

fn ring_of(host: fn() -> RingHost, hosts: usize, options: RingOptions) -> Vec<Roundabout> {
    let hosts: Vec<_> = (0..hosts).map(|_| host()).collect();
    Opening::all(&hosts, options).unwrap()
}

/// Begins `own` elements and passes on what comes, with a pause at each; returns what came, by origin.
async fn turn(mut ring: Roundabout, own: usize, pause: Duration) -> Result<Vec<Vec<Vec<u8>>>> {
    let place = ring.place();
    let mut came = vec![Vec::new(); place.hosts];
    let mut begun = 0;
    loop {
        let element = match ring.next(begun < own).await? {
            Next::End => break,
            Next::Blank(blank) => {
                let payload = vec![begun as u8; 100 * place.number + begun];
                begun += 1;
                ring.begin(blank, &payload, &[0; 8], begun == own)
            }
            Next::Element(mut element) => {
                let mut notes = element.notes();
                notes[0] += 1;
                assert!(
                    !notes.contains(&(place.hosts as u8)),
                    "no host has seen it twice"
                );
                element.set_notes(&notes);
                came[element.origin()].push(element.payload());
                element
            }
        };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        ring.pass_on(element);
    }
    ring.finish().await?;
    Ok(came)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_host_sees_all_elements_of_all_others_in_their_order() {
    for hosts in 1..=6 {
        for (host, elements, own) in [
            (host as fn() -> RingHost, 2, 1),
            (host, 2, 40),
            (host, 8, 40),
            (tcp_host, 2, 40),
        ] {
            let options = RingOptions {
                elements,
                element_bytes: 1024,
            };
            let turns = ring_of(host, hosts, options).into_iter().enumerate();
            // Hosts that are slow at different times.
            let turns = turns.map(|(number, ring)| {
                tokio::spawn(turn(
                    ring,
                    own,
                    Duration::from_micros(200 * (number % 2) as u64),
                ))
            });
            for (number, turn) in turns.collect::<Vec<_>>().into_iter().enumerate() {
                let came = turn.await.unwrap().unwrap();
                for (origin, came) in came.into_iter().enumerate() {
                    let sent = (0..own).map(|at| vec![at as u8; 100 * origin + at]);
                    let expected = if origin == number {
                        Vec::new()
                    } else {
                        sent.collect()
                    };
                    assert_eq!(came, expected, "of {origin} at {number} of {hosts}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_breaks_the_ring_of_its_neighbours() {
    let mut rings = ring(3, SMALL);
    drop(rings.remove(1));
    let turns: Vec<_> = rings
        .into_iter()
        .map(|ring| tokio::spawn(turn(ring, 5, Duration::ZERO)))
        .collect();
    for turn in turns {
        let ended = tokio::time::timeout(Duration::from_secs(5), turn)
            .await
            .unwrap()
            .unwrap();
        assert!(matches!(ended, Err(RingError::Lost { .. })), "{ended:?}");
    }
}

#[tokio::test]
async fn what_makes_no_ring_is_refused() {
    let place = Place {
        number: 0,
        hosts: 2,
    };
    let opening = |options| Opening::new(&host(), place, options);
    let (elements, element_bytes) = (1, 16);
    assert!(opening(RingOptions { elements, ..SMALL }).is_err());
    let options = RingOptions {
        element_bytes,
        ..SMALL
    };
    assert!(opening(options).is_err());
    let small = opening(SMALL).unwrap();
    let large = opening(RingOptions::default()).unwrap();
    let offer = large.offer();
    assert!(matches!(
        small.connect(&offer, &offer, None),
        Err(RingError::Malformed { place: 1, .. })
    ));
    let small = opening(SMALL).unwrap();
    assert!(small.connect(b"nothing", b"nothing", None).is_err());
}
