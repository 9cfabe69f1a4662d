//! Flags of `roundel doctor`.

use std::path::PathBuf;

use clap::Args;
use roundel_engine::FabricChoice;

const EXAMPLES: &str = "\
Examples:
  roundel doctor                            this host, every fabric and every RDMA device
  roundel doctor --fabric rdma              fails when no RDMA device can be used
  roundel doctor --fabric rdma:mlx5_0/1/3   one device, port and GID
  roundel doctor --json doctor.json         for machines, or to attach to a question
  roundel doctor --calibrate                measures what joins cost on this host, and keeps it

Exit codes: 0 when the fabric of --fabric works, with auto when any does; 1 when not; 2 for wrong usage.";

/// Flags of `roundel doctor`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Look at this fabric only, and fail when it does not work; `auto` is all of them, of which
    /// one must work.
    #[arg(
        long,
        value_name = "auto|rdma[:DEVICE]|shm|tcp[:ADDRESS]|grpc",
        default_value = "auto"
    )]
    pub fabric: FabricChoice,
    /// Measure how fast this host joins, and a ring over the fabric (shm with auto), and keep it for all queries to come.
    /// Without this the first query with a join does it, in less time and less exactly.
    #[arg(long)]
    pub calibrate: bool,
    /// Write what was found as JSON to FILE, or to standard output; the text for people then goes
    /// to standard error.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}
