//! A few hosts in one thread, with a clock, wires and disks that the test controls.
//!
//! A step is a millisecond: each node has one turn, reads the frames sent to it in the step before, and its disk
//! performs its writes and jobs, unless the test holds the disk. Not here: random faults (the simulator).

use crate::memory::Memory;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tollgate_core::{
    AcquireLock, Command, GrantLease, LeaseChoice, ReleaseBy, ReleaseLock, RenewLeases, Renewal, Reply, Wait,
};
use tollgate_replica::{
    Answer, AppliedCommand, Caller, CallerKey, Dispatcher, Done, Host, HostConfig, HostEvent, Job,
    MemberChange, Members, MonotonicTime, Output, ProposalId, ProposalOutcome, ProposalReply, ProposeError,
    Randomness, ReadId, ReadReply, ReplicaKind, Role, Status, Storage, Write, WriteNumber, bootstrap, join,
};
use tollgate_types::{
    Address, ClientId, ClusterId, DurationMs, GroupId, GroupMap, LeaseId, Limits, Metadata, Mode, Name,
    Names, NodeId, Owner, SeqRanges, WallTime,
};

pub(crate) const GROUP: GroupId = GroupId::MAP;
pub(crate) const CLUSTER: ClusterId = ClusterId::new(0xc1);

pub(crate) fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Splitmix, which is random enough for jitter.
pub(crate) struct Seeded(pub(crate) u64);

impl Randomness for Seeded {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A caller of a dispatcher, identified by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call(pub(crate) u64);

impl Caller for Call {
    fn key(&self) -> CallerKey {
        CallerKey { stream: 1, call: self.0 }
    }
}

/// A dispatcher, and its answers so far.
pub(crate) struct Front {
    pub(crate) dispatcher: Dispatcher<Call, ()>,
    pub(crate) answers: Vec<(Call, Answer<()>)>,
}

pub(crate) struct Node {
    pub(crate) host: Option<Host>,
    /// Dispatcher beside the host, in tests of answers to callers.
    pub(crate) front: Option<Front>,
    pub(crate) disk: Memory,
    pub(crate) disk_held: bool,
    /// The disk writes, but performs no jobs on snapshots.
    pub(crate) jobs_held: bool,
    /// Number of jobs to remove old snapshots.
    pub(crate) removals: u32,
    pub(crate) paused: bool,
    /// Offset of the node's clock from the cluster's time.
    pub(crate) clock_offset_us: u64,
    pub(crate) config: HostConfig,
    inbox: Vec<Vec<u8>>,
    pub(crate) writes: VecDeque<Write>,
    pub(crate) jobs: VecDeque<Job>,
    persisted: Option<WriteNumber>,
    pub(crate) done: Vec<Done>,
    boots: u64,
}

pub(crate) struct Cluster {
    pub(crate) now_us: u64,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    /// Pairs of nodes; frames from the first to the second are lost.
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    pub(crate) replies: BTreeMap<ProposalId, Result<ProposalOutcome, ProposeError>>,
    pub(crate) reads: BTreeMap<ReadId, ReadReply>,
    pub(crate) events: Vec<(NodeId, HostEvent)>,
    /// Number of frames sent.
    pub(crate) frames: u64,
    pub(crate) trace: u64,
    /// Wall time of each node, as an offset by node number, if hosts are given one.
    pub(crate) wall: Option<fn(u64) -> u64>,
    next_id: u64,
}

impl Cluster {
    pub(crate) fn new(voters: u64, witnesses: &[u64], groups: u32) -> Cluster {
        Cluster::with(voters, witnesses, groups, |_| {})
    }

    pub(crate) fn with(
        voters: u64,
        witnesses: &[u64],
        groups: u32,
        mut change: impl FnMut(&mut HostConfig),
    ) -> Cluster {
        let mut cluster = Cluster {
            now_us: 1_000_000,
            nodes: BTreeMap::new(),
            cut: BTreeSet::new(),
            replies: BTreeMap::new(),
            reads: BTreeMap::new(),
            events: Vec::new(),
            frames: 0,
            trace: 0,
            wall: None,
            next_id: 0,
        };
        let members = Members::first((1..=voters).map(node), witnesses.iter().copied().map(node));
        let map = Arc::new(GroupMap::even(groups).unwrap());
        for number in 1..=voters {
            let mut disk = Memory::default();
            for group in 0..groups {
                let group = GroupId::new(group);
                bootstrap(&mut disk, node(number), group, &map, &members, Limits::DEFAULT).unwrap();
            }
            let mut config = HostConfig::new(CLUSTER, node(number));
            change(&mut config);
            cluster.add_node(number, disk, config);
        }
        cluster
    }

