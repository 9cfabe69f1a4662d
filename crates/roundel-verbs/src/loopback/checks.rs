//! The checks, one function each.

use super::Check;
use super::bench::{Bench, Result, Trouble, bytes_of, ensure, failed, pattern};
use crate::capabilities::GRH_BYTES;
use crate::memory::{ArenaOptions, ExposedBuffer};
use crate::multicast::MulticastGroup;
use crate::queue_pair::{AddressHandle, QueuePair, QueuePairOptions, Transport};
use crate::work::{ATOMIC_BYTES, InlineBytes, Payload, SendOperation};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of a message on a connection: more than one packet of most networks.
const MESSAGE_BYTES: usize = 8192;
/// How often a datagram is sent, which the network may lose.
const DATAGRAMS: u32 = 4;

/// Runs one check.
pub(super) fn run(check: Check, bench: &Bench) -> Result<()> {
    let capabilities = bench.device.capabilities();
    let has = match check {
        Check::Inline => capabilities.inline_bytes_max > 0,
        Check::RcWriteWithImmediate => capabilities.immediate_data,
        Check::Atomics => capabilities.atomics,
        Check::CompletionChannel => capabilities.completion_channels_max > 0,
        Check::SharedReceiveQueue => capabilities.shared_receive_queues_max > 0,
        Check::Multicast => capabilities.multicast_groups_max > 0,
        _ => true,
    };
    if !has {
        return Err(Trouble::NotSupported);
    }
    match check {
        Check::RegisteredMemory => registered_memory(bench),
        Check::RcSend => send(bench, Transport::ReliableConnection),
        Check::RcWrite => write(bench, Transport::ReliableConnection),
        Check::RcRead => read(bench),
        Check::RcWriteWithImmediate => write_with_immediate(bench),
        Check::Inline => inline(bench),
        Check::Atomics => atomics(bench),
        Check::CompletionChannel => completion_channel(bench),
        Check::SharedReceiveQueue => shared_receive_queue(bench),
        Check::UcSend => send(bench, Transport::UnreliableConnection),
        Check::UcWrite => write(bench, Transport::UnreliableConnection),
        Check::UdSend => datagram(bench),
        Check::Multicast => multicast(bench),
    }
}

fn registered_memory(bench: &Bench) -> Result<()> {
    let arena = bench.device.arena(ArenaOptions::default());
    arena.allocate(1)?;
    Ok(())
}

fn send(bench: &Bench, transport: Transport) -> Result<()> {
    let (from, to) = bench.connected(transport)?;
    let bytes = pattern(MESSAGE_BYTES);
    bench.post_receive(&to, MESSAGE_BYTES)?;
    bench.carry_out(&from, SendOperation::Send, bench.payload(&bytes)?)?;
    let received = bench.received()?;
    ensure(bytes_of(&received, 0)? == bytes, DAMAGED)
}

const DAMAGED: &str = "other bytes arrived than were sent";

fn write(bench: &Bench, transport: Transport) -> Result<()> {
    let (from, _to) = bench.connected(transport)?;
    let bytes = pattern(MESSAGE_BYTES);
    let memory = bench.arena.allocate_exposed(MESSAGE_BYTES)?;
    let operation = SendOperation::Write(memory.remote_address());
    bench.carry_out(&from, operation, bench.payload(&bytes)?)?;
    bench.until("the bytes were not in the peer's memory", || {
        contents(&memory) == bytes
    })
}

fn contents(memory: &ExposedBuffer) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes);
    bytes
}

fn read(bench: &Bench) -> Result<()> {
    const WORD: u64 = 0x0102_0304_0506_0708;
    let (from, _to) = bench.connected(Transport::ReliableConnection)?;
    let memory = bench.arena.allocate_exposed(MESSAGE_BYTES)?;
    let last = MESSAGE_BYTES - size_of::<u64>();
    memory.word(last).store(WORD, Ordering::Release);
    let operation = SendOperation::Read(memory.remote_address());
    let done = bench.carry_out(&from, operation, bench.payload(&pattern(MESSAGE_BYTES))?)?;
    ensure(bytes_of(&done, 0)? == contents(&memory), DAMAGED)
}

fn write_with_immediate(bench: &Bench) -> Result<()> {
    const TOLD: u32 = 0x0102_0304;
    let (from, to) = bench.connected(Transport::ReliableConnection)?;
    let bytes = pattern(MESSAGE_BYTES);
    let memory = bench.arena.allocate_exposed(MESSAGE_BYTES)?;
    bench.post_receive(&to, 1)?;
    let operation = SendOperation::WriteWithImmediate(memory.remote_address(), TOLD);
    bench.carry_out(&from, operation, bench.payload(&bytes)?)?;
    let received = bench.received()?;
    ensure(
        received.immediate == Some(TOLD),
        "other immediate data arrived than was sent",
    )?;
    ensure(contents(&memory) == bytes, DAMAGED)
}

