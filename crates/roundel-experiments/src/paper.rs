//! The papers whose experiments are made again. Knows nothing of what they claim.

use strum::Display;

/// A paper whose claims are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Paper {
    /// Liu, Yin, Blanas: Design and Evaluation of an RDMA-aware Data Shuffling Operator, 2019.
    #[strum(to_string = "Liu et al. 2019")]
    Shuffle,
    /// Frey, Goncalves, Kersten, Teubner: A Spinning Join That Does Not Get Dizzy, 2010.
    #[strum(to_string = "Frey et al. 2010")]
    Ring,
    /// Huang, Ghandeharizadeh: An Evaluation of RDMA-based Message Passing Protocols, 2019.
    #[strum(to_string = "Huang, Ghandeharizadeh 2019")]
    Protocols,
    /// Rödiger, Mühlbauer, Kemper, Neumann: High-Speed Query Processing over High-Speed Networks, 2015.
    #[strum(to_string = "Rödiger et al. 2015")]
    Hybrid,
}
