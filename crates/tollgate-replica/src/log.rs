//! A group's log as Raft sees it: in memory, starting at the latest with the first entry after the last snapshot.
//!
//! The disk is written so that a restart finds everything; it is never read while the node runs. So Raft's synchronous
//! reads can't block or fail, and no read races with the storage's purging. The price is memory, which is bounded: a
//! snapshot is taken before the log grows past its limit. A follower that needs older entries gets the snapshot.

use crate::log_entry::last_stamp;
use crate::storage::{SnapshotFile, Vote};
use raft::eraftpb::{Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};
use std::cell::Cell;
use std::collections::VecDeque;
use tollgate_types::{LogTime, NodeId};

/// Approximate memory cost of an entry besides its data.
const ENTRY_OVERHEAD_BYTES: u64 = 96;

/// The part of a log that stays when a snapshot makes its head superfluous.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    /// Size of the newest part that stays.
    pub(crate) bytes: u64,
    /// Entries after this index stay, for a member that is about to have everything up to it...
    pub(crate) behind: u64,
    /// ...up to this size.
    pub(crate) bytes_max: u64,
}

#[derive(Debug)]
pub(crate) struct Log {
    /// The vote at the start; Raft needs it once.
    vote: Vote,
    /// The newest complete snapshot.
    snapshot: Option<SnapshotFile>,
    /// Index and term of the entry before the first one.
    before: (u64, u64),
    entries: VecDeque<Entry>,
    bytes: u64,
    /// Size of the entries after the snapshot.
    bytes_since_snapshot: u64,
    /// Set when Raft wanted to send a newer snapshot than there is.
    snapshot_wanted: Cell<bool>,
}

impl Log {
    pub(crate) fn new(vote: Vote, snapshot: Option<SnapshotFile>, entries: &[Entry]) -> Log {
        let before = snapshot.as_ref().map_or((0, 0), |file| (file.meta.index, file.meta.term));
        let mut log = Log {
            vote,
            snapshot,
            before,
            entries: VecDeque::new(),
            bytes: 0,
            bytes_since_snapshot: 0,
            snapshot_wanted: Cell::new(false),
        };
        log.vote.commit = vote.commit.max(before.0);
        log.append(entries);
        assert!(
            log.vote.commit <= log.last(),
            "the disk lost entries: {} are known to be committed, {} are there",
            log.vote.commit,
            log.last()
        );
        log
    }

    pub(crate) fn first(&self) -> u64 {
        self.before.0 + 1
    }

    pub(crate) fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    /// Size by which the log has grown since the snapshot.
    pub(crate) fn bytes_since_snapshot(&self) -> u64 {
        self.bytes_since_snapshot
    }

    pub(crate) fn snapshot_file(&self) -> Option<&SnapshotFile> {
        self.snapshot.as_ref()
    }

    pub(crate) fn snapshot_index(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |file| file.meta.index)
    }

    /// True if Raft has asked for a newer snapshot since the last call.
    pub(crate) fn take_snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.take()
    }

    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.before.0 {
            return Some(self.before.1);
        }
        self.get(index).map(|entry| entry.term)
    }

    fn get(&self, index: u64) -> Option<&Entry> {
        let at = index.checked_sub(self.first())?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// Appends entries; existing entries from the first new index on are replaced.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            self.first() <= first.index && first.index <= self.last() + 1,
            "entries from {} do not continue a log from {} to {}",
            first.index,
            self.first(),
            self.last()
        );
        while self.last() >= first.index {
            let gone = self.entries.pop_back().expect("the log has entries up to its last");
            assert!(gone.index > self.snapshot_index(), "what a snapshot contains is committed, and stays");
            self.bytes -= size(&gone);
            self.bytes_since_snapshot -= size(&gone);
        }
        for entry in entries {
            assert_eq!(entry.index, self.last() + 1, "entries are consecutive");
            self.bytes += size(entry);
            self.bytes_since_snapshot += size(entry);
            self.entries.push_back(entry.clone());
        }
    }

    /// Records a complete snapshot of this replica's own applied state: the log may lose its head, except for the part
    /// that `keep` protects.
    pub(crate) fn saved(&mut self, file: SnapshotFile, keep: Keep) {
        assert!(file.meta.index >= self.snapshot_index(), "snapshots only get newer");
        let index = file.meta.index;
        self.snapshot = Some(file);
        let behind = self.entries.iter().filter(|entry| entry.index > index);
        self.bytes_since_snapshot = behind.map(size).sum();
        while self.bytes > keep.bytes && self.first() <= index {
            if self.first() > keep.behind && self.bytes <= keep.bytes_max {
                break;
            }
            let gone = self.entries.pop_front().expect("a snapshot is of entries that the log has");
            self.bytes -= size(&gone);
            self.before = (gone.index, gone.term);
        }
    }

    /// Replaces the log with a peer's snapshot.
    pub(crate) fn restart(&mut self, file: SnapshotFile) {
        self.before = (file.meta.index, file.meta.term);
        self.snapshot = Some(file);
        self.entries.clear();
        self.bytes = 0;
        self.bytes_since_snapshot = 0;
    }

    /// The entries from an index on.
    pub(crate) fn entries_from(&self, index: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.index >= index)
    }

    /// The newest stamp in the log, including entries that are not committed. `None` if no entry here has one.
    pub(crate) fn last_stamp(&self) -> Option<LogTime> {
        self.entries.iter().rev().find_map(last_stamp)
    }
}

fn size(entry: &Entry) -> u64 {
    entry.data.len() as u64 + ENTRY_OVERHEAD_BYTES
}

impl raft::Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let hard = HardState {
            term: self.vote.term,
            vote: self.vote.voted_for.map_or(raft::INVALID_ID, NodeId::number),
            commit: self.vote.commit,
            ..HardState::default()
        };
        let conf = self.snapshot.as_ref().map(|file| file.meta.members.to_conf_state()).unwrap_or_default();
        Ok(RaftState::new(hard, conf))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        bytes_max: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        assert!(high <= self.last() + 1, "Raft asks for entries that it has not handed over");
        let bytes_max = bytes_max.into().unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        let mut bytes = 0;
        for index in low..high {
            let entry = self.get(index).expect("between first and last");
            bytes += size(entry);
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.before.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        self.term_of(index).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        // Raft on the other side refuses a snapshot from before its node was a member.
        let knows = |file: &SnapshotFile| NodeId::new(to).is_some_and(|to| file.meta.members.contains(to));
        match &self.snapshot {
            Some(file) if file.meta.index >= request_index && knows(file) => Ok(to_raft(file)),
            _ => {
                self.snapshot_wanted.set(true);
                Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}

/// Raft's description of a snapshot. The state itself is sent outside of Raft's messages.
pub(crate) fn to_raft(file: &SnapshotFile) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let meta = snapshot.mut_metadata();
    meta.index = file.meta.index;
    meta.term = file.meta.term;
    meta.set_conf_state(file.meta.members.to_conf_state());
    snapshot
}
