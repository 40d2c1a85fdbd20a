//! The durable contents of one node's disk: everything that survives a power failure.
//!
//! Implements the replica's storage. Invariant: what [`SimDisk::write`] and [`SimDisk::perform`] have done survives,
//! and nothing else does. A marked snapshot has its file, and a log has no gap: a host that writes otherwise is broken,
//! and the assertions here stop it. Not here: the duration of operations, and those under way (`disk_queue`).

use crate::planting::Planted;
use crate::rng::Rng;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use tollgate_core::{Snapshot, SnapshotReader, State};
use tollgate_replica::{
    Completion, Done, GroupWrite, Job, LoadedGroup, LogEntry, ReplicaKind, SnapshotFile, SnapshotMark,
    SnapshotMeta, Storage, StorageError, TransferId, Vote, Write,
};
use tollgate_types::GroupId;

/// A simulated disk.
pub(crate) struct SimDisk {
    groups: BTreeMap<GroupId, DurableGroup>,
    files: BTreeMap<(GroupId, u64), StoredFile>,
    /// Pieces of incomplete snapshots, in memory only.
    receiving: BTreeMap<GroupId, Receiving>,
    /// True while there is no room.
    full: bool,
    /// Group in whose log a bit has flipped.
    rotten_log: Option<GroupId>,
    /// Bug that is planted in every state loaded from the disk.
    planted: Option<Planted>,
}

struct DurableGroup {
    kind: ReplicaKind,
    vote: Vote,
    snapshot: Option<SnapshotFile>,
    entries: VecDeque<LogEntry>,
}

struct StoredFile {
    file: SnapshotFile,
    bytes: Bytes,
    /// True if the checksum was compared since the bytes last changed.
    verified: bool,
}

struct Receiving {
    transfer: TransferId,
    bytes: Vec<u8>,
}

/// Target of a flipped bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rot {
    /// A log: the next start finds the damage.
    Log,
    /// A snapshot file: the next start finds the damage, or the read that is to send the file.
    Snapshot,
}

impl SimDisk {
    /// Creates an empty disk. States read from it have the planted bug, if it is a bug of states.
    pub(crate) fn new(planted: Option<Planted>) -> SimDisk {
        SimDisk {
            groups: BTreeMap::new(),
            files: BTreeMap::new(),
            receiving: BTreeMap::new(),
            full: false,
            rotten_log: None,
            planted,
        }
    }

    /// Takes all room from the disk, or gives it back.
    pub(crate) fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Returns true if there is no room for a job. Reading, hashing and removing need none.
    fn has_no_room_for(&self, job: &Job) -> bool {
        self.full && matches!(job, Job::Save { .. } | Job::Receive { .. } | Job::Complete { .. })
    }

