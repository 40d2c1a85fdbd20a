//! The fields of a backup's head, group heads and manifest.

use super::FROM_DISKS;
use super::origin::GroupOrigin;
use crate::members::{MEMBERS_MAX, Members, decode_node};
use std::collections::BTreeSet;
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::{ClusterId, GroupId, LogTime, NodeId, Revision};

/// The greatest length of a cluster's name and of a binary's version.
const TEXT_BYTES_MAX: usize = 1_024;

/// Kind of a backup part, as its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    Head = 1,
    Group = 2,
    Piece = 3,
    Manifest = 4,
}

impl Tag {
    pub(super) fn from_number(number: u8) -> Option<Tag> {
        [Tag::Head, Tag::Group, Tag::Piece, Tag::Manifest].into_iter().find(|tag| *tag as u8 == number)
    }
}

/// Origin of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupHead {
    /// The cluster.
    pub cluster: ClusterId,
    /// Name of the cluster, for people. Disks don't know the name: empty if the backup was made from disks.
    pub cluster_name: String,
    /// Time at which the backup was begun, in milliseconds since 1970 by the wall clock of the node that made it.
    /// Nothing in the backup is older. If it was made from disks: the time up to which all of it is known to be
    /// current.
    pub taken_unix_ms: u64,
    /// Version of the binary that made the backup.
    pub version: String,
    /// Members of the cluster at that time.
    pub members: Members,
    /// Number of groups in the backup: all groups of the cluster.
    pub groups: u32,
    /// Stopped nodes whose data directories the backup was made from; empty if it was made by a running cluster.
    pub disks: BTreeSet<NodeId>,
}

/// Directories that a backup can be made from: as many members as a cluster can have had over time.
pub(crate) const DISKS_MAX: usize = 4 * MEMBERS_MAX;

impl BackupHead {
    pub(super) fn encode(&self, version: u8, writer: &mut Writer<'_>) {
        writer.u8(Tag::Head as u8);
        writer.varint(self.cluster.number());
        writer.bytes(cut(&self.cluster_name).as_bytes());
        writer.varint(self.taken_unix_ms);
        writer.bytes(cut(&self.version).as_bytes());
        self.members.encode(writer);
        writer.varint(u64::from(self.groups));
        if version >= FROM_DISKS {
            writer.count("disks", self.disks.len(), DISKS_MAX);
            for node in &self.disks {
                writer.varint(node.number());
            }
        }
    }

    pub(super) fn decode(version: u8, reader: &mut Reader<'_>) -> Result<BackupHead, DecodeError> {
        expect(reader, Tag::Head)?;
        Ok(BackupHead {
            cluster: ClusterId::new(reader.varint()?),
            cluster_name: text(reader, "cluster name")?,
            taken_unix_ms: reader.varint()?,
            version: text(reader, "version")?,
            members: Members::decode(reader)?,
            groups: reader.u32("number of groups")?,
            disks: match version {
                FROM_DISKS.. => reader.list("disks", DISKS_MAX, 1, decode_node)?.into_iter().collect(),
                _ => BTreeSet::new(),
            },
        })
    }
}

/// Head that precedes a group's state.
pub(super) struct GroupHead {
    pub(super) group: GroupId,
    pub(super) index: u64,
    pub(super) origin: Option<GroupOrigin>,
}

impl GroupHead {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u8(Tag::Group as u8);
        writer.varint(u64::from(self.group.number()));
        writer.varint(self.index);
        if let Some(origin) = &self.origin {
            origin.encode(writer);
        }
    }

    pub(super) fn decode(version: u8, reader: &mut Reader<'_>) -> Result<GroupHead, DecodeError> {
        expect(reader, Tag::Group)?;
        let (group, index) = (GroupId::new(reader.u32("group")?), reader.varint()?);
        let origin = (version >= FROM_DISKS).then(|| GroupOrigin::decode(reader)).transpose()?;
        Ok(GroupHead { group, index, origin })
    }
}

/// One group in a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupGroup {
    /// Id of the group.
    pub group: GroupId,
    /// Index of the last log entry that is in the state.
    pub index: u64,
    /// Origin of the state, if the backup was made from disks.
    pub origin: Option<GroupOrigin>,
    /// The state's revision.
    pub revision: Revision,
    /// The state's log time.
    pub log_time: LogTime,
    /// Apply version by which later entries would be applied.
    pub apply_version: u32,
    /// Size of the state, in bytes.
    pub bytes: u64,
    /// CRC-32 of the state.
    pub checksum: u32,
}

impl BackupGroup {
    /// Encodes the group for the manifest, without the origin, which is stored with the state only.
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.varint(u64::from(self.group.number()));
        writer.varint(self.index);
        writer.varint(self.revision.get());
        writer.varint(self.log_time.ms());
        writer.varint(u64::from(self.apply_version));
        writer.varint(self.bytes);
        writer.varint(u64::from(self.checksum));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<BackupGroup, DecodeError> {
        let (group, index) = (GroupId::new(reader.u32("group")?), reader.varint()?);
        let at = reader.at();
        Ok(BackupGroup {
            group,
            index,
            origin: None,
            revision: Reader::valid(at, Revision::new(reader.varint()?))?,
            log_time: LogTime::from_ms(reader.varint()?),
            apply_version: reader.u32("apply version")?,
            bytes: reader.varint()?,
            checksum: reader.u32("checksum")?,
        })
    }
}

/// Encodes the manifest, the last part: the groups in the backup, and the hash of every byte before the manifest.
pub(super) fn encode(groups: &[BackupGroup], hash: u64, writer: &mut Writer<'_>) {
    writer.u8(Tag::Manifest as u8);
    writer.count("groups", groups.len(), super::GROUPS_MAX);
    for group in groups {
        group.encode(writer);
    }
    writer.bytes(&hash.to_le_bytes());
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<(Vec<BackupGroup>, u64), DecodeError> {
    expect(reader, Tag::Manifest)?;
    let groups = reader.list("groups", super::GROUPS_MAX, 7, BackupGroup::decode)?;
    let mut hash = [0; 8];
    let at = reader.at();
    let bytes = reader.bytes("hash", hash.len())?;
    if bytes.len() != hash.len() {
        return Err(DecodeError::UnknownTag { at, what: "length of a hash", tag: 0 });
    }
    hash.copy_from_slice(bytes);
    Ok((groups, u64::from_le_bytes(hash)))
}

fn expect(reader: &mut Reader<'_>, tag: Tag) -> Result<(), DecodeError> {
    reader.tag("part of a backup", |number| (number == tag as u8).then_some(()))
}

/// Cuts a text at the greatest length that a reader accepts.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn text(reader: &mut Reader<'_>, what: &'static str) -> Result<String, DecodeError> {
    let at = reader.at();
    let bytes = reader.bytes(what, TEXT_BYTES_MAX)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::UnknownTag { at, what, tag: bytes[0] })
}
