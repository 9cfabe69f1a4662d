//! Links the two sides of an exchange between nodes of one process, simulated or not.

use roundel_exchange::{
    Destination, ExchangeError, Multiplexer, NodeId, Receive, ReceiveLink, Shuffle,
};
use std::ops::Range;

/// A node for those who link it.
pub struct End<'a> {
    /// What errors call it.
    pub name: String,
    /// That of the node, if its exchanges go through one.
    pub multiplexer: Option<&'a Multiplexer>,
}

/// Has the multiplexers of a target and a source meet, if they have any and have not; by what the target knows the source
/// then.
///
/// # Errors
/// When a connection cannot be made.
fn meet(target: &End<'_>, source: &End<'_>) -> Result<Option<NodeId>, ExchangeError> {
    let (Some(here), Some(there)) = (target.multiplexer, source.multiplexer) else {
        return Ok(None);
    };
    if !here.is_connected(there.id()) {
        let address = here.meet(there.id(), &source.name)?;
        let answer = there.accept(here.id(), &target.name, &address)?;
        here.join(there.id(), &answer)?;
    }
    Ok(Some(there.id()))
}

/// Links a source with a target that reads these partitions.
///
/// # Errors
/// When the link cannot be made.
pub fn link(
    (target, receive): (&End<'_>, &Receive),
    (source, shuffle): (&End<'_>, &Shuffle),
    reads: Range<u32>,
) -> Result<(ReceiveLink, Destination), ExchangeError> {
    let (link, offers) = receive.offer(&source.name, meet(target, source)?, reads)?;
    let (destination, answers) = shuffle.accept(&offers, &target.name)?;
    receive.connect(&link, &answers)?;
    Ok((link, destination))
}
