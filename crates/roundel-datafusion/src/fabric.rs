//! Fabrics: what can carry the rows of a query, and what a user asks for.
//!
//! This module knows nothing of plans; how rows travel over a fabric is the exchange's matter.

use std::fmt;
use std::str::FromStr;

use roundel_verbs::DeviceChoice;
use strum::{Display, EnumString, IntoStaticStr};

use crate::error::TransportError;

/// What carries the rows of a query from task to task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", parse_err_ty = TransportError, parse_err_fn = unknown)]
pub enum Fabric {
    /// Roundel's exchange over RDMA devices: InfiniBand, RoCE, Soft-RoCE.
    Rdma,
    /// Roundel's exchange over shared memory, for the processes of one host.
    Shm,
    /// Roundel's exchange over sockets, between any hosts.
    Tcp,
    /// datafusion-distributed's own transport, Arrow Flight over gRPC, without compression.
    Grpc,
}

impl Fabric {
    /// In the order in which they are preferred.
    pub const ALL: [Self; 4] = [Self::Rdma, Self::Shm, Self::Tcp, Self::Grpc];

    /// The device that it needs, any of its kind; none where it needs no device.
    pub(crate) fn device(self) -> Option<DeviceChoice> {
        self.name().parse().ok()
    }

    /// The name that plans, reports and the command line use.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn unknown(fabric: &str) -> TransportError {
    TransportError::Usage(format!("unknown fabric {fabric:?}"))
}

/// What a user asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum FabricChoice {
    /// The first in the order of [`Fabric::ALL`] that joins all workers.
    #[default]
    Auto,
    /// Roundel's exchange over this device. Sockets without an address are on the one that the other processes reach this
    /// one by.
    Device(DeviceChoice),
    /// gRPC.
    Grpc,
}

impl FabricChoice {
    /// The fabric asked for; none when it is to be chosen.
    pub fn fabric(&self) -> Option<Fabric> {
        match self {
            Self::Auto => None,
            Self::Device(DeviceChoice::Rdma(_)) => Some(Fabric::Rdma),
            Self::Device(DeviceChoice::Shm) => Some(Fabric::Shm),
            Self::Device(DeviceChoice::Tcp(_)) => Some(Fabric::Tcp),
            Self::Grpc => Some(Fabric::Grpc),
        }
    }
}

impl From<DeviceChoice> for FabricChoice {
    fn from(choice: DeviceChoice) -> Self {
        Self::Device(choice)
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Device(choice) => choice.fmt(f),
            Self::Grpc => Fabric::Grpc.fmt(f),
        }
    }
}

impl FromStr for FabricChoice {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "grpc" => Ok(Self::Grpc),
            device => device.parse().map(Self::Device).map_err(|_| {
                TransportError::Usage(format!(
                    "unknown fabric {text:?}: use auto, rdma, rdma:DEVICE[/PORT[/GID]], shm, tcp, \
                     tcp:ADDRESS or grpc"
                ))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_have_names() {
        for text in [
            "auto",
            "rdma",
            "rdma:mlx5_0",
            "rdma:mlx5_0/1/3",
            "shm",
            "tcp",
            "tcp:10.0.0.1",
            "tcp:::1",
            "grpc",
        ] {
            let choice: FabricChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            let fabric = text.split(':').next().unwrap().parse();
            assert_eq!(choice.fabric(), fabric.ok(), "{text}");
        }
        for fabric in Fabric::ALL {
            let device = fabric.device().map(FabricChoice::Device);
            let choice = device.unwrap_or(FabricChoice::Grpc);
            assert_eq!(choice.fabric(), Some(fabric));
        }
        for wrong in ["", "pigeon", "rdma:", "rdma:a/b", "Shm", "tcp:", "tcp:host"] {
            assert!(wrong.parse::<FabricChoice>().is_err(), "{wrong}");
        }
    }
}
