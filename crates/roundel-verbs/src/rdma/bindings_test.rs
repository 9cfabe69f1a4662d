//! Compares the layouts and constants kept by hand with the installed headers, through a small C
//! program.

use super::{bindings, iwarp};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

/// Structs that the library allocates: in the header a mutex lies behind what is named here.
const ALLOCATED_BY_THE_LIBRARY: [&str; 6] = [
    "ibv_qp",
    "ibv_cq",
    "ibv_srq",
    "ibv_context",
    "rdma_cm_id",
    "rdma_cm_event",
];

/// What the header calls a field that is one of a union there.
fn in_the_header(field: &str) -> &str {
    if field == "param" {
        "param.conn"
    } else {
        field
    }
}

/// Fields that stand for a run of fields of the header.
fn is_filler(field: &str) -> bool {
    field.starts_with("before_") || field == "after_post" || field == "bind_mw_or_tso"
}

type Place = (&'static str, usize);

/// Places inside the unions without a name.
const UNIONS: [Place; 8] = [
    ("wr.rdma.remote_addr", 40),
    ("wr.rdma.rkey", 48),
    ("wr.atomic.compare_add", 48),
    ("wr.atomic.swap", 56),
    ("wr.atomic.rkey", 64),
    ("wr.ud.ah", 40),
    ("wr.ud.remote_qpn", 48),
    ("wr.ud.remote_qkey", 52),
];

#[test]
fn layouts_and_constants_are_those_of_the_header() {
    let (layouts, constants) = (bindings::layouts(), bindings::CONSTANTS);
    compare(
        "infiniband/verbs.h",
        "libibverbs-dev",
        layouts,
        &UNIONS,
        constants,
    );
}

#[test]
fn those_of_the_connection_manager_are_too() {
    let (layouts, constants) = (iwarp::layouts(), iwarp::CONSTANTS);
    compare("rdma/rdma_cma.h", "librdmacm-dev", layouts, &[], constants);
}

fn compare(
    header: &str,
    package: &str,
    layouts: Vec<String>,
    unions: &[Place],
    constants: &[(&str, i64)],
) {
    if !std::path::Path::new("/usr/include").join(header).exists() {
        println!("SKIPPED: no {header}: `apt-get install {package}` brings it");
        return;
    }
    let mut wanted = BTreeSet::new();
    let mut program = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\nint main(void) {{\n",
    );
    for line in layouts {
        let parts: Vec<&str> = line.split(' ').collect();
        let [name, field, ..] = parts[..] else {
            panic!("{line}")
        };
        if is_filler(field) || (field == "-" && ALLOCATED_BY_THE_LIBRARY.contains(&name)) {
            continue;
        }
        if field == "-" {
            writeln!(
                program,
                r#"printf("{name} - %zu %zu\n", sizeof(struct {name}), _Alignof(struct {name}));"#
            )
        } else {
            writeln!(
                program,
                r#"printf("{name} {field} %zu %zu\n", offsetof(struct {name}, {place}), sizeof(((struct {name} *)0)->{place}));"#,
                place = in_the_header(field),
            )
        }
        .unwrap();
        wanted.insert(line);
    }
    for (place, offset) in unions {
        writeln!(
            program,
            r#"printf("union {place} %zu\n", offsetof(struct ibv_send_wr, {place}));"#
        )
        .unwrap();
        wanted.insert(format!("union {place} {offset}"));
    }
    for (name, value) in constants {
        writeln!(program, r#"printf("{name} = %lld\n", (long long){name});"#).unwrap();
        wanted.insert(format!("{name} = {value}"));
    }
    program.push_str("return 0;\n}\n");

    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (
        directory.path().join("layout.c"),
        directory.path().join("layout"),
    );
    std::fs::write(&source, program).unwrap();
    let built = Command::new("cc")
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .output();
    let Ok(built) = built else {
        println!("SKIPPED: no C compiler: `apt-get install gcc` brings one");
        return;
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let printed = Command::new(&binary).output().unwrap();
    let found: BTreeSet<String> = String::from_utf8(printed.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    assert!(missing.is_empty(), "not so in the header: {missing:#?}");
    assert_eq!(found.len(), wanted.len());
}
