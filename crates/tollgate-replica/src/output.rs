//! The output of a turn: everything that the caller must send, write, perform and answer.

use crate::members::{MemberRefusal, Members};
use crate::storage::{Job, Write};
use tollgate_core::{Note, Reply, Resolution};
use tollgate_types::{GroupId, NodeId, Revision};

/// Id that the caller gives to a proposal; the host returns it with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// Id that the caller gives to a read; the host returns it with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Output of one turn of a host. The crate's header says how to handle it, and in which order.
#[derive(Debug, Default)]
pub struct Output {
    /// Frames to send now, one per peer.
    pub frames: Vec<(NodeId, Vec<u8>)>,
    /// Data to make durable; [`crate::Host::persisted`] must be called with its number once it is durable.
    pub write: Option<Write>,
    /// Work on snapshot files; [`crate::Host::job_done`] must be called with the result of each job.
    pub jobs: Vec<Job>,
    /// Answers to proposals.
    pub replies: Vec<ProposalReply>,
    /// Answers to reads.
    pub reads: Vec<ReadReply>,
    /// Applied entries, in order, group by group: for watchers and pending callers.
    pub applied: Vec<AppliedEntry>,
    /// Events for operators and tests.
    pub events: Vec<HostEvent>,
}

/// The answer to a proposal.
#[derive(Debug)]
pub struct ProposalReply {
    /// Id of the proposal.
    pub proposal: ProposalId,
    /// Group of the proposal.
    pub group: GroupId,
    /// Outcome of the proposal.
    pub result: Result<ProposalOutcome, ProposeError>,
}

/// Outcome of a proposal that was carried out.
#[derive(Debug)]
pub enum ProposalOutcome {
    /// A command was applied.
    Applied(AppliedCommand),
    /// A change of membership was applied; these are the members now.
    Members(Box<Members>),
}

/// Result of one command. The waits and leases that ended with it are in [`AppliedEntry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedCommand {
    /// The group's revision after the command.
    pub revision: Revision,
    /// Reply of the command.
    pub reply: Reply,
    /// The first revision of the command's changes, if it changed anything that watches see.
    pub events_from: Option<Revision>,
}

/// Reasons for which a proposal has no outcome. Each variant tells whether the proposal may still be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Not applied, and never will be. The caller should ask the leader.
    #[error("this node takes no proposals for group {group}; {}", Ask(*leader))]
    NotLeader {
        /// The group.
        group: GroupId,
        /// Leader of the group, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// Unknown: the proposal may still be applied. The caller must send it again with the same seq, and never report
    /// failure.
    #[error(
        "group {group} changed its leader before the entry was committed: send it again with the same seq"
    )]
    Indeterminate {
        /// The group.
        group: GroupId,
    },
    /// Not applied, and never will be. Too many proposals are under way; the caller should wait and try again.
    #[error("group {group} has too many proposals under way: wait a little and try again")]
    Overloaded {
        /// The group.
        group: GroupId,
    },
    /// Not applied, and never will be: the command is longer than the greatest length of an entry.
    #[error("the request takes {bytes} bytes in the log, and at most {bytes_max} fit: ask for less at once")]
    TooLong {
        /// Length of the command in the log.
        bytes: usize,
        /// The greatest length: [`crate::COMMAND_BYTES_MAX`].
        bytes_max: usize,
    },
    /// Not applied, and never will be. The caller should try again later or on another node.
    #[error("the disk of this node is full: ask another node, or free some space; it goes on by itself then")]
    DiskFull,
    /// Not applied, and never will be. Too few nodes have room on their disks.
    #[error(
        "too few disks of group {group} have room to write anything: free some space; it goes on by itself then"
    )]
    NoRoom {
        /// The group.
        group: GroupId,
    },
    /// Unknown: the disks were already full, and the proposal may still be applied when there is room; or it waits in a
    /// queue, and no wait ends before there is room. The caller must send it again with the same seq, and never report
    /// failure.
    #[error(
        "the disks of group {group} are full, and it may or may not be carried out once there is room: free some \
         space, and send it again with the same seq"
    )]
    NoRoomMidway {
        /// The group.
        group: GroupId,
    },
    /// Not applied, and never will be.
    #[error("this node has no replica of group {group}: check the group map, and ask a node that has one")]
    NoSuchGroup {
        /// The group.
        group: GroupId,
    },
    /// Not applied, and never will be. Upgrade that node, or bring it back, and try again.
    #[error(
        "node {node} is away or does not know apply version {version}: bring it back or upgrade it, then try again"
    )]
    VersionUnsupported {
        /// The first member that prevents the raise.
        node: NodeId,
        /// The requested version.
        version: u32,
    },
    /// Not applied, and never will be.
    #[error(transparent)]
    Refused(#[from] MemberRefusal),
}

