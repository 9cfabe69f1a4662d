//! Runs of small data over every transport, between processes: each verifies that exactly the rows that were
//! sent have arrived. And what becomes of a run when one of its processes is killed.

use roundel_exchange::Buffers;
use roundel_exchange::Design;
use roundel_experiments::setting::{Pattern, Transport, Wait};
use roundel_experiments::{Error, Hosts, Measured, NodeCommand, Setting, run::run};
use roundel_testbed::program::{eventually, is_alive, signal, stderr, workers_of};
use roundel_verbs::DeviceChoice;
use rustix::process::Signal;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_roundel-lab");

fn command() -> NodeCommand {
    NodeCommand {
        program: PROGRAM.into(),
        arguments: vec!["node".into()],
        hosts: None,
    }
}

/// Two hosts of these names, which a shell reaches that is told them before the program.
fn elsewhere(shell: Vec<String>, names: &[&str]) -> NodeCommand {
    let hosts = Hosts {
        names: names.iter().map(ToString::to_string).collect(),
        shell,
        address: Ipv4Addr::LOCALHOST.into(),
    };
    NodeCommand {
        hosts: Some(hosts),
        ..command()
    }
}

fn small(transport: Transport) -> Setting {
    Setting {
        rows: 30_000,
        seconds: 0.0,
        ..Setting::new(transport, DeviceChoice::default())
    }
}

fn runs(setting: &Setting) -> Measured {
    run(setting, &command()).unwrap_or_else(|error| panic!("{setting:?}: {error}"))
}

fn rows(measured: &Measured) -> u64 {
    measured.nodes.iter().map(|node| node.received.count).sum()
}

/// Both patterns with one thread and with two.
fn in_every_way(transport: Transport, fabric: &str) {
    for pattern in [Pattern::Repartition, Pattern::Broadcast] {
        for threads in [1, 2] {
            let setting = Setting {
                nodes: 3,
                threads,
                pattern,
                fabric: fabric.parse().unwrap(),
                ..small(transport)
            };
            let copies = match pattern {
                Pattern::Repartition => 1,
                Pattern::Broadcast => 3,
            };
            let sent = setting.rows * setting.nodes * threads;
            assert_eq!(rows(&runs(&setting)), (sent * copies) as u64, "{setting:?}");
        }
    }
}

#[test]
fn designs_deliver_every_row() {
    Design::every().for_each(|design| in_every_way(Transport::Design(design), "shm"));
}

#[test]
fn designs_deliver_every_row_over_sockets_as_devices() {
    for design in [Design::MesqSr, Design::SemqSr] {
        in_every_way(Transport::Design(design), "tcp");
    }
}

#[test]
fn sockets_deliver_every_row() {
    in_every_way(Transport::Sockets, "shm");
}

#[test]
fn grpc_delivers_every_row() {
    in_every_way(Transport::Grpc, "shm");
}

#[cfg(feature = "mpi")]
#[test]
fn mpi_delivers_every_row() {
    in_every_way(Transport::Mpi, "shm");
}

#[test]
fn what_moves_no_rows_runs_too() {
    for transport in [Transport::Partition, Transport::Consume, Transport::Qperf] {
        for threads in [1, 2] {
            let setting = Setting {
                threads,
                seconds: 0.05,
                ..small(transport)
            };
            assert!(runs(&setting).bytes_per_second > 0.0, "{setting:?}");
        }
    }
    let ping_pong = Setting {
        seconds: 0.05,
        ..small(Transport::PingPong)
    };
    assert!(runs(&ping_pong).endpoints().round_trip > 0.0);
}

#[test]
fn settings_of_every_kind_deliver_every_row() {
    let base = small(Transport::Design(Design::MemqSr));
    let datagrams = Transport::Design(Design::MesqSr);
    let settings = [
        Setting {
            message_bytes: Some(4096),
            buffers: Buffers::Fixed(2),
            ..base.clone()
        },
        Setting {
            message_bytes: Some(1 << 20),
            ..base.clone()
        },
        Setting {
            credit_frequency: Some(16),
            buffers: Buffers::Fixed(16),
            ..base.clone()
        },
        Setting {
            work: vec![0, 5],
            ..base.clone()
        },
        Setting {
            wait: Wait::Poll,
            ..base.clone()
        },
        Setting {
            wait: Wait::Spin(20),
            transport: datagrams,
            ..base.clone()
        },
        Setting {
            buffers: Buffers::Fixed(2),
            transport: datagrams,
            ..base.clone()
        },
        Setting {
            tuple_bytes: 3000,
            rows: 1000,
            ..base.clone()
        },
        Setting {
            tuple_bytes: 3000,
            rows: 1000,
            transport: datagrams,
            ..base.clone()
        },
        Setting {
            rows: 1000,
            transport: Transport::ZeroCopy(Design::MemqSr),
            ..base
        },
    ];
    settings.iter().for_each(|setting| {
        let sent = setting.rows * setting.nodes;
        assert_eq!(rows(&runs(setting)), sent as u64, "{setting:?}");
    });
}

