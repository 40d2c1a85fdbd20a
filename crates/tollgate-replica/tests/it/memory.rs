//! A storage in memory, for tests and benchmarks that are not about disks. Every write is durable at once.

use bytes::Bytes;
use std::collections::BTreeMap;
use tollgate_core::SnapshotReader;
use tollgate_replica::{
    Completion, Done, GroupWrite, Job, LoadedGroup, LogEntry, ReplicaKind, SnapshotFile, Storage,
    StorageError, Vote, Write,
};
use tollgate_types::GroupId;

#[derive(Debug, Default, Clone)]
pub(crate) struct Memory {
    groups: BTreeMap<GroupId, Group>,
    pub(crate) full: bool,
}

#[derive(Debug, Default, Clone)]
struct Group {
    witness: bool,
    vote: Vote,
    mark: Option<SnapshotFile>,
    entries: BTreeMap<u64, LogEntry>,
    files: BTreeMap<u64, (SnapshotFile, Vec<u8>)>,
    partial: Vec<u8>,
}

impl Memory {
    fn apply(&mut self, part: &GroupWrite) {
        let group = self.groups.entry(part.group).or_default();
        if let Some(kind) = part.create {
            group.witness = kind == ReplicaKind::Witness;
        }
        if let Some(mark) = &part.snapshot {
            if mark.restart {
                group.entries.clear();
            }
            let index = mark.file.meta.index;
            assert!(group.files.contains_key(&index), "a mark names a complete file");
            group.entries = group.entries.split_off(&(index + 1));
            group.mark = Some(mark.file.clone());
        }
        if let Some(first) = part.entries.first() {
            group.entries.split_off(&first.index);
        }
        let mark = group.mark.as_ref().map_or(0, |file| file.meta.index);
        for entry in part.entries.iter().filter(|entry| entry.index > mark) {
            group.entries.insert(entry.index, entry.clone());
        }
        if let Some(vote) = part.vote {
            group.vote = vote;
        }
    }

    /// Indexes of the snapshot files of a group.
    #[allow(dead_code, reason = "the benchmark uses this file too")]
    pub(crate) fn snapshots(&self, group: GroupId) -> Vec<u64> {
        self.groups[&group].files.keys().copied().collect()
    }

    /// Flips a bit in every snapshot file.
    #[allow(dead_code, reason = "the benchmark uses this file too")]
    pub(crate) fn damage_snapshots(&mut self) {
        for (_, bytes) in self.groups.values_mut().flat_map(|group| group.files.values_mut()) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
    }
}

impl Storage for Memory {
    fn write(&mut self, writes: &[Write]) -> Result<(), StorageError> {
        if self.full {
            return Err(StorageError::Full { path: "memory".into() });
        }
        for part in writes.iter().flat_map(|write| &write.groups) {
            self.apply(part);
        }
        Ok(())
    }

    fn perform(&mut self, job: Job) -> Result<Done, StorageError> {
        let group = job.group();
        let here = self.groups.entry(group).or_default();
        Ok(match job {
            Job::Save { meta, snapshot, .. } => {
                let bytes: Vec<u8> = snapshot.chunks(1 << 20).flatten().collect();
                let file = SnapshotFile { meta, size: bytes.len() as u64, checksum: crc32fast::hash(&bytes) };
                here.files.insert(file.meta.index, (file.clone(), bytes));
                Done::Saved { group, file }
            }
            Job::Read { transfer, peer, index, offset, length, .. } => {
                let start = usize::try_from(offset).expect("a test is small");
                let bytes = here.files.get(&index).map(|(_, bytes)| {
                    let end = bytes.len().min(start + length as usize);
                    Bytes::copy_from_slice(&bytes[start..end])
                });
                Done::Read { group, transfer, peer, offset, bytes }
            }
            Job::Receive { transfer, peer, offset, bytes, .. } => {
                here.partial.truncate(usize::try_from(offset).expect("a test is small"));
                here.partial.extend_from_slice(&bytes);
                Done::Received { group, transfer, peer, next: here.partial.len() as u64 }
            }
            Job::Complete { transfer, file, load, .. } => {
                let bytes = std::mem::take(&mut here.partial);
                let outcome = complete(&file, &bytes, load);
                if !matches!(outcome, Completion::Damaged(_)) {
                    here.files.insert(file.meta.index, (file, bytes));
                }
                Done::Completed { group, transfer, outcome }
            }
            Job::Hash { index, snapshot, .. } => Done::Hashed { group, index, hash: snapshot.hash() },
            Job::Remove { below, .. } => {
                here.files = here.files.split_off(&below);
                Done::Removed { group }
            }
        })
    }

    fn load(&mut self) -> Result<Vec<LoadedGroup>, StorageError> {
        let load = |(&group, here): (&GroupId, &Group)| {
            let kind = if here.witness { ReplicaKind::Witness } else { ReplicaKind::Full };
            let state = here.mark.as_ref().filter(|_| !here.witness).map(|file| {
                let bytes = &here.files[&file.meta.index].1;
                match complete(file, bytes, true) {
                    Completion::Loaded(_, state) => state,
                    other => panic!("a saved snapshot loads: {other:?}"),
                }
            });
            LoadedGroup {
                group,
                kind,
                vote: here.vote,
                snapshot: here.mark.clone(),
                state,
                entries: here.entries.values().cloned().collect(),
            }
        };
        Ok(self.groups.iter().map(load).collect())
    }
}

fn complete(file: &SnapshotFile, bytes: &[u8], load: bool) -> Completion {
    if crc32fast::hash(bytes) != file.checksum || bytes.len() as u64 != file.size {
        return Completion::Damaged("wrong checksum".into());
    }
    if !load {
        return Completion::Kept(file.clone());
    }
    let mut reader = SnapshotReader::new();
    let state = reader.push(bytes).and_then(|()| reader.finish());
    match state {
        Ok(state) => Completion::Loaded(file.clone(), Box::new(state)),
        Err(error) => Completion::Damaged(error.to_string()),
    }
}
