//! The header that every message of an exchange begins with, and nothing else: this module knows
//! bytes, not rows, endpoints or queue pairs.
//!
//! A message is one header of [`HEADER_LENGTH`] bytes followed by `payload length` bytes of
//! payload. All integers are little endian. Bytes 0 to 39 mean the same in every kind of message:
//!
//! ```text
//! offset  size  field
//!      0     2  magic, 0x4452 (the bytes "RD")
//!      2     2  version, 2
//!      4     1  kind: 1 data, 2 end-of-stream, 3 credit, 4 acknowledge, 5 sent, 6 missing,
//!               7 join, 8 joined, 9 member, 10 leave, 11 abort, 12 phase,
//!               15 trial
//!      5     1  flags: bit 0 repeated; all others 0
//!      6     2  transmission group of the source: the one that a data message was sent to, or
//!               that a control message is about
//!      8     8  exchange id
//!     16     4  source: index of the sending endpoint's node in the exchange
//!     20     4  partition the message is for
//!     24     8  sequence number of a data message, counted per source endpoint and group
//!     32     4  credit seen: the absolute credit that the sender has seen so far
//!     36     4  payload length in bytes
//! ```
//!
//! Bytes 40 to 63 are the body, whose meaning depends on the kind. What a kind does not use is 0:
//!
//! ```text
//! data             40  4  frame sequence number, counted per source and partition
//!                  44  4  rows of the whole frame
//!                  48  4  length of the whole frame in bytes, at most FRAME_LENGTH_MAX
//!                  52  4  offset in the frame of this message's payload
//! end-of-stream    40  8  messages of data sent
//!                  48  8  checksum of their sequence numbers, see SequenceDigest
//! credit           40  4  absolute credit: receives posted since the exchange began, modulo 2^32
//!                  48  8  every message of the group with a lower sequence number has arrived
//! acknowledge      40  8  messages of data that the acknowledged end-of-stream told of
//! sent             40  8  messages of data sent so far on the link
//!                  48  8  messages of data sent so far to the group
//! missing          40  8  first sequence number of the group that is missing
//!                  48  8  bitmap: bit i, the message with the sequence number first + i is
//!                         missing; bit 0 is 1
//! join             40 20  multicast group to which the source will send what is for the
//!                         transmission group: its address (16) and its queue key (4)
//! joined           the receiver has joined it
//! member           the link belongs to the transmission group from now on
//! leave            nobody reads the link any more
//! abort            no more comes on the link, and not all of it has come
//! phase            40  8  number of a phase of the schedule
//!                  48  8  what of it: 0 done with those below, 1 in, 2 out, 3 at it
//! trial            40  8  how often all have changed between no schedule and one
//!                  48  8  how well rows leave the node since, bytes per second; 0 when it does not say
//!                  56  1  1 when rows wait there for all peers, which are many; 0 otherwise
//! ```
//!
//! The last five are of multiplexers, whose connections carry the links of many exchanges: there,
//! what a source says about a link has the link's number in place of a partition.
//!
//! Only data has a payload, which is never empty. [`Header::parse`] is total: any 64 bytes give a
//! header that satisfies all of the above or a [`WireError`] that says which rule they break.

mod control;
mod digest;
mod error;
#[cfg(test)]
mod tests;

pub use control::{Credit, Missing, Phase, Sent, Step, Trial};
pub use digest::SequenceDigest;
pub(crate) use digest::mix;
pub use error::WireError;

use std::ops::Range;
use strum::{EnumDiscriminants, FromRepr};

/// Bytes of a message header.
pub const HEADER_LENGTH: usize = 64;

/// The first two bytes of every message, "RD".
pub const MAGIC: u16 = u16::from_le_bytes(*b"RD");

/// Version of the layout in this module's documentation.
pub const VERSION: u16 = 2;

/// Longest frame in bytes that messages can carry: just below 4 GiB, and a multiple of 64.
pub const FRAME_LENGTH_MAX: u32 = u32::MAX - 63;

