//! The result: a table for people, JSON for machines, and a plot of each sweep.

use std::path::{Path, PathBuf};

use roundel_experiments::figure::{Axis, Figure, Point, Scale, Series, Unit, X};
use roundel_experiments::report::to_svg;
use roundel_protocols::Protocol;
use roundel_protocols::paradigm::{Load, Measured, Paradigm, Setting};
use serde::Serialize;

use crate::cli::ProtocolsArgs;
use roundel_terminal::Failure;
use roundel_terminal::Text;

/// The whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of Roundel.
    pub version: &'static str,
    /// What carried the messages.
    pub fabric: String,
    /// One entry for each setting.
    pub measurements: Vec<Entry>,
    /// Why the run stopped early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A setting that was measured.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// The run of the median.
    #[serde(flatten)]
    pub median: Measured,
    /// Calls in a second of every run.
    pub runs: Vec<f64>,
}

/// A parameter that can be swept.
struct Swept {
    name: &'static str,
    label: &'static str,
    unit: Unit,
    of: fn(&Setting) -> usize,
}

const SWEPT: [Swept; 4] = [
    Swept {
        name: "nodes",
        label: "nodes",
        unit: Unit::None,
        of: |setting| setting.nodes,
    },
    Swept {
        name: "threads",
        label: "threads of a node",
        unit: Unit::None,
        of: |setting| setting.threads,
    },
    Swept {
        name: "pending",
        label: "calls pending on a connection",
        unit: Unit::None,
        of: |setting| setting.pending,
    },
    Swept {
        name: "value",
        label: "bytes of a response",
        unit: Unit::Bytes,
        of: |setting| setting.response_bytes,
    },
];

/// Whether there is something to draw.
///
/// # Errors
/// [`Failure::Usage`] when nothing varies.
pub fn check_plot(settings: &[Setting]) -> Result<(), Failure> {
    let varies = |swept: &Swept| {
        let first = settings.first().map(swept.of);
        settings
            .iter()
            .any(|setting| Some((swept.of)(setting)) != first)
    };
    match SWEPT.iter().any(varies) {
        true => Ok(()),
        false => Err(Failure::Usage(
            "--plot needs a flag with several values, such as --pending 1,4,16".into(),
        )),
    }
}

impl Report {
    /// Without measurements.
    pub fn new(args: &ProtocolsArgs) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            fabric: args.fabric.to_string(),
            measurements: Vec::new(),
            error: None,
        }
    }

    /// Adds a setting.
    pub fn add(&mut self, median: Measured, runs: &[f64]) {
        self.measurements.push(Entry {
            median,
            runs: runs.to_vec(),
        });
    }

    /// Draws each sweep; the files that were written.
    pub fn plot(&self, args: &ProtocolsArgs, directory: &Path) -> Result<Vec<PathBuf>, Failure> {
        let figures = self.figures(args);
        let failed = |path: &Path, e: std::io::Error| {
            Failure::Run(format!("cannot write {}: {e}", path.display()))
        };
        std::fs::create_dir_all(directory).map_err(|e| failed(directory, e))?;
        let mut written = Vec::new();
        for figure in &figures {
            let path = directory.join(format!("{}.svg", figure.id));
            std::fs::write(&path, to_svg(figure)).map_err(|e| failed(&path, e))?;
            written.push(path);
        }
        let path = directory.join("figures.json");
        let text = serde_json::to_string_pretty(&figures)
            .map_err(|e| Failure::Run(format!("cannot write figures as JSON: {e}")))?;
        std::fs::write(&path, text).map_err(|e| failed(&path, e))?;
        Ok(written)
    }

    /// A figure for each paradigm and parameter that has several values, and for each combination of the others.
    fn figures(&self, args: &ProtocolsArgs) -> Vec<Figure> {
        let settings: Vec<_> = self
            .measurements
            .iter()
            .map(|entry| &entry.median)
            .collect();
        let mut figures = Vec::new();
        for paradigm in &args.paradigm {
            let own: Vec<_> = settings
                .iter()
                .filter(|one| one.setting.paradigm == *paradigm)
                .collect();
            for swept in &SWEPT {
                let mut groups: Vec<(Vec<usize>, Vec<&Measured>)> = Vec::new();
                for one in &own {
                    let others = SWEPT.iter().filter(|other| other.name != swept.name);
                    let key: Vec<_> = others.map(|other| (other.of)(&one.setting)).collect();
                    match groups.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, group)) => group.push(one),
                        None => groups.push((key, vec![one])),
                    }
                }
                for (_, group) in groups {
                    figures.extend(figure(*paradigm, swept, &group, &self.fabric));
                }
            }
        }
        figures
    }
}

