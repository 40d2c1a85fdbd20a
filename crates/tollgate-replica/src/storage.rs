//! What a host asks of a disk, and what it finds there when it starts.
//!
//! Two implementations: [`crate::Engine`] on raft-engine and files, and the simulator's disk. A storage does what it
//! is told, in order; it decides nothing. It is used from the caller's IO thread, never by the host itself.
//!
//! A [`Write`] is the log: entries, votes and snapshot marks of all groups of one turn, made durable by one fsync. A
//! [`Job`] is about snapshot files, and may take long.

use crate::log_entry::LogEntry;
use crate::members::Members;
use bytes::Bytes;
use tollgate_core::{Snapshot, State};
use tollgate_types::{GroupId, NodeId};

/// A durable home for the logs, votes and snapshots of one node's replicas.
pub trait Storage {
    /// Makes the writes durable, in order, and returns only then. Writes that come together share one fsync.
    ///
    /// After an error of kind [`StorageError::Full`] nothing of them may be relied on, and the same writes come again
    /// once there is room. Any other error is a fault: the process stops.
    fn write(&mut self, writes: &[Write]) -> Result<(), StorageError>;

    /// Does one job on snapshot files. After `Full` the job is forgotten ([`crate::Host::job_dropped`]); any other
    /// error is a fault.
    fn perform(&mut self, job: Job) -> Result<Done, StorageError>;

    /// Everything that is there, at the start and once. Refuses what is damaged.
    fn load(&mut self) -> Result<Vec<LoadedGroup>, StorageError>;
}

/// Numbers the writes of one host; a higher one is handed out later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WriteNumber(pub u64);

/// What one turn must make durable, for all groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Its number, for [`crate::Host::persisted`].
    pub number: WriteNumber,
    /// One part for each group that has something to write.
    pub groups: Vec<GroupWrite>,
}

/// One group's part of a [`Write`]. The order of effects is that of the fields.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupWrite {
    /// The group.
    pub group: GroupId,
    /// What kind of replica this is, said once when the group comes to this node.
    pub create: Option<ReplicaKind>,
    /// From now on the log begins after this snapshot, whose file is complete. Entries up to its index may go; if
    /// `restart` is set, all entries go, those above it too.
    pub snapshot: Option<SnapshotMark>,
    /// Entries to append. Their indexes are consecutive; any entry that the log has at the first of these indexes or
    /// above is replaced.
    pub entries: Vec<LogEntry>,
    /// The vote to keep, if it changed.
    pub vote: Option<Vote>,
    /// The group leaves this node: everything of it goes.
    pub remove: bool,
}

impl GroupWrite {
    /// A part that writes nothing yet.
    pub fn new(group: GroupId) -> GroupWrite {
        GroupWrite { group, create: None, snapshot: None, entries: Vec::new(), vote: None, remove: false }
    }
}

/// What a replica keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaKind {
    /// Log and lock state.
    Full,
    /// The log and votes; snapshots as files that it never loads.
    Witness,
}

/// Raft's promise: never vote twice in a term, never forget what was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vote {
    /// The current term.
    pub term: u64,
    /// Whom this replica voted for in that term.
    pub voted_for: Option<NodeId>,
    /// Up to where the log is known to be committed.
    pub commit: u64,
}

/// Where a snapshot stands in the log, and who the members were there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The last entry that it contains.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The members after that entry.
    pub members: Members,
}

/// A complete snapshot file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    /// What it contains.
    pub meta: SnapshotMeta,
    /// Bytes of state in it, which is what a transfer carries.
    pub size: u64,
    /// CRC-32 of those bytes.
    pub checksum: u32,
}

/// See [`GroupWrite::snapshot`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMark {
    /// Which snapshot.
    pub file: SnapshotFile,
    /// Whether the log starts anew behind it (it was installed), and does not merely lose its head (it was taken).
    pub restart: bool,
}

