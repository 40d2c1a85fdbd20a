//! The entries of a group's log, and the batch of commands inside each.
//!
//! A normal entry carries commands that were proposed together, each with the log time that the leader stamped on it.
//! Raft's own entries (a new leader's empty one) and changes of membership carry no stamp.

use bytes::Bytes;
use raft::eraftpb;
use tollgate_core::{Command, DecodeError, Entry, Reader, Writer, decode_entry, encode_command};
use tollgate_types::{LogTime, WallTime};

/// The greatest length of an encoded command, and of an entry. Peers read frames of twice this length, which leaves
/// room for the other parts of a frame.
pub const COMMAND_BYTES_MAX: usize = 16 << 20;

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Index of the entry in the log.
    pub index: u64,
    /// Term of the leader that made the entry.
    pub term: u64,
    /// Kind of the content.
    pub kind: EntryKind,
    /// Encoded content.
    pub data: Bytes,
}

/// Kind of an entry's content.
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
    /// Encodes a command in a format, without adding it, and returns its length.
    pub(crate) fn encode(&mut self, format: u8, at: (LogTime, WallTime), command: &Command) -> usize {
        self.scratch.clear();
        encode_command(format, at, command, &mut self.scratch);
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

/// The commands inside an entry's data, decoded lazily. The iteration ends after a command that can't be decoded,
/// because the bytes after it can't be interpreted.
pub(crate) struct EncodedBatch<'a> {
    reader: Reader<'a>,
    failed: bool,
}

impl<'a> EncodedBatch<'a> {
    pub(crate) fn new(data: &'a [u8]) -> EncodedBatch<'a> {
        EncodedBatch { reader: Reader::new(data), failed: false }
    }

    fn decode_next(&mut self) -> Result<Entry, DecodeError> {
        let left = self.reader.remaining();
        decode_entry(self.reader.bytes("command", left)?)
    }
}

impl Iterator for EncodedBatch<'_> {
    type Item = Result<Entry, DecodeError>;

    fn next(&mut self) -> Option<Result<Entry, DecodeError>> {
        let next = (self.reader.remaining() > 0 && !self.failed).then(|| self.decode_next());
        self.failed |= matches!(next, Some(Err(_)));
        next
    }
}

/// The stamp of a batch: the stamp of its last command. None for an entry without commands.
pub(crate) fn last_stamp(entry: &eraftpb::Entry) -> Option<LogTime> {
    if entry.get_entry_type() != eraftpb::EntryType::EntryNormal || entry.data.is_empty() {
        return None;
    }
    EncodedBatch::new(&entry.data)
        .map(|command| command.expect("an entry of a log is what a leader encoded").at)
        .last()
}

/// The highest apply version that an entry raises the group to, if it contains a raise.
pub(crate) fn last_raise(entry: &eraftpb::Entry) -> Option<u32> {
    if entry.get_entry_type() != eraftpb::EntryType::EntryNormal {
        return None;
    }
    let commands = EncodedBatch::new(&entry.data);
    let commands =
        commands.map(|command| command.expect("an entry of a log is what a leader encoded").command);
    commands
        .filter_map(
            |command| if let Command::RaiseApplyVersion(version) = command { Some(version) } else { None },
        )
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(stamps: &[u64]) -> Vec<u8> {
        let mut writer = BatchWriter::default();
        for at in stamps {
            let at = (LogTime::from_ms(*at), WallTime::UNKNOWN);
            writer.encode(tollgate_core::ENTRY_FORMAT_VERSION, at, &Command::Tick);
            writer.add();
        }
        writer.take()
    }

    fn entry(data: Vec<u8>) -> eraftpb::Entry {
        eraftpb::Entry { data: data.into(), ..eraftpb::Entry::default() }
    }

    #[test]
    fn the_stamp_of_a_batch_is_that_of_its_last_command() {
        assert_eq!(last_stamp(&entry(batch(&[3, 5, 9]))), Some(LogTime::from_ms(9)));
        assert_eq!(last_stamp(&entry(Vec::new())), None);
    }

    #[test]
    fn p15_a_batch_ends_with_what_cannot_be_decoded_and_is_not_read_past_it() {
        let whole = batch(&[3, 5, 9]);
        for end in 0..whole.len() {
            let read: Vec<_> = EncodedBatch::new(&whole[..end]).collect();
            let failed = read.iter().filter(|command| command.is_err()).count();
            assert!(failed <= 1 && read[..read.len() - failed].iter().all(Result::is_ok), "{end}: {read:?}");
        }
        let endless = [0x80];
        assert_eq!(EncodedBatch::new(&endless).map(|command| command.is_err()).collect::<Vec<_>>(), [true]);
    }

    #[test]
    #[should_panic(expected = "what a leader encoded")]
    fn p15_a_log_that_cannot_be_decoded_has_no_stamp_though_its_last_command_has() {
        let mut data = batch(&[3, 9]);
        // After the length of the first command comes the version of its format.
        data[1] = 0xff;
        let _ = last_stamp(&entry(data));
    }
}
