//! Frames between two nodes: one frame carries everything that a turn has for a peer, for all groups.
//!
//! The codec is this crate's own. Raft's protobuf decoder never sees bytes from the network: changes of membership,
//! which Raft keeps as protobuf in the log, are sent in the form of `frame::membership` and rebuilt on arrival.
//! Heartbeats and their responses, which are all that idle groups send, are a few bytes each.
//!
//! A frame names its cluster, sender and receiver; a misdirected frame is refused as a whole. Decoding checks all
//! lengths; it trusts the meaning of messages from a peer of this cluster.

mod membership;
mod message;

pub(crate) use message::travels;

use crate::group_message::GroupMessage;
use crate::members::decode_node;
use crate::snapshot_file::{decode_snapshot_file, encode_snapshot_file};
use crate::storage::{SnapshotFile, TransferId};
use bytes::Bytes;
use raft::eraftpb::{Message, MessageType};
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::{ClusterId, GroupId, NodeId};

/// Version of the frame format. It changes when a frame's bytes change their meaning.
const FRAME_VERSION: u8 = 2;

/// Reasons for which a frame is refused. A refused frame has no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Bytes that are not a frame.
    #[error(
        "a peer sent bytes that are not a frame ({0}): check that it is a Tollgate node, and of this version"
    )]
    Malformed(#[from] DecodeError),
    /// A frame for another cluster.
    #[error("a frame of cluster {theirs} reached a node of cluster {ours}: check the addresses of the peers")]
    OtherCluster {
        /// The sender's cluster.
        theirs: ClusterId,
        /// This node's cluster.
        ours: ClusterId,
    },
    /// A frame for another node.
    #[error("a frame for node {to} reached node {here}: check the addresses of the peers")]
    OtherNode {
        /// The node that the frame was addressed to.
        to: NodeId,
        /// The node that the frame reached.
        here: NodeId,
    },
}

/// Header of a frame: sender and receiver, and properties of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) cluster: ClusterId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// The newest apply version that the sender's binary knows.
    pub(crate) apply_version: u32,
    /// True if the sender could lead: it is not about to stop, and its disk has room.
    pub(crate) fit_to_lead: bool,
}

/// One part of a frame.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// A message of Raft.
    Raft {
        group: GroupId,
        /// The sender has no log and no snapshot: a new member, or a voter that lost its disk.
        blank: bool,
        message: Message,
    },
    /// A piece of a snapshot.
    Chunk(Chunk),
    /// The answer to a piece.
    ChunkAck { group: GroupId, transfer: TransferId, status: ChunkStatus },
    /// A group message to the leader of a group.
    GroupMessage { group: GroupId, group_message: GroupMessage },
    /// Asks the receiver to hash its state after this entry: the leader will send its own hash.
    CompareAt { group: GroupId, index: u64 },
    /// The hash of the leader's state after an entry.
    StateHash { group: GroupId, index: u64, hash: u64 },
    /// The receiver had a vote in this group and has lost its disk.
    DiskLost { group: GroupId },
}

/// See [`Part::Chunk`]. Each piece describes its whole snapshot, so that the first piece need not arrive first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chunk {
    pub(crate) group: GroupId,
    pub(crate) transfer: TransferId,
    /// The sender's term, for Raft.
    pub(crate) term: u64,
    pub(crate) file: SnapshotFile,
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

/// Progress of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkStatus {
    /// The offset at which the next piece begins.
    Next(u64),
    /// The snapshot is complete and in use, or not needed.
    Done,
    /// The snapshot can't be used: the sender must begin again.
    Failed,
}

/// Encoder of a frame: parts are appended one by one.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    bytes: Vec<u8>,
}

impl FrameWriter {
    pub(crate) fn new(header: Header) -> FrameWriter {
        let mut bytes = Vec::with_capacity(256);
        let mut writer = Writer::new(&mut bytes);
        writer.u8(FRAME_VERSION);
        writer.varint(header.cluster.number());
        writer.varint(header.from.number());
        writer.varint(header.to.number());
        writer.varint(u64::from(header.apply_version));
        writer.bool(header.fit_to_lead);
        FrameWriter { bytes }
    }