/// Set in [`Header::flags`] when a control message repeats one that was not acknowledged in time.
pub const FLAG_REPEATED: u8 = 1;

const FLAGS_KNOWN: u8 = FLAG_REPEATED;

/// Offset of the part of a header that depends on the kind of message.
const BODY_OFFSET: usize = 40;
/// Bytes of that part.
const BODY_LENGTH: usize = 24;

/// Bytes of a multicast group in a message.
const JOIN_BYTES: usize = 20;

const _: () = assert!(BODY_OFFSET + BODY_LENGTH == HEADER_LENGTH);
const _: () = assert!(FRAME_LENGTH_MAX.is_multiple_of(64));

/// A message header, decoded and consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// [`FLAG_REPEATED`] or 0.
    pub flags: u8,
    /// Transmission group of the source: the one that a data message was sent to, or that a
    /// control message is about.
    pub group: u16,
    /// The exchange that the message belongs to.
    pub exchange: u64,
    /// Index of the sending endpoint's node in the exchange.
    pub source: u32,
    /// The partition that the message is for.
    pub partition: u32,
    /// Sequence number of a data message, counted per source endpoint and group: the same for
    /// every member. 0 in control messages.
    pub sequence: u64,
    /// Absolute credit that the sender has seen so far, modulo 2^32.
    pub credit_seen: u32,
    /// What depends on the kind of message.
    pub body: Body,
}

impl Header {
    /// That of a control message of a source of an exchange, about a partition.
    pub(crate) fn of(exchange: u64, source: u32, partition: u32, body: Body) -> Self {
        Self {
            flags: 0,
            group: 0,
            exchange,
            source,
            partition,
            sequence: 0,
            credit_seen: 0,
            body,
        }
    }
}

/// The part of a [`Header`] that depends on the kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumDiscriminants)]
#[strum_discriminants(name(Kind), derive(Hash, FromRepr), doc = "What a message is for.")]
#[repr(u8)]
pub enum Body {
    /// A fragment of a frame of rows.
    Data(Data) = 1,
    /// The source will send no more data on this link, and has sent so much.
    EndOfStream(SequenceDigest) = 2,
    /// The receiver has posted more receives, and so much has arrived.
    Credit(Credit) = 3,
    /// An end-of-stream has arrived and, where lost messages are repaired, all that was sent
    /// before it: as many data messages as the end-of-stream told of.
    Acknowledge(u64) = 4,
    /// The source's answer to a repeated credit: so much has been sent.
    Sent(Sent) = 5,
    /// The receiver asks for messages again.
    Missing(Missing) = 6,
    /// The source asks the receiver to join a multicast group, of this address and queue key in the
    /// verbs layer's encoding.
    Join([u8; JOIN_BYTES]) = 7,
    /// The receiver has joined it.
    Joined = 8,
    /// A link through a multiplexer belongs to a transmission group from now on.
    Member = 9,
    /// The receiver wants no more on a link through a multiplexer.
    Leave = 10,
    /// The source has given a link through a multiplexer up.
    Abort = 11,
    /// How far a multiplexer is in the schedule of all.
    Phase(Phase) = 12,
    /// How multiplexers send, and how fast a node's rows leave so.
    Trial(Trial) = 15,
}

/// Which fragment of which frame a data message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Data {
    /// Number of the frame, counted per source and partition.
    pub frame_sequence: u32,
    /// Rows of the whole frame.
    pub rows: u32,
    /// Length of the whole frame in bytes, at most [`FRAME_LENGTH_MAX`].
    pub frame_length: u32,
    /// Where in the frame the payload belongs, in bytes.
    pub offset: u32,
    /// Bytes of payload, at least 1; `offset + payload_length <= frame_length`.
    pub payload_length: u32,
}

impl Header {
    /// The kind of message.
    pub fn kind(&self) -> Kind {
        self.body.into()
    }

    /// Bytes that follow the header.
    pub fn payload_length(&self) -> u32 {
        match self.body {
            Body::Data(data) => data.payload_length,
            _ => 0,
        }
    }

