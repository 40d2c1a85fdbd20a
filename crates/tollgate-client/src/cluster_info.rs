//! Information about a cluster for administrators: nodes, groups, limits, settings.

use crate::error::Error;
use crate::missing::Missing;
use std::time::Duration;
use tollgate_types::{ClusterId, GroupId, LeaseId, Lineage, Mode, NodeId, Revision, Token};

/// Status of the node at one endpoint, or the error that kept it from being read.
#[derive(Debug)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// Address that was asked.
    pub endpoint: String,
    /// Answer of the node.
    pub status: Result<NodeStatus, Error>,
}

/// Status of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Id of the node's cluster.
    pub cluster: ClusterId,
    /// Lineage, the history of grants that the cluster continues; none if the node does not know one.
    pub lineage: Option<Lineage>,
    /// Id of the node; none if a gateway answered.
    pub node: Option<NodeId>,
    /// Display name of the node, for example `node 2`.
    pub name: String,
    /// Label of the node's failure domain: a room, rack or region.
    pub zone: String,
    /// Version of the node's binary.
    pub version: String,
    /// Time since the node started.
    pub uptime: Duration,
    /// Size of the node's data directory on disk.
    pub data_dir_bytes: u64,
    /// Replicas on the node, by group.
    pub replicas: Vec<ReplicaStatus>,
    /// Warnings for operators, in words; empty if all is well.
    pub warnings: Vec<String>,
    /// Clock rates of other nodes compared with this node's clock, for every node that was measured for long enough.
    pub clocks: Vec<ClockComparison>,
}

/// Clock rate of another node compared with the node that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockComparison {
    /// Id of the other node.
    pub node: NodeId,
    /// Rate difference in parts per million: 20000 means that the other node's clock runs 2% fast, -20000 that it runs
    /// 2% slow.
    pub rate_difference_ppm: i64,
}

/// Raft role of a replica in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The replica leads the group.
    Leader,
    /// The replica follows a leader.
    Follower,
    /// The replica asks for votes: the group has no leader, as far as the replica knows.
    Candidate,
    /// Not known to this version of the client.
    Unknown,
}

/// Kind of a member in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberKind {
    /// Votes and keeps the locks.
    Voter,
    /// Receives the log and does not vote.
    Learner,
    /// Votes and keeps the log, but no locks.
    Witness,
    /// Not known to this version of the client.
    Unknown,
}

/// State of a node's replica of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// Id of the group.
    pub group: GroupId,
    /// Raft role of the replica.
    pub role: Role,
    /// Kind of member that the node is in the group.
    pub kind: MemberKind,
    /// Raft term of the replica.
    pub raft_term: u64,
    /// Leader of the group, as far as the replica knows.
    pub leader: Option<NodeId>,
    /// Log index up to which the replica has applied entries.
    pub applied_index: u64,
    /// Log index up to which the replica knows entries to be committed.
    pub committed_index: u64,
    /// First index of the replica's log.
    pub first_index: u64,
    /// Last index of the replica's log.
    pub last_index: u64,
    /// Log index of the replica's newest snapshot; 0 if there is none.
    pub snapshot_index: u64,
    /// True if the replica leads the group and serves clients.
    pub serves: bool,
    /// Revision of the replica's state.
    pub revision: Revision,
    /// Oldest revision from which watches can still start.
    pub min_revision: Revision,
    /// Apply version in force in the group.
    pub apply_version: u32,
    /// Number of locks in the group.
    pub locks: u64,
    /// Number of claims in the group: holders and waiters together.
    pub claims: u64,
    /// Number of live leases in the group.
    pub leases: u64,
    /// Number of registers in the group.
    pub registers: u64,
}

/// Node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Id of the node.
    pub node: NodeId,
    /// Display name of the node, for example `node 2`.
    pub name: String,
    /// Label of the node's failure domain: a room, rack or region.
    pub zone: String,
    /// Address at which the node serves clients.
    pub client_address: String,
    /// Address at which the node talks to other nodes.
    pub peer_address: String,
    /// Kind of member that the node is.
    pub kind: MemberKind,
    /// True if the answering node is connected to this node; true for the answering node itself.
    pub connected: bool,
    /// Number of groups that the node leads, as far as the answering node knows.
    pub groups_led: u32,
    /// Version of the node's binary; empty if not known.
    pub version: String,
    /// True if the node votes. A witness or a full member may not vote yet.
    pub votes: bool,
}

/// Node to add to a cluster. See [`crate::Admin::add_member`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMember {
    /// Id of the new node, which must never have been used; none takes the next free id.
    pub node: Option<NodeId>,
    /// Address at which other nodes will reach the new node, for example `10.0.0.4:7401`.
    pub peer_address: String,
    /// Address at which clients will reach the new node, for example `10.0.0.4:7400`.
    pub client_address: String,
    /// Label of the node's failure domain: a room, rack or region; may be empty.
    pub zone: String,
    /// True if the node shall vote without keeping locks.
    pub witness: bool,
}

