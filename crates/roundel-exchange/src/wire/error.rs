//! Why bytes are no message.

use super::{FRAME_LENGTH_MAX, HEADER_LENGTH, Kind, MAGIC, VERSION};

/// Why bytes are not a message of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The message is too short for a header.
    #[error("message of {0} bytes is shorter than its header of {HEADER_LENGTH}")]
    Truncated(usize),
    /// The bytes are no Roundel message.
    #[error("magic is {0:#06x}, not {MAGIC:#06x}: no Roundel message")]
    Magic(u16),
    /// The sender speaks another version.
    #[error("message has version {0}, expected {VERSION}: run one version on all nodes")]
    Version(u16),
    /// No such kind of message.
    #[error("unknown kind of message {0}")]
    Kind(u8),
    /// A flag is set that this version does not define.
    #[error("unknown flags {0:#04x}")]
    Flags(u8),
    /// Bytes that this version does not use are not 0.
    #[error("reserved bytes of the header are not 0")]
    Reserved,
    /// The payload is not as long as the header says.
    #[error("header announces {announced} bytes of payload, the message has {found}")]
    PayloadLength {
        /// Payload length in the header, in bytes.
        announced: u32,
        /// Bytes of the message after its header.
        found: usize,
    },
    /// A control message has a payload.
    #[error("{kind:?} message announces {length} bytes of payload, which it cannot have")]
    ControlPayload {
        /// Kind of the message.
        kind: Kind,
        /// Payload length in the header, in bytes.
        length: u32,
    },
    /// A data message carries nothing.
    #[error("data message without payload")]
    EmptyFragment,
    /// A frame is longer than messages can carry.
    #[error("frame of {0} bytes, the limit is {FRAME_LENGTH_MAX}")]
    FrameLength(u32),
    /// A fragment reaches beyond its frame.
    #[error("fragment of {payload_length} bytes at {offset} of a frame of {frame_length}")]
    FragmentBounds {
        /// Offset in the frame, in bytes.
        offset: u32,
        /// Length of the fragment in bytes.
        payload_length: u32,
        /// Length of the frame in bytes.
        frame_length: u32,
    },
    /// No such step of a phase.
    #[error("unknown step {0} of a phase")]
    Step(u64),
    /// A receiver asks for messages again and does not begin with one that it misses.
    #[error("a message about what is missing does not begin with it")]
    NothingMissing,
}
