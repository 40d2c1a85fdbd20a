//! A cluster from an operator's side: nodes, groups, limits, settings.

use crate::error::Error;
use crate::missing::Missing;
use std::time::Duration;
use tollgate_types::{ClusterId, GroupId, LeaseId, Lineage, Mode, NodeId, Revision, Token};

/// How the node at one endpoint is doing, or why that could not be learned.
#[derive(Debug)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// Where it was asked.
    pub endpoint: String,
    /// What it said.
    pub status: Result<NodeStatus, Error>,
}

/// How a node is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// The history of grants that the cluster goes on; none if the node knows of none.
    pub lineage: Option<Lineage>,
    /// Its id.
    pub node: Option<NodeId>,
    /// Its name in the settings.
    pub name: String,
    /// Its label for a room, rack or region.
    pub zone: String,
    /// The version of its binary.
    pub version: String,
    /// How long it has been up.
    pub uptime: Duration,
    /// What its data directory takes on disk.
    pub data_dir_bytes: u64,
    /// Its replicas, by group.
    pub replicas: Vec<ReplicaStatus>,
    /// What an operator should look at, in words; empty if all is well.
    pub warnings: Vec<String>,
    /// The clocks of other nodes against its own, of those that it has measured for long enough.
    pub clocks: Vec<ClockComparison>,
}

/// The clock of another node, compared with that of the node that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockComparison {
    /// The other node.
    pub node: NodeId,
    /// By how many millionths its clock runs faster: 20000 is 2% fast, -20000 is 2% slow.
    pub rate_difference_ppm: i64,
}

/// What a replica does in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// It leads.
    Leader,
    /// It follows a leader.
    Follower,
    /// It asks for votes: nobody leads, as far as it knows.
    Candidate,
    /// Not known to this version of the client.
    Unknown,
}

/// What a member is to its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberKind {
    /// It votes and keeps the locks.
    Voter,
    /// It receives the log and does not vote.
    Learner,
    /// It votes and keeps the log, but no locks.
    Witness,
    /// Not known to this version of the client.
    Unknown,
}

/// A node's replica of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// The group.
    pub group: GroupId,
    /// What it does.
    pub role: Role,
    /// What it is to the group.
    pub kind: MemberKind,
    /// Raft's term.
    pub raft_term: u64,
    /// The node that leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// The log index up to which it has applied.
    pub applied_index: u64,
    /// The log index up to which it knows the log to be committed.
    pub committed_index: u64,
    /// Where its log begins.
    pub first_index: u64,
    /// Where its log ends.
    pub last_index: u64,
    /// The log index of its newest snapshot; 0 if it has none.
    pub snapshot_index: u64,
    /// Whether it leads and serves clients.
    pub serves: bool,
    /// The revision of its state.
    pub revision: Revision,
    /// The oldest revision that watches can still ask for.
    pub min_revision: Revision,
    /// The apply version in force.
    pub apply_version: u32,
    /// How many locks it has.
    pub locks: u64,
    /// How many holders and waiters there are together.
    pub claims: u64,
    /// How many leases live.
    pub leases: u64,
    /// How many registers it has.
    pub registers: u64,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its id.
    pub node: NodeId,
    /// Its name in the settings.
    pub name: String,
    /// Its label for a room, rack or region.
    pub zone: String,
    /// Where it serves clients.
    pub client_address: String,
    /// Where it talks to other nodes.
    pub peer_address: String,
    /// What it is.
    pub kind: MemberKind,
    /// Whether the answering node is connected to it; true of itself.
    pub connected: bool,
    /// How many groups it leads, as far as the answering node knows.
    pub groups_led: u32,
    /// The version of its binary; empty if not known.
    pub version: String,
    /// Whether it votes: a witness or a full member may not do so yet.
    pub votes: bool,
}

/// A node to be added to a cluster. See [`crate::Admin::add_member`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMember {
    /// Its id, one that was never used; none takes the next.
    pub node: Option<NodeId>,
    /// Where other nodes will reach it, for example `10.0.0.4:7401`.
    pub peer_address: String,
    /// Where clients will reach it, for example `10.0.0.4:7400`.
    pub client_address: String,
    /// Its label for a room, rack or region; may be empty.
    pub zone: String,
    /// Whether it shall vote without keeping locks.
    pub witness: bool,
}

