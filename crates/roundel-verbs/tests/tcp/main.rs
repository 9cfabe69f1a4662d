//! The TCP provider between hosts: network namespaces stand for them, joined by a cable that is cut.
//! And what a device leaves behind in its process: nothing.
//!
//! This binary starts itself again as the hosts' processes. Namespaces need root and `ip`; where
//! one is missing, a line says so.

mod namespaces;
mod stream;

use namespaces::{Cable, Host};
use roundel_verbs::{Arena, ArenaOptions, CompletionQueue, Device, QueuePair, tcp};
use std::io::Write;
use std::time::{Duration, Instant};
use stream::{Work, receive, run};

/// A cut cable is noticed within 5 seconds; a machine that is busy with other tests gets a little
/// more.
const NOTICED_WITHIN: Duration = Duration::from_secs(8);

/// Not a test: what this binary does when it was started on a host.
#[test]
fn started_on_a_host() {
    if let Ok(work) = std::env::var(namespaces::WORK) {
        let address = std::env::var(namespaces::ADDRESS).unwrap();
        run(address.parse().unwrap(), Work::from_name(&work));
    }
}

/// Two hosts, or a line that says why there are none.
fn two_hosts() -> Option<Cable> {
    Cable::lay()
        .inspect_err(|reason| {
            // To the terminal also when the test passes.
            let text = format!("SKIPPED a test between hosts: {reason}\n");
            let _ = std::io::stderr().write_all(text.as_bytes());
        })
        .ok()
}

/// Lets two hosts work, cuts the cable between them, and tells when each noticed.
fn cut_the_cable(work: Work) {
    let Some(cable) = two_hosts() else {
        return;
    };
    let mut hosts = [0, 1].map(|end| Host::start(&cable, end, work));
    Host::introduce(&mut hosts);
    // So that both are in the middle of it, or have been idle for longer than a probe takes.
    std::thread::sleep(Duration::from_millis(1500));
    let cut = Instant::now();
    cable.cut();
    let noticed = hosts.map(|host| host.noticed_after(cut));
    println!("{work:?}: a cut cable was noticed after {noticed:?}");
    for time in noticed {
        assert!(time < NOTICED_WITHIN, "noticed after {time:?}");
    }
}

#[test]
fn a_cable_that_is_cut_in_mid_transfer() {
    cut_the_cable(Work::Stream);
}

#[test]
fn a_cable_that_is_cut_while_idle() {
    cut_the_cable(Work::Idle);
}

#[test]
fn a_cable_that_is_cut_while_a_send_waits_for_a_receive() {
    cut_the_cable(Work::Wait);
}

/// The longest datagrams are cut into several packets on this cable, and put together again.
#[test]
fn datagrams_that_are_longer_than_a_packet() {
    let Some(cable) = two_hosts() else {
        return;
    };
    let mut hosts = [0, 1].map(|end| Host::start(&cable, end, Work::Datagrams));
    Host::introduce(&mut hosts);
    let begun = Instant::now();
    for host in hosts {
        let time = host.noticed_after(begun);
        assert!(time < NOTICED_WITHIN, "not received within {time:?}");
    }
}

/// A host that is alive and slow is not gone: its process is stopped for longer than a dead one
/// takes to be noticed, in mid transfer.
#[test]
fn a_stopped_process_is_not_dead() {
    let Some(cable) = two_hosts() else {
        return;
    };
    let mut hosts = [0, 1].map(|end| Host::start(&cable, end, Work::Stream));
    Host::introduce(&mut hosts);
    std::thread::sleep(Duration::from_millis(300));
    hosts[1].signal("STOP");
    std::thread::sleep(Duration::from_secs(6));
    hosts[1].signal("CONT");
    std::thread::sleep(Duration::from_millis(300));
    for host in &mut hosts {
        assert!(!host.has_noticed(), "a connection to a living host broke");
    }
}

struct Open {
    _device: Device,
    _arena: Arena,
    _queue: CompletionQueue,
    _pairs: Vec<QueuePair>,
}

/// Devices with queue pairs in all states.
fn open_some() -> Vec<Open> {
    let address = "127.0.0.1".parse().unwrap();
    let mut opened = Vec::new();
    for _ in 0..2 {
        let device = tcp::open(tcp::TcpOptions { address }).unwrap();
        let arena = device.arena(ArenaOptions::default());
        let channel = device.create_channel().unwrap();
        let queue = device.create_completion_queue(64, Some(&channel)).unwrap();
        let mut pairs = Vec::new();
        for transport in roundel_verbs::Transport::ALL {
            for _ in 0..4 {
                let options = stream::options(transport);
                let pair = device.create_queue_pair(&options, &queue, &queue).unwrap();
                receive(&pair, &arena);
                pairs.push(pair);
            }
        }
        opened.push(Open {
            _device: device,
            _arena: arena,
            _queue: queue,
            _pairs: pairs,
        });
    }
    for index in 0..8 {
        let (one, other) = (&opened[0]._pairs[index], &opened[1]._pairs[index]);
        match index % 4 {
            0 => one.connect(other.address()).unwrap(),
            1 => {
                one.connect(other.address()).unwrap();
                other.connect(one.address()).unwrap();
            }
            2 => one.connect(one.address()).unwrap(),
            _ => {}
        }
    }
    opened
}

fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// Not a test: it needs a process without other tests.
#[test]
fn started_to_leave_nothing() {
    if std::env::var_os("ROUNDEL_TCP_ALONE").is_none() {
        return;
    }
    let before = (entries("/proc/self/fd"), entries("/proc/self/task"));
    for round in 0..20 {
        let opened = open_some();
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(opened);
    }
    let start = Instant::now();
    loop {
        let now = (entries("/proc/self/fd"), entries("/proc/self/task"));
        if now == before {
            return;
        }
        assert!(
            start.elapsed() < NOTICED_WITHIN,
            "descriptors and threads: {now:?}, before {before:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn devices_leave_nothing_behind() {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "started_to_leave_nothing", "--test-threads", "1"])
        .env("ROUNDEL_TCP_ALONE", "1")
        .status()
        .unwrap();
    assert!(status.success());
}
