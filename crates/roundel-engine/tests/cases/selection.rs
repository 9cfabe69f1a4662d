//! Which combinations of clusters, files and joins are run: by default, so many that each two values meet.

use roundel_engine::{DeviceChoice, FabricChoice};

/// The format of a table's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    Csv,
    Parquet,
}

/// How large the file of `t` is; its name, and its rows in CSV.
pub const SIZES: [(&str, usize); 5] = [
    ("10 KB", 500),
    ("130 KB", 6500),
    ("600 KB", 30_000),
    ("5 MB", 250_000),
    ("100 MB", 5_000_000),
];

const WORKERS: [usize; 4] = [1, 2, 3, 4];
const FABRICS: [&str; 2] = ["shm", "tcp"];
const FORMATS: [Format; 2] = [Format::Csv, Format::Parquet];
const JOINS: [&str; 4] = ["auto", "cyclo", "repartition", "broadcast"];
const SKEWS: [&str; 2] = ["off", "auto"];

/// A cluster to start.
#[derive(Clone, Copy, Debug)]
pub struct ClusterKind {
    pub workers: usize,
    pub threads: usize,
    pub fabric: &'static str,
}

impl ClusterKind {
    pub fn fabric(self) -> FabricChoice {
        match self.fabric {
            "shm" => DeviceChoice::Shm.into(),
            _ => DeviceChoice::Tcp(None).into(),
        }
    }
}

/// The file and the join with which a cluster runs a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Index in [SIZES].
    pub size: usize,
    pub format: Format,
    pub join: &'static str,
    pub skew: &'static str,
}

/// The clusters to start, and what cases are run with in each.
pub fn selected() -> Vec<(ClusterKind, Vec<Variant>)> {
    let all = std::env::var_os("ROUNDEL_CASES").is_some_and(|value| value == "all");
    let large = std::env::var_os("ROUNDEL_CASES_LARGE").is_some();
    let mut clusters = Vec::new();
    for (at, workers) in WORKERS.into_iter().enumerate() {
        for other in 0..4 {
            let [join, cluster, files] = [1, 2, 3].map(|factor| at ^ times(factor, other));
            let kind = ClusterKind {
                workers,
                threads: 1 + cluster / 2,
                fabric: FABRICS[cluster % 2],
            };
            let chosen = variant(other, files / 2, join, files % 2);
            let mut variants = match all {
                true => every(),
                false => vec![chosen],
            };
            if large {
                variants.push(Variant { size: 4, ..chosen });
            }
            clusters.push((kind, variants));
        }
    }
    clusters
}

fn variant(size: usize, format: usize, join: usize, skew: usize) -> Variant {
    Variant {
        size,
        format: FORMATS[format],
        join: JOINS[join],
        skew: SKEWS[skew],
    }
}

fn every() -> Vec<Variant> {
    (0..4 * 2 * 4 * 2)
        .map(|i| variant(i % 4, i / 4 % 2, i / 8 % 4, i / 32))
        .collect()
}

/// The product in the field of four elements: the rows of an orthogonal array are `(a, b, a + b, a + 2b, a + 3b)`.
fn times(a: usize, b: usize) -> usize {
    const PRODUCTS: [[usize; 4]; 4] = [[0, 0, 0, 0], [0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]];
    PRODUCTS[a][b]
}

#[test]
fn each_two_values_meet() {
    let chosen: Vec<_> = selected();
    let met = |one: usize, other: usize| {
        let mut pairs: Vec<(String, String)> = chosen
            .iter()
            .flat_map(|(kind, variants)| variants.iter().map(move |v| values(*kind, *v)))
            .map(|values| (values[one].clone(), values[other].clone()))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs.len()
    };
    let counts = [4, 2, 2, 4, 2, 4, 2];
    for one in 0..counts.len() {
        for other in 0..one {
            assert!(
                met(one, other) >= counts[one] * counts[other],
                "{one} {other}"
            );
        }
    }
}

fn values(kind: ClusterKind, variant: Variant) -> [String; 7] {
    [
        kind.workers.to_string(),
        kind.threads.to_string(),
        kind.fabric.to_owned(),
        SIZES[variant.size].0.to_owned(),
        format!("{:?}", variant.format),
        variant.join.to_owned(),
        variant.skew.to_owned(),
    ]
}