    /// Returns true if nothing is written on the disk.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.files.is_empty()
    }

    /// Flips a bit in a log or in a snapshot file.
    pub(crate) fn rot(&mut self, rng: &mut Rng) -> Option<Rot> {
        let logs: Vec<GroupId> =
            self.groups.iter().filter(|(_, group)| !group.entries.is_empty()).map(|(id, _)| *id).collect();
        if !logs.is_empty() && (self.files.is_empty() || rng.percent(50)) {
            self.rotten_log = Some(*rng.pick(&logs));
            return Some(Rot::Log);
        }
        let keys: Vec<(GroupId, u64)> = self.files.keys().copied().collect();
        if keys.is_empty() {
            return None;
        }
        let stored = self.files.get_mut(rng.pick(&keys)).expect("just listed");
        if stored.bytes.is_empty() {
            return None;
        }
        let mut bytes = stored.bytes.to_vec();
        let at = rng.index(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
        stored.bytes = bytes.into();
        stored.verified = false;
        Some(Rot::Snapshot)
    }

    /// Drops what was only in the memory of the process, which is gone.
    pub(crate) fn crash(&mut self) {
        self.receiving.clear();
    }

    fn apply(&mut self, write: &GroupWrite) {
        let group = write.group;
        if let Some(kind) = write.create {
            let empty =
                DurableGroup { kind, vote: Vote::default(), snapshot: None, entries: VecDeque::new() };
            self.groups.insert(group, empty);
        }
        if write.remove {
            self.groups.remove(&group);
            self.files.retain(|(of, _), _| *of != group);
            return;
        }
        let durable = self.groups.get_mut(&group).expect("a group is created before it is written to");
        if let Some(mark) = &write.snapshot {
            let stored = self.files.get(&(group, mark.file.meta.index));
            assert!(
                stored.is_some_and(|stored| stored.file == mark.file),
                "group {group}: a snapshot at {} is marked and no such file is complete",
                mark.file.meta.index
            );
            durable.mark(mark);
        }
        durable.append(&write.entries);
        if let Some(vote) = write.vote {
            assert!(
                vote.term >= durable.vote.term,
                "group {group}: the term falls from {:?} to {vote:?}",
                durable.vote
            );
            durable.vote = vote;
        }
    }

    fn save(&mut self, group: GroupId, meta: SnapshotMeta, snapshot: &Snapshot) -> SnapshotFile {
        let mut bytes = Vec::new();
        for chunk in snapshot.chunks(64 << 10) {
            bytes.extend_from_slice(&chunk);
        }
        let file = SnapshotFile { meta, size: bytes.len() as u64, checksum: crc32fast::hash(&bytes) };
        self.store(group, file.clone(), bytes.into());
        file
    }

    fn store(&mut self, group: GroupId, file: SnapshotFile, bytes: Bytes) {
        self.files.insert((group, file.meta.index), StoredFile { file, bytes, verified: true });
    }

    fn read(&mut self, group: GroupId, index: u64, offset: u64, length: u32) -> Option<Bytes> {
        let stored = self.files.get_mut(&(group, index))?;
        stored.verified = stored.verified || crc32fast::hash(&stored.bytes) == stored.file.checksum;
        if !stored.verified {
            return None;
        }
        let start = usize::try_from(offset).ok().filter(|&start| start <= stored.bytes.len())?;
        let end = stored.bytes.len().min(start + length as usize);
        Some(stored.bytes.slice(start..end))
    }

    fn receive(&mut self, group: GroupId, transfer: TransferId, offset: u64, bytes: &[u8]) -> u64 {
        if offset == 0 {
            self.receiving.insert(group, Receiving { transfer, bytes: Vec::new() });
        }
        let Some(receiving) =
            self.receiving.get_mut(&group).filter(|receiving| receiving.transfer == transfer)
        else {
            return 0;
        };
        if offset == receiving.bytes.len() as u64 {
            receiving.bytes.extend_from_slice(bytes);
        }
        receiving.bytes.len() as u64
    }

    fn complete(
        &mut self,
        group: GroupId,
        transfer: TransferId,
        file: SnapshotFile,
        load: bool,
    ) -> Completion {
        let received = self.receiving.remove(&group).filter(|receiving| receiving.transfer == transfer);
        let Some(Receiving { bytes, .. }) = received else {
            return Completion::Damaged("nothing of it is here".to_owned());
        };
        if bytes.len() as u64 != file.size || crc32fast::hash(&bytes) != file.checksum {
            return Completion::Damaged(format!(
                "{} bytes do not have the checksum {:08x}",
                bytes.len(),
                file.checksum
            ));
        }
        let bytes = Bytes::from(bytes);
        let state = match load.then(|| self.decode(&bytes)).transpose() {
            Ok(state) => state,
            Err(what) => return Completion::Damaged(what),
        };
        self.store(group, file.clone(), bytes);
        match state {
            Some(state) => Completion::Loaded(file, state),
            None => Completion::Kept(file),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Box<State>, String> {
        let mut reader = SnapshotReader::new();
        reader.push(bytes).map_err(|error| error.to_string())?;
        let state = reader.finish().map_err(|error| error.to_string())?;
        Ok(Box::new(with_bug(state, self.planted)))
    }

    fn load_group(&self, group: GroupId) -> Result<LoadedGroup, StorageError> {
        let durable = self.groups.get(&group).expect("the caller lists them");
        let corrupt = |what: String| StorageError::Corrupt { file: format!("group-{group}"), what };
        if self.rotten_log == Some(group) {
            return Err(corrupt("a record of the log has a bad checksum".to_owned()));
        }
        let mut state = None;
        if let Some(file) = &durable.snapshot {
            let stored = self.files.get(&(group, file.meta.index));
            let stored = stored.ok_or_else(|| corrupt(format!("snapshot {} is gone", file.meta.index)))?;
            if crc32fast::hash(&stored.bytes) != file.checksum {
                return Err(corrupt(format!("snapshot {} has a bad checksum", file.meta.index)));
            }
            if durable.kind == ReplicaKind::Full {
                state = Some(self.decode(&stored.bytes).map_err(corrupt)?);
            }
        }
        Ok(LoadedGroup {
            group,
            kind: durable.kind,
            vote: durable.vote,
            snapshot: durable.snapshot.clone(),
            state,
            entries: durable.entries.iter().cloned().collect(),
        })
    }
}

#[cfg(feature = "planted-bugs")]
fn with_bug(mut state: State, planted: Option<Planted>) -> State {
    if let Some(Planted::Core(bug)) = planted {
        state.plant(bug);
    }
    state
}

#[cfg(not(feature = "planted-bugs"))]
fn with_bug(state: State, _: Option<Planted>) -> State {
    state
}

impl DurableGroup {
    fn mark(&mut self, mark: &SnapshotMark) {
        let index = mark.file.meta.index;
        if mark.restart {
            self.entries.clear();
        }
        while self.entries.front().is_some_and(|entry| entry.index <= index) {
            self.entries.pop_front();
        }
        self.snapshot = Some(mark.file.clone());
    }

    fn append(&mut self, entries: &[LogEntry]) {
        let Some(first) = entries.first() else { return };
        while self.entries.back().is_some_and(|entry| entry.index >= first.index) {
            self.entries.pop_back();
        }
        let begins = self.snapshot.as_ref().map_or(0, |file| file.meta.index);
        let mut last = self.entries.back().map_or(begins, |entry| entry.index);
        for entry in entries.iter().skip_while(|entry| entry.index <= begins) {
            assert_eq!(entry.index, last + 1, "the log has a gap");
            last = entry.index;
            self.entries.push_back(entry.clone());
        }
    }
}

impl Storage for SimDisk {
    fn write(&mut self, writes: &[Write]) -> Result<(), StorageError> {
        if self.full {
            return Err(StorageError::Full { path: "sim".to_owned() });
        }
        for group in writes.iter().flat_map(|write| &write.groups) {
            self.apply(group);
        }
        Ok(())
    }

    fn perform(&mut self, job: Job) -> Result<Done, StorageError> {
        if self.has_no_room_for(&job) {
            return Err(StorageError::Full { path: "sim".to_owned() });
        }
        Ok(match job {
            Job::Save { group, meta, snapshot } => {
                let file = self.save(group, meta, &snapshot);
                Done::Saved { group, file }
            }
            Job::Read { group, transfer, peer, index, offset, length } => {
                let bytes = self.read(group, index, offset, length);
                Done::Read { group, transfer, peer, offset, bytes }
            }
            Job::Receive { group, transfer, peer, offset, bytes } => {
                let next = self.receive(group, transfer, offset, &bytes);
                Done::Received { group, transfer, peer, next }
            }
            Job::Complete { group, transfer, file, load } => {
                let outcome = self.complete(group, transfer, file, load);
                Done::Completed { group, transfer, outcome }
            }
            Job::Hash { group, index, snapshot } => Done::Hashed { group, index, hash: snapshot.hash() },
            Job::Remove { group, below } => {
                self.files.retain(|(of, index), _| *of != group || *index >= below);
                Done::Removed { group }
            }
        })
    }

    fn load(&mut self) -> Result<Vec<LoadedGroup>, StorageError> {
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        groups.into_iter().map(|group| self.load_group(group)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_replica::{EntryKind, Members, WriteNumber};
    use tollgate_types::{Limits, NodeId};

    const GROUP: GroupId = GroupId::MAP;

    fn entry(index: u64, term: u64) -> LogEntry {
        LogEntry { index, term, kind: EntryKind::Commands, data: Bytes::new() }
    }

    fn write(part: impl FnOnce(&mut GroupWrite)) -> Write {
        let mut group = GroupWrite::new(GROUP);
        part(&mut group);
        Write { number: WriteNumber(1), groups: vec![group] }
    }

    fn disk() -> SimDisk {
        let mut disk = SimDisk::new(None);
        disk.write(&[write(|group| group.create = Some(ReplicaKind::Full))]).unwrap();
        disk
    }

    fn meta(index: u64) -> SnapshotMeta {
        let members = Members::first(NodeId::new(1), []);
        SnapshotMeta { index, term: 1, members }
    }

    fn save(disk: &mut SimDisk, index: u64) -> SnapshotFile {
        let snapshot = Box::new(State::new(Limits::DEFAULT).snapshot());
        match disk.perform(Job::Save { group: GROUP, meta: meta(index), snapshot }).unwrap() {
            Done::Saved { file, .. } => file,
            other => panic!("{other:?}"),
        }
    }

    fn loaded(disk: &mut SimDisk) -> LoadedGroup {
        disk.load().unwrap().pop().unwrap()
    }

    #[test]
    fn entries_replace_those_at_their_place_and_above() {
        let mut disk = disk();
        disk.write(&[write(|group| group.entries = (1..=5).map(|index| entry(index, 1)).collect())]).unwrap();
        disk.write(&[write(|group| group.entries = vec![entry(3, 2)])]).unwrap();
        let terms: Vec<u64> = loaded(&mut disk).entries.iter().map(|entry| entry.term).collect();
        assert_eq!(terms, [1, 1, 2]);
    }

    #[test]
    fn a_marked_snapshot_takes_the_head_of_the_log_or_all_of_it() {
        for (restart, left) in [(false, 2), (true, 0)] {
            let mut disk = disk();
            disk.write(&[write(|group| group.entries = (1..=5).map(|index| entry(index, 1)).collect())])
                .unwrap();
            let file = save(&mut disk, 3);
            disk.write(&[write(|group| group.snapshot = Some(SnapshotMark { file, restart }))]).unwrap();
            let group = loaded(&mut disk);
            assert_eq!(group.entries.len(), left);
            assert!(group.state.is_some());
        }
    }

    #[test]
    fn a_full_disk_takes_nothing_and_then_the_same_again() {
        let mut disk = disk();
        disk.set_full(true);
        let entries = write(|group| group.entries = vec![entry(1, 1)]);
        assert!(matches!(disk.write(std::slice::from_ref(&entries)), Err(StorageError::Full { .. })));
        assert!(loaded(&mut disk).entries.is_empty());
        disk.set_full(false);
        disk.write(&[entries]).unwrap();
        assert_eq!(loaded(&mut disk).entries.len(), 1);
    }

    #[test]
    fn a_rotten_bit_is_refused_and_never_read() {
        for seed in 0..20 {
            let mut disk = disk();
            let file = save(&mut disk, 3);
            disk.write(&[write(|group| group.snapshot = Some(SnapshotMark { file, restart: false }))])
                .unwrap();
            disk.write(&[write(|group| group.entries = vec![entry(4, 1)])]).unwrap();
            let rot = disk.rot(&mut Rng::new(seed)).unwrap();
            assert!(matches!(disk.load(), Err(StorageError::Corrupt { .. })), "{rot:?}");
            assert_eq!(disk.read(GROUP, 3, 0, 10).is_none(), rot == Rot::Snapshot);
        }
    }

    #[test]
    fn a_received_snapshot_is_checked_before_it_counts() {
        let mut source = disk();
        let file = save(&mut source, 9);
        let bytes = source.read(GROUP, 9, 0, u32::MAX).unwrap();
        let transfer = TransferId(1);
        for damaged in [false, true] {
            let mut disk = disk();
            let middle = bytes.len() / 2;
            assert_eq!(disk.receive(GROUP, transfer, 0, &bytes[..middle]), middle as u64);
            assert_eq!(
                disk.receive(GROUP, transfer, 1, &bytes[1..]),
                middle as u64,
                "only the next piece is taken"
            );
            let rest = if damaged { vec![7; bytes.len() - middle] } else { bytes[middle..].to_vec() };
            disk.receive(GROUP, transfer, middle as u64, &rest);
            let outcome = disk.complete(GROUP, transfer, file.clone(), true);
            assert_eq!(matches!(outcome, Completion::Damaged(_)), damaged, "{outcome:?}");
            assert_eq!(disk.files.is_empty(), damaged);
        }
    }
}
