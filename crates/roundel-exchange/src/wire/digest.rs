//! Proof that exactly the messages sent have arrived, in any order, without a record of each.

/// Count and order-independent checksum of message sequence numbers.
///
/// A source adds every data message it sends and announces the digest at the end of its stream; a
/// receiver adds every data message that arrives. Equal digests mean that the same messages were
/// added: a lost message leaves the count short, and one that is lost while another arrives twice
/// leaves the count right and the checksum wrong. Messages are told apart by transmission group and
/// sequence number. The checksum is a sum of mixed numbers modulo 2^64 (a sum, since under exclusive or a message received three times would count as one).
/// It guards against accidents of the network, not against a malicious peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SequenceDigest {
    /// Messages added.
    pub count: u64,
    /// Sum of their mixed groups and sequence numbers, modulo 2^64.
    pub checksum: u64,
}

impl SequenceDigest {
    /// Adds the message of a group with this sequence number.
    #[inline]
    pub fn add(&mut self, group: u16, sequence: u64) {
        self.count = self.count.wrapping_add(1);
        let number = mix(u64::from(group)).wrapping_add(sequence);
        self.checksum = self.checksum.wrapping_add(mix(number));
    }
}

/// The finaliser of SplitMix64: a bijection that spreads consecutive numbers over 64 bits.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
