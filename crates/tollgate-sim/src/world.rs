//! The world: nodes, clients, network and time, and the one loop that moves them.
//!
//! Invariant: the run depends on the scenario alone. There is one thread; every event has a moment and, among the
//! events of the same moment, an order. Any panic during the run is a violation: a host that finds itself broken stops,
//! and none ever should. Not here: what is drawn beforehand (`scenario`), and the judgement (`tollgate-check`).

mod caller_liveness;
mod clients;
mod commits;
mod deadlocks;
mod faults;
mod healing;
mod leadership;
mod operator;
mod stuck;
mod turns;

use crate::client::ClientStats;
use crate::fenced::FencedStores;
use crate::front::{Request, Response};
use crate::network::Network;
use crate::node::Node;
use crate::outcome::Outcome;
use crate::panics;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::trace::Trace;
use crate::types::{At, ClientNo};
use caller_liveness::CallerLiveness;
use clients::Clients;
use commits::Commits;
use deadlocks::DeadlockWatch;
use healing::Healing;
use leadership::Leadership;
use operator::Operator;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use stuck::Stuck;
use tollgate_check::{Event, History, Settings};
use tollgate_replica::Members;
use tollgate_types::{GroupId, GroupMap, NodeId};

/// Interval at which the world looks at leaders and connections.
const PATROL_US: At = 50_000;

/// A running world.
pub struct World {
    scenario: Scenario,
    now: At,
    agenda: BinaryHeap<Reverse<Planned>>,
    planned: u64,
    nodes: BTreeMap<u64, Node>,
    boots: u64,
    network: Network,
    clients: Clients,
    stores: FencedStores,
    history: History,
    client_stats: ClientStats,
    stats: Stats,
    trace: Trace,
    rng: Rng,
    leadership: Leadership,
    commits: Commits,
    caller_liveness: CallerLiveness,
    deadlocks: DeadlockWatch,
    stuck: Stuck,
    operator: Operator,
    healing: Healing,
    /// Per group, the last entry up to which the ends of leases are recorded.
    recorded: Vec<u64>,
    /// Nodes that a fault holds until it ends, by fault.
    held: BTreeMap<usize, Vec<u64>>,
    /// Number of processes that are still to crash after a vote.
    crashes_left: u64,
    /// The fault and the group in which the next leader's votes are stolen.
    votes_to_steal: Option<(usize, GroupId)>,
    /// Faults under way that hit the network, the disks or the processes of nodes.
    active: BTreeSet<usize>,
    /// Time at which a fault of the kind in `active` was last under way.
    troubled_at: At,
    violations: Vec<String>,
    /// Last status line of each node's groups, while lines are printed.
    said: BTreeMap<(u64, GroupId), String>,
    /// True once a host was seen to take turns in which nothing happens: reported once.
    spun: bool,
    /// True once every group was raised to the newest version.
    raised: bool,
    over: bool,
}

/// An event that is going to happen.
enum Happening {
    Turn { node: u64, ticket: u64 },
    Frame { from: u64, to: u64, epoch: u32, sent: At, bytes: Vec<u8> },
    Request { from: ClientNo, to: u64, epoch: u32, request: Box<Request> },
    Response { from: u64, to: ClientNo, epoch: u32, response: Box<Response> },
    Wake { client: ClientNo, ticket: u64 },
    Disk { node: u64, boot: u64 },
    FaultBegins(usize),
    FaultEnds(usize),
    Boot(u64),
    Lost { node: u64, peer: u64, boot: u64 },
    RollOn(u64),
    HandTo { group: GroupId, node: u64, tries: u32 },
    CrashBriefly(u64),
    SpringPlot { fault: usize, victim: u64, others: Vec<u64> },
    Patrol,
    Operate,
    Heal,
    WatchDeadlocks,
}

