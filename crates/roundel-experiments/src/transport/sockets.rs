//! Plain sockets: the paper's baseline without RDMA. Senders block in `send`; one receiver in each node
//! polls all sockets and reads from those that have data, into messages that threads then take.
//!
//! ```text
//! a message   its length (4), its bytes
//! the end     a length of 0
//! ```

use super::memory::{Behind, Filled, Memory};
use super::{Ends, MessageBuffer, Opened, Receiver, Sender};
use crate::error::{Error, Result};
use crate::measured::Endpoints;
use crate::meeting::Meeting;
use crate::setting::{SOCKET_MESSAGE_BYTES, Setting};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Bytes before a message.
const LENGTH_BYTES: usize = 4;
/// Messages that wait for a thread before the receiver reads no more.
const WAITING_MAX: usize = 8;

/// The sending side of a thread.
pub struct SocketSender {
    /// To each node.
    streams: Vec<TcpStream>,
    /// The nodes of each group.
    members: Vec<Vec<usize>>,
    spare: Vec<Memory>,
    message_bytes: usize,
    messages: Arc<AtomicU64>,
}

/// A message behind its length.
type Frame = Behind<LENGTH_BYTES>;

impl Sender for SocketSender {
    type Buffer = Frame;

    async fn acquire(&mut self, _: usize) -> Result<Frame> {
        let spare = self.spare.pop();
        Ok(Behind(spare.unwrap_or_else(|| {
            Memory::new(LENGTH_BYTES + self.message_bytes)
        })))
    }

    async fn put(&mut self, mut buffer: Frame, group: usize, length: usize, _: u32) -> Result<()> {
        buffer.0.write(0, &(length as u32).to_le_bytes());
        let bytes = buffer.0.filled(LENGTH_BYTES + length);
        for member in &self.members[group] {
            self.streams[*member]
                .write_all(bytes)
                .map_err(Error::io("send to a socket"))?;
            self.messages.fetch_add(1, Ordering::Relaxed);
        }
        self.spare.push(buffer.0);
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        let end = [0; LENGTH_BYTES];
        for stream in &mut self.streams {
            stream
                .write_all(&end)
                .map_err(Error::io("send to a socket"))?;
        }
        Ok(())
    }
}

/// The receiving side of a thread: it takes what the node's one receiver has read.
pub struct SocketReceiver {
    arrived: Arc<Mutex<mpsc::Receiver<Result<Filled<0>>>>>,
    spare: mpsc::Sender<Memory>,
}

impl Receiver for SocketReceiver {
    type Message = Filled<0>;

    async fn get(&mut self) -> Result<Option<Filled<0>>> {
        let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        // The receiver leaves when all sources have ended.
        arrived.recv().ok().transpose()
    }

    fn release(&mut self, message: Filled<0>) {
        // At the end nobody needs it.
        let _ = self.spare.send(message.memory);
    }
}

/// Opens the sockets of a node: one for each pair of threads of the same number.
pub async fn open(
    setting: &Setting,
    meeting: &mut Meeting,
) -> Result<Opened<SocketSender, SocketReceiver>> {
    let listener = TcpListener::bind((meeting.address(), 0)).map_err(Error::io("listen"))?;
    let address = listener.local_addr().map_err(Error::io("listen"))?;
    let all = meeting.all(address.to_string().into_bytes()).await?;
    let mut outgoing: Vec<Vec<TcpStream>> = (0..setting.threads).map(|_| Vec::new()).collect();
    for (node, said) in all.iter().enumerate() {
        let address = address_of(said, node)?;
        for streams in &mut outgoing {
            streams.push(TcpStream::connect(address).map_err(Error::io("connect to a node"))?);
        }
    }
    let mut incoming = Vec::new();
    for _ in 0..setting.nodes * setting.threads {
        let (stream, _) = listener
            .accept()
            .map_err(Error::io("accept a connection"))?;
        stream
            .set_nonblocking(true)
            .map_err(Error::io("set up a socket"))?;
        incoming.push(Incoming::new(stream));
    }
    meeting.barrier().await?;
    let message_bytes = setting.message_bytes.unwrap_or(SOCKET_MESSAGE_BYTES);
    let (send, arrived) = mpsc::sync_channel(WAITING_MAX);
    let (give_back, spare) = mpsc::channel();
    let reader = Reader {
        incoming,
        message_bytes,
        spare,
        arrived: send,
    };
    let thread = std::thread::Builder::new().name("receiver".into());
    thread
        .spawn(move || reader.run())
        .map_err(Error::io("start a thread"))?;
    let arrived = Arc::new(Mutex::new(arrived));
    let messages = Arc::new(AtomicU64::new(0));
    let members = setting.groups();
    let thread = |streams| Ends {
        sender: SocketSender {
            streams,
            members: members.clone(),
            spare: Vec::new(),
            message_bytes,
            messages: messages.clone(),
        },
        receiver: SocketReceiver {
            arrived: arrived.clone(),
            spare: give_back.clone(),
        },
        runtime: None,
    };
    Ok(Opened {
        threads: outgoing.into_iter().map(thread).collect(),
        endpoints: Box::new(move || Endpoints {
            messages: messages.load(Ordering::Relaxed),
            ..Endpoints::default()
        }),
    })
}

