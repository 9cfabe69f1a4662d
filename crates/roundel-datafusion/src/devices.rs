//! The devices of one process: which fabrics it has, and why not the others.

use std::net::Ipv4Addr;
use std::sync::Arc;

use roundel_verbs::{DeviceAddress, DeviceChoice, DeviceOptions, VerbsError};

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

/// One process's ends of the fabrics that need a device, in the order in which they are preferred.
#[derive(Clone)]
pub struct Devices(Vec<(Fabric, Opened)>);

type Opened = Result<Arc<ExchangeNode>, String>;

impl Devices {
    /// Opens what the choice of a fabric may take. Needs a tokio runtime.
    ///
    /// # Errors
    /// When a device that was asked for by name cannot be opened.
    pub fn open(asked: &ExchangeOptions) -> Result<Self> {
        let choice = &asked.fabric;
        let wanted = DeviceOptions {
            registered_bytes_max: Some(asked.registered_bytes_max()?),
            address: asked
                .address
                .unwrap_or_else(|| reachable_at(Ipv4Addr::UNSPECIFIED.into())),
        };
        let mut devices = Vec::new();
        for fabric in Fabric::ALL {
            let Some(any) = fabric.device() else {
                continue;
            };
            let open = |choice| open(choice, &wanted, asked);
            let needed = |choice| open(choice).map_err(|why| no(fabric, &why));
            let opened = match choice {
                // Every host has shared memory: without it, something is wrong with this process.
                FabricChoice::Auto if fabric != Fabric::Shm => open(&any)
                    .inspect_err(|why| tracing::debug!(%fabric, %why, "a fabric is not here")),
                FabricChoice::Auto => Ok(needed(&any)?),
                FabricChoice::Device(one) if choice.fabric() == Some(fabric) => Ok(needed(one)?),
                FabricChoice::Device(_) | FabricChoice::Grpc => {
                    Err(format!("it was started with --fabric {choice}"))
                }
            };
            devices.push((fabric, opened));
        }
        Ok(Self(devices))
    }

    fn opened(&self, fabric: Fabric) -> Option<&Opened> {
        let mut devices = self.0.iter();
        let found = devices.find(|(of, _)| *of == fabric);
        found.map(|(_, opened)| opened)
    }

    /// Why this process does not have a fabric; `None` when it does.
    pub fn lacks(&self, fabric: Fabric) -> Option<&str> {
        let opened = self.opened(fabric)?.as_ref();
        opened.err().map(String::as_str)
    }

    /// This process's end of a fabric; none of one that needs no device.
    ///
    /// # Errors
    /// When this process does not have it, with the reason.
    pub fn get(&self, fabric: Fabric) -> Result<Option<&Arc<ExchangeNode>>> {
        let node = self.opened(fabric).map(Result::as_ref).transpose();
        node.map_err(|why| no(fabric, why))
    }

    /// The offers for the coordinator.
    pub fn offers(&self) -> Vec<Offer> {
        let offer = |(fabric, opened): &(Fabric, Opened)| Offer {
            fabric: fabric.name().to_owned(),
            // The address of a shared-memory device is a secret; the host's id says enough.
            address: match (fabric, opened) {
                (Fabric::Rdma | Fabric::Tcp, Ok(node)) => {
                    Some(node.fabric().device.address().as_bytes().to_vec())
                }
                _ => None,
            },
            lacks: opened.as_ref().err().cloned().unwrap_or_default(),
        };
        self.0.iter().map(offer).collect()
    }

    /// Whether the device that a worker offers, by its address, is within reach of this process, as far as can be told
    /// without asking it. May block for a second.
    ///
    /// # Errors
    /// Why it is not.
    pub fn reaches(&self, fabric: Fabric, address: &[u8]) -> Result<(), String> {
        let told = |error: VerbsError| error.to_string();
        let address = DeviceAddress::new(address).map_err(told)?;
        match self.opened(fabric) {
            Some(Ok(node)) => node.fabric().device.reaches(&address).map_err(told),
            Some(Err(why)) => Err(why.clone()),
            None => Ok(()),
        }
    }
}

/// The error of a process that has to have a fabric and has not.
fn no(fabric: Fabric, why: &str) -> TransportError {
    TransportError::NoFabric(format!("no {fabric}: {why}"))
}

/// Opens a device, and the exchange on it.
fn open(choice: &DeviceChoice, wanted: &DeviceOptions, asked: &ExchangeOptions) -> Opened {
    let device = choice.open_with(wanted).map_err(|error| match error {
        // Better no device than queries that fail when they need much memory.
        VerbsError::MemoryLockLimit { .. } => {
            format!("{error}; or use less, with --registered-memory")
        }
        error => error.to_string(),
    })?;
    ExchangeNode::open(device, asked).map_err(|error| error.to_string())
}