struct Planned {
    at: At,
    order: u64,
    what: Happening,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        self.order == other.order
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl World {
    /// Creates the world of a scenario, at its beginning. With `words`, the last events can be read afterwards.
    pub fn new(scenario: Scenario, words: bool) -> World {
        let seed = scenario.seed;
        let settings = Settings::with_rho_ppm(scenario.rho_ppm);
        let heal_us = settings.healed_within_ms * 1_000;
        let groups = scenario.groups as usize;
        World {
            now: 0,
            agenda: BinaryHeap::new(),
            planned: 0,
            nodes: BTreeMap::new(),
            boots: 0,
            network: Network::new(Rng::stream(seed, "network", 0), scenario.latency),
            clients: Clients::new(),
            stores: FencedStores::new(),
            history: History::new(settings),
            client_stats: ClientStats::default(),
            stats: Stats::default(),
            trace: Trace::new(words),
            rng: Rng::stream(seed, "world", 0),
            leadership: Leadership::new(groups),
            commits: Commits::new(groups),
            caller_liveness: CallerLiveness::default(),
            deadlocks: DeadlockWatch::default(),
            stuck: Stuck::default(),
            operator: Operator::new(Rng::stream(seed, "operator", 0), &scenario),
            healing: Healing::within(heal_us),
            recorded: vec![0; groups],
            held: BTreeMap::new(),
            crashes_left: 0,
            votes_to_steal: None,
            active: BTreeSet::new(),
            troubled_at: 0,
            violations: Vec::new(),
            said: BTreeMap::new(),
            spun: false,
            raised: false,
            over: false,
            scenario,
        }
    }

    /// Prints each line of the trace as it comes.
    pub fn echo(&mut self) {
        self.trace.echo = true;
    }

    /// Runs the world to its end, and has the history judged.
    pub fn run(mut self) -> Outcome {
        if let Err(says) = panics::caught(|| self.live()) {
            self.violations.push(format!("panic: {says}"));
            self.say(|| format!("PANIC {says}"));
        }
        let whole = self.healing.ended;
        self.count_up();
        Outcome::judge(self.scenario, self.history, self.stats, &mut self.trace, self.violations, whole)
    }

    fn live(&mut self) {
        self.begin();
        while !self.over {
            let Some(Reverse(next)) = self.agenda.pop() else { break };
            assert!(next.at >= self.now, "time goes on");
            self.now = next.at;
            self.stats.happenings += 1;
            self.happen(next.what);
        }
    }

    /// Dispatches an event: the only place that branches on its kind.
    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Turn { node, ticket } => self.turn(node, ticket),
            Happening::Frame { from, to, epoch, sent, bytes } => {
                self.frame_arrives(from, to, epoch, sent, bytes);
            }
            Happening::Request { from, to, epoch, request } => self.request_arrives(from, to, epoch, request),
            Happening::Response { from, to, epoch, response } => {
                self.response_arrives(from, to, epoch, *response);
            }
            Happening::Wake { client, ticket } => self.client_wakes(client, ticket),
            Happening::Disk { node, boot } => self.disk_works(node, boot),
            Happening::FaultBegins(fault) => self.fault_begins(fault),
            Happening::FaultEnds(fault) => self.fault_ends(fault),
            Happening::Boot(node) => self.boot(node),
            Happening::Lost { node, peer, boot } => self.connection_lost(node, peer, boot),
            Happening::RollOn(place) => self.roll_on(place),
            Happening::HandTo { group, node, tries } => self.hand_to(group, node, tries),
            Happening::CrashBriefly(node) => self.crash_briefly(node),
            Happening::SpringPlot { fault, victim, others } => self.spring_plot(fault, victim, others),
            Happening::Patrol => self.patrol(),
            Happening::Operate => self.operate(),
            Happening::Heal => self.heal(),
            Happening::WatchDeadlocks => self.watch_deadlocks(),
        }
    }

    fn begin(&mut self) {
        let ids: Vec<NodeId> =
            (1..=self.scenario.nodes).map(|number| NodeId::new(number).expect("from 1 on")).collect();
        let full = usize::try_from(self.scenario.nodes - self.scenario.witnesses).expect("small");
        let members = Members::first(ids.iter().copied(), ids[full..].iter().copied());
        for group in self.groups() {
            self.record(Event::Leaderless { group });
        }
        let map = Arc::new(GroupMap::even(self.scenario.groups).expect("a scenario has few groups"));
        for &id in &ids {
            let mut node = Node::new(id, members.witnesses.contains(&id), &self.scenario, self.now);
            for group in self.groups() {
                tollgate_replica::bootstrap(
                    &mut node.disk,
                    id,
                    group,
                    &map,
                    &members,
                    self.scenario.limits.clone(),
                )
                .expect("an empty simulated disk takes everything");
            }
            self.nodes.insert(id.number(), node);
            self.boot(id.number());
        }
        for _ in 0..self.scenario.clients {
            self.add_client();
        }
        for fault in 0..self.scenario.faults.len() {
            self.plan(self.scenario.faults[fault].at, Happening::FaultBegins(fault));
        }
        self.plan(PATROL_US, Happening::Patrol);
        self.plan(PATROL_US, Happening::Operate);
        self.plan(self.scenario.faults_end, Happening::Heal);
        self.begin_deadlock_watch();
    }

    fn plan(&mut self, at: At, what: Happening) {
        self.planned += 1;
        self.agenda.push(Reverse(Planned { at: at.max(self.now), order: self.planned, what }));
    }

    fn record(&mut self, event: Event) {
        self.history.record(tollgate_check::At::from_us(self.now), event);
    }

    fn say(&mut self, words: impl FnOnce() -> String) {
        self.trace.say(self.now, words);
    }

    fn violation(&mut self, says: String) {
        self.say(|| format!("VIOLATION {says}"));
        self.violations.push(says);
    }

    fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.scenario.groups).map(GroupId::new)
    }

    /// Iterates over the nodes that are part of the world now, in order.
    fn present(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|node| !node.retired)
    }

    fn node(&mut self, number: u64) -> &mut Node {
        self.nodes.get_mut(&number).expect("nodes are never forgotten")
    }

    fn count_up(&mut self) {
        let (stats, clients) = (&mut self.stats, &self.client_stats);
        stats.simulated_us = self.now;
        stats.messages = self.network.sent;
        stats.messages_lost = self.network.lost;
        stats.messages_doubled = self.network.duplicated;
        stats.fsyncs = self.nodes.values().map(|node| node.queue.fsyncs).sum();
        (stats.calls, stats.retries) = (clients.calls, clients.retries);
        (stats.hang_ups, stats.moves, stats.vanished) = (clients.hang_ups, clients.moves, clients.vanished);
        self.trace.mix([self.now, self.history.events().len() as u64, stats.turns]);
    }
}
