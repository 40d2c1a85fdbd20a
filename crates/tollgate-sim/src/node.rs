//! One node: its disk and clock, and the process that runs on it, if there is one.
//!
//! Invariant: what a process knows dies with it; disk and clock stay. Not here: the network, and the timing of turns
//! (`world`).

use crate::clock::SimClock;
use crate::disk::SimDisk;
use crate::disk_queue::{DiskNews, DiskQueue};
use crate::front::{Front, Request};
use crate::planting::Planted;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::types::{At, ClientNo};
use std::collections::BTreeSet;
use tollgate_core::Command;
use tollgate_replica::{Host, MemberChange, ProposalId, ReadId, Status, Storage, StorageError};
use tollgate_types::{GroupId, NodeId};

/// A simulated node.
#[allow(clippy::struct_excessive_bools, reason = "independent facts about one thing")]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) witness: bool,
    pub(crate) disk: SimDisk,
    pub(crate) queue: DiskQueue,
    pub(crate) clock: SimClock,
    pub(crate) rng: Rng,
    pub(crate) process: Option<Process>,
    /// Time before which the node does nothing.
    pub(crate) paused_until: At,
    /// Time of the next turn; `turn_ticket` identifies the `Turn` event that takes it.
    pub(crate) turn_at: At,
    pub(crate) turn_ticket: u64,
    /// The highest term that any of the node's groups wrote down.
    pub(crate) term_seen: u64,
    /// Consecutive turns in which nothing came and nothing was done.
    pub(crate) idle_turns: u32,
    /// Time at which the disk is looked at next.
    pub(crate) disk_at: At,
    /// True if the disk is lost: the node never starts again.
    pub(crate) disk_lost: bool,
    /// True if a bit on the disk has flipped and nobody has noticed.
    pub(crate) rotten: bool,
    /// True if the node is gone for good.
    pub(crate) retired: bool,
    /// The newest apply version that the node announces.
    pub(crate) apply_version: u32,
    /// Number of faults that hold the node down.
    pub(crate) held_down: u32,
    /// Time for which the node stays down after an fsync error.
    pub(crate) down_us: At,
}

/// The process that runs on a node.
pub(crate) struct Process {
    pub(crate) host: Host,
    pub(crate) front: Front,
    pub(crate) boot: u64,
    pub(crate) inbox: Vec<Input>,
    /// Peers whose connections the process was told are lost.
    pub(crate) lost: BTreeSet<u64>,
    /// Applied index of each group when its state was last hashed.
    pub(crate) hashed: Vec<u64>,
}

/// Input that a process looks at in its next turn.
pub(crate) enum Input {
    /// A frame from a peer, with the time that it was under way.
    Frame { from: u64, way_us: At, bytes: Vec<u8> },
    /// A request from a client.
    Request(ClientNo, Box<Request>),
    /// The connection with a peer broke.
    Lost(NodeId),
    /// The connection with a peer is back.
    Regained(NodeId),
    /// News from the disk.
    Disk(DiskNews),
    /// An operator changes the members of a group.
    Change(GroupId, ProposalId, MemberChange),
    /// An operator proposes a command.
    Propose(GroupId, ProposalId, Command),
    /// The world reads a group: at the end, or to look for deadlocks.
    Read(GroupId, ReadId),
    /// An operator asks the leader to hand its leadership on.
    Transfer(GroupId, Option<NodeId>),
    /// An operator wants a snapshot.
    Snapshot(GroupId),
    /// The process is asked to stop.
    Stop,
}

impl Node {
    pub(crate) fn new(id: NodeId, witness: bool, scenario: &Scenario, now: At) -> Node {
        let mut rng = Rng::stream(scenario.seed, "node", id.number());
        let rho = u64::from(scenario.rho_ppm);
        let off_ppm = i64::try_from(rng.below(2 * rho + 1)).expect("small") - i64::from(scenario.rho_ppm);
        let reading = rng.below(1 << 40);
        Node {
            id,
            witness,
            disk: SimDisk::new(scenario.planted),
            queue: DiskQueue::new(rng.split(), scenario.disk),
            clock: SimClock::new(now, reading, off_ppm),
            rng,
            process: None,
            paused_until: 0,
            turn_at: At::MAX,
            turn_ticket: 0,
            term_seen: 0,
            idle_turns: 0,
            disk_at: At::MAX,
            disk_lost: false,
            rotten: false,
            retired: false,
            apply_version: scenario.config.apply_version,
            held_down: 0,
            down_us: 0,
        }
    }

    /// Returns true if the process runs.
    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Returns true if the process runs and is not paused.
    pub(crate) fn is_lively(&self, now: At) -> bool {
        self.is_up() && self.paused_until <= now
    }

    /// Starts the process from the contents of the disk.
    pub(crate) fn boot(&mut self, scenario: &Scenario, boot: u64, now: At) -> Result<(), StorageError> {
        assert!(self.process.is_none(), "node {} runs already", self.id);
        let groups = self.disk.load()?;
        self.rotten = false;
        let config = scenario.host_config(self.id, self.apply_version);
        let randomness = Box::new(self.rng.split());
        let host = Host::open(config, groups, randomness, self.clock.moment(now))
            .expect("the settings were validated with the scenario");
        let process = Process {
            host,
            front: Front::new(boot),
            boot,
            inbox: Vec::new(),
            lost: BTreeSet::new(),
            hashed: vec![0; scenario.groups as usize],
        };
        self.process = Some(with_bug(process, scenario.planted));
        self.turn_at = At::MAX;
        Ok(())
    }

    /// Ends the process. Returns the number of its writes that are lost; none if nothing ran.
    pub(crate) fn crash(&mut self) -> Option<usize> {
        self.process.take()?;
        self.turn_ticket += 1;
        (self.turn_at, self.disk_at) = (At::MAX, At::MAX);
        self.paused_until = 0;
        Some(self.queue.crash(&mut self.disk))
    }

    /// Returns the status of a group on this node, if the process runs.
    pub(crate) fn status(&self, group: GroupId) -> Option<Status> {
        self.process.as_ref()?.host.status(group)
    }
}

#[cfg(feature = "planted-bugs")]
fn with_bug(mut process: Process, planted: Option<Planted>) -> Process {
    if let Some(Planted::Replica(bug)) = planted {
        process.host.plant(bug);
        process.front.plant(bug);
    }
    process
}

#[cfg(not(feature = "planted-bugs"))]
fn with_bug(process: Process, _: Option<Planted>) -> Process {
    process
}
