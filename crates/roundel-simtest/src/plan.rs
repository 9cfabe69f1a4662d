//! What a seed stands for.

use rand::Rng as _;
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use roundel_exchange::{Design, OnLoss, Scheduling};
use roundel_verbs::sim::{Faults, Moment, PacketFault, PacketKind, Trouble, What};
use roundel_verbs::{Context, Transport};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;

/// Losses up to here are made good, whatever is lost, by whoever makes losses good.
const LOSS_MADE_GOOD: f64 = 0.02;
/// So is a cut up to here.
const CUT_MADE_GOOD: Duration = Duration::from_millis(200);
/// Shares that are told apart, from none to all.
const SHARES: f64 = 4096.0;
/// Moments of trouble: exchanges of this size take some of this.
const TROUBLE_AT_MAX: Duration = Duration::from_micros(300);

/// An exchange, and what goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Of everything that is random in the run.
    pub seed: u64,
    /// Nodes, at least 2.
    pub nodes: usize,
    /// Threads of each.
    pub threads: usize,
    /// The design.
    #[serde(with = "crate::as_text")]
    pub design: Design,
    /// Who gets which rows.
    pub pattern: Pattern,
    /// Batches of each thread for each group.
    pub batches: usize,
    /// Rows of a batch.
    pub rows: usize,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Buffers of a link; adaptive when `None`.
    pub buffers: Option<usize>,
    /// Whether batches are to come in order.
    pub ordered: bool,
    /// Over datagrams: what is done about losses.
    #[serde(with = "crate::as_text")]
    pub on_loss: OnLoss,
    /// How long sources and readers linger at most, now and then.
    pub dawdle: Duration,
    /// Whether those who wait stay awake and look again and again.
    #[serde(default)]
    pub awake: bool,
    /// Whether credit for SENDs over connections is written to memory.
    #[serde(default)]
    pub credit_in_memory: bool,
    /// Through which multiplexers, if through some: the design is not used then.
    #[serde(default)]
    pub multiplexer: Option<Multiplexed>,
    /// Whether it is a join of two such exchanges, whose rows go where their keys say, in place of exchanges by a pattern.
    #[serde(default)]
    pub join: Option<Join>,
    /// What goes wrong.
    pub faults: Faults,
}

/// Exchanges that share the multiplexers of their nodes. Sizes are in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multiplexed {
    /// Exchanges at once, all as the plan says.
    pub exchanges: usize,
    /// Queries that these are of, in turn.
    pub queries: usize,
    /// Whether rows are sent by a schedule.
    #[serde(with = "crate::as_text")]
    pub scheduling: Scheduling,
    /// Receives of a connection.
    pub receives: usize,
    /// Messages posted to a connection at a time.
    pub posted: usize,
    /// Messages of a link that nobody has read.
    pub link_messages: usize,
    /// Messages of a query that wait or are on their way.
    pub query_messages: usize,
    /// Messages of a phase.
    pub phase_messages: usize,
    /// Bytes from which on messages are scheduled where that is left to multiplexers.
    pub long_bytes: usize,
    /// Whether a node reads one exchange after the other, as joins read their inputs.
    pub in_turn: bool,
    /// NUMA regions of a node; its threads are in them in turn.
    #[serde(default = "one")]
    pub regions: usize,
}

fn one() -> usize {
    1
}

/// Exchanges of a join: one for each input.
pub(crate) const INPUTS: usize = 2;

/// A join, in place of exchanges by themselves. Each thread of a node is a task of both inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// Different keys.
    pub keys: usize,
    /// Of each input: the k-th key is as frequent as k to the power of minus a tenth of this.
    pub exponents: [u32; INPUTS],
    /// Of which inputs heavy keys may be spread; without any, nobody looks for them.
    pub spreads: [bool; INPUTS],
    /// Batches of a task that it looks at.
    pub sampled: usize,
    /// How long a task waits for the samples of others before it has all of them do without heavy keys.
    pub patience: Option<Duration>,
}

impl Join {
    fn draw(random: &mut ChaCha8Rng) -> Self {
        let mut exponent = || random.random_range(0..=20);
        let exponents = [exponent(), exponent()];
        Self {
            keys: random.random_range(1..=200),
            exponents,
            spreads: [random.random_bool(0.7), random.random_bool(0.7)],
            sampled: random.random_range(1..=4),
            patience: random
                .random_bool(0.2)
                .then(|| Duration::from_micros(random.random_range(1..100))),
        }
    }
}