/// The address that a node said.
pub fn address_of(said: &[u8], node: usize) -> Result<SocketAddr> {
    let text = String::from_utf8_lossy(said);
    let address = text.parse();
    address.map_err(|_| Error::Wrong(format!("node {node} says that it listens at {text}")))
}

/// The one receiver of a node.
struct Reader {
    incoming: Vec<Incoming>,
    message_bytes: usize,
    spare: mpsc::Receiver<Memory>,
    arrived: mpsc::SyncSender<Result<Filled<0>>>,
}

/// A socket that is read.
struct Incoming {
    stream: TcpStream,
    length: [u8; LENGTH_BYTES],
    /// Bytes of the length, and then of the message, that have come.
    read: usize,
    memory: Option<Memory>,
}

/// What came of a look at a socket.
enum Came {
    /// Nothing more for now.
    Nothing,
    Message(Filled<0>),
    End,
}

impl Reader {
    fn run(mut self) {
        if let Err(error) = self.read_all() {
            // A thread that has left has failed itself.
            let _ = self.arrived.send(Err(error));
        }
    }

    /// Polls all sockets until each has ended.
    fn read_all(&mut self) -> Result<()> {
        while !self.incoming.is_empty() {
            let ready: Vec<usize> = {
                let sockets = self.incoming.iter();
                let sockets = sockets.map(|one| PollFd::new(&one.stream, PollFlags::IN));
                let mut sockets: Vec<_> = sockets.collect();
                match poll(&mut sockets, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(Error::io("poll sockets")(error.into())),
                }
                let ready = |(index, one): (usize, &PollFd<'_>)| {
                    (!one.revents().is_empty()).then_some(index)
                };
                sockets.iter().enumerate().filter_map(ready).collect()
            };
            // From the last, so that one that is removed changes no other's place.
            for index in ready.into_iter().rev() {
                let spare = || {
                    self.spare
                        .try_recv()
                        .unwrap_or_else(|_| Memory::new(self.message_bytes))
                };
                match self.incoming[index].read(self.message_bytes, spare)? {
                    Came::Nothing => {}
                    Came::Message(message) => {
                        if self.arrived.send(Ok(message)).is_err() {
                            return Ok(());
                        }
                    }
                    Came::End => drop(self.incoming.swap_remove(index)),
                }
            }
        }
        Ok(())
    }
}

impl Incoming {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            length: [0; LENGTH_BYTES],
            read: 0,
            memory: None,
        }
    }

    /// Reads what there is, up to the end of a message.
    fn read(&mut self, most: usize, spare: impl FnOnce() -> Memory) -> Result<Came> {
        while self.read < LENGTH_BYTES {
            match some(&mut self.stream, &mut self.length[self.read..])? {
                None => return Ok(Came::Nothing),
                Some(count) => self.read += count,
            }
        }
        let length = u32::from_le_bytes(self.length) as usize;
        if length == 0 {
            return Ok(Came::End);
        }
        if length > most {
            return Err(Error::Wrong(format!(
                "a message of {length} bytes; {most} are the most"
            )));
        }
        let memory = self.memory.get_or_insert_with(spare);
        while self.read < LENGTH_BYTES + length {
            let rest = &mut memory.bytes_mut()[self.read - LENGTH_BYTES..length];
            match some(&mut self.stream, rest)? {
                None => return Ok(Came::Nothing),
                Some(count) => self.read += count,
            }
        }
        self.read = 0;
        let memory = self.memory.take();
        Ok(memory.map_or(Came::Nothing, |memory| {
            Came::Message(Filled { memory, length })
        }))
    }
}

/// Reads some bytes; none when there are none for now.
fn some(stream: &mut TcpStream, target: &mut [u8]) -> Result<Option<usize>> {
    loop {
        match stream.read(target) {
            Ok(0) => {
                return Err(Error::Wrong(
                    "a node closed its connection before the end".into(),
                ));
            }
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("receive from a socket")(error)),
        }
    }
}
