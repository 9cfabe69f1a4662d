//! Who makes the connections of a device, for the device's other parts.

use super::library::manager;
use super::manager::{Channel, Reads};
use super::server::{Command, Server};
use crate::error::{Result, VerbsError};
use crate::rdma::address::{Party, RdmaAddress};
use crate::rdma::context::Context;
use crate::rdma::pair_state::PairState;
use crate::rdma::pairs::Pairs;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// How many ports are tried: the manager may choose one that a socket has, which it does not know.
const PORTS_TRIED: usize = 16;

/// The thread that makes connections; it ends when this is dropped, which must be before the context is closed.
pub(in crate::rdma) struct Connections {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Connections {
    /// Listens at the address, whose port is filled in.
    pub(in crate::rdma) fn serve(
        context: &Context,
        address: &mut RdmaAddress,
        asked_reads: u8,
        pairs: &Arc<Pairs>,
    ) -> Result<Self> {
        let events = Channel::open(manager()?)?;
        let mut tried = 0;
        let (listener, port) = loop {
            let id = events.id(Server::LISTENER)?;
            tried += 1;
            match id.listen(address.gid) {
                Ok(port) => break (id, port),
                Err(VerbsError::System { source, .. })
                    if source.kind() == std::io::ErrorKind::AddrInUse && tried < PORTS_TRIED => {}
                Err(error) => return Err(error),
            }
        };
        let (device, found) = (context.name(), listener.device());
        if found.as_ref() != Some(&device) {
            return Err(VerbsError::NoDevice(format!(
                "the connection manager takes {} for the address {} of RDMA device {device}: leave one RDMA device on \
                 its network interface (`rdma link` shows them)",
                found.as_deref().unwrap_or("no device"),
                address.gid.to_canonical(),
            )));
        }
        address.port = port;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(VerbsError::system("eventfd"))?;
        let wake = Arc::new(wake);
        let (commands, queue) = channel();
        let reads = Reads {
            asked: asked_reads,
            answered: address.answered_reads,
        };
        let server = Server::new(events, listener, device, reads, pairs.clone(), queue);
        let woken = wake.clone();
        let thread = std::thread::Builder::new()
            .name("rdma-connect".to_owned())
            .spawn(move || server.run(&woken))
            .map_err(|source| VerbsError::System {
                call: "starting a thread",
                source,
            })?;
        Ok(Self {
            commands,
            wake,
            thread: Some(thread),
        })
    }

    /// Connects a queue pair to its peer, by and by.
    pub(in crate::rdma) fn connect(&self, pair: &Arc<PairState>, peer: Party) {
        let pair = Arc::downgrade(pair);
        self.tell(Command::Connect { pair, peer });
    }

    /// Ends what is left of a queue pair's connection. Returns when it is gone.
    pub(in crate::rdma) fn forget(&self, number: u32) {
        let (done, gone) = channel();
        self.tell(Command::Forget { number, done });
        // An error means that the thread is gone, and all connections with it.
        let _ = gone.recv();
    }

    fn tell(&self, command: Command) {
        // As above.
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.tell(Command::End);
        if let Some(thread) = self.thread.take() {
            // It holds nothing whose drop could end here: only weak references to queue pairs.
            let _ = thread.join();
        }
    }
}
