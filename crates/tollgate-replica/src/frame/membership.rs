//! Encoding of a membership change between nodes.
//!
//! In the log a change is Raft's protobuf, because Raft reads it there. On the network it is the few fields written
//! here, and the protobuf is built from them on arrival: the same fields always give the same bytes.

use crate::members::{Added, MEMBERS_MAX, added};
use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use tollgate_core::{DecodeError, Reader, Writer};

pub(super) fn write(writer: &mut Writer<'_>, data: &[u8]) {
    let change = ConfChangeV2::parse_from_bytes(data).expect("a change in our own log is what we put there");
    writer.u8(match change.get_transition() {
        ConfChangeTransition::Auto => 0,
        ConfChangeTransition::Implicit => 1,
        ConfChangeTransition::Explicit => 2,
    });
    writer.list("changes", 2 * MEMBERS_MAX, &change.changes, |writer, single| {
        writer.u8(match single.get_change_type() {
            ConfChangeType::AddNode => 0,
            ConfChangeType::RemoveNode => 1,
            ConfChangeType::AddLearnerNode => 2,
        });
        writer.varint(single.node_id);
    });
    writer.bytes(&change.context);
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Bytes, DecodeError> {
    let mut change = ConfChangeV2::default();
    change.set_transition(reader.tag("transition", |tag| match tag {
        0 => Some(ConfChangeTransition::Auto),
        1 => Some(ConfChangeTransition::Implicit),
        2 => Some(ConfChangeTransition::Explicit),
        _ => None,
    })?);
    change.changes = reader.list("changes", 2 * MEMBERS_MAX, 2, read_single)?.into();
    change.context = Bytes::copy_from_slice(reader.bytes("context", Added::BYTES_MAX)?);
    // Once the change is applied, it is too late to refuse it.
    added(&change)?;
    let bytes = change.write_to_bytes().expect("a message in memory has a length");
    Ok(bytes.into())
}

fn read_single(reader: &mut Reader<'_>) -> Result<ConfChangeSingle, DecodeError> {
    let mut single = ConfChangeSingle::default();
    single.set_change_type(reader.tag("kind of change", |tag| match tag {
        0 => Some(ConfChangeType::AddNode),
        1 => Some(ConfChangeType::RemoveNode),
        2 => Some(ConfChangeType::AddLearnerNode),
        _ => None,
    })?);
    let at = reader.at();
    single.node_id = reader.varint()?;
    if single.node_id == 0 {
        return Err(DecodeError::UnknownTag { what: "node id", tag: 0, at });
    }
    Ok(single)
}