/// Who gets which rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each node its own.
    Repartition,
    /// Each node and the next one the same.
    Multicast,
    /// All nodes the same.
    Broadcast,
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        let designs: Vec<Design> = Design::every().collect();
        let design = *designs.choose(random).unwrap_or(&Design::MesqSr);
        let sizes: &[usize] = match design.transport() {
            Transport::ReliableConnection => &[512, 1024, 4096, 16 << 10],
            _ => &[512, 1024, 4096],
        };
        let mut plan = Self {
            seed,
            nodes: *[2, 2, 2, 3, 3, 4, 5].choose(random).unwrap_or(&2),
            threads: random.random_range(1..=3),
            design,
            pattern: *[Pattern::Repartition, Pattern::Multicast, Pattern::Broadcast]
                .choose(random)
                .unwrap_or(&Pattern::Repartition),
            batches: random.random_range(1..=4),
            rows: random.random_range(1..=80),
            message_bytes: *sizes.choose(random).unwrap_or(&4096),
            buffers: random.random_bool(0.7).then(|| random.random_range(2..=6)),
            ordered: random.random_bool(0.5),
            on_loss: *OnLoss::ALL.choose(random).unwrap_or(&OnLoss::Repair),
            dawdle: Duration::from_micros(*[0, 5, 50].choose(random).unwrap_or(&0)),
            awake: false,
            credit_in_memory: false,
            multiplexer: None,
            join: None,
            faults: Faults::default(),
        };
        if random.random_bool(0.7) {
            plan.faults = plan.draw_faults(random);
        }
        plan.awake = random.random_bool(0.3);
        plan.multiplexer = random.random_bool(0.3).then(|| Multiplexed::draw(random));
        if random.random_bool(0.2) {
            plan.join = Some(Join::draw(random));
            plan.pattern = Pattern::Repartition;
            // Of fewer no key is heavy.
            plan.rows = random.random_range(1..=300);
        }
        plan.credit_in_memory = random.random_bool(0.3);
        plan
    }

    /// The design that the rows travel by: multiplexers have those with one endpoint and connections.
    pub fn design(&self) -> Design {
        match self.multiplexer {
            Some(_) => self.design.multiplexed(),
            None => self.design,
        }
    }

    /// What the rows travel over.
    pub fn transport(&self) -> Transport {
        self.design().transport()
    }

    /// Exchanges at once.
    pub fn exchanges(&self) -> usize {
        match (&self.join, &self.multiplexer) {
            (Some(_), _) => INPUTS,
            (None, Some(shared)) => shared.exchanges,
            (None, None) => 1,
        }
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: usize, range: Range<usize>| match range.contains(&value) {
            true => Ok(()),
            false => Err(format!(
                "{what}: {value} is not from {} to {}",
                range.start,
                range.end - 1
            )),
        };
        within("nodes", self.nodes, 2..65)?;
        within("threads", self.threads, 1..65)?;
        within("batches", self.batches, 1..100_001)?;
        within("rows", self.rows, 1..1_000_001)?;
        within("message_bytes", self.message_bytes, 512..(1 << 20) + 1)?;
        within("buffers", self.buffers.unwrap_or(2), 2..1025)?;
        if let Some(shared) = &self.multiplexer {
            within("exchanges", shared.exchanges, 1..65)?;
            within("queries", shared.queries, 1..65)?;
            within("receives", shared.receives, 2..1025)?;
            within("posted", shared.posted, 1..1025)?;
            within("link_messages", shared.link_messages, 1..1025)?;
            within("query_messages", shared.query_messages, 1..1025)?;
            within("phase_messages", shared.phase_messages, 1..1025)?;
            within("regions", shared.regions, 1..65)?;
        }
        if let Some(join) = &self.join {
            within("keys", join.keys, 1..1_000_001)?;
            if self.pattern != Pattern::Repartition {
                return Err("the rows of a join are repartitioned".into());
            }
        }
        for moment in &self.faults.moments {
            within("the node of a moment", moment.node, 0..self.nodes)?;
        }
        let faults = &self.faults;
        let shares = [
            faults.loss,
            faults.corruption,
            faults.duplication,
            faults.delayed,
        ];
        match shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            Some(share) => Err(format!("a share of {share}: shares are from 0 to 1")),
            None => Ok(()),
        }
    }

    fn draw_faults(&self, random: &mut ChaCha8Rng) -> Faults {
        // Of a size that is the same when it was written and read.
        let mut share = |most: f64| match random.random_bool(0.3) {
            true => f64::from(random.random_range(0..(most * SHARES) as u32)) / SHARES,
            false => 0.0,
        };
        let mut faults = Faults {
            loss: share(LOSS_MADE_GOOD / 2.0),
            corruption: share(LOSS_MADE_GOOD / 2.0),
            duplication: share(0.1),
            delayed: share(0.2),
            delay: Duration::from_micros(20),
            ..Faults::default()
        };
        if random.random_bool(0.3) {
            faults.packets = (0..random.random_range(1..=3))
                .map(|_| packet_fault(random))
                .collect();
        }
        if random.random_bool(0.4) {
            let at = random.random_range(0..TROUBLE_AT_MAX.as_nanos() as u64);
            faults.moments.push(Moment {
                at: Duration::from_nanos(at),
                node: random.random_range(0..self.nodes),
                what: trouble(random),
            });
        }
        faults
    }

    /// The nodes of each group. Groups that a node is in come one after the other.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        match self.pattern {
            Pattern::Repartition => (0..self.nodes).map(|node| vec![node]).collect(),
            Pattern::Multicast => (1..self.nodes).map(|node| vec![node - 1, node]).collect(),
            Pattern::Broadcast => vec![(0..self.nodes).collect()],
        }
    }

    /// What the rows of a node in an exchange are known by: each exchange has others.
    pub fn source(&self, exchange: usize, node: usize) -> usize {
        exchange * self.nodes + node
    }

    /// The partitions of a group: one for each thread of a source.
    pub fn partitions(&self, group: usize) -> Range<u32> {
        let threads = self.threads as u32;
        group as u32 * threads..(group as u32 + 1) * threads
    }

    /// What a node reads.
    pub fn read_by(&self, node: usize) -> Range<u32> {
        let groups = self.groups();
        let mut own = (0..groups.len()).filter(|group| groups[*group].contains(&node));
        match own.next() {
            None => 0..0,
            Some(first) => {
                let last = own.next_back().unwrap_or(first);
                self.partitions(first).start..self.partitions(last).end
            }
        }
    }

    /// Whether an error may come of it. Where losses are made good, few losses are no reason.
    pub fn may_fail(&self) -> bool {
        let faults = &self.faults;
        let makes_good =
            self.transport() == Transport::ReliableConnection || self.on_loss == OnLoss::Repair;
        let loses = faults.loss + faults.corruption > 0.0
            || faults
                .packets
                .iter()
                .any(|packet| packet.what == What::Lost);
        let much = faults.loss + faults.corruption > LOSS_MADE_GOOD;
        let troubled = faults.moments.iter().any(|moment| match moment.what {
            Trouble::Crash | Trouble::DeadNic => true,
            Trouble::Cut(duration) => !makes_good || duration > CUT_MADE_GOOD,
            Trouble::Pause(_) | Trouble::SlowNic(_) => false,
        });
        troubled || much || loses && !makes_good
    }

    /// Whether a receive may be missing for what comes: something comes twice. Where losses are
    /// made good, what is only late may be asked for and sent once more, without a credit; a copy
    /// without a receive is lost, and asked for again.
    pub fn may_repeat(&self) -> bool {
        let faults = &self.faults;
        let repairs =
            self.transport() == Transport::UnreliableDatagram && self.on_loss == OnLoss::Repair;
        let troubled = faults.loss + faults.corruption + faults.delayed > 0.0
            || !faults.packets.is_empty()
            || !faults.moments.is_empty();
        let twice = |packet: &PacketFault| packet.what == What::Twice;
        faults.duplication > 0.0 || faults.packets.iter().any(twice) || repairs && troubled
    }
}

