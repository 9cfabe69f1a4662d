//! The devices of one process: which fabrics it has, and why not the others.

use std::net::IpAddr;
use std::sync::Arc;

use roundel_exchange::{Design, OnLoss, Scheduling};
use roundel_verbs::rdma::{self, LockedMemory, RdmaOptions};
use roundel_verbs::{DeviceAddress, shm, tcp};

use super::{Fabric, FabricChoice};
use crate::exchange::ExchangeNode;
use crate::{EngineError, Result};

/// A fabric that a process offers to the coordinator.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Offer {
    /// The fabric's name.
    #[prost(string, tag = "1")]
    pub fabric: String,
    /// Where its device is, for a fabric that reaches other hosts.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub address: Option<Vec<u8>>,
    /// Why the process does not have it; empty when it does.
    #[prost(string, tag = "3")]
    pub lacks: String,
}

/// One process's ends of the fabrics that need a device.
#[derive(Clone)]
pub(crate) struct Devices {
    rdma: Opened,
    shm: Opened,
    tcp: Opened,
}

type Opened = Result<Arc<ExchangeNode>, String>;

/// The sizes of an exchange.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// The one design that it must be able to run, if there is one.
    pub design: Option<Design>,
    pub on_loss: OnLoss,
    pub scheduling: Scheduling,
    pub registered_memory_bytes: u64,
}

impl Devices {
    /// Opens what the choice may take; `name` is what errors call this process, and `address` where
    /// the others reach it. Needs a tokio runtime.
    ///
    /// # Errors
    /// When a device that was asked for by name cannot be opened.
    pub(crate) fn open(
        choice: &FabricChoice,
        sizes: Sizes,
        name: &str,
        address: IpAddr,
    ) -> Result<Self> {
        let unasked = || Err(format!("it was started with --fabric {choice}"));
        let rdma = |options: &RdmaOptions| {
            let device = rdma::open(options).map_err(|error| error.to_string())?;
            // Better no RDMA than queries that fail when they need much memory.
            let quota = bytes(sizes.registered_memory_bytes).map_err(|error| error.to_string())?;
            let locked = LockedMemory::of_this_process().require(quota);
            locked.map_err(|error| format!("{error}; or use less, with --registered-memory"))?;
            ExchangeNode::open(device, sizes, name).map_err(|error| error.to_string())
        };
        let shm = || {
            let registered_bytes_max = bytes(sizes.registered_memory_bytes)?;
            let device = shm::open(shm::ShmOptions {
                registered_bytes_max,
                ..shm::ShmOptions::default()
            })
            .map_err(|error| EngineError::io("open the exchange's device", error))?;
            ExchangeNode::open(device, sizes, name)
        };
        let tcp = |address: IpAddr| {
            let opened = tcp::open(tcp::TcpOptions { address });
            let device = opened.map_err(|error| error.to_string())?;
            ExchangeNode::open(device, sizes, name).map_err(|error| error.to_string())
        };
        Ok(match choice {
            FabricChoice::Auto => Self {
                rdma: rdma(&RdmaOptions::default())
                    .inspect_err(|why| tracing::debug!(%why, "no RDMA here")),
                shm: Ok(shm()?),
                tcp: tcp(address),
            },
            FabricChoice::Rdma(options) => Self {
                rdma: Ok(rdma(options).map_err(EngineError::NoFabric)?),
                shm: unasked(),
                tcp: unasked(),
            },
            FabricChoice::Shm => Self {
                rdma: unasked(),
                shm: Ok(shm()?),
                tcp: unasked(),
            },
            FabricChoice::Tcp(asked) => Self {
                rdma: unasked(),
                shm: unasked(),
                tcp: Ok(tcp(asked.unwrap_or(address)).map_err(EngineError::NoFabric)?),
            },
            FabricChoice::Grpc => Self {
                rdma: unasked(),
                shm: unasked(),
                tcp: unasked(),
            },
        })
    }

    fn opened(&self, fabric: Fabric) -> Option<&Opened> {
        match fabric {
            Fabric::Rdma => Some(&self.rdma),
            Fabric::Shm => Some(&self.shm),
            Fabric::Tcp => Some(&self.tcp),
            Fabric::Grpc => None,
        }
    }

    /// This process's end of a fabric; none of one that needs no device.
    ///
    /// # Errors
    /// Why this process does not have it.
    pub(crate) fn get(&self, fabric: Fabric) -> Result<Option<&Arc<ExchangeNode>>, String> {
        let node = self.opened(fabric).map(Result::as_ref).transpose();
        node.map_err(Clone::clone)
    }

    /// The offers for the coordinator.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let offer = |fabric: Fabric| {
            let opened = self.opened(fabric)?;
            Some(Offer {
                fabric: fabric.name().to_owned(),
                // The address of a shared-memory device is a secret; the host's id says enough.
                address: match (fabric, opened) {
                    (Fabric::Rdma | Fabric::Tcp, Ok(node)) => {
                        Some(node.address().as_bytes().to_vec())
                    }
                    _ => None,
                },
                lacks: opened.as_ref().err().cloned().unwrap_or_default(),
            })
        };
        Fabric::ALL.into_iter().filter_map(offer).collect()
    }

    /// Whether a worker's offer of a fabric is within reach of this process.
    pub(super) fn reaches(&self, fabric: Fabric, offer: &Offer) -> Result<(), String> {
        let address = offer.address.as_deref().unwrap_or_default();
        let address = DeviceAddress::new(address).map_err(|error| error.to_string())?;
        match self.get(fabric)? {
            Some(node) => node.reaches(&address).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}

pub(crate) fn bytes(registered_memory_bytes: u64) -> Result<usize> {
    usize::try_from(registered_memory_bytes)
        .map_err(|_| EngineError::Usage("more registered memory than addresses".to_owned()))
}