    pub(crate) fn push(&mut self, part: &Part) {
        let writer = &mut Writer::new(&mut self.bytes);
        match part {
            Part::Raft { group, blank, message } => message::write(writer, *group, *blank, message),
            Part::Chunk(chunk) => chunk.write(writer),
            Part::ChunkAck { group, transfer, status } => {
                writer.u8(TAG_CHUNK_ACK);
                writer.varint(u64::from(group.number()));
                writer.varint(transfer.0);
                match status {
                    ChunkStatus::Next(offset) => {
                        writer.u8(0);
                        writer.varint(*offset);
                    }
                    ChunkStatus::Done => writer.u8(1),
                    ChunkStatus::Failed => writer.u8(2),
                }
            }
            Part::GroupMessage { group, group_message } => {
                writer.u8(TAG_GROUP_MESSAGE);
                writer.varint(u64::from(group.number()));
                group_message.write(writer);
            }
            Part::CompareAt { group, index } => {
                writer.u8(TAG_COMPARE_AT);
                writer.varint(u64::from(group.number()));
                writer.varint(*index);
            }
            Part::StateHash { group, index, hash } => {
                writer.u8(TAG_STATE_HASH);
                writer.varint(u64::from(group.number()));
                writer.varint(*index);
                writer.varint(*hash);
            }
            Part::DiskLost { group } => {
                writer.u8(TAG_DISK_LOST);
                writer.varint(u64::from(group.number()));
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

const TAG_MESSAGE: u8 = 1;
const TAG_HEARTBEAT: u8 = 2;
const TAG_HEARTBEAT_RESPONSE: u8 = 3;
const TAG_CHUNK: u8 = 4;
const TAG_CHUNK_ACK: u8 = 5;
const TAG_DISK_LOST: u8 = 6;
const TAG_GROUP_MESSAGE: u8 = 7;
const TAG_COMPARE_AT: u8 = 8;
const TAG_STATE_HASH: u8 = 9;

/// Decodes the header and all parts of a frame, or returns an error.
pub(crate) fn decode(frame: &[u8]) -> Result<(Header, Vec<Part>), DecodeError> {
    let reader = &mut Reader::new(frame);
    let header = read_header(reader)?;
    let mut parts = Vec::new();
    while reader.remaining() > 0 {
        parts.push(read_part(reader, header)?);
    }
    Ok((header, parts))
}

/// The sender that a frame claims. The transport, which carries the frame, knows whether the claim can be true.
pub fn sender(frame: &[u8]) -> Result<NodeId, FrameError> {
    Ok(read_header(&mut Reader::new(frame))?.from)
}

/// A member's promise: its disk has the log of the leader of this term up to this entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Group of the log.
    pub group: GroupId,
    /// Term of the leader.
    pub term: u64,
    /// Index of the last entry.
    pub index: u64,
}

/// The acknowledgements in a frame: for a carrier of frames that judges their effects, such as the simulator.
pub fn acknowledgements(frame: &[u8]) -> Result<Vec<Acknowledgement>, FrameError> {
    let (_, parts) = decode(frame)?;
    let acknowledged = |part: Part| match part {
        Part::Raft { group, message, .. }
            if message.get_msg_type() == MessageType::MsgAppendResponse && !message.reject =>
        {
            Some(Acknowledgement { group, term: message.term, index: message.index })
        }
        _ => None,
    };
    Ok(parts.into_iter().filter_map(acknowledged).collect())
}

fn read_header(reader: &mut Reader<'_>) -> Result<Header, DecodeError> {
    let found = reader.u8()?;
    if found != FRAME_VERSION {
        return Err(DecodeError::UnsupportedVersion { what: "frame", found, supported: FRAME_VERSION });
    }
    Ok(Header {
        cluster: ClusterId::new(reader.varint()?),
        from: decode_node(reader)?,
        to: decode_node(reader)?,
        apply_version: reader.u32("apply version")?,
        fit_to_lead: reader.bool("fit to lead")?,
    })
}

fn read_part(reader: &mut Reader<'_>, header: Header) -> Result<Part, DecodeError> {
    let at = reader.at();
    match reader.u8()? {
        TAG_MESSAGE => message::read(reader, header),
        TAG_HEARTBEAT => message::read_heartbeat(reader, header),
        TAG_HEARTBEAT_RESPONSE => message::read_heartbeat_response(reader, header),
        TAG_CHUNK => Ok(Part::Chunk(Chunk::read(reader)?)),
        TAG_CHUNK_ACK => Ok(Part::ChunkAck {
            group: read_group(reader)?,
            transfer: TransferId(reader.varint()?),
            status: read_status(reader)?,
        }),
        TAG_GROUP_MESSAGE => {
            Ok(Part::GroupMessage { group: read_group(reader)?, group_message: GroupMessage::read(reader)? })
        }
        TAG_COMPARE_AT => Ok(Part::CompareAt { group: read_group(reader)?, index: reader.varint()? }),
        TAG_STATE_HASH => Ok(Part::StateHash {
            group: read_group(reader)?,
            index: reader.varint()?,
            hash: reader.varint()?,
        }),
        TAG_DISK_LOST => Ok(Part::DiskLost { group: read_group(reader)? }),
        tag => Err(DecodeError::UnknownTag { what: "part of a frame", tag, at }),
    }
}

fn read_status(reader: &mut Reader<'_>) -> Result<ChunkStatus, DecodeError> {
    let at = reader.at();
    match reader.u8()? {
        0 => Ok(ChunkStatus::Next(reader.varint()?)),
        1 => Ok(ChunkStatus::Done),
        2 => Ok(ChunkStatus::Failed),
        tag => Err(DecodeError::UnknownTag { what: "status of a transfer", tag, at }),
    }
}

pub(crate) fn read_group(reader: &mut Reader<'_>) -> Result<GroupId, DecodeError> {
    Ok(GroupId::new(reader.u32("group")?))
}

impl Chunk {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.u8(TAG_CHUNK);
        writer.varint(u64::from(self.group.number()));
        writer.varint(self.transfer.0);
        writer.varint(self.term);
        encode_snapshot_file(&self.file, writer);
        writer.varint(self.offset);
        writer.bytes(&self.bytes);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Chunk, DecodeError> {
        Ok(Chunk {
            group: read_group(reader)?,
            transfer: TransferId(reader.varint()?),
            term: reader.varint()?,
            file: decode_snapshot_file(reader)?,
            offset: reader.varint()?,
            bytes: Bytes::copy_from_slice(reader.bytes("chunk", reader.remaining())?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_message::LeaseKey;
    use crate::members::{MemberChange, Members};
    use crate::node_addresses::NodeAddresses;
    use crate::storage::SnapshotMeta;
    use protobuf::Message as _;
    use raft::eraftpb::{Entry, EntryType};
    use tollgate_core::LeaseEnd;
    use tollgate_types::{LeaseId, Revision};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).expect("not 0")
    }

    fn header() -> Header {
        let (cluster, from, to) = (ClusterId::new(u64::MAX), node(1), node(2));
        Header { cluster, from, to, apply_version: 3, fit_to_lead: true }
    }

    fn raft(kind: MessageType, change: impl FnOnce(&mut Message)) -> Part {
        let mut message = Message { from: 1, to: 2, term: 7, commit: 9, ..Message::default() };
        message.set_msg_type(kind);
        change(&mut message);
        Part::Raft { group: GroupId::new(300), blank: false, message }
    }

    #[test]
    fn acknowledgements_are_told_from_refusals_and_from_all_else() {
        let mut writer = FrameWriter::new(header());
        writer.push(&raft(MessageType::MsgAppendResponse, |message| message.index = 12));
        writer.push(&raft(MessageType::MsgAppendResponse, |message| {
            (message.index, message.reject) = (13, true);
        }));
        writer.push(&raft(MessageType::MsgHeartbeatResponse, |_| {}));
        let found = acknowledgements(&writer.finish());
        assert_eq!(found, Ok(vec![Acknowledgement { group: GroupId::new(300), term: 7, index: 12 }]));
    }

    fn entries() -> Vec<Entry> {
        let commands = Entry { term: 6, index: 10, data: vec![1, 2, 3].into(), ..Entry::default() };
        let change =
            MemberChange::AddLearner { node: node(4), witness: true, node_addresses: NodeAddresses::UNKNOWN }
                .to_raft();
        let mut membership = Entry {
            term: 7,
            index: 11,
            data: change.write_to_bytes().expect("in memory").into(),
            ..Entry::default()
        };
        membership.set_entry_type(EntryType::EntryConfChangeV2);
        let mut leave = Entry { term: 7, index: 12, ..Entry::default() };
        leave.set_entry_type(EntryType::EntryConfChangeV2);
        vec![commands, membership, leave]
    }

    fn all_parts() -> Vec<Part> {
        let group = GroupId::new(5);
        let key = LeaseKey { lease: LeaseId::new(77).expect("valid"), incarnation: Revision::ZERO.next() };
        let members = Members::first([node(1), node(2), node(3)], [node(3)]);
        let meta = SnapshotMeta { index: 1_000, term: 4, members };
        let file = SnapshotFile { meta, size: 1 << 40, checksum: u32::MAX };
        let transfer = TransferId(u64::MAX);
        let bytes = Bytes::from_static(b"piece");
        let chunk = Chunk { group, transfer, term: 9, file, offset: 123, bytes };
        let group_messages = [
            GroupMessage::Register { from: group, key, added: Revision::ZERO.next() },
            GroupMessage::Registered { key, added: Revision::ZERO.next(), lives: true },
            GroupMessage::Ended { home: group, key, reason: LeaseEnd::Revoked },
            GroupMessage::EndAcked { from: group, key },
            GroupMessage::Audit { from: group, keys: vec![key, key] },
            GroupMessage::Gone { keys: vec![key] },
        ];
        let mut parts = vec![
            raft(MessageType::MsgHeartbeat, |_| {}),
            raft(MessageType::MsgHeartbeatResponse, |_| {}),
            raft(MessageType::MsgHeartbeat, |message| message.context = vec![5; 24].into()),
            raft(MessageType::MsgAppend, |message| {
                (message.index, message.log_term, message.entries) = (9, 6, entries().into());
            }),
            raft(MessageType::MsgAppendResponse, |message| {
                (message.reject, message.reject_hint, message.log_term, message.index) = (true, 4, 3, 2);
            }),
            raft(MessageType::MsgRequestPreVote, |message| message.commit_term = 6),
            raft(MessageType::MsgRequestVote, |message| {
                message.context = b"CampaignTransfer".to_vec().into();
            }),
            raft(MessageType::MsgTimeoutNow, |_| {}),
            Part::Chunk(chunk),
            Part::DiskLost { group },
            Part::CompareAt { group, index: u64::MAX },
            Part::StateHash { group, index: 1, hash: u64::MAX },
        ];
        for status in [ChunkStatus::Next(8), ChunkStatus::Done, ChunkStatus::Failed] {
            parts.push(Part::ChunkAck { group, transfer, status });
        }
        parts.extend(group_messages.map(|group_message| Part::GroupMessage { group, group_message }));
        parts
    }

    #[test]
    fn what_is_sent_is_what_arrives() {
        let mut writer = FrameWriter::new(header());
        for part in all_parts() {
            writer.push(&part);
        }
        assert_eq!(decode(&writer.finish()), Ok((header(), all_parts())));
        let unfit = Header { fit_to_lead: false, ..header() };
        assert_eq!(decode(&FrameWriter::new(unfit).finish()), Ok((unfit, Vec::new())));
    }

    #[test]
    fn a_part_that_is_cut_off_is_refused() {
        for part in all_parts() {
            let empty = FrameWriter::new(header()).len();
            let mut writer = FrameWriter::new(header());
            writer.push(&part);
            let bytes = writer.finish();
            for length in empty + 1..bytes.len() {
                assert!(decode(&bytes[..length]).is_err(), "{part:?} cut to {length}");
            }
        }
    }

    #[test]
    fn entries_that_do_not_follow_each_other_are_refused() {
        let mut writer = FrameWriter::new(header());
        writer.push(&raft(MessageType::MsgAppend, |message| {
            (message.index, message.entries) = (178, entries().into());
        }));
        assert!(decode(&writer.finish()).is_err());
    }

    #[test]
    fn an_idle_group_costs_a_few_bytes() {
        let empty = FrameWriter::new(header()).len();
        let mut writer = FrameWriter::new(header());
        writer.push(&raft(MessageType::MsgHeartbeat, |_| {}));
        assert!(writer.len() - empty <= 6, "{} bytes", writer.len() - empty);
    }
}