impl Multiplexed {
    fn draw(random: &mut ChaCha8Rng) -> Self {
        Self {
            exchanges: random.random_range(1..=3),
            queries: random.random_range(1..=2),
            scheduling: *Scheduling::ALL.choose(random).unwrap_or(&Scheduling::On),
            receives: random.random_range(2..=16),
            posted: random.random_range(1..=8),
            link_messages: random.random_range(1..=16),
            query_messages: random.random_range(1..=64),
            phase_messages: random.random_range(1..=8),
            in_turn: random.random_bool(0.5),
            long_bytes: *[512, 16 << 10].choose(random).unwrap_or(&512),
            regions: random.random_range(1..=2),
        }
    }
}

/// Now and then, lets time pass.
pub(crate) async fn dawdle(context: &dyn Context, most: Duration, random: &mut ChaCha8Rng) {
    if !most.is_zero() && random.random_bool(0.3) {
        let nanos = random.random_range(0..most.as_nanos() as u64);
        context.sleep(Duration::from_nanos(nanos)).await;
    }
}

fn packet_fault(random: &mut ChaCha8Rng) -> PacketFault {
    let kinds = [
        PacketKind::Request,
        PacketKind::Response,
        PacketKind::Acknowledgement,
        PacketKind::Datagram,
    ];
    PacketFault {
        kind: *kinds.choose(random).unwrap_or(&PacketKind::Request),
        number: random.random_range(0..60),
        what: match random.random_range(0..3) {
            0 => What::Lost,
            1 => What::Twice,
            _ => What::Late(Duration::from_micros(random.random_range(1..200))),
        },
    }
}

