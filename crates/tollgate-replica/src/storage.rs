//! The interface between a host and its disk: writes, jobs, and the data found at the start.
//!
//! Two implementations: [`crate::Engine`] on raft-engine and files, and the simulator's disk. A storage performs its
//! orders in sequence; it decides nothing. It is used from the caller's IO thread, never by the host itself.
//!
//! A [`Write`] goes to the log: entries, votes and snapshot marks of all groups of one turn, made durable by one fsync.
//! A [`Job`] works on snapshot files, and may take long.

use crate::log_entry::LogEntry;
use crate::members::Members;
use bytes::Bytes;
use tollgate_core::{Snapshot, State};
use tollgate_types::{GroupId, NodeId};

/// A durable home for the logs, votes and snapshots of one node's replicas.
pub trait Storage {
    /// Makes the writes durable, in order, and returns only then. Writes that are passed together share one fsync.
    ///
    /// After [`StorageError::Full`] none of the writes may be relied on, and the same writes are passed again once
    /// there is room. Any other error is a fault: the process stops.
    fn write(&mut self, writes: &[Write]) -> Result<(), StorageError>;

    /// Performs one job on snapshot files. After `Full` the job is dropped ([`crate::Host::job_dropped`]); any other
    /// error is a fault.
    fn perform(&mut self, job: Job) -> Result<Done, StorageError>;

    /// Loads everything, once at the start. Refuses damaged data.
    fn load(&mut self) -> Result<Vec<LoadedGroup>, StorageError>;
}

/// Number of a write of one host; later writes have higher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WriteNumber(pub u64);

/// Data of one turn that must be made durable, for all groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Number of the write, for [`crate::Host::persisted`].
    pub number: WriteNumber,
    /// One part for each group that has something to write.
    pub groups: Vec<GroupWrite>,
}

/// One group's part of a [`Write`]. The parts take effect in the order of the fields.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupWrite {
    /// The group.
    pub group: GroupId,
    /// Kind of the replica, set once when the group comes to this node.
    pub create: Option<ReplicaKind>,
    /// Snapshot, with a complete file, after which the log begins from now on. Entries up to its index may be removed;
    /// if `restart` is set, all entries are removed, including those above it.
    pub snapshot: Option<SnapshotMark>,
    /// Entries to append. Their indexes are consecutive; any existing entry at the first of these indexes or above is
    /// replaced.
    pub entries: Vec<LogEntry>,
    /// The vote to keep, if it changed.
    pub vote: Option<Vote>,
    /// True if the group leaves this node: all of its data is removed.
    pub remove: bool,
}

impl GroupWrite {
    /// A part that writes nothing yet.
    pub fn new(group: GroupId) -> GroupWrite {
        GroupWrite { group, create: None, snapshot: None, entries: Vec::new(), vote: None, remove: false }
    }
}

/// Kind of a replica, by the data that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaKind {
    /// Keeps log and lock state.
    Full,
    /// Keeps the log and votes, and snapshots as files that it never loads.
    Witness,
}

/// Raft's hard state, which keeps its promise: never vote twice in a term, never forget what was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vote {
    /// The current term.
    pub term: u64,
    /// Node that this replica voted for in that term.
    pub voted_for: Option<NodeId>,
    /// Index up to which the log is known to be committed.
    pub commit: u64,
}

/// Position of a snapshot in the log, and the members at that position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// Index of the last entry in the snapshot.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// The members after that entry.
    pub members: Members,
}

/// A complete snapshot file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Position and members of the snapshot.
    pub meta: SnapshotMeta,
    /// Bytes of state in the file, which are the bytes that a transfer sends.
    pub size: u64,
    /// CRC-32 of those bytes.
    pub checksum: u32,
}

/// See [`GroupWrite::snapshot`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMark {
    /// Description of the snapshot.
    pub file: SnapshotFile,
    /// True if the log starts anew after the snapshot because it was installed; false if the log merely loses its head
    /// because the snapshot was taken.
    pub restart: bool,
}