    pub(crate) fn add_node(&mut self, number: u64, disk: Memory, config: HostConfig) {
        let new = Node {
            host: None,
            front: None,
            disk,
            disk_held: false,
            jobs_held: false,
            removals: 0,
            paused: false,
            clock_offset_us: number * 7_777,
            config,
            inbox: Vec::new(),
            writes: VecDeque::new(),
            jobs: VecDeque::new(),
            persisted: None,
            done: Vec::new(),
            boots: 0,
        };
        self.nodes.insert(node(number), new);
        self.start(number);
    }

    /// Adds a node with an empty disk that is about to be added as a learner.
    pub(crate) fn add_joining(&mut self, number: u64, kind: ReplicaKind, groups: u32) {
        let mut disk = Memory::default();
        for group in 0..groups {
            join(&mut disk, GroupId::new(group), kind).unwrap();
        }
        let config = HostConfig { node: node(number), ..self.nodes[&node(1)].config.clone() };
        self.add_node(number, disk, config);
    }

    pub(crate) fn start(&mut self, number: u64) {
        let now_us = self.now_us;
        let this = self.nodes.get_mut(&node(number)).unwrap();
        this.boots += 1;
        let randomness = Box::new(Seeded(number * 1_000 + this.boots));
        let now = MonotonicTime::from_us(now_us + this.clock_offset_us);
        let groups = this.disk.load().unwrap();
        this.host = Some(Host::open(this.config.clone(), groups, randomness, now).unwrap());
    }

    /// Kills a node: everything that is not on its disk is lost.
    pub(crate) fn crash(&mut self, number: u64) {
        let this = self.nodes.get_mut(&node(number)).unwrap();
        this.host = None;
        this.inbox.clear();
        this.writes.clear();
        this.jobs.clear();
        this.done.clear();
        this.persisted = None;
    }

    pub(crate) fn host(&self, number: u64) -> &Host {
        self.nodes[&node(number)].host.as_ref().unwrap()
    }

    pub(crate) fn status(&self, number: u64) -> Status {
        self.host(number).status(GROUP).unwrap()
    }

    /// Runs one millisecond.
    pub(crate) fn step(&mut self) {
        self.now_us += 1_000;
        let numbers: Vec<NodeId> = self.nodes.keys().copied().collect();
        let mut sent = Vec::new();
        for id in numbers {
            if let Some(output) = self.turn(id, |_| {}) {
                sent.extend(output.frames.iter().map(|(to, bytes)| (id, *to, bytes.clone())));
            }
        }
        self.deliver(sent);
    }

    /// Runs one turn of one node, in which the test may call the host.
    pub(crate) fn turn(&mut self, id: NodeId, act: impl FnOnce(&mut Host)) -> Option<Output> {
        self.turn_at_dispatcher(id, |host, _| act(host))
    }

    fn turn_at_dispatcher(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut Host, Option<&mut Front>),
    ) -> Option<Output> {
        let this = self.nodes.get_mut(&id).unwrap();
        if this.paused {
            return None;
        }
        let host = this.host.as_mut()?;
        if let Some(wall) = self.wall {
            host.wall_time(WallTime::from_unix_ms(wall(id.number()) + self.now_us / 1_000));
        }
        host.begin_turn(MonotonicTime::from_us(self.now_us + this.clock_offset_us));
        for frame in std::mem::take(&mut this.inbox) {
            host.receive(&frame).unwrap();
        }
        if let Some(number) = this.persisted.take() {
            host.persisted(number);
        }
        for done in std::mem::take(&mut this.done) {
            host.job_done(done);
        }
        act(host, this.front.as_mut());
        if let Some(front) = &mut this.front {
            front.dispatcher.before_end_turn(host);
        }
        let mut output = host.end_turn();
        if let Some(front) = &mut this.front {
            front.dispatcher.after_turn(&mut output, host, &mut front.answers);
        }
        this.writes.extend(output.write.take());
        this.removals +=
            output.jobs.iter().map(|job| u32::from(matches!(job, Job::Remove { .. }))).sum::<u32>();
        this.jobs.extend(output.jobs.drain(..));
        if !this.disk_held {
            this.work();
        }
        for ProposalReply { proposal, result, .. } in output.replies.drain(..) {
            assert!(self.replies.insert(proposal, result).is_none(), "{proposal:?} is answered twice");
        }
        for read in output.reads.drain(..) {
            assert!(self.reads.insert(read.read, read).is_none(), "a read is answered once");
        }
        self.events.extend(output.events.drain(..).map(|event| (id, event)));
        Some(output)
    }

