//! The small parts of one link, of which the designs, the endpoints and the multiplexer are made. Each is a file, and
//! knows nothing of designs, endpoints or operators.

pub(crate) mod credit;
pub(crate) mod header;
pub(crate) mod queue;
pub(crate) mod queue_pair;
pub(crate) mod repair;
pub(crate) mod seal;
pub(crate) mod sequence;
pub(crate) mod silence;
pub(crate) mod window;
