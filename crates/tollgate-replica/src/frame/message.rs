//! Encoding of Raft's messages.
//!
//! Only messages that members send each other are encoded: a proposal is never forwarded, a snapshot is sent in pieces,
//! and Raft's local messages never leave the node. Sender and receiver are in the frame's header.

use super::{Header, Part, TAG_HEARTBEAT, TAG_HEARTBEAT_RESPONSE, TAG_MESSAGE, membership, read_group};
use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::GroupId;

/// The greatest length of a context: the context of a read has 24 bytes, and the context of a vote is a word.
const CONTEXT_BYTES_MAX: usize = 64;
/// The most entries in a message. A message carries at least two bytes for each entry, so a frame's size bounds this
/// anyway.
const ENTRIES_MAX: usize = 1 << 20;

const BLANK: u8 = 1;
const REJECT: u8 = 2;
const ENTRIES: u8 = 4;
const CONTEXT: u8 = 8;

macro_rules! kinds {
    ($($kind:ident = $tag:literal,)*) => {
        fn tag_of(kind: MessageType) -> Option<u8> {
            match kind { $(MessageType::$kind => Some($tag),)* _ => None }
        }

        fn kind_of(tag: u8) -> Option<MessageType> {
            match tag { $($tag => Some(MessageType::$kind),)* _ => None }
        }
    };
}

kinds! {
    MsgAppend = 1,
    MsgAppendResponse = 2,
    MsgRequestVote = 3,
    MsgRequestVoteResponse = 4,
    MsgRequestPreVote = 5,
    MsgRequestPreVoteResponse = 6,
    MsgHeartbeat = 7,
    MsgHeartbeatResponse = 8,
    MsgTimeoutNow = 9,
    MsgReadIndex = 10,
    MsgReadIndexResp = 11,
}

/// True if members send each other messages of this kind.
pub(crate) fn travels(kind: MessageType) -> bool {
    tag_of(kind).is_some()
}

pub(super) fn write(writer: &mut Writer<'_>, group: GroupId, blank: bool, message: &Message) {
    let plain = !blank && message.context.is_empty() && message.entries.is_empty() && !message.reject;
    match message.get_msg_type() {
        MessageType::MsgHeartbeat if plain && message.commit_term == 0 => {
            write_idle(writer, TAG_HEARTBEAT, group, message);
        }
        MessageType::MsgHeartbeatResponse if plain && message.commit_term == 0 => {
            write_idle(writer, TAG_HEARTBEAT_RESPONSE, group, message);
        }
        _ => write_full(writer, group, blank, message),
    }
}

fn write_idle(writer: &mut Writer<'_>, tag: u8, group: GroupId, message: &Message) {
    writer.u8(tag);
    writer.varint(u64::from(group.number()));
    writer.varint(message.term);
    writer.varint(message.commit);
}

pub(super) fn read_heartbeat(reader: &mut Reader<'_>, header: Header) -> Result<Part, DecodeError> {
    read_idle(reader, header, MessageType::MsgHeartbeat)
}

pub(super) fn read_heartbeat_response(reader: &mut Reader<'_>, header: Header) -> Result<Part, DecodeError> {
    read_idle(reader, header, MessageType::MsgHeartbeatResponse)
}

fn read_idle(reader: &mut Reader<'_>, header: Header, kind: MessageType) -> Result<Part, DecodeError> {
    let group = read_group(reader)?;
    let mut message = addressed(header, kind);
    message.term = reader.varint()?;
    message.commit = reader.varint()?;
    Ok(Part::Raft { group, blank: false, message })
}

fn addressed(header: Header, kind: MessageType) -> Message {
    let mut message = Message::default();
    message.set_msg_type(kind);
    message.from = header.from.number();
    message.to = header.to.number();
    message
}

fn write_full(writer: &mut Writer<'_>, group: GroupId, blank: bool, message: &Message) {
    let tag = tag_of(message.get_msg_type()).expect("only messages that travel are put into frames");
    writer.u8(TAG_MESSAGE);
    writer.varint(u64::from(group.number()));
    writer.u8(tag);
    let mut flags = 0;
    for (flag, set) in [
        (BLANK, blank),
        (REJECT, message.reject),
        (ENTRIES, !message.entries.is_empty()),
        (CONTEXT, !message.context.is_empty()),
    ] {
        if set {
            flags |= flag;
        }
    }
    writer.u8(flags);
    for number in [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
    ] {
        writer.varint(number);
    }
    if flags & ENTRIES != 0 {
        writer.list("entries", ENTRIES_MAX, &message.entries, write_entry);
    }
    if flags & CONTEXT != 0 {
        writer.bytes(&message.context);
    }
}

pub(super) fn read(reader: &mut Reader<'_>, header: Header) -> Result<Part, DecodeError> {
    let group = read_group(reader)?;
    let kind = reader.tag("kind of message", kind_of)?;
    let flags = reader.flags("message", BLANK | REJECT | ENTRIES | CONTEXT)?;
    let mut message = addressed(header, kind);
    message.term = reader.varint()?;
    message.log_term = reader.varint()?;
    message.index = reader.varint()?;
    message.commit = reader.varint()?;
    message.commit_term = reader.varint()?;
    message.reject_hint = reader.varint()?;
    message.reject = flags & REJECT != 0;
    if flags & ENTRIES != 0 {
        let at = reader.at();
        message.entries = reader.list("entries", ENTRIES_MAX, 2, read_entry)?.into();
        if kind == MessageType::MsgAppend && !follows(&message) {
            return Err(DecodeError::UnknownTag { what: "order of entries", tag: 0, at });
        }
    }
    if flags & CONTEXT != 0 {
        message.context = Bytes::copy_from_slice(reader.bytes("context", CONTEXT_BYTES_MAX)?);
    }
    Ok(Part::Raft { group, blank: flags & BLANK != 0, message })
}

/// True if an append's entries are consecutive and follow the entry that the message names. Raft takes that for
/// granted, and acknowledges by counting.
fn follows(message: &Message) -> bool {
    let indexes = message.entries.iter().map(|entry| Some(entry.index));
    indexes.eq((1..=message.entries.len() as u64).map(|step| message.index.checked_add(step)))
}

fn write_entry(writer: &mut Writer<'_>, entry: &Entry) {
    writer.varint(entry.term);
    writer.varint(entry.index);
    match entry.get_entry_type() {
        EntryType::EntryNormal => {
            writer.u8(0);
            writer.bytes(&entry.data);
        }
        EntryType::EntryConfChangeV2 => {
            writer.u8(1);
            membership::write(writer, &entry.data);
        }
        EntryType::EntryConfChange => unreachable!("changes of the first kind are never proposed"),
    }
}

fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, DecodeError> {
    let mut entry = Entry { term: reader.varint()?, index: reader.varint()?, ..Entry::default() };
    if reader.bool("kind of entry")? {
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.data = membership::read(reader)?;
    } else {
        entry.data = Bytes::copy_from_slice(reader.bytes("entry", reader.remaining())?);
    }
    Ok(entry)
}
