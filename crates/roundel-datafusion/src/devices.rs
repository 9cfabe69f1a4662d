//! The devices of one process: which fabrics it has, and why not the others.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use roundel_verbs::rdma::{self, LockedMemory, RdmaOptions};
use roundel_verbs::{DeviceAddress, shm, tcp};

use crate::error::{Result, TransportError};
use crate::fabric::{Fabric, FabricChoice};
use crate::node::ExchangeNode;
use crate::options::ExchangeOptions;
use crate::own_address::reachable_at;

/// A fabric that a process offers to the coordinator.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The fabric's name.
    pub fabric: String,
    /// Where its device is, for a fabric that reaches other hosts.
    pub address: Option<Vec<u8>>,
    /// Why the process does not have it; empty when it does.
    pub lacks: String,
}

/// One process's ends of the fabrics that need a device.
#[derive(Clone)]
pub struct Devices {
    rdma: Opened,
    shm: Opened,
    tcp: Opened,
}

type Opened = Result<Arc<ExchangeNode>, String>;

impl Devices {
    /// Opens what the choice of a fabric may take. Needs a tokio runtime.
    ///
    /// # Errors
    /// When a device that was asked for by name cannot be opened.
    pub fn open(asked: &ExchangeOptions) -> Result<Self> {
        let choice = &asked.fabric;
        let address = asked.address;
        let address = address.unwrap_or_else(|| reachable_at(Ipv4Addr::UNSPECIFIED.into()));
        let unasked = || Err(format!("it was started with --fabric {choice}"));
        let rdma = |options: &RdmaOptions| {
            let device = rdma::open(options).map_err(|error| error.to_string())?;
            // Better no RDMA than queries that fail when they need much memory.
            let quota = asked.registered_bytes_max();
            let quota = quota.map_err(|error| error.to_string())?;
            let locked = LockedMemory::of_this_process().require(quota);
            locked.map_err(|error| format!("{error}; or use less, with --registered-memory"))?;
            ExchangeNode::open(device, asked).map_err(|error| error.to_string())
        };
        let shm = || {
            let registered_bytes_max = asked.registered_bytes_max()?;
            let device = shm::open(shm::ShmOptions {
                registered_bytes_max,
                ..shm::ShmOptions::default()
            })
            .map_err(|error| TransportError::io("open the exchange's device", error))?;
            ExchangeNode::open(device, asked)
        };
        let tcp = |address: IpAddr| {
            let opened = tcp::open(tcp::TcpOptions { address });
            let device = opened.map_err(|error| error.to_string())?;
            ExchangeNode::open(device, asked).map_err(|error| error.to_string())
        };
        Ok(match choice {
            FabricChoice::Auto => Self {
                rdma: rdma(&RdmaOptions::default())
                    .inspect_err(|why| tracing::debug!(%why, "no RDMA here")),
                shm: Ok(shm()?),
                tcp: tcp(address),
            },
            FabricChoice::Rdma(options) => Self {
                rdma: Ok(rdma(options).map_err(TransportError::NoFabric)?),
                shm: unasked(),
                tcp: unasked(),
            },
            FabricChoice::Shm => Self {
                rdma: unasked(),
                shm: Ok(shm()?),
                tcp: unasked(),
            },
            FabricChoice::Tcp(on) => Self {
                rdma: unasked(),
                shm: unasked(),
                tcp: Ok(tcp(on.unwrap_or(address)).map_err(TransportError::NoFabric)?),
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
    pub fn get(&self, fabric: Fabric) -> Result<Option<&Arc<ExchangeNode>>, String> {
        let node = self.opened(fabric).map(Result::as_ref).transpose();
        node.map_err(Clone::clone)
    }

    /// The offers for the coordinator.
    pub fn offers(&self) -> Vec<Offer> {
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

    /// Whether the device that a worker offers, by its address, is within reach of this process.
    ///
    /// # Errors
    /// Why it is not.
    pub fn reaches(&self, fabric: Fabric, address: &[u8]) -> Result<(), String> {
        let address = DeviceAddress::new(address).map_err(|error| error.to_string())?;
        match self.get(fabric)? {
            Some(node) => node.reaches(&address).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}