/// Node that was added.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddedMember {
    /// Id of the new node.
    pub node: NodeId,
    /// Id of the cluster, with which the new node must be started.
    pub cluster: ClusterId,
    /// Name of the cluster, with which the new node must be started.
    pub cluster_name: String,
}

/// Replication progress of a member, as the leader of a group knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberProgress {
    /// Id of the member.
    pub node: NodeId,
    /// Log index up to which the member has the leader's log.
    pub match_index: u64,
    /// Number of entries of the leader's log that the member lacks.
    pub behind: u64,
    /// True if the member, with the group's log on its disk, was heard from in this group lately and is still
    /// connected.
    pub active: bool,
    /// True if the member is active and lacks few enough entries to be given a vote.
    pub caught_up: bool,
    /// True if the node was heard from lately at all. A new member has nothing of the group, and so is not active,
    /// until its first snapshot is complete.
    pub connected: bool,
    /// Bytes received so far of a snapshot that is being sent to the member.
    pub snapshot_received_bytes: u64,
    /// Total size in bytes of the snapshot that is being sent to the member; 0 if none is being sent.
    pub snapshot_bytes: u64,
}

/// Groups of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Groups {
    /// Version of the group map: rises whenever a slot moves.
    pub map_epoch: u64,
    /// Groups, by id.
    pub groups: Vec<Group>,
}

/// Raft group and the slots that it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// Id of the group.
    pub id: GroupId,
    /// Slots that the group serves: first and last of each range.
    pub slots: Vec<(u32, u32)>,
    /// Leader of the group, as far as the answering node knows.
    pub leader: Option<NodeId>,
    /// Address at which the leader serves clients; empty if not known.
    pub leader_address: String,
    /// Nodes that vote in the group.
    pub voters: Vec<NodeId>,
    /// Nodes that receive the group's log and don't vote.
    pub learners: Vec<NodeId>,
    /// Members that keep no locks.
    pub witnesses: Vec<NodeId>,
    /// Replication progress of the other members; empty unless the answering node leads the group.
    pub progress: Vec<MemberProgress>,
}

/// Snapshot that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotTaken {
    /// Id of the group.
    pub group: GroupId,
    /// Log index up to which the snapshot contains everything.
    pub index: u64,
    /// Lower bound for the revision of the state in the snapshot.
    pub revision: Revision,
}

/// Limit: a bound that the cluster enforces, with its value and range.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitInfo {
    /// Name of the limit, for example `waiters_per_lock_max`.
    pub name: String,
    /// Value of the limit.
    pub value: u64,
    /// Smallest value that the limit can be set to.
    pub min: u64,
    /// Greatest value that the limit can be set to.
    pub max: u64,
    /// Value in a new group.
    pub default: u64,
    /// Value in each group, if the requested groups differ; otherwise empty.
    pub by_group: Vec<(GroupId, u64)>,
}

/// Deadlocks that were found since the nodes started. Each node keeps the most recent ones that it found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlocks {
    /// Deadlocks, newest first.
    pub deadlocks: Vec<DeadlockFound>,
    /// Total number of deadlocks found.
    pub found: u64,
    /// Nodes that could not be asked, and may have found deadlocks as well.
    pub missing: Vec<Missing>,
}

/// Deadlock that was found, and broken by refusing one of the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockFound {
    /// Cycle of waits. The waiter of the first step was refused.
    pub cycle: Vec<DeadlockStep>,
    /// Time since the deadlock was found.
    pub ago: Duration,
    /// Id of the group that found the deadlock.
    pub group: GroupId,
}

/// One step of a cycle of waits: a waiter, and the claim that blocks it. The blocker is the waiter of the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadlockStep {
    /// Lease of the waiter.
    pub lease: LeaseId,
    /// Owner of the waiter.
    pub owner: String,
    /// Name of the lock that the waiter waits for.
    pub name: String,
    /// Mode that the waiter wants.
    pub mode: Mode,
    /// Lease of the blocker.
    pub blocker_lease: LeaseId,
    /// Owner of the blocker.
    pub blocker_owner: String,
    /// Fencing token with which the blocker holds the lock; none if the blocker waits ahead in the queue.
    pub blocker_token: Option<Token>,
}

/// Origin of a setting. A later origin in this list overrides an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SettingOrigin {
    /// Default value: the setting was not configured.
    Default,
    /// Configuration file.
    File,
    /// Environment variable.
    Environment,
    /// Command line flag.
    Flag,
    /// Not known to this version of the client.
    Unknown,
}

/// Setting in force.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Name of the setting, with dots between sections.
    pub key: String,
    /// Value of the setting, as it would be written in the configuration; none if it is withheld because it is secret.
    pub value: Option<String>,
    /// Origin of the value.
    pub origin: SettingOrigin,
    /// File, variable or flag that set the value; empty for a default.
    pub source: String,
}
