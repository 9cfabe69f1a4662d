//! What crosses a rendezvous connection: a hello and its answer, then frames. Little endian, every
//! length checked before memory is taken for it; all bytes that come are untrusted.
//!
//! ```text
//!   hello    magic (8)  version (4)  rank (4)  peers (4)  token length (4)  token
//!   answer   magic (8)  version (4)  status (4)
//!   frame    kind (1)   rank (4)     length (4)           payload
//! ```
//!
//! Magic and version stay where they are in all versions, so that any two can tell each other.

use super::{EXCHANGE_BYTES_MAX, TOKEN_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Version of the protocol.
pub(super) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"rndl-rdv";

/// Most bytes of the reason in a [`Kind::Gone`] frame.
const REASON_BYTES_MAX: usize = 512;

/// What a peer says first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub rank: u32,
    pub peers: u32,
    pub token: Vec<u8>,
}

/// Why a hello is refused; sent as a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it does not speak the rendezvous protocol")]
    Garbage,
    #[error("it speaks version {0} of the rendezvous protocol, this side {VERSION}")]
    Version(u32),
    #[error("its token is another one")]
    Token,
    #[error("its group has another number of peers")]
    Peers,
    #[error("its rank is not one of the group, or taken")]
    Rank,
}

/// Status of an answer that welcomes.
const WELCOME: u32 = 0;

impl Refusal {
    fn status(self) -> u32 {
        match self {
            Self::Garbage => 1,
            Self::Version(_) => 2,
            Self::Token => 3,
            Self::Peers => 4,
            Self::Rank => 5,
        }
    }

    /// What a peer of the same version means.
    fn from_status(status: u32) -> Self {
        match status {
            3 => Self::Token,
            4 => Self::Peers,
            5 => Self::Rank,
            _ => Self::Garbage,
        }
    }
}

impl Hello {
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut bytes = preamble();
        bytes.extend_from_slice(&self.rank.to_le_bytes());
        bytes.extend_from_slice(&self.peers.to_le_bytes());
        bytes.extend_from_slice(&(self.token.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.token);
        bytes
    }

    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, Refusal> {
        read_preamble(stream).await?;
        let rank = read_word(stream).await?;
        let peers = read_word(stream).await?;
        let length = read_word(stream).await? as usize;
        if length > TOKEN_BYTES_MAX {
            return Err(Refusal::Garbage);
        }
        let mut token = vec![0; length];
        let read = stream.read_exact(&mut token).await;
        read.map_err(|_| Refusal::Garbage)?;
        Ok(Self { rank, peers, token })
    }
}

pub(super) fn emit_answer(answer: Result<(), Refusal>) -> Vec<u8> {
    let mut bytes = preamble();
    bytes.extend_from_slice(
        &answer
            .map_or_else(Refusal::status, |()| WELCOME)
            .to_le_bytes(),
    );
    bytes
}

pub(super) async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), Refusal> {
    read_preamble(stream).await?;
    match read_word(stream).await? {
        WELCOME => Ok(()),
        status => Err(Refusal::from_status(status)),
    }
}

fn preamble() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes
}

async fn read_preamble(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), Refusal> {
    let mut magic = [0; MAGIC.len()];
    let read = stream.read_exact(&mut magic).await;
    if read.is_err() || magic != MAGIC {
        return Err(Refusal::Garbage);
    }
    match read_word(stream).await? {
        VERSION => Ok(()),
        theirs => Err(Refusal::Version(theirs)),
    }
}

async fn read_word(stream: &mut (impl AsyncRead + Unpin)) -> Result<u32, Refusal> {
    stream.read_u32_le().await.map_err(|_| Refusal::Garbage)
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What the peer of this rank hands over.
    Bytes = 1,
    /// The peer of this rank is gone; the payload says why. The last frame.
    Gone = 2,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: Kind,
    pub rank: u32,
    pub payload: Vec<u8>,
}

/// Appends a frame. The reason of a [`Kind::Gone`] is cut where it is too long.
pub(super) fn append_frame(bytes: &mut Vec<u8>, kind: Kind, rank: usize, payload: &[u8]) {
    let payload = &payload[..payload.len().min(payload_bytes_max(kind))];
    bytes.push(kind as u8);
    bytes.extend_from_slice(&(rank as u32).to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(payload);
}

fn payload_bytes_max(kind: Kind) -> usize {
    match kind {
        Kind::Bytes => EXCHANGE_BYTES_MAX,
        Kind::Gone => REASON_BYTES_MAX,
    }
}

/// Reads a frame; an error is a text for people.
pub(super) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Result<Frame, String> {
    let ended = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "its connection ended".to_owned(),
        _ => format!("its connection broke: {error}"),
    };
    let kind = match stream.read_u8().await.map_err(ended)? {
        1 => Kind::Bytes,
        2 => Kind::Gone,
        other => return Err(format!("it sent an unknown message, kind {other}")),
    };
    let rank = stream.read_u32_le().await.map_err(ended)?;
    let length = stream.read_u32_le().await.map_err(ended)? as usize;
    if length > payload_bytes_max(kind) {
        return Err(format!("it sent a message of {length} bytes"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.map_err(ended)?;
    Ok(Frame {
        kind,
        rank,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    proptest! {
        #[test]
        fn hellos_and_frames_round_trip(
            rank: u32,
            peers: u32,
            token in prop::collection::vec(any::<u8>(), 0..=TOKEN_BYTES_MAX),
            payload in prop::collection::vec(any::<u8>(), 0..2000),
        ) {
            let hello = Hello { rank, peers, token };
            prop_assert_eq!(block_on(Hello::read(&mut hello.emit().as_slice())), Ok(hello));
            let mut bytes = Vec::new();
            append_frame(&mut bytes, Kind::Bytes, rank as usize, &payload);
            let frame = Frame { kind: Kind::Bytes, rank, payload };
            prop_assert_eq!(block_on(read_frame(&mut bytes.as_slice())), Ok(frame));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            begins_well: bool,
        ) {
            let mut hello = if begins_well { preamble() } else { Vec::new() };
            hello.extend_from_slice(&bytes);
            let _ = block_on(Hello::read(&mut hello.as_slice()));
            let _ = block_on(read_answer(&mut hello.as_slice()));
            let _ = block_on(read_frame(&mut bytes.as_slice()));
        }
    }
}
