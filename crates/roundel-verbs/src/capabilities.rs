//! What a device can do. The layers above ask this struct, never which provider runs below.

/// The limits and properties of a device.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Capabilities {
    /// Name of the provider: `shm`, `rdma`, …
    pub provider: &'static str,
    /// Name of the device, as its host calls it: `mlx5_0/1`, …
    pub device: String,
    /// Most queue pairs at a time.
    pub queue_pairs_max: usize,
    /// Most work requests posted and not completed, per send or receive queue.
    pub work_requests_max: usize,
    /// Most completion queues at a time.
    pub completion_queues_max: usize,
    /// Most completion channels at a time.
    pub completion_channels_max: usize,
    /// Most bytes of an inline payload.
    pub inline_bytes_max: usize,
    /// Most bytes of a message on a connected transport.
    pub rc_message_bytes_max: usize,
    /// Most bytes of a datagram, without the global routing header.
    pub ud_message_bytes_max: usize,
    /// Bytes of the global routing header in front of a received datagram's payload.
    pub grh_bytes: usize,
    /// Most bytes that can be registered.
    pub registered_bytes_max: usize,
    /// Most READs outstanding per queue pair.
    pub outstanding_reads_max: usize,
    /// Whether there are atomic operations on remote words.
    pub atomics: bool,
    /// Most shared receive queues at a time; 0 when there are none.
    pub shared_receive_queues_max: usize,
    /// Most multicast groups at a time; 0 when a datagram goes to one queue pair only.
    pub multicast_groups_max: usize,
    /// Whether the bytes of a WRITE become visible in increasing address order, so that the last
    /// byte can be polled.
    pub write_in_address_order: bool,
    /// Whether peers must run on the same host.
    pub same_host_only: bool,
}

/// Bytes of the global routing header on every provider: 40, as InfiniBand has it.
pub const GRH_BYTES: usize = 40;
