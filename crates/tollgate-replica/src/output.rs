//! What a turn produces: everything that the caller must send, write, do and tell.

use crate::members::{MemberRefusal, Members};
use crate::storage::{Job, Write};
use tollgate_core::{Note, Reply, Resolution};
use tollgate_types::{GroupId, NodeId, Revision};

/// The caller's name for a proposal; the host gives it back with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// The caller's name for a read; the host gives it back with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// What one turn of a host produced. The crate's header says what to do with it, in which order.
#[derive(Debug, Default)]
pub struct Output {
    /// Bytes to send now, one frame a peer.
    pub frames: Vec<(NodeId, Vec<u8>)>,
    /// What to make durable; [`crate::Host::persisted`] with its number, once it is.
    pub write: Option<Write>,
    /// Work on snapshot files; [`crate::Host::job_done`] with what became of each.
    pub jobs: Vec<Job>,
    /// Answers to proposals.
    pub replies: Vec<ProposalReply>,
    /// Answers to reads.
    pub reads: Vec<ReadReply>,
    /// What was applied, in order, group by group: for watchers and parked callers.
    pub applied: Vec<AppliedEntry>,
    /// What an operator or a test may want to know.
    pub events: Vec<HostEvent>,
}

/// The answer to a proposal.
#[derive(Debug)]
pub struct ProposalReply {
    /// Which.
    pub proposal: ProposalId,
    /// Its group.
    pub group: GroupId,
    /// What came of it.
    pub result: Result<ProposalOutcome, ProposeError>,
}

/// What a proposal that was carried out did.
#[derive(Debug)]
pub enum ProposalOutcome {
    /// A command was applied.
    Applied(AppliedCommand),
    /// A change of membership was applied; these are the members now.
    Members(Box<Members>),
}

/// What one command did. Which waits and leases ended with it stands in [`AppliedEntry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedCommand {
    /// The group's revision behind it.
    pub revision: Revision,
    /// What it answered.
    pub reply: Reply,
    /// The first revision that it made, if it changed anything that watches see.
    pub events_from: Option<Revision>,
}

/// Why a proposal has no outcome. Each variant answers the one question: may it still be applied?
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Not applied, and never will be. Ask the leader.
    #[error("this node takes no proposals for group {group}; {}", Ask(*leader))]
    NotLeader {
        /// The group.
        group: GroupId,
        /// Who leads it, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// Unknown: it may still be applied. Send it again with the same seq; never report failure.
    #[error(
        "group {group} changed its leader before the entry was committed: send it again with the same seq"
    )]
    Indeterminate {
        /// The group.
        group: GroupId,
    },
    /// Not applied, and never will be. Too much is under way; wait and try again.
    #[error("group {group} has too many proposals under way: wait a little and try again")]
    Overloaded {
        /// The group.
        group: GroupId,
    },
    /// Not applied, and never will be: it is longer than what travels to other nodes in one piece.
    #[error("the request takes {bytes} bytes in the log, and at most {bytes_max} fit: ask for less at once")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be: [`crate::COMMAND_BYTES_MAX`].
        bytes_max: usize,
    },
    /// Not applied, and never will be. Try again later or on another node.
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
    /// Unknown: it met disks that were full already, and may still be applied when there is room; or it waits in line,
    /// and no wait ends before. Send it again with the same seq; never report failure.
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
        /// The first member that stands in the way.
        node: NodeId,
        /// The version asked for.
        version: u32,
    },
    /// Not applied, and never will be.
    #[error(transparent)]
    Refused(#[from] MemberRefusal),
}

/// Whom to ask instead.
struct Ask(Option<NodeId>);

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(leader) => write!(f, "ask node {leader}"),
            None => f.write_str("nobody is known to lead it: ask again in a moment"),
        }
    }
}

/// The answer to a read: once it is `Ok`, the group's state on this node is as new as when the read was asked.
#[derive(Debug)]
pub struct ReadReply {
    /// Which.
    pub read: ReadId,
    /// Its group.
    pub group: GroupId,
    /// Whether the state may be read now.
    pub result: Result<(), ReadError>,
}

/// Why a read failed. A read changes nothing, so it may always be tried again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No leader confirmed it in time.
    #[error("no leader of group {group} confirmed the read in time: try again")]
    TimedOut {
        /// The group.
        group: GroupId,
    },
    /// Too many reads wait.
    #[error("group {group} has too many reads under way: wait a little and try again")]
    Overloaded {
        /// The group.
        group: GroupId,
    },
    /// The node has stopped. Only whoever runs a host says so.
    #[error("the node has stopped: ask another")]
    Stopped {
        /// The group.
        group: GroupId,
    },
    /// There is no state here to read.
    #[error(
        "this node keeps no state of group {group}: read on one that does, which a witness or a new node is not"
    )]
    NoState {
        /// The group.
        group: GroupId,
    },
}

/// One log entry's effects.
#[derive(Debug)]
pub struct AppliedEntry {
    /// The group.
    pub group: GroupId,
    /// The entry's place in the log.
    pub index: u64,
    /// The group's revision behind it.
    pub revision: Revision,
    /// The first revision of its events, if it had any.
    pub events_from: Option<Revision>,
    /// Waiters that it granted or ended.
    pub resolved: Vec<Resolution>,
    /// Leases that it ended.
    pub ended_leases: Vec<tollgate_core::EndedLease>,
    /// What happened to locks and leases, for people; only where this replica led, and as the host was told to note.
    pub notes: Vec<Note>,
    /// How many commands it has.
    pub commands: usize,
    /// How long ago it was proposed, if this node did that.
    pub took_us: Option<u64>,
}

/// Something that happened in a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// This node's replica leads now.
    LeadershipGained {
        /// The group.
        group: GroupId,
        /// In which term.
        term: u64,
    },
    /// It leads no more.
    LeadershipLost {
        /// The group.
        group: GroupId,
        /// The term it is in now.
        term: u64,
    },
    /// It leads, and from now on nothing can be written: the disks of too many members are full, and nobody else could
    /// do better.
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
        /// Who they are now.
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
        /// Its index.
        index: u64,
    },
    /// A snapshot of a peer replaced the state here.
    SnapshotInstalled {
        /// The group.
        group: GroupId,
        /// Its index.
        index: u64,
    },
    /// A snapshot that a peer sent was damaged; it comes again.
    SnapshotDamaged {
        /// The group.
        group: GroupId,
        /// What was wrong.
        what: String,
    },
    /// A voter spoke as if it had never had a disk: it is not listened to.
    BlankVoterRefused {
        /// The group.
        group: GroupId,
        /// The voter.
        node: NodeId,
    },
    /// The leader says that this node once had a vote, and its disk is empty: wipe it and join under a new id.
    DiskLost {
        /// The group.
        group: GroupId,
    },
    /// The state here was compared with a peer's, and is the same.
    StateAgrees {
        /// The group.
        group: GroupId,
        /// The last entry in both.
        index: u64,
        /// The other.
        peer: NodeId,
    },
    /// The state here is another than a peer's, though the same entries made both: one of the two is wrong. One of them
    /// leads.
    StateDiverged {
        /// The group.
        group: GroupId,
        /// The last entry in both.
        index: u64,
        /// Whether it is this node that leads.
        leads: bool,
        /// The hash of the state here.
        ours: u64,
        /// The other.
        peer: NodeId,
        /// The hash of its state.
        theirs: u64,
    },
}