/// Work on snapshot files. Jobs of one group are performed in the order in which they were handed out.
#[derive(Debug)]
pub enum Job {
    /// Writes a snapshot of the state to a file, durably and atomically. -> [`Done::Saved`]
    Save {
        /// The group.
        group: GroupId,
        /// Position of the snapshot in the log.
        meta: SnapshotMeta,
        /// The state.
        snapshot: Box<Snapshot>,
    },
    /// Reads a piece of a saved snapshot, to send it. -> [`Done::Read`]
    Read {
        /// The group.
        group: GroupId,
        /// Transfer that the piece belongs to.
        transfer: TransferId,
        /// Receiver of the piece.
        peer: NodeId,
        /// Index of the snapshot.
        index: u64,
        /// Offset in the state's bytes.
        offset: u64,
        /// Length of the piece; less is read at the end only.
        length: u32,
    },
    /// Stores a piece of a snapshot from a peer; offset 0 begins a new snapshot and drops any other unfinished one of
    /// the group. -> [`Done::Received`]
    Receive {
        /// The group.
        group: GroupId,
        /// The transfer.
        transfer: TransferId,
        /// Sender of the piece.
        peer: NodeId,
        /// Offset in the state's bytes.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Checks a completely received snapshot, makes it durable, and loads it if asked. -> [`Done::Completed`]
    Complete {
        /// The group.
        group: GroupId,
        /// The transfer.
        transfer: TransferId,
        /// Expected description of the snapshot.
        file: SnapshotFile,
        /// True if the state is to be built; false on witnesses.
        load: bool,
    },
    /// Hashes the state after an entry; touches no file. -> [`Done::Hashed`]
    Hash {
        /// The group.
        group: GroupId,
        /// The last entry that the state contains.
        index: u64,
        /// The state.
        snapshot: Box<Snapshot>,
    },
    /// Removes the group's snapshots with an index below `below`. -> [`Done::Removed`]
    Remove {
        /// The group.
        group: GroupId,
        /// The first index to keep.
        below: u64,
    },
}

impl Job {
    /// The group of the job.
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

/// Number of a sender's snapshot transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// Result of a [`Job`].
#[derive(Debug)]
pub enum Done {
    /// The snapshot is saved.
    Saved {
        /// The group.
        group: GroupId,
        /// The file.
        file: SnapshotFile,
    },
    /// A piece to send; `None` if the file is gone or damaged there: then nothing of it may be sent.
    Read {
        /// The group.
        group: GroupId,
        /// Transfer that the piece belongs to.
        transfer: TransferId,
        /// Receiver of the piece.
        peer: NodeId,
        /// Offset in the state's bytes.
        offset: u64,
        /// The bytes.
        bytes: Option<Bytes>,
    },
    /// A piece is stored, but not yet durable.
    Received {
        /// The group.
        group: GroupId,
        /// The transfer.
        transfer: TransferId,
        /// Sender of the piece.
        peer: NodeId,
        /// Offset of the next piece.
        next: u64,
    },
    /// The check of a received snapshot has ended.
    Completed {
        /// The group.
        group: GroupId,
        /// The transfer.
        transfer: TransferId,
        /// Result of the check.
        outcome: Completion,
    },
    /// The state is hashed.
    Hashed {
        /// The group.
        group: GroupId,
        /// The last entry that the state contains.
        index: u64,
        /// Hash that must be the same on all replicas.
        hash: u64,
    },
    /// The old files are removed.
    Removed {
        /// The group.
        group: GroupId,
    },
}

/// Result of a received snapshot.
#[derive(Debug)]
pub enum Completion {
    /// Durable, and loaded.
    Loaded(SnapshotFile, Box<State>),
    /// Durable, and not to be loaded.
    Kept(SnapshotFile),
    /// Different from the sender's description: dropped, and must be sent again.
    Damaged(String),
}

/// Data of one group that a storage found.
#[derive(Debug)]
pub struct LoadedGroup {
    /// The group.
    pub group: GroupId,
    /// Kind of the replica.
    pub kind: ReplicaKind,
    /// The replica's vote.
    pub vote: Vote,
    /// Snapshot that the log follows; none on a blank replica.
    pub snapshot: Option<SnapshotFile>,
    /// The state in that snapshot, if this replica keeps one.
    pub state: Option<Box<State>>,
    /// Log entries after the snapshot, without gaps.
    pub entries: Vec<LogEntry>,
}

/// Reasons for which a storage operation fails.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no room left. Nothing was made durable; the node continues by itself once there is space.
    #[error("no space left on the disk of {path}: free some; the node takes no proposals until then")]
    Full {
        /// Path on the full disk.
        path: String,
    },
    /// Bytes on disk differ from those that were written.
    #[error(
        "{file} is corrupt ({what}): this replica's disk can't be trusted; remove the node, wipe its data \
             directory and add it again as a new member"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// Description of the damage.
        what: String,
    },
    /// The disk failed.
    #[error("{file}: {what}: the node stops, because what it wrote may not be there; check the disk")]
    Failed {
        /// The file.
        file: String,
        /// The system's error.
        what: String,
    },
    /// The state needs apply rules that this binary does not know.
    #[error(
        "{file}: the group moved on to apply version {found} and this binary knows {known}: start the newer binary \
             that the other members run"
    )]
    Outdated {
        /// The file.
        file: String,
        /// The apply version in force.
        found: u32,
        /// The newest apply version that this binary knows.
        known: u32,
    },
    /// A newer binary wrote the data.
    #[error("{file} has format {found}, this binary knows up to {supported}: start the newer binary again")]
    TooNew {
        /// The file.
        file: String,
        /// Format of the file.
        found: u64,
        /// The newest format that this binary knows.
        supported: u64,
    },
}