    /// True when this message repeats one that was not acknowledged in time.
    pub fn is_repeated(&self) -> bool {
        self.flags & FLAG_REPEATED != 0
    }

    /// The header as bytes.
    ///
    /// The caller keeps the rules of this module's documentation; a header that breaks them is
    /// refused by the receiver's [`Header::parse`].
    pub fn emit(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        put(&mut bytes, 0, MAGIC.to_le_bytes());
        put(&mut bytes, 2, VERSION.to_le_bytes());
        put(&mut bytes, 4, [self.kind() as u8, self.flags]);
        put(&mut bytes, 6, self.group.to_le_bytes());
        put(&mut bytes, 8, self.exchange.to_le_bytes());
        put(&mut bytes, 16, self.source.to_le_bytes());
        put(&mut bytes, 20, self.partition.to_le_bytes());
        put(&mut bytes, 24, self.sequence.to_le_bytes());
        put(&mut bytes, 32, self.credit_seen.to_le_bytes());
        put(&mut bytes, 36, self.payload_length().to_le_bytes());
        match self.body {
            Body::Data(data) => {
                put(&mut bytes, 40, data.frame_sequence.to_le_bytes());
                put(&mut bytes, 44, data.rows.to_le_bytes());
                put(&mut bytes, 48, data.frame_length.to_le_bytes());
                put(&mut bytes, 52, data.offset.to_le_bytes());
            }
            Body::EndOfStream(SequenceDigest { count, checksum }) => {
                put(&mut bytes, 40, count.to_le_bytes());
                put(&mut bytes, 48, checksum.to_le_bytes());
            }
            Body::Credit(Credit {
                credit,
                acknowledged,
            }) => {
                put(&mut bytes, 40, credit.to_le_bytes());
                put(&mut bytes, 48, acknowledged.to_le_bytes());
            }
            Body::Acknowledge(messages) => put(&mut bytes, 40, messages.to_le_bytes()),
            Body::Sent(Sent { on_link, to_group }) => {
                put(&mut bytes, 40, on_link.to_le_bytes());
                put(&mut bytes, 48, to_group.to_le_bytes());
            }
            Body::Missing(Missing { first, bitmap }) => {
                put(&mut bytes, 40, first.to_le_bytes());
                put(&mut bytes, 48, bitmap.to_le_bytes());
            }
            Body::Join(multicast) => put(&mut bytes, 40, multicast),
            Body::Phase(Phase { number, step }) => {
                put(&mut bytes, 40, number.to_le_bytes());
                put(&mut bytes, 48, (step as u64).to_le_bytes());
            }
            Body::Trial(Trial {
                number,
                rate,
                crowded,
            }) => {
                put(&mut bytes, 40, number.to_le_bytes());
                put(&mut bytes, 48, rate.to_le_bytes());
                put(&mut bytes, 56, [u8::from(crowded)]);
            }
            Body::Joined | Body::Member | Body::Leave | Body::Abort => {}
        }
        bytes
    }