/// A node that was added.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddedMember {
    /// Its id.
    pub node: NodeId,
    /// The cluster that it must be started with.
    pub cluster: ClusterId,
    /// Likewise, its name.
    pub cluster_name: String,
}

/// How far a member has come, as the leader of a group knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberProgress {
    /// The member.
    pub node: NodeId,
    /// It has the leader's log up to here.
    pub match_index: u64,
    /// How many entries of the leader's log it lacks.
    pub behind: u64,
    /// Whether it has spoken lately, as one that has the group's log.
    pub active: bool,
    /// Whether it lacks so little that it can get a vote.
    pub caught_up: bool,
    /// Whether it has been heard from lately at all: a new member has nothing of the group until its first snapshot is
    /// complete.
    pub connected: bool,
    /// How much it has of a snapshot that is on its way to it...
    pub snapshot_received_bytes: u64,
    /// ...which has so many bytes; 0 if none is on its way.
    pub snapshot_bytes: u64,
}

/// The groups of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Groups {
    /// The version of the group map: rises whenever a slot moves.
    pub map_epoch: u64,
    /// The groups, by id.
    pub groups: Vec<Group>,
}

/// A Raft group and what it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// The slots that it serves: first and last of each range.
    pub slots: Vec<(u32, u32)>,
    /// The node that leads it, as far as the answering node knows.
    pub leader: Option<NodeId>,
    /// Where that node serves clients; empty if not known.
    pub leader_address: String,
    /// The nodes that vote in it.
    pub voters: Vec<NodeId>,
    /// The nodes that receive its log and don't vote.
    pub learners: Vec<NodeId>,
    /// The nodes among them that keep no locks.
    pub witnesses: Vec<NodeId>,
    /// How far the other members are; empty unless the node that answered leads the group.
    pub progress: Vec<MemberProgress>,
}

/// A snapshot that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotTaken {
    /// The group.
    pub group: GroupId,
    /// The log index up to which it has everything.
    pub index: u64,
    /// A revision that its state has at least.
    pub revision: Revision,
}

/// A limit: how much of something there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitInfo {
    /// Its name, for example `waiters_per_lock_max`.
    pub name: String,
    /// Its value.
    pub value: u64,
    /// The least it can be set to.
    pub min: u64,
    /// The greatest it can be set to.
    pub max: u64,
    /// What a new group starts with.
    pub default: u64,
    /// The value in each group, if the groups that were asked about differ.
    pub by_group: Vec<(GroupId, u64)>,
}

/// Deadlocks that were found since the nodes started; each keeps the last of those that it found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlocks {
    /// Newest first.
    pub deadlocks: Vec<DeadlockFound>,
    /// How many were found in all.
    pub found: u64,
    /// Nodes that could not be asked, and may have found some as well.
    pub missing: Vec<Missing>,
}

/// A deadlock that was found, and broken by refusing one of the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockFound {
    /// Who waited for whom. The waiter of the first step was refused.
    pub cycle: Vec<DeadlockStep>,
    /// How long ago.
    pub ago: Duration,
    /// The group that found it.
    pub group: GroupId,
}

/// One step of a circle of waits: a waiter, and who is in its way. The blocker is the waiter of the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockStep {
    /// The waiter's lease.
    pub lease: LeaseId,
    /// The waiter's owner.
    pub owner: String,
    /// The lock that it waits for.
    pub name: String,
    /// The mode that it wants.
    pub mode: Mode,
    /// The lease of who is in the way.
    pub blocker_lease: LeaseId,
    /// The owner of who is in the way.
    pub blocker_owner: String,
    /// The token with which the blocker holds the lock; none if it waits ahead in the queue.
    pub blocker_token: Option<Token>,
}

/// Where a setting comes from. A later one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SettingOrigin {
    /// Nobody set it.
    Default,
    /// The settings file.
    File,
    /// An environment variable.
    Environment,
    /// The command line.
    Flag,
    /// Not known to this version of the client.
    Unknown,
}

/// A setting that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name, with dots between sections.
    pub key: String,
    /// Its value, as one would write it; none if it is withheld.
    pub value: Option<String>,
    /// Where it comes from.
    pub origin: SettingOrigin,
    /// The file, variable or flag; empty for a default.
    pub source: String,
}
