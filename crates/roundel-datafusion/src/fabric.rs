//! Fabrics: what can carry the rows of a query, and what a user asks for.
//!
//! This module knows nothing of plans; how rows travel over a fabric is the exchange's matter.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use roundel_verbs::rdma::RdmaOptions;
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
    /// RDMA, on this device or any.
    Rdma(RdmaOptions),
    /// Shared memory.
    Shm,
    /// Sockets, on this address of the host or on the one that the other processes reach it by.
    Tcp(Option<IpAddr>),
    /// gRPC.
    Grpc,
}

impl FabricChoice {
    /// The fabric asked for; none when it is to be chosen.
    pub fn fabric(&self) -> Option<Fabric> {
        match self {
            Self::Auto => None,
            Self::Rdma(_) => Some(Fabric::Rdma),
            Self::Shm => Some(Fabric::Shm),
            Self::Tcp(_) => Some(Fabric::Tcp),
            Self::Grpc => Some(Fabric::Grpc),
        }
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.fabric()) {
            (Self::Rdma(options), _) if *options != RdmaOptions::default() => {
                write!(f, "rdma:{options}")
            }
            (Self::Tcp(Some(address)), _) => write!(f, "tcp:{address}"),
            (_, Some(fabric)) => fabric.fmt(f),
            (_, None) => f.write_str("auto"),
        }
    }
}

impl FromStr for FabricChoice {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || {
            TransportError::Usage(format!(
                "unknown fabric {text:?}: use auto, rdma, rdma:DEVICE[/PORT[/GID]], shm, tcp, \
                 tcp:ADDRESS or grpc"
            ))
        };
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if let Some(device) = text.strip_prefix("rdma:") {
            let options = device.parse().map_err(|_| unknown())?;
            return Ok(Self::Rdma(options));
        }
        if let Some(address) = text.strip_prefix("tcp:") {
            let address = address.parse().map_err(|_| unknown())?;
            return Ok(Self::Tcp(Some(address)));
        }
        match text.parse().map_err(|_| unknown())? {
            Fabric::Rdma => Ok(Self::Rdma(RdmaOptions::default())),
            Fabric::Shm => Ok(Self::Shm),
            Fabric::Tcp => Ok(Self::Tcp(None)),
            Fabric::Grpc => Ok(Self::Grpc),
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
        }
        for wrong in ["", "pigeon", "rdma:", "rdma:a/b", "Shm", "tcp:", "tcp:host"] {
            assert!(wrong.parse::<FabricChoice>().is_err(), "{wrong}");
        }
    }
}
