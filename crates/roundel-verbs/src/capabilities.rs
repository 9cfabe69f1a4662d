//! What a device can do. The layers above ask this struct, never which provider runs below.

use crate::transport::Transport;

/// The limits and properties of a device.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Capabilities {
    /// Name of the provider: `shm`, `rdma`, …
    pub provider: &'static str,
    /// Name of the device, as its host calls it: `mlx5_0/1`, …
    pub device: String,
    /// The transport services that queue pairs may have.
    pub transports: Vec<Transport>,
    /// Most queue pairs at a time.
    pub queue_pairs_max: usize,
    /// Most work requests posted and not completed, per send or receive queue.
    pub work_requests_max: usize,
    /// Most completion queues at a time.
    pub completion_queues_max: usize,
    /// Most completions in a completion queue: as many as the send and receive queues that
    /// complete there have room for, all together.
    pub completions_max: usize,
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
    /// Whether READs also go into memory that is not registered, and are over when the call returns:
    /// the peer's memory is mapped here.
    pub reads_at_once: bool,
    /// Whether peers that know a key also reach memory that is not exposed. On iWARP what a READ brings is written by the
    /// peer, whom the device tells the key, and Soft-iWARP does not look at the right to read.
    pub exposes_all_memory: bool,
    /// Whether there are atomic operations on remote words.
    pub atomics: bool,
    /// Whether SENDs and WRITEs may carry immediate data.
    pub immediate_data: bool,
    /// Most shared receive queues at a time; 0 when there are none.
    pub shared_receive_queues_max: usize,
    /// Most receives posted to a shared receive queue.
    pub shared_receives_max: usize,
    /// Most multicast groups at a time; 0 when a datagram goes to one queue pair only.
    pub multicast_groups_max: usize,
    /// Whether the bytes of a WRITE become visible in increasing address order, so that the last
    /// byte can be polled.
    pub write_in_address_order: bool,
    /// Whether an aligned word of 8 bytes that a WRITE covers is never seen half written. Verbs do
    /// not promise it; only atomics change words in one step everywhere.
    pub write_whole_words: bool,
    /// Whether a send that waits for the receiver goes on although nobody polls its completion
    /// queue.
    pub progress_without_polling: bool,
    /// Whether requests to a queue pair that is not connected yet wait until it is, however long.
    /// Where they do not, a device gives up on it as on a dead peer, within a second or two.
    pub waits_for_connection: bool,
    /// Whether a SEND on a reliable connection waits until its receiver has posted a receive. Where it does not, one that
    /// finds none breaks the connection.
    pub waits_for_receive: bool,
    /// Whether a SEND or WRITE on a reliable connection completes when it has arrived. Where it does not, its completion
    /// says that its buffer is free again, and what the peer refuses breaks the connection a little later.
    pub completes_on_arrival: bool,
    /// Whether a reliable connection breaks by itself when the peer's process ends. Where it does
    /// not, the next request finds out.
    pub breaks_with_peer: bool,
    /// Whether peers must run on the same host.
    pub same_host_only: bool,
    /// Whether messages cross a network, where those for one peer can get in each other's way.
    pub networked: bool,
}

/// Bytes of the global routing header on every provider: 40, as InfiniBand has it.
pub const GRH_BYTES: usize = 40;

impl Capabilities {
    /// Every capability but the names, as a line of text and its value.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        // In full: a capability without a row does not compile.
        let Self {
            provider: _,
            device: _,
            transports,
            queue_pairs_max,
            work_requests_max,
            completion_queues_max,
            completions_max,
            completion_channels_max,
            inline_bytes_max,
            rc_message_bytes_max,
            ud_message_bytes_max,
            grh_bytes,
            registered_bytes_max,
            outstanding_reads_max,
            reads_at_once,
            exposes_all_memory,
            atomics,
            immediate_data,
            shared_receive_queues_max,
            shared_receives_max,
            multicast_groups_max,
            write_in_address_order,
            write_whole_words,
            progress_without_polling,
            waits_for_connection,
            waits_for_receive,
            completes_on_arrival,
            breaks_with_peer,
            same_host_only,
            networked,
        } = self;
        let names: Vec<_> = transports
            .iter()
            .map(|transport| transport.name())
            .collect();
        vec![
            ("transports", names.join(", ")),
            ("queue pairs", number(*queue_pairs_max)),
            (
                "requests per send or receive queue",
                number(*work_requests_max),
            ),
            ("completion queues", number(*completion_queues_max)),
            ("completions per queue", number(*completions_max)),
            ("completion channels", number(*completion_channels_max)),
            ("bytes inline", bytes(*inline_bytes_max)),
            ("bytes per message, connected", bytes(*rc_message_bytes_max)),
            ("bytes per datagram", bytes(*ud_message_bytes_max)),
            (
                "bytes of routing header before a datagram",
                bytes(*grh_bytes),
            ),
            ("bytes of registered memory", bytes(*registered_bytes_max)),
            (
                "READs outstanding per queue pair",
                number(*outstanding_reads_max),
            ),
            (
                "READs without queue and registered memory",
                answer(*reads_at_once),
            ),
            (
                "keys also open memory that is not exposed",
                answer(*exposes_all_memory),
            ),
            ("atomics", answer(*atomics)),
            ("immediate data", answer(*immediate_data)),
            ("shared receive queues", number(*shared_receive_queues_max)),
            (
                "receives per shared receive queue",
                number(*shared_receives_max),
            ),
            ("multicast groups", number(*multicast_groups_max)),
            (
                "the last byte of a WRITE is visible last",
                answer(*write_in_address_order),
            ),
            (
                "a WRITE's aligned words are seen whole",
                answer(*write_whole_words),
            ),
            (
                "waiting sends go on without polling",
                answer(*progress_without_polling),
            ),
            (
                "requests wait for the peer to connect",
                answer(*waits_for_connection),
            ),
            (
                "a SEND on RC waits for a receive",
                answer(*waits_for_receive),
            ),
            (
                "a SEND or WRITE on RC completes when it has arrived",
                answer(*completes_on_arrival),
            ),
            (
                "RC breaks by itself when the peer ends",
                answer(*breaks_with_peer),
            ),
            ("peers on the same host only", answer(*same_host_only)),
            ("messages cross a network", answer(*networked)),
        ]
    }
}

/// A count in groups of three digits.
fn number(count: usize) -> String {
    match count {
        0 => return "none".to_owned(),
        usize::MAX => return "no limit".to_owned(),
        _ => {}
    }
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count of bytes, in GiB or MiB when it is a whole number of them.
fn bytes(count: usize) -> String {
    let unit = |shift: u32| {
        let whole = count >> shift;
        (whole > 0 && whole << shift == count && count != usize::MAX).then(|| number(whole))
    };
    match (unit(30), unit(20)) {
        (Some(whole), _) => format!("{whole} GiB"),
        (None, Some(whole)) => format!("{whole} MiB"),
        (None, None) => number(count),
    }
}

fn answer(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::{bytes, number};

    #[test]
    fn numbers_are_easy_to_read() {
        let texts = [0, 7, 128, 1000, 32_767, 1_048_576, usize::MAX].map(number);
        let wanted = [
            "none",
            "7",
            "128",
            "1,000",
            "32,767",
            "1,048,576",
            "no limit",
        ];
        assert_eq!(texts, wanted);
        let texts = [40, 4096, 1 << 20, 3 << 30, (1 << 31) - 1, usize::MAX].map(bytes);
        let wanted = ["40", "4,096", "1 MiB", "3 GiB", "2,147,483,647", "no limit"];
        assert_eq!(texts, wanted);
    }
}
