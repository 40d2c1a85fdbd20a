//! Three hosts that lock and unlock; each proposer has its own name, under one lease per group.

use crate::memory::Memory;
use crate::seconds;
use std::sync::Arc;
use tollgate_core::{
    AcquireLock, Command, GrantLease, LeaseChoice, ReleaseBy, ReleaseLock, Request, Scope, Wait,
};
use tollgate_replica::{
    Done, Host, HostConfig, Members, MonotonicTime, ProposalId, Randomness, Storage, WriteNumber, bootstrap,
};
use tollgate_types::{
    Address, ClientId, ClusterId, DurationMs, GroupId, GroupMap, LeaseId, Limits, Metadata, Mode, Name,
    Names, NodeId, Owner, Seq, SeqRanges,
};

struct Counter(u64);

impl Randomness for Counter {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 7
    }
}

struct Node {
    host: Host,
    disk: Memory,
    inbox: Vec<Vec<u8>>,
    persisted: Option<WriteNumber>,
    done: Vec<Done>,
}

struct Cluster {
    nodes: Vec<Node>,
    now_us: u64,
    answered: Vec<ProposalId>,
}

/// One proposer: its lock, and its progress.
struct Proposer {
    group: GroupId,
    name: Name,
    lease: LeaseId,
    seq: u64,
    holds: bool,
}

/// Seconds for a number of operations by a number of proposers over a number of groups.
pub(crate) fn run(operations: usize, proposers: usize, groups: u32) -> f64 {
    let mut cluster = Cluster::new(groups);
    cluster.elect(groups);
    let mut all: Vec<Proposer> = (0..proposers).map(|number| Proposer::new(number, groups)).collect();
    for (at, proposer) in all.iter().enumerate() {
        let id = ProposalId(at as u64);
        cluster.turn(0, |host| host.propose(proposer.group, id, proposer.grant()));
        cluster.wait_for(1);
    }
    let mut ready: Vec<usize> = (0..proposers).collect();
    let mut left = operations;
    seconds(|| {
        while left > 0 {
            let wave: Vec<usize> = ready.drain(..).take(left).collect();
            left -= wave.len();
            let asked = wave.len();
            cluster.turn(0, |host| {
                for at in wave {
                    let (group, command) = all[at].next();
                    host.propose(group, ProposalId(at as u64), command);
                }
            });
            cluster.wait_for(asked);
            for id in cluster.answered.drain(..) {
                ready.push(usize::try_from(id.0).expect("an index"));
            }
        }
    })
}

impl Cluster {
    fn new(groups: u32) -> Cluster {
        let ids = || (1..=3).map(|number| NodeId::new(number).expect("not 0"));
        let members = Members::first(ids(), []);
        let map = Arc::new(GroupMap::even(groups).expect("few"));
        let nodes = ids().map(|id| {
            let mut disk = Memory::default();
            for group in 0..groups {
                let group = GroupId::new(group);
                bootstrap(&mut disk, id, group, &map, &members, Limits::DEFAULT).expect("memory");
            }
            let mut config = HostConfig::new(ClusterId::new(1), id);
            // Snapshots are measured in the benchmarks of the core.
            config.snapshot_age_ms = u64::MAX / 2_000;
            let loaded = disk.load().expect("memory");
            let randomness = Box::new(Counter(id.number()));
            let host = Host::open(config, loaded, randomness, MonotonicTime::from_us(0)).expect("valid");
            Node { host, disk, inbox: Vec::new(), persisted: None, done: Vec::new() }
        });
        Cluster { nodes: nodes.collect(), now_us: 0, answered: Vec::new() }
    }

    /// Makes node 0 the leader of all groups.
    fn elect(&mut self, groups: u32) {
        let leads = |cluster: &Cluster, group| {
            cluster.nodes[0].host.status(group).is_some_and(|status| status.serves)
        };
        for group in (0..groups).map(GroupId::new) {
            while !leads(self, group) {
                self.now_us += 10_000;
                for at in 0..3 {
                    let to = NodeId::new(1);
                    self.turn(at, |host| host.transfer_leadership(group, to));
                }
            }
        }
    }

    fn turn(&mut self, at: usize, act: impl FnOnce(&mut Host)) {
        let node = &mut self.nodes[at];
        node.host.begin_turn(MonotonicTime::from_us(self.now_us));
        for frame in std::mem::take(&mut node.inbox) {
            node.host.receive(&frame).expect("of this cluster");
        }
        if let Some(number) = node.persisted.take() {
            node.host.persisted(number);
        }
        for done in node.done.drain(..) {
            node.host.job_done(done);
        }
        act(&mut node.host);
        let output = node.host.end_turn();
        if let Some(write) = output.write {
            // Durable at once: the cost of a disk is measured in the storage benchmark.
            node.persisted = Some(write.number);
        }
        for job in output.jobs {
            node.done.push(node.disk.perform(job).expect("memory"));
        }
        for reply in output.replies {
            reply.result.expect("the leader carries it out");
            self.answered.push(reply.proposal);
        }
        for (to, bytes) in output.frames {
            let to = usize::try_from(to.number()).expect("three nodes") - 1;
            self.nodes[to].inbox.push(bytes);
        }
    }

    /// Runs turns of all nodes until `answers` more proposals are answered.
    fn wait_for(&mut self, answers: usize) {
        let before = self.answered.len();
        while self.answered.len() - before < answers {
            self.now_us += 50;
            for at in 0..3 {
                self.turn(at, |_| {});
            }
        }
    }
}

impl Proposer {
    /// A proposer with a name that its group serves; its lease lives there.
    fn new(number: usize, groups: u32) -> Proposer {
        let map = GroupMap::even(groups).expect("few");
        let group = GroupId::new(u32::try_from(number).expect("small") % groups);
        let name = |turn: u32| Name::new(format!("bench/lock/{number:06}/{turn}")).expect("valid");
        let name =
            (0..1_000_000).map(name).find(|name| map.group_of(name.slot()) == group).expect("one in so many");
        Proposer {
            group,
            lease: LeaseId::assigned(name.slot(), number as u64 + 1),
            name,
            seq: 0,
            holds: false,
        }
    }

    fn grant(&self) -> Command {
        Command::GrantLease(GrantLease {
            id: LeaseChoice::Chosen(self.lease),
            ttl: DurationMs::from_secs(600),
            client_id: ClientId::new("bench").expect("valid"),
            address: Address::new("").expect("valid"),
            revoke_on_disconnect: false,
        })
    }

    fn next(&mut self) -> (GroupId, Command) {
        self.seq += 1;
        self.holds = !self.holds;
        let before = self.seq - 1;
        let acked = SeqRanges::new(if before > 0 { vec![(1, before)] } else { Vec::new() }).expect("valid");
        let request = Some(Request { seq: Seq::new(self.seq).expect("above 0"), acked, scope: Scope::Whole });
        let names = Names::One(self.name.clone());
        let owner = Owner::new("").expect("valid");
        let command = if self.holds {
            Command::AcquireLock(AcquireLock {
                names,
                lease: self.lease,
                owner,
                mode: Mode::Exclusive,
                wait: Wait::Forever,
                lock_delay: DurationMs::ZERO,
                max_hold: None,
                metadata: Metadata::new("").expect("valid"),
                value: None,
                attended: false,
                request,
            })
        } else {
            let by = ReleaseBy::Holder { lease: self.lease, owner, token: None, request };
            Command::ReleaseLock(ReleaseLock { names, by })
        };
        (self.group, command)
    }
}
