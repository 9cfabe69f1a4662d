//! Flags of `roundel doctor`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use roundel_verbs::rdma::RdmaOptions;

const EXAMPLES: &str = "\
Examples:
  roundel doctor                            this host, every fabric and every RDMA device
  roundel doctor --fabric rdma              fails when no RDMA device can be used
  roundel doctor --fabric rdma:mlx5_0/1/3   one device, port and GID
  roundel doctor --json doctor.json         for machines, or to attach to a question

Exit codes: 0 when the fabric of --fabric works, or without it when any does; 1 when not; 2 for wrong
usage.";

/// Flags of `roundel doctor`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Look at this fabric only, and fail when it does not work.
    #[arg(long, value_name = "shm|rdma[:DEVICE[/PORT[/GID]]]")]
    pub fabric: Option<FabricToCheck>,
    /// Write what was found as JSON to FILE, or to standard output; the text for people then goes
    /// to standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// A fabric that can be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FabricToCheck {
    /// Shared memory of this host.
    Shm,
    /// RDMA devices: all, or the one that the options name.
    Rdma(RdmaOptions),
}

impl FromStr for FabricToCheck {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "shm" => Ok(Self::Shm),
            None if text == "rdma" => Ok(Self::Rdma(RdmaOptions::default())),
            Some(("rdma", device)) => device
                .parse()
                .map(Self::Rdma)
                .map_err(|error| error.to_string()),
            _ => Err("there are shm, rdma and rdma:DEVICE[/PORT[/GID]]".to_owned()),
        }
    }
}

impl fmt::Display for FabricToCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm => f.write_str("shm"),
            Self::Rdma(options) if options.device.is_none() => f.write_str("rdma"),
            Self::Rdma(options) => write!(f, "rdma:{options}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabrics_are_parsed_and_printed() {
        for name in [
            "shm",
            "rdma",
            "rdma:mlx5_0",
            "rdma:mlx5_0/1",
            "rdma:mlx5_0/1/3",
        ] {
            let fabric: FabricToCheck = name.parse().unwrap();
            assert_eq!(fabric.to_string(), name);
        }
        for wrong in ["", "grpc", "shm:", "rdma:", "rdma:/1", "rdma:a/0", "RDMA"] {
            assert!(wrong.parse::<FabricToCheck>().is_err(), "{wrong}");
        }
    }
}
