//! Messages between groups about leases: a lease lives in one group, and its locks may be in others.
//!
//! A group message is addressed to the leader of a group. Group messages may be lost, repeated or late: facts that must
//! not be lost are in the groups' states, and their leaders write again until a matter is settled there. Not here: when
//! group messages are written (`replica::group_messaging`), and their effects (the core).

use crate::frame::read_group;
use tollgate_core::{DecodeError, LeaseEnd, Reader, Writer};
use tollgate_types::{GroupId, LeaseId, Revision};

/// The most leases in one audit.
pub(crate) const LEASES_MAX: usize = 256;

/// A lease as other groups know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseKey {
    pub(crate) lease: LeaseId,
    pub(crate) incarnation: Revision,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupMessage {
    /// To a lease's home: `from` has a stub of the lease, and wants to learn of the lease's end.
    Register { from: GroupId, key: LeaseKey, added: Revision },
    /// Answer to `Register`: tells whether the lease lives.
    Registered { key: LeaseKey, added: Revision, lives: bool },
    /// To a group with a stub: the lease has ended.
    Ended { home: GroupId, key: LeaseKey, reason: LeaseEnd },
    /// Answer to `Ended`: no stub of the lease is left in `from`.
    EndAcked { from: GroupId, key: LeaseKey },
    /// To a home, periodically: asks whether these leases still live.
    Audit { from: GroupId, keys: Vec<LeaseKey> },
    /// Answer to `Audit`: the leases that no longer live.
    Gone { keys: Vec<LeaseKey> },
}

impl GroupMessage {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            GroupMessage::Register { from, key, added } => {
                writer.u8(1);
                write_group(writer, *from);
                key.write(writer);
                writer.varint(added.get());
            }
            GroupMessage::Registered { key, added, lives } => {
                writer.u8(2);
                key.write(writer);
                writer.varint(added.get());
                writer.bool(*lives);
            }
            GroupMessage::Ended { home, key, reason } => {
                writer.u8(3);
                write_group(writer, *home);
                key.write(writer);
                writer.u8(match reason {
                    LeaseEnd::Expired => 0,
                    LeaseEnd::Revoked => 1,
                    LeaseEnd::Disconnected => 2,
                });
            }
            GroupMessage::EndAcked { from, key } => {
                writer.u8(4);
                write_group(writer, *from);
                key.write(writer);
            }
            GroupMessage::Audit { from, keys } => {
                writer.u8(5);
                write_group(writer, *from);
                writer.list("leases", LEASES_MAX, keys, |writer, key| key.write(writer));
            }
            GroupMessage::Gone { keys } => {
                writer.u8(6);
                writer.list("leases", LEASES_MAX, keys, |writer, key| key.write(writer));
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<GroupMessage, DecodeError> {
        let at = reader.at();
        Ok(match reader.u8()? {
            1 => GroupMessage::Register {
                from: read_group(reader)?,
                key: LeaseKey::read(reader)?,
                added: read_revision(reader)?,
            },
            2 => GroupMessage::Registered {
                key: LeaseKey::read(reader)?,
                added: read_revision(reader)?,
                lives: reader.bool("lives")?,
            },
            3 => GroupMessage::Ended {
                home: read_group(reader)?,
                key: LeaseKey::read(reader)?,
                reason: reader.tag("end of a lease", |tag| match tag {
                    0 => Some(LeaseEnd::Expired),
                    1 => Some(LeaseEnd::Revoked),
                    2 => Some(LeaseEnd::Disconnected),
                    _ => None,
                })?,
            },
            4 => GroupMessage::EndAcked { from: read_group(reader)?, key: LeaseKey::read(reader)? },
            5 => GroupMessage::Audit {
                from: read_group(reader)?,
                keys: reader.list("leases", LEASES_MAX, 2, LeaseKey::read)?,
            },
            6 => GroupMessage::Gone { keys: reader.list("leases", LEASES_MAX, 2, LeaseKey::read)? },
            tag => return Err(DecodeError::UnknownTag { what: "group message", tag, at }),
        })
    }
}

impl LeaseKey {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.varint(self.lease.get());
        writer.varint(self.incarnation.get());
    }

    fn read(reader: &mut Reader<'_>) -> Result<LeaseKey, DecodeError> {
        let at = reader.at();
        let lease = Reader::valid(at, LeaseId::new(reader.varint()?))?;
        Ok(LeaseKey { lease, incarnation: read_revision(reader)? })
    }
}

fn write_group(writer: &mut Writer<'_>, group: GroupId) {
    writer.varint(u64::from(group.number()));
}

fn read_revision(reader: &mut Reader<'_>) -> Result<Revision, DecodeError> {
    let at = reader.at();
    Reader::valid(at, Revision::new(reader.varint()?))
}