    pub(crate) fn deliver(&mut self, sent: Vec<(NodeId, NodeId, Vec<u8>)>) {
        for (from, to, bytes) in sent {
            self.frames += 1;
            self.trace = self.trace.rotate_left(5) ^ u64::from(crc32fast::hash(&bytes));
            let Some(there) = self.nodes.get_mut(&to) else { continue };
            if there.host.is_some() && !self.cut.contains(&(from, to)) {
                there.inbox.push(bytes);
            }
        }
    }

    pub(crate) fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.step();
        }
    }

    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&Cluster) -> bool) {
        for _ in 0..30_000 {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("not within 30 s: {what}");
    }

    /// Cuts a node off from all others, both ways.
    pub(crate) fn isolate(&mut self, number: u64) {
        for &other in self.nodes.keys() {
            self.cut.insert((node(number), other));
            self.cut.insert((other, node(number)));
        }
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    /// The serving leader with the highest term, if any.
    pub(crate) fn leader_now(&self) -> Option<u64> {
        let running = self.nodes.iter().filter_map(|(id, node)| Some((id, node.host.as_ref()?)));
        let leaders = running.filter_map(|(id, host)| {
            let status = host.status(GROUP)?;
            (status.role == Role::Leader && status.serves).then_some((status.term, id.number()))
        });
        leaders.max().map(|(_, id)| id)
    }

    pub(crate) fn leader(&mut self) -> u64 {
        self.until("somebody leads", |cluster| cluster.leader_now().is_some());
        self.leader_now().unwrap()
    }

    pub(crate) fn propose(&mut self, number: u64, command: Command) -> ProposalId {
        self.propose_in(number, GROUP, command)
    }

    pub(crate) fn propose_in(&mut self, number: u64, group: GroupId, command: Command) -> ProposalId {
        self.next_id += 1;
        let id = ProposalId(self.next_id);
        self.act(number, |host| host.propose(group, id, command));
        id
    }

    /// Calls the host in a turn of its own, and sends the resulting frames.
    pub(crate) fn act(&mut self, number: u64, act: impl FnOnce(&mut Host)) -> Output {
        let output = self.turn(node(number), act).expect("the node runs");
        self.deliver_output(number, &output);
        output
    }

    fn deliver_output(&mut self, number: u64, output: &Output) {
        let sent = output.frames.iter().map(|(to, bytes)| (node(number), *to, bytes.clone())).collect();
        self.deliver(sent);
    }

    /// Opens a dispatcher on every node.
    pub(crate) fn open_dispatchers(&mut self) {
        for node in self.nodes.values_mut() {
            node.front = Some(Front { dispatcher: Dispatcher::new(1 << 40), answers: Vec::new() });
        }
    }

    /// Makes a call at a node's dispatcher.
    pub(crate) fn ask(&mut self, number: u64, call: Call, command: Command) {
        let asks = |host: &mut Host, front: Option<&mut Front>| {
            front.expect("it has a dispatcher").dispatcher.command(call, GROUP, command, false, host);
        };
        let output = self.turn_at_dispatcher(node(number), asks).expect("the node runs");
        self.deliver_output(number, &output);
    }

    /// Takes the answers that a node's dispatcher has given to a call so far, in order.
    pub(crate) fn told(&mut self, number: u64, call: Call) -> Vec<Answer<()>> {
        let front = self.nodes.get_mut(&node(number)).unwrap().front.as_mut().unwrap();
        front.answers.extract_if(.., |(to, _)| *to == call).map(|(_, answer)| answer).collect()
    }

    pub(crate) fn read(&mut self, number: u64) -> ReadId {
        self.next_id += 1;
        let id = ReadId(self.next_id);
        self.act(number, |host| host.read(GROUP, id));
        id
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers make it on the spot")]
    pub(crate) fn change(&mut self, number: u64, change: MemberChange) -> ProposalId {
        self.next_id += 1;
        let id = ProposalId(self.next_id);
        self.act(number, |host| host.change_members(GROUP, id, &change));
        id
    }

    /// Runs until a proposal is answered.
    pub(crate) fn answer(&mut self, id: ProposalId) -> Result<ProposalOutcome, ProposeError> {
        self.until("the proposal is answered", |cluster| cluster.replies.contains_key(&id));
        self.replies.remove(&id).unwrap()
    }

    /// Proposes at the leader and waits for the outcome.
    pub(crate) fn apply(&mut self, command: Command) -> AppliedCommand {
        let leader = self.leader();
        let id = self.propose(leader, command);
        match self.answer(id) {
            Ok(ProposalOutcome::Applied(applied)) => applied,
            other => panic!("the leader carries it out: {other:?}"),
        }
    }

    /// Runs until the group has everything that its first leader proposes: the newest version known to all, and a
    /// lineage.
    pub(crate) fn until_founded(&mut self) {
        self.until("the group has a version and a lineage", |cluster| {
            let hosts = cluster.nodes.values().filter_map(|node| node.host.as_ref());
            let mut states = hosts.filter_map(|host| host.state(GROUP));
            states.all(|state| state.lineage().is_some())
        });
        self.run_ms(5);
    }

    pub(crate) fn grant_lease(&mut self, lease: u64, ttl_ms: u64) {
        let reply = self.apply(grant_lease(lease, ttl_ms)).reply;
        assert!(matches!(reply, Reply::LeaseGranted { .. }), "{reply:?}");
    }

    pub(crate) fn lock(&mut self, name: &str, lease: u64) -> Reply {
        self.apply(lock(name, lease)).reply
    }

    /// True if all running replicas with state have applied the same entries and have the same state.
    pub(crate) fn agree(&self) -> bool {
        let hosts = self.nodes.values().filter_map(|node| node.host.as_ref());
        let mut all = hosts
            .filter_map(|host| Some((host.status(GROUP)?.applied, host.state(GROUP)?.snapshot().hash())));
        let first = all.next();
        all.all(|other| Some(other) == first)
    }
}

impl Node {
    /// Performs the disk's writes and jobs.
    pub(crate) fn work(&mut self) {
        while let Some(write) = self.writes.front() {
            if self.disk.write(std::slice::from_ref(write)).is_err() {
                self.host.as_mut().unwrap().disk_full(true);
                return;
            }
            self.host.as_mut().unwrap().disk_full(false);
            self.persisted = Some(write.number);
            self.writes.pop_front();
        }
        if self.jobs_held {
            return;
        }
        for job in self.jobs.drain(..) {
            self.done.push(self.disk.perform(job).unwrap());
        }
    }
}

fn names(name: &str) -> Names {
    Names::One(Name::new(name).unwrap())
}

pub(crate) fn lease_id(lease: u64) -> LeaseId {
    LeaseId::new(lease).unwrap()
}

pub(crate) fn client_id() -> ClientId {
    ClientId::new("client").unwrap()
}

pub(crate) fn grant_lease(lease: u64, ttl_ms: u64) -> Command {
    Command::GrantLease(GrantLease {
        id: LeaseChoice::Chosen(lease_id(lease)),
        ttl: DurationMs::from_ms(ttl_ms),
        client_id: client_id(),
        address: Address::new("").unwrap(),
        revoke_on_disconnect: false,
    })
}

pub(crate) fn renew(lease: u64) -> Command {
    let renewal = Renewal { lease: lease_id(lease), address: None, acked: SeqRanges::default() };
    Command::RenewLeases(RenewLeases { renewals: vec![renewal] })
}

pub(crate) fn lock(name: &str, lease: u64) -> Command {
    Command::AcquireLock(AcquireLock {
        names: names(name),
        lease: lease_id(lease),
        owner: Owner::new("").unwrap(),
        mode: Mode::Exclusive,
        wait: Wait::Forever,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: Metadata::new("").unwrap(),
        value: None,
        attended: false,
        request: None,
    })
}

pub(crate) fn unlock(name: &str, lease: u64) -> Command {
    let owner = Owner::new("").unwrap();
    let by = ReleaseBy::Holder { lease: lease_id(lease), owner, token: None, request: None };
    Command::ReleaseLock(ReleaseLock { names: names(name), by })
}