#[test]
fn endpoints_report_what_table_1_says() {
    for design in Design::ALL {
        let setting = Setting {
            nodes: 3,
            threads: 2,
            ..small(Transport::Design(design))
        };
        for node in runs(&setting).nodes {
            let expected = design.queue_pairs(3, 2) as u64;
            assert_eq!(node.endpoints.queue_pairs, expected, "{design}");
            assert!(
                node.endpoints.messages > 0 && node.endpoints.registered_bytes > 0,
                "{design}"
            );
        }
    }
}

#[test]
fn a_tuple_that_does_not_fit_is_an_error_that_says_so() {
    let setting = Setting {
        tuple_bytes: 20_000,
        rows: 100,
        ..small(Transport::Design(Design::MesqSr))
    };
    let error = run(&setting, &command()).unwrap_err();
    assert!(matches!(error, Error::Node { .. }), "{error}");
    assert!(error.to_string().contains("does not fit"), "{error}");
}

/// Longest that nodes may take to work, and to end: well before a run ends by itself.
const MINUTE: Duration = Duration::from_secs(60);

/// Whether a process has more threads than its first and its lifeline, so that it is within its run.
fn works(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let threads = lines.find_map(|line| line.strip_prefix("Threads:")?.trim().parse::<u32>().ok());
    threads.is_some_and(|threads| threads > 2)
}

/// A long run in a process of its own.
fn long_run(transport: &str) -> Child {
    let setting = format!("{{\"transport\":\"{transport}\",\"seconds\":120,\"rows\":10000}}");
    let mut command = Command::new(PROGRAM);
    command
        .args(["experiment", "setting", &setting])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// The two nodes that a process has started, once they work.
fn nodes_of(starter: u32) -> Vec<u32> {
    let nodes = workers_of(starter, 2);
    let work = || nodes.iter().all(|node| works(*node));
    assert!(eventually(MINUTE, work), "nodes that work");
    nodes
}

fn ends(node: u32) {
    assert!(eventually(MINUTE, || !is_alive(node)), "the end of a node");
}

fn kills_a_node(run: Child, nodes: &[u32], transport: &str) {
    signal(nodes[1], Signal::KILL);
    // A run that does not notice is ended by its test's own end, with its nodes.
    let output = run.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(
        !output.status.success() && said.contains("node 1 failed"),
        "{transport}: {said}"
    );
    ends(nodes[0]);
}

#[test]
fn a_node_that_is_killed_is_an_error_that_names_it() {
    for transport in ["MESQ/SR", "MEMQ/WR", "sockets", "grpc"] {
        let run = long_run(transport);
        let nodes = nodes_of(run.id());
        kills_a_node(run, &nodes, transport);
    }
}

#[cfg(feature = "mpi")]
#[test]
fn a_node_that_mpirun_has_started_is_named_too() {
    let run = long_run("mpi");
    let nodes = nodes_of(workers_of(run.id(), 1)[0]);
    // Threads of MPI come before those of the run.
    std::thread::sleep(Duration::from_secs(1));
    kills_a_node(run, &nodes, "mpi");
}

#[test]
fn nodes_end_with_the_process_that_started_them() {
    for transport in ["MEMQ/SR", "sockets", "grpc"] {
        let mut run = long_run(transport);
        let nodes = nodes_of(run.id());
        run.kill().unwrap();
        run.wait().unwrap();
        nodes.into_iter().for_each(ends);
    }
}

#[test]
fn nodes_run_on_the_hosts_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let (script, log) = (
        directory.path().join("shell"),
        directory.path().join("hosts"),
    );
    let text = format!("echo \"$1\" >> {}; shift; exec \"$@\"", log.display());
    std::fs::write(&script, text).unwrap();
    let shell = vec!["sh".to_owned(), script.display().to_string()];
    let command = elsewhere(shell, &["one", "other"]);
    for transport in ["MESQ/SR", "sockets", "grpc", "qperf"] {
        let setting = Setting {
            nodes: 3,
            fabric: "tcp".parse().unwrap(),
            ..small(transport.parse().unwrap())
        };
        let measured = run(&setting, &command).unwrap_or_else(|error| panic!("{error}"));
        assert!(rows(&measured) > 0 && measured.seconds > 0.0, "{transport}");
    }
    let started = std::fs::read_to_string(&log).unwrap();
    let on = |host: &str| started.lines().filter(|line| *line == host).count();
    assert_eq!((on("one"), on("other")), (4 * 2, 4));
}

#[test]
fn a_host_that_cannot_be_reached_is_named_with_what_the_shell_said() {
    let shell = ["sh", "-c", "echo \"error: no route to $0\" >&2; exit 255"];
    let command = elsewhere(shell.map(str::to_owned).to_vec(), &["nowhere"]);
    let setting = Setting {
        fabric: "tcp".parse().unwrap(),
        ..small(Transport::Qperf)
    };
    let error = run(&setting, &command).unwrap_err().to_string();
    assert!(error.contains("no route to nowhere"), "{error}");
}

#[test]
fn a_host_that_has_another_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other-$$");
    let other = other.display();
    let script = format!("cp \"$1\" {other} && echo more >> {other} && exec {other} node");
    let shell = ["sh".to_owned(), "-c".to_owned(), script];
    let command = elsewhere(shell.to_vec(), &["one"]);
    let setting = Setting {
        fabric: "tcp".parse().unwrap(),
        ..small(Transport::Qperf)
    };
    let error = run(&setting, &command).unwrap_err().to_string();
    assert!(error.contains("copy it there"), "{error}");
}