    /// Reads a header; the caller checks [`Header::payload_length`] against what arrived.
    ///
    /// # Errors
    /// Any bytes that break a rule of this module's documentation.
    pub fn parse(bytes: &[u8; HEADER_LENGTH]) -> Result<Self, WireError> {
        let magic = u16::from_le_bytes(get(bytes, 0));
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        let version = u16::from_le_bytes(get(bytes, 2));
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let [kind, flags] = get::<2>(bytes, 4);
        let kind = Kind::from_repr(kind).ok_or(WireError::Kind(kind))?;
        if flags & !FLAGS_KNOWN != 0 {
            return Err(WireError::Flags(flags));
        }
        let payload_length = u32::from_le_bytes(get(bytes, 36));
        if kind != Kind::Data && payload_length != 0 {
            return Err(WireError::ControlPayload {
                kind,
                length: payload_length,
            });
        }
        let word = |offset| u64::from_le_bytes(get(bytes, offset));
        let body = match kind {
            Kind::Data => Body::Data(parse_data(bytes, payload_length)?),
            Kind::EndOfStream => {
                reserved(bytes, 56..64)?;
                let (count, checksum) = (word(40), word(48));
                Body::EndOfStream(SequenceDigest { count, checksum })
            }
            Kind::Credit => {
                reserved(bytes, 44..48)?;
                reserved(bytes, 56..64)?;
                Body::Credit(Credit {
                    credit: u32::from_le_bytes(get(bytes, 40)),
                    acknowledged: word(48),
                })
            }
            Kind::Acknowledge => {
                reserved(bytes, 48..64)?;
                Body::Acknowledge(word(40))
            }
            Kind::Sent => {
                reserved(bytes, 56..64)?;
                let (on_link, to_group) = (word(40), word(48));
                Body::Sent(Sent { on_link, to_group })
            }
            Kind::Missing => {
                reserved(bytes, 56..64)?;
                let (first, bitmap) = (word(40), word(48));
                if bitmap & 1 == 0 {
                    return Err(WireError::NothingMissing);
                }
                Body::Missing(Missing { first, bitmap })
            }
            Kind::Join => {
                reserved(bytes, 60..64)?;
                Body::Join(get(bytes, 40))
            }
            Kind::Phase => {
                reserved(bytes, 56..64)?;
                let (number, step) = (word(40), word(48));
                let step = Step::from_repr(step).ok_or(WireError::Step(step))?;
                Body::Phase(Phase { number, step })
            }
            Kind::Trial => {
                reserved(bytes, 57..64)?;
                let [crowded] = get::<1>(bytes, 56);
                if crowded > 1 {
                    return Err(WireError::Reserved);
                }
                Body::Trial(Trial {
                    number: word(40),
                    rate: word(48),
                    crowded: crowded == 1,
                })
            }
            Kind::Joined | Kind::Member | Kind::Leave | Kind::Abort => {
                reserved(bytes, 40..64)?;
                match kind {
                    Kind::Member => Body::Member,
                    Kind::Leave => Body::Leave,
                    Kind::Abort => Body::Abort,
                    _ => Body::Joined,
                }
            }
        };
        Ok(Self {
            flags,
            group: u16::from_le_bytes(get(bytes, 6)),
            exchange: u64::from_le_bytes(get(bytes, 8)),
            source: u32::from_le_bytes(get(bytes, 16)),
            partition: u32::from_le_bytes(get(bytes, 20)),
            sequence: u64::from_le_bytes(get(bytes, 24)),
            credit_seen: u32::from_le_bytes(get(bytes, 32)),
            body,
        })
    }
}

fn parse_data(bytes: &[u8; HEADER_LENGTH], payload_length: u32) -> Result<Data, WireError> {
    reserved(bytes, 56..64)?;
    let frame_length = u32::from_le_bytes(get(bytes, 48));
    let offset = u32::from_le_bytes(get(bytes, 52));
    if payload_length == 0 {
        return Err(WireError::EmptyFragment);
    }
    if frame_length > FRAME_LENGTH_MAX {
        return Err(WireError::FrameLength(frame_length));
    }
    if offset
        .checked_add(payload_length)
        .is_none_or(|end| end > frame_length)
    {
        return Err(WireError::FragmentBounds {
            offset,
            payload_length,
            frame_length,
        });
    }
    Ok(Data {
        frame_sequence: u32::from_le_bytes(get(bytes, 40)),
        rows: u32::from_le_bytes(get(bytes, 44)),
        frame_length,
        offset,
        payload_length,
    })
}

fn reserved(bytes: &[u8; HEADER_LENGTH], range: Range<usize>) -> Result<(), WireError> {
    if bytes[range].iter().all(|&byte| byte == 0) {
        Ok(())
    } else {
        Err(WireError::Reserved)
    }
}

/// Writes a field at a constant offset.
fn put<const N: usize>(bytes: &mut [u8; HEADER_LENGTH], offset: usize, field: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&field);
}

/// Reads a field at a constant offset.
fn get<const N: usize>(bytes: &[u8; HEADER_LENGTH], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}