fn inline(bench: &Bench) -> Result<()> {
    let (from, to) = bench.connected(Transport::ReliableConnection)?;
    let bytes = pattern(bench.device.capabilities().inline_bytes_max);
    let Some(payload) = InlineBytes::new(&bytes) else {
        return failed("the device takes more than a work request has room for");
    };
    bench.post_receive(&to, bytes.len())?;
    bench.carry_out(&from, SendOperation::Send, Payload::Inline(payload))?;
    let received = bench.received()?;
    ensure(bytes_of(&received, 0)? == bytes, DAMAGED)
}

fn atomics(bench: &Bench) -> Result<()> {
    let (from, _to) = bench.connected(Transport::ReliableConnection)?;
    let memory = bench.arena.allocate_exposed(ATOMIC_BYTES)?;
    let at = memory.remote_address();
    let word = || memory.word(0).load(Ordering::Acquire);
    let (compare, swap, add) = (0, 5, 2);
    for (operation, after) in [
        (SendOperation::CompareAndSwap { at, compare, swap }, swap),
        (SendOperation::FetchAndAdd { at, add }, swap + add),
    ] {
        let before = word();
        let done = bench.carry_out(&from, operation, bench.payload(&[0xff; ATOMIC_BYTES])?)?;
        ensure(
            bytes_of(&done, 0)? == before.to_ne_bytes(),
            "an atomic returned another word than there was",
        )?;
        ensure(word() == after, "an atomic left the wrong word")?;
    }
    Ok(())
}

fn completion_channel(bench: &Bench) -> Result<()> {
    let channel = bench.device.create_channel()?;
    let bench = Bench::new(&bench.device, Some(&channel))?;
    let (from, to) = bench.connected(Transport::ReliableConnection)?;
    bench.post_receive(&to, MESSAGE_BYTES)?;
    bench.receives.arm();
    let payload = bench.payload(&pattern(MESSAGE_BYTES))?;
    bench.carry_out(&from, SendOperation::Send, payload)?;
    if !is_readable(&channel, bench.left())? {
        return failed("a completion arrived without an event");
    }
    channel.acknowledge();
    bench.received()?;
    Ok(())
}

fn is_readable(fd: impl AsFd, within: Duration) -> Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: within.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(errno) => failed(format!("poll failed: {errno}")),
    }
}

fn shared_receive_queue(bench: &Bench) -> Result<()> {
    let shared = bench.device.create_shared_receive_queue(4)?;
    let options = bench.options(Transport::ReliableConnection);
    let (device, sends, receives) = (&bench.device, &bench.sends, &bench.receives);
    let from = device.create_queue_pair(&options, sends, receives)?;
    let to = device.create_queue_pair_with_shared_receives(&options, sends, receives, &shared)?;
    from.connect(to.address())?;
    to.connect(from.address())?;
    let bytes = pattern(MESSAGE_BYTES);
    let taken = shared.post_receive(&mut vec![bench.receive(MESSAGE_BYTES)?])?;
    ensure(taken == 1, "the shared receive queue takes nothing")?;
    bench.carry_out(&from, SendOperation::Send, bench.payload(&bytes)?)?;
    let received = bench.received()?;
    ensure(
        received.queue_pair == to.number(),
        "another queue pair got it",
    )?;
    ensure(bytes_of(&received, 0)? == bytes, DAMAGED)
}

fn datagram(bench: &Bench) -> Result<()> {
    let (from, to) = datagram_pairs(bench, &bench.options(Transport::UnreliableDatagram))?;
    let handle = bench.device.create_address_handle(to.address())?;
    send_datagrams(bench, &from, &to, &handle)
}

fn multicast(bench: &Bench) -> Result<()> {
    let options = bench.options(Transport::UnreliableDatagram);
    let (from, to) = datagram_pairs(bench, &options)?;
    let group = MulticastGroup::new(rand::random(), options.queue_key);
    to.join(&group)?;
    let handle = bench.device.create_multicast_handle(&group)?;
    send_datagrams(bench, &from, &to, &handle)
}

fn datagram_pairs(bench: &Bench, options: &QueuePairOptions) -> Result<(QueuePair, QueuePair)> {
    let pair = || {
        bench
            .device
            .create_queue_pair(options, &bench.sends, &bench.receives)
    };
    let (from, to) = (pair()?, pair()?);
    from.activate()?;
    to.activate()?;
    Ok((from, to))
}

/// Sends datagrams until one arrives.
fn send_datagrams(
    bench: &Bench,
    from: &QueuePair,
    to: &QueuePair,
    handle: &AddressHandle,
) -> Result<()> {
    let bytes = pattern(bench.device.capabilities().ud_message_bytes_max);
    for left in (1..=DATAGRAMS).rev() {
        bench.post_receive(to, GRH_BYTES + bytes.len())?;
        let payload = bench.payload(&bytes)?;
        bench.post(from, SendOperation::Send, payload, Some(handle))?;
        bench.sent()?;
        if let Some(received) = bench.next(&bench.receives, bench.left() / left)? {
            let source = received.source_queue_pair;
            ensure(source == from.number(), "it names another sender")?;
            return ensure(bytes_of(&received, GRH_BYTES)? == bytes, DAMAGED);
        }
    }
    failed(format!("none of {DATAGRAMS} datagrams arrived"))
}
