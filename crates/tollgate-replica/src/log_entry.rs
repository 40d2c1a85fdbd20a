//! An entry of a group's log, and the batch of commands inside it.
//!
//! A normal entry carries commands that were proposed together, each with the log time that the leader stamped on
//! it. Raft's own entries (a new leader's empty one) and changes of membership carry no stamp.

use bytes::Bytes;
use raft::eraftpb;
use tollgate_core::{Command, DecodeError, Entry, Reader, Writer, decode_entry, encode_command};
use tollgate_types::LogTime;

/// The longest command, encoded, and the longest entry. Peers read frames of twice this, which leaves room for what
/// else is in a frame.
pub const COMMAND_BYTES_MAX: usize = 16 << 20;

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its place.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// What is inside.
    pub kind: EntryKind,
    /// The bytes.
    pub data: Bytes,
}

/// What an entry carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A batch of commands, or nothing.
    Commands,
    /// A change of membership.
    Membership,
}

impl LogEntry {
    pub(crate) fn from_raft(entry: &eraftpb::Entry) -> LogEntry {
        let kind = match entry.get_entry_type() {
            eraftpb::EntryType::EntryNormal => EntryKind::Commands,
            eraftpb::EntryType::EntryConfChangeV2 => EntryKind::Membership,
            eraftpb::EntryType::EntryConfChange => {
                unreachable!("this crate proposes, and lets in, changes of the second kind only")
            }
        };
        LogEntry { index: entry.index, term: entry.term, kind, data: entry.data.clone() }
    }

    pub(crate) fn to_raft(&self) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry {
            index: self.index,
            term: self.term,
            data: self.data.clone(),
            ..eraftpb::Entry::default()
        };
        entry.set_entry_type(match self.kind {
            EntryKind::Commands => eraftpb::EntryType::EntryNormal,
            EntryKind::Membership => eraftpb::EntryType::EntryConfChangeV2,
        });
        entry
    }
}

/// Collects encoded commands into the data of one log entry.
#[derive(Debug, Default)]
pub(crate) struct BatchWriter {
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl BatchWriter {
    /// Encodes a command, to be added or not. How long it is.
    pub(crate) fn encode(&mut self, at: LogTime, command: &Command) -> usize {
        self.scratch.clear();
        encode_command(at, command, &mut self.scratch);
        self.scratch.len()
    }

    /// Adds the command that was encoded last.
    pub(crate) fn add(&mut self) {
        Writer::new(&mut self.bytes).bytes(&self.scratch);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// The commands inside an entry's data, decoded as they are asked for.
pub(crate) struct EncodedBatch<'a> {
    reader: Reader<'a>,
}

impl<'a> EncodedBatch<'a> {
    pub(crate) fn new(data: &'a [u8]) -> EncodedBatch<'a> {
        EncodedBatch { reader: Reader::new(data) }
    }

    fn decode_next(&mut self) -> Result<Entry, DecodeError> {
        let left = self.reader.remaining();
        decode_entry(self.reader.bytes("command", left)?)
    }
}

impl Iterator for EncodedBatch<'_> {
    type Item = Result<Entry, DecodeError>;

    fn next(&mut self) -> Option<Result<Entry, DecodeError>> {
        (self.reader.remaining() > 0).then(|| self.decode_next())
    }
}

/// The stamp of a batch: that of its last command. None for an entry without commands.
pub(crate) fn last_stamp(entry: &eraftpb::Entry) -> Option<LogTime> {
    if entry.get_entry_type() != eraftpb::EntryType::EntryNormal || entry.data.is_empty() {
        return None;
    }
    let last = EncodedBatch::new(&entry.data).last()?;
    Some(last.expect("an entry of our own log decodes: it was checked on its way in").at)
}
