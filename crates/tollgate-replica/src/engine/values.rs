//! Encoding of a group's small values in the log: the kind of the replica, its vote, its snapshot mark.
//!
//! Each value has a version and a CRC-32 of its own. raft-engine checks batches when it reads them from disk, and then
//! keeps these values in memory and moves them between files; the checksum stays with them.

use crate::members::decode_node;
use crate::snapshot_file::{decode_snapshot_file, encode_snapshot_file};
use crate::storage::{ReplicaKind, SnapshotFile, Vote};
use tollgate_core::{DecodeError, Reader, Writer};

pub(super) const KIND_KEY: &[u8] = b"kind";
pub(super) const VOTE_KEY: &[u8] = b"vote";
pub(super) const MARK_KEY: &[u8] = b"mark";

const VERSION: u8 = 1;
const CRC_BYTES: usize = 4;

/// Reasons for which a value can't be used.
#[derive(Debug)]
pub(super) enum BadValue {
    Damaged(String),
    TooNew { found: u8, supported: u8 },
}

pub(super) fn encode_kind(kind: ReplicaKind) -> Vec<u8> {
    sealed(|writer| {
        writer.u8(match kind {
            ReplicaKind::Full => 0,
            ReplicaKind::Witness => 1,
        });
    })
}

pub(super) fn decode_kind(bytes: &[u8]) -> Result<ReplicaKind, BadValue> {
    opened(bytes, |reader| {
        reader.tag("kind of replica", |tag| match tag {
            0 => Some(ReplicaKind::Full),
            1 => Some(ReplicaKind::Witness),
            _ => None,
        })
    })
}

pub(super) fn encode_vote(vote: &Vote) -> Vec<u8> {
    sealed(|writer| {
        writer.varint(vote.term);
        writer.option(vote.voted_for, |writer, node| writer.varint(node.number()));
        writer.varint(vote.commit);
    })
}

pub(super) fn decode_vote(bytes: &[u8]) -> Result<Vote, BadValue> {
    opened(bytes, |reader| {
        let term = reader.varint()?;
        let voted_for = reader.option("voted for", decode_node)?;
        Ok(Vote { term, voted_for, commit: reader.varint()? })
    })
}

pub(super) fn encode_mark(file: &SnapshotFile) -> Vec<u8> {
    sealed(|writer| encode_snapshot_file(file, writer))
}

pub(super) fn decode_mark(bytes: &[u8]) -> Result<SnapshotFile, BadValue> {
    opened(bytes, decode_snapshot_file)
}

fn sealed(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    write(&mut Writer::new(&mut bytes));
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn opened<T>(
    bytes: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, BadValue> {
    let damaged = |what: &str| BadValue::Damaged(what.to_owned());
    let (fields, crc) =
        bytes.split_at_checked(bytes.len().saturating_sub(CRC_BYTES)).ok_or_else(|| damaged("too short"))?;
    if crc32fast::hash(fields).to_le_bytes() != crc {
        return Err(damaged("it does not have its checksum"));
    }
    let (&found, body) = fields.split_first().ok_or_else(|| damaged("too short"))?;
    if found != VERSION {
        return Err(BadValue::TooNew { found, supported: VERSION });
    }
    let mut reader = Reader::new(body);
    let value = read(&mut reader).and_then(|value| reader.finish().map(|()| value));
    value.map_err(|error| BadValue::Damaged(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::NodeId;

    #[test]
    fn a_vote_reads_back_and_no_flipped_bit_of_it_does() {
        let vote = Vote { term: 300, voted_for: NodeId::new(7), commit: 1 << 40 };
        let bytes = encode_vote(&vote);
        assert_eq!(decode_vote(&bytes).unwrap(), vote);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_vote(&damaged).is_err(), "bit {bit}");
        }
        assert!(decode_vote(&[]).is_err());
    }

    #[test]
    fn a_newer_value_is_told_from_a_damaged_one() {
        let mut bytes = vec![VERSION + 1, 0];
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        assert!(matches!(decode_kind(&bytes), Err(BadValue::TooNew { found: 2, supported: 1 })));
    }
}