fn figure(paradigm: Paradigm, swept: &Swept, group: &[&Measured], fabric: &str) -> Option<Figure> {
    let first = &group.first()?.setting;
    let varies = group
        .iter()
        .any(|one| (swept.of)(&one.setting) != (swept.of)(first));
    if !varies {
        return None;
    }
    let others = SWEPT.iter().filter(|other| other.name != swept.name);
    let fixed: Vec<_> = others
        .map(|other| format!("{} {}", other.name, (other.of)(first)))
        .collect();
    let series = Protocol::ALL.into_iter().map(|protocol| {
        let own = group.iter().filter(|one| one.setting.protocol == protocol);
        let point = |one: &&Measured| Point {
            x: X::Number((swept.of)(&one.setting) as f64),
            median: one.bytes_per_second,
            low: one.bytes_per_second,
            high: one.bytes_per_second,
            runs: 1,
        };
        Series {
            name: protocol.name().to_owned(),
            points: own.map(point).collect(),
        }
    });
    let id = format!(
        "{}-{}-{}",
        paradigm.name().replace(':', "").to_lowercase(),
        swept.name,
        fixed.join("-").replace(' ', "")
    );
    let whose = match paradigm {
        Paradigm::ManyToMany => "of a node",
        _ => "of all nodes",
    };
    Some(Figure {
        id,
        title: format!(
            "{paradigm} over {fabric}: {}, {}",
            swept.label,
            fixed.join(", ")
        ),
        paper: "Huang, Ghandeharizadeh 2019, section 4".into(),
        paper_saw: String::new(),
        x: Axis {
            label: swept.label.into(),
            unit: swept.unit,
            scale: Scale::Log2,
        },
        y: Axis {
            label: format!("responses {whose}"),
            unit: Unit::BytesPerSecond,
            scale: Scale::Linear,
        },
        series: series.filter(|series| !series.points.is_empty()).collect(),
        findings: Vec::new(),
    })
}

/// The table for people, written line by line as settings end.
pub struct Table(Text);

impl Table {
    /// Prints to standard output, or to standard error where JSON needs the former.
    pub fn new(to_stderr: bool) -> Self {
        Self(Text::new(to_stderr))
    }

    /// Says what runs.
    pub fn header(&mut self, args: &ProtocolsArgs, settings: &[Setting]) -> Result<(), Failure> {
        let load = match settings.first().map(|setting| setting.load) {
            Some(Load::Open(rate)) => format!("{rate} calls a second for each thread"),
            _ => "as many calls as can be".to_owned(),
        };
        self.0.line(&format!(
            "requests of {} bytes over {}, {load}",
            args.request, args.fabric
        ))?;
        self.0.line(&format!(
            "\n{:<19} {:>8} {:>5} {:>4} {:>4} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>6}",
            "protocol",
            "paradigm",
            "nodes",
            "S",
            "R",
            "V bytes",
            "Mcalls/s",
            "MiB/s",
            "p50 µs",
            "p99",
            "p99.9",
            "CPU s/Mc",
            "QPs"
        ))
    }

    /// One setting.
    pub fn measured(&mut self, measured: &Measured) -> Result<(), Failure> {
        let setting = &measured.setting;
        let latency = |of: fn(&roundel_protocols::perf::LatencyMicroseconds) -> f64| {
            let latency = measured.latency.as_ref().map(of);
            latency.map_or("-".to_owned(), |latency| format!("{latency:.2}"))
        };
        self.0.line(&format!(
            "{:<19} {:>8} {:>5} {:>4} {:>4} {:>8} {:>9.4} {:>9.1} {:>8} {:>8} {:>8} {:>9.3} {:>6}",
            setting.protocol,
            setting.paradigm,
            setting.nodes,
            setting.threads,
            setting.pending,
            setting.response_bytes,
            measured.calls_per_second / 1e6,
            measured.bytes_per_second / f64::from(1 << 20),
            latency(|l| l.p50),
            latency(|l| l.p99),
            latency(|l| l.p99_9),
            measured.cpu_seconds_per_million,
            measured.queue_pairs
        ))
    }

    /// What was drawn.
    pub fn plots(&mut self, written: &[PathBuf]) -> Result<(), Failure> {
        for path in written {
            self.0.line(&format!("wrote {}", path.display()))?;
        }
        Ok(())
    }
}
