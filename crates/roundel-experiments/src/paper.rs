//! The papers whose experiments are made again. Knows nothing of what they claim.

use std::fmt;

/// A paper whose claims are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Liu, Yin, Blanas: Design and Evaluation of an RDMA-aware Data Shuffling Operator, 2019.
    Shuffle,
    /// Frey, Goncalves, Kersten, Teubner: A Spinning Join That Does Not Get Dizzy, 2010.
    Ring,
    /// Huang, Ghandeharizadeh: An Evaluation of RDMA-based Message Passing Protocols, 2019.
    Protocols,
    /// Rödiger, Mühlbauer, Kemper, Neumann: High-Speed Query Processing over High-Speed Networks, 2015.
    Hybrid,
}

impl fmt::Display for Paper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shuffle => "Liu et al. 2019",
            Self::Ring => "Frey et al. 2010",
            Self::Protocols => "Huang, Ghandeharizadeh 2019",
            Self::Hybrid => "Rödiger et al. 2015",
        })
    }
}
