//! Origin of a group's state, in a backup that was made from the disks of stopped nodes.
//!
//! The origin is for people only; no decision depends on it. Not here: how the origin is determined (`salvage`).

use crate::members::decode_node;
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::NodeId;

/// Source of the time up to which a state is known to be current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSource {
    /// Wall time of the leader that made the last entry with a wall time.
    Entry,
    /// Time at which the snapshot file was last changed: no entry after the snapshot has a wall time.
    SnapshotFile,
}

/// Data that a group's state was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOrigin {
    /// Node whose snapshot and log were used.
    pub node: NodeId,
    /// Term of the last entry.
    pub term: u64,
    /// Last entry that some disk knew to be committed; entries after it were used nevertheless.
    pub committed: u64,
    /// Time up to which the state is known to be current, in milliseconds since 1970.
    pub current_unix_ms: u64,
    /// Source of `current_unix_ms`.
    pub time_source: TimeSource,
    /// True if no acknowledged entry can be missing, because the disks of a majority were available.
    pub complete: bool,
}

impl GroupOrigin {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.varint(self.node.number());
        writer.varint(self.term);
        writer.varint(self.committed);
        writer.varint(self.current_unix_ms);
        writer.u8(match self.time_source {
            TimeSource::Entry => 1,
            TimeSource::SnapshotFile => 2,
        });
        writer.bool(self.complete);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<GroupOrigin, DecodeError> {
        Ok(GroupOrigin {
            node: decode_node(reader)?,
            term: reader.varint()?,
            committed: reader.varint()?,
            current_unix_ms: reader.varint()?,
            time_source: reader.tag("source of a time", |tag| match tag {
                1 => Some(TimeSource::Entry),
                2 => Some(TimeSource::SnapshotFile),
                _ => None,
            })?,
            complete: reader.bool("completeness")?,
        })
    }
}