fn trouble(random: &mut ChaCha8Rng) -> Trouble {
    match random.random_range(0..5) {
        0 => Trouble::Crash,
        1 => Trouble::DeadNic,
        2 => Trouble::Pause(Duration::from_micros(random.random_range(1..100_000))),
        3 => Trouble::Cut(Duration::from_micros(random.random_range(1..200_000))),
        _ => Trouble::SlowNic(random.random_range(2..200)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_plan_and_its_text_another_way_to_it() {
        for seed in 0..200 {
            let plan = Plan::draw(seed);
            assert_eq!(Plan::draw(seed), plan);
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        }
    }

    #[test]
    fn seeds_draw_every_design_pattern_and_trouble() {
        let plans: Vec<Plan> = (0..3000).map(Plan::draw).collect();
        for design in Design::every() {
            assert!(plans.iter().any(|plan| plan.design == design), "{design}");
        }
        for design in Design::every().map(Design::multiplexed) {
            let mut shared = plans.iter().filter(|plan| plan.multiplexer.is_some());
            assert!(shared.any(|plan| plan.design() == design), "{design}");
        }
        let troubles: Vec<Trouble> = plans
            .iter()
            .flat_map(|plan| plan.faults.moments.iter().map(|moment| moment.what))
            .collect();
        let has = |found: fn(&Trouble) -> bool| troubles.iter().any(found);
        assert!(has(|what| *what == Trouble::Crash));
        assert!(has(|what| *what == Trouble::DeadNic));
        assert!(has(|what| matches!(what, Trouble::Pause(_))));
        assert!(has(|what| matches!(what, Trouble::Cut(_))));
        assert!(has(|what| matches!(what, Trouble::SlowNic(_))));
        for scheduling in Scheduling::ALL {
            let mut shared = plans.iter().filter_map(|plan| plan.multiplexer);
            assert!(shared.any(|shared| shared.scheduling == scheduling));
        }
        for multiplexed in [false, true] {
            let mut joins = plans.iter().filter(|plan| plan.join.is_some());
            assert!(joins.any(|plan| plan.multiplexer.is_some() == multiplexed));
        }
        assert!(plans.iter().any(|plan| plan.awake) && !plans.iter().all(|plan| plan.awake));
        let in_memory = plans.iter().filter(|plan| plan.credit_in_memory).count();
        assert!(0 < in_memory && in_memory < plans.len());
        assert!(plans.iter().any(Plan::may_fail) && !plans.iter().all(Plan::may_fail));
    }

    #[test]
    fn a_node_reads_the_partitions_of_its_groups() {
        let plan = Plan {
            nodes: 3,
            threads: 2,
            pattern: Pattern::Multicast,
            ..Plan::draw(0)
        };
        assert_eq!(plan.groups(), [[0, 1], [1, 2]]);
        let read = [0, 1, 2].map(|node| plan.read_by(node));
        assert_eq!(read, [0..2, 0..4, 2..4]);
    }
}