/// Advice on the node to ask instead, for error texts.
struct Ask(Option<NodeId>);

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(leader) => write!(f, "ask node {leader}"),
            None => f.write_str("nobody is known to lead it: ask again in a moment"),
        }
    }
}

/// The answer to a read: if it is `Ok`, the group's state on this node is at least as new as when the read was
/// requested.
#[derive(Debug)]
pub struct ReadReply {
    /// Id of the read.
    pub read: ReadId,
    /// Group of the read.
    pub group: GroupId,
    /// `Ok` if the state may be read now.
    pub result: Result<(), ReadError>,
}

/// Reasons for which a read fails. A read changes nothing, so it may always be tried again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No leader confirmed the read in time.
    #[error("no leader of group {group} confirmed the read in time: try again")]
    TimedOut {
        /// The group.
        group: GroupId,
    },
    /// Too many reads are under way.
    #[error("group {group} has too many reads under way: wait a little and try again")]
    Overloaded {
        /// The group.
        group: GroupId,
    },
    /// The node has stopped. Reported by the owner of the host only.
    #[error("the node has stopped: ask another")]
    Stopped {
        /// The group.
        group: GroupId,
    },
    /// This node has no state of the group.
    #[error(
        "this node keeps no state of group {group}: read on one that does, which a witness or a new node is not"
    )]
    NoState {
        /// The group.
        group: GroupId,
    },
}

/// Effects of one log entry.
#[derive(Debug)]
pub struct AppliedEntry {
    /// The group.
    pub group: GroupId,
    /// Index of the entry.
    pub index: u64,
    /// The group's revision after the entry.
    pub revision: Revision,
    /// The first revision of the entry's events, if it had any.
    pub events_from: Option<Revision>,
    /// Waiters that the entry granted or ended.
    pub resolved: Vec<Resolution>,
    /// Leases that the entry ended.
    pub ended_leases: Vec<tollgate_core::EndedLease>,
    /// Notes on locks and leases, for people; only if this replica led, and of the kinds that the host's settings ask
    /// for.
    pub notes: Vec<Note>,
    /// Number of commands in the entry.
    pub commands: usize,
    /// Time since the entry was proposed, in microseconds, if this node proposed it.
    pub took_us: Option<u64>,
}

/// An event in a host, for operators and tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// This node's replica became the leader.
    LeadershipGained {
        /// The group.
        group: GroupId,
        /// Term of its leadership.
        term: u64,
    },
    /// This node's replica no longer leads.
    LeadershipLost {
        /// The group.
        group: GroupId,
        /// The replica's current term.
        term: u64,
    },
    /// This node's replica leads, and from now on nothing can be written: the disks of too many members are full, and
    /// no other member could do better as the leader.
    OutOfRoom {
        /// The group.
        group: GroupId,
    },
    /// Another leader is known, or none.
    LeaderChanged {
        /// The group.
        group: GroupId,
        /// The leader.
        leader: Option<NodeId>,
        /// The term.
        term: u64,
    },
    /// The group's members changed.
    MembersChanged {
        /// The group.
        group: GroupId,
        /// The members after the change.
        members: Members,
    },
    /// This node's replica was removed from the group.
    Removed {
        /// The group.
        group: GroupId,
    },
    /// A snapshot was saved and the log shortened.
    SnapshotSaved {
        /// The group.
        group: GroupId,
        /// Index of the snapshot.
        index: u64,
    },
    /// A peer's snapshot replaced this replica's state.
    SnapshotInstalled {
        /// The group.
        group: GroupId,
        /// Index of the snapshot.
        index: u64,
    },
    /// A snapshot from a peer was damaged; it is sent again.
    SnapshotDamaged {
        /// The group.
        group: GroupId,
        /// Description of the damage.
        what: String,
    },
    /// A voter sent a message as if it had never had a disk: the message is ignored.
    BlankVoterRefused {
        /// The group.
        group: GroupId,
        /// The voter.
        node: NodeId,
    },
    /// The leader says that this node once had a vote, but its disk is empty: the node must be wiped and join under a
    /// new id.
    DiskLost {
        /// The group.
        group: GroupId,
    },
    /// This replica's state was compared with a peer's, and is the same.
    StateAgrees {
        /// The group.
        group: GroupId,
        /// The last entry in both states.
        index: u64,
        /// The peer.
        peer: NodeId,
    },
    /// This replica's state differs from a peer's, though the same entries made both: one of the two is wrong. One of
    /// the two replicas leads.
    StateDiverged {
        /// The group.
        group: GroupId,
        /// The last entry in both states.
        index: u64,
        /// True if this node's replica is the one that leads.
        leads: bool,
        /// Hash of this replica's state.
        ours: u64,
        /// The peer.
        peer: NodeId,
        /// Hash of the peer's state.
        theirs: u64,
    },
}
