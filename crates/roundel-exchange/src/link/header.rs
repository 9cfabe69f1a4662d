//! Reads the header of a message that has arrived. A peer can write into registered memory at any time: the header is
//! copied to private memory and checked there.

use crate::wire::{HEADER_LENGTH, Header, WireError};
use roundel_verbs::Buffer;

/// The header at `at` of the first `bytes` of a buffer.
pub(crate) fn header_at(buffer: &Buffer, at: usize, bytes: usize) -> Result<Header, WireError> {
    let bytes = bytes.min(buffer.len());
    let message = bytes.saturating_sub(at);
    if message < HEADER_LENGTH {
        return Err(WireError::Truncated(message));
    }
    let mut header = [0; HEADER_LENGTH];
    buffer.read(at, &mut header);
    check_header(&header, message)
}

/// Checks a header in private memory, of a message of so many bytes.
pub(crate) fn check_header(
    header: &[u8; HEADER_LENGTH],
    message: usize,
) -> Result<Header, WireError> {
    let header = Header::parse(header)?;
    let found = message.checked_sub(HEADER_LENGTH);
    let found = found.ok_or(WireError::Truncated(message))?;
    if header.payload_length() as usize != found {
        return Err(WireError::PayloadLength {
            announced: header.payload_length(),
            found,
        });
    }
    Ok(header)
}
