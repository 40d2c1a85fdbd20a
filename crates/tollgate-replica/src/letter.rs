//! Messages between groups about leases: a lease lives in one group, and its locks may be in others.
//!
//! A letter is addressed to the leader of a group. Letters may be lost, repeated or late: facts that must not be lost
//! are in the groups' states, and their leaders write again until a matter is settled there. Not here: when letters are
//! written (`replica::exchange`), and their effects (the core).

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
pub(crate) enum Letter {
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

impl Letter {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Letter::Register { from, key, added } => {
                writer.u8(1);
                write_group(writer, *from);
                key.write(writer);
                writer.varint(added.get());
            }
            Letter::Registered { key, added, lives } => {
                writer.u8(2);
                key.write(writer);
                writer.varint(added.get());
                writer.bool(*lives);
            }
            Letter::Ended { home, key, reason } => {
                writer.u8(3);
                write_group(writer, *home);
                key.write(writer);
                writer.u8(match reason {
                    LeaseEnd::Expired => 0,
                    LeaseEnd::Revoked => 1,
                    LeaseEnd::Disconnected => 2,
                });
            }
            Letter::EndAcked { from, key } => {
                writer.u8(4);
                write_group(writer, *from);
                key.write(writer);
            }
            Letter::Audit { from, keys } => {
                writer.u8(5);
                write_group(writer, *from);
                writer.list("leases", LEASES_MAX, keys, |writer, key| key.write(writer));
            }
            Letter::Gone { keys } => {
                writer.u8(6);
                writer.list("leases", LEASES_MAX, keys, |writer, key| key.write(writer));
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Letter, DecodeError> {
        let at = reader.at();
        Ok(match reader.u8()? {
            1 => Letter::Register {
                from: read_group(reader)?,
                key: LeaseKey::read(reader)?,
                added: read_revision(reader)?,
            },
            2 => Letter::Registered {
                key: LeaseKey::read(reader)?,
                added: read_revision(reader)?,
                lives: reader.bool("lives")?,
            },
            3 => Letter::Ended {
                home: read_group(reader)?,
                key: LeaseKey::read(reader)?,
                reason: reader.tag("end of a lease", |tag| match tag {
                    0 => Some(LeaseEnd::Expired),
                    1 => Some(LeaseEnd::Revoked),
                    2 => Some(LeaseEnd::Disconnected),
                    _ => None,
                })?,
            },
            4 => Letter::EndAcked { from: read_group(reader)?, key: LeaseKey::read(reader)? },
            5 => Letter::Audit {
                from: read_group(reader)?,
                keys: reader.list("leases", LEASES_MAX, 2, LeaseKey::read)?,
            },
            6 => Letter::Gone { keys: reader.list("leases", LEASES_MAX, 2, LeaseKey::read)? },
            tag => return Err(DecodeError::UnknownTag { what: "letter", tag, at }),
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