/// Work on snapshot files. Jobs of one group are done in the order in which they were given out.
#[derive(Debug)]
pub enum Job {
    /// Write a snapshot of the state to a file, durably, whole or not at all. -> [`Done::Saved`]
    Save {
        /// The group.
        group: GroupId,
        /// Where it stands in the log.
        meta: SnapshotMeta,
        /// The state.
        snapshot: Box<Snapshot>,
    },
    /// Read a piece of a saved snapshot, to send it. -> [`Done::Read`]
    Read {
        /// The group.
        group: GroupId,
        /// For which transfer.
        transfer: TransferId,
        /// To whom.
        peer: NodeId,
        /// Index of the snapshot.
        index: u64,
        /// Where in it.
        offset: u64,
        /// How much; less is read at the end only.
        length: u32,
    },
    /// Store a piece of a snapshot that a peer sends; offset 0 begins a new one and drops any other unfinished one of
    /// the group. -> [`Done::Received`]
    Receive {
        /// The group.
        group: GroupId,
        /// The transfer.
        transfer: TransferId,
        /// From whom.
        peer: NodeId,
        /// Where in it.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// All of it was received: check it, make it durable, and load it if asked. -> [`Done::Completed`]
    Complete {
        /// The group.
        group: GroupId,
        /// The transfer.
        transfer: TransferId,
        /// What it must be.
        file: SnapshotFile,
        /// Whether to build the state from it; witnesses don't.
        load: bool,
    },
    /// Hash the state behind an entry; it touches no file. -> [`Done::Hashed`]
    Hash {
        /// The group.
        group: GroupId,
        /// The last entry that the state contains.
        index: u64,
        /// The state.
        snapshot: Box<Snapshot>,
    },
    /// Remove the group's snapshots with an index below `below`. -> [`Done::Removed`]
    Remove {
        /// The group.
        group: GroupId,
        /// The first index to keep.
        below: u64,
    },
}

impl Job {
    /// The group that it is about.
    pub fn group(&self) -> GroupId {
        match self {
            Job::Save { group, .. }
            | Job::Read { group, .. }
            | Job::Receive { group, .. }
            | Job::Complete { group, .. }
            | Job::Hash { group, .. }
            | Job::Remove { group, .. } => *group,
        }
    }
}

/// Numbers a sender's snapshot transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// What became of a [`Job`].
#[derive(Debug)]
pub enum Done {
    /// The snapshot is saved.
    Saved {
        /// The group.
        group: GroupId,
        /// The file.
        file: SnapshotFile,
    },
    /// A piece to send; `None` if the file is gone, or damaged there: then nothing of it may be sent.
    Read {
        /// The group.
        group: GroupId,
        /// For which transfer.
        transfer: TransferId,
        /// To whom.
        peer: NodeId,
        /// Where in the snapshot.
        offset: u64,
        /// The bytes.
        bytes: Option<Bytes>,
    },
    /// A piece is stored (not yet durable).
    Received {
        /// The group.
        group: GroupId,
        /// The transfer.
        transfer: TransferId,
        /// From whom.
        peer: NodeId,
        /// Where the next piece begins.
        next: u64,
    },
    /// The received snapshot is complete.
    Completed {
        /// The group.
        group: GroupId,
        /// The transfer.
        transfer: TransferId,
        /// What it turned out to be.
        outcome: Completion,
    },
    /// The state is hashed.
    Hashed {
        /// The group.
        group: GroupId,
        /// The last entry that the state contains.
        index: u64,
        /// What all replicas must agree on.
        hash: u64,
    },
    /// Old files are gone.
    Removed {
        /// The group.
        group: GroupId,
    },
}

/// The end of a received snapshot.
#[derive(Debug)]
pub enum Completion {
    /// Durable, and loaded.
    Loaded(SnapshotFile, Box<State>),
    /// Durable, and not to be loaded.
    Kept(SnapshotFile),
    /// Not what the sender said it was: it is thrown away and must be sent again.
    Damaged(String),
}

/// What a storage found of one group.
#[derive(Debug)]
pub struct LoadedGroup {
    /// The group.
    pub group: GroupId,
    /// What this replica keeps.
    pub kind: ReplicaKind,
    /// Its vote.
    pub vote: Vote,
    /// The snapshot behind which its log begins; none if nothing has come to this replica yet.
    pub snapshot: Option<SnapshotFile>,
    /// The state in that snapshot, if this replica keeps one.
    pub state: Option<Box<State>>,
    /// The log behind it, without gaps.
    pub entries: Vec<LogEntry>,
}

/// Why a storage could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// No room is left. Nothing was made durable; free some space and the node goes on by itself.
    #[error("no space left on the disk of {path}: free some; the node takes no proposals until then")]
    Full {
        /// Where.
        path: String,
    },
    /// Bytes on disk are not those that were written.
    #[error(
        "{file} is corrupt ({what}): this replica's disk can't be trusted; remove the node, wipe its data \
             directory and add it again as a new member"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// The disk failed.
    #[error("{file}: {what}: the node stops, because what it wrote may not be there; check the disk")]
    Failed {
        /// The file.
        file: String,
        /// What the system said.
        what: String,
    },
    /// The group has moved on to rules that this binary does not know.
    #[error(
        "{file}: the group moved on to apply version {found} and this binary knows {known}: start the newer binary \
             that the other members run"
    )]
    Outdated {
        /// The file.
        file: String,
        /// The version in force.
        found: u32,
        /// The newest known one.
        known: u32,
    },
    /// The data is of a newer binary.
    #[error("{file} has format {found}, this binary knows up to {supported}: start the newer binary again")]
    TooNew {
        /// The file.
        file: String,
        /// Its format.
        found: u64,
        /// The newest known one.
        supported: u64,
    },
}
