//! Where the state of a group comes from, in a backup that was made from the disks of stopped nodes.
//!
//! Nothing goes by it but what people are told. Not here: how it is found out (`salvage`).

use crate::members::decode_node;
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::NodeId;

/// How it is known up to when a state is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSource {
    /// The wall time of the leader that made the last entry which has one.
    Entry,
    /// The time at which the snapshot file was last changed: no entry behind it has a wall time.
    SnapshotFile,
}

/// What a group's state was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOrigin {
    /// The node whose snapshot and log were taken.
    pub node: NodeId,
    /// The term of the last entry.
    pub term: u64,
    /// The last entry that some disk knew to be committed; what follows it was taken all the same.
    pub committed: u64,
    /// Up to when the state is known to be current, in milliseconds since 1970.
    pub current_unix_ms: u64,
    /// How that is known.
    pub time_source: TimeSource,
    /// Whether nothing can be missing that was acknowledged: the disks of a majority were there.
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
