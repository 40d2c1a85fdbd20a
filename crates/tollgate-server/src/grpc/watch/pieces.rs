//! Splits a batch of events into answers.
//!
//! Invariant: an answer has whole revisions, so that a client that resumes behind it misses nothing and sees nothing
//! twice. The exception is a revision longer than the message limit of clients: it is cut, and only its last piece says
//! where to resume. Pieces are made one at a time: encoded, a batch can be far longer than its events are in memory.

use prost::Message;
use std::iter::Peekable;
use tollgate_gateway::operation::RESULT_BYTES_MAX;
use tollgate_proto::v1::Event;
use tollgate_types::Revision;

/// Maximum length of the events in one answer, in bytes; a longer revision gets an answer of its own.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Content of one answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Piece {
    pub(super) events: Vec<Event>,
    /// Length of the events in bytes.
    pub(super) bytes: usize,
    /// Everything below this revision was delivered, with this piece.
    pub(super) next: Revision,
    /// True if all of the piece's last revision was delivered.
    pub(super) is_whole: bool,
}

/// Events of one revision: all of them, or as many as fit a message.
struct Chunk {
    revision: u64,
    events: Vec<Event>,
    bytes: usize,
    is_whole: bool,
}

/// Splits a batch into pieces: see the module. `next` is the revision to resume at behind the whole batch.
pub(super) fn pieces(events: impl Iterator<Item = Event>, next: Revision) -> impl Iterator<Item = Piece> {
    let mut events = events.peekable();
    let mut carried = None;
    std::iter::from_fn(move || {
        let mut piece = Piece { next, is_whole: true, ..Piece::default() };
        while let Some(chunk) = carried.take().or_else(|| chunk(&mut events)) {
            let at = Revision::new(chunk.revision).unwrap_or(next);
            if !piece.events.is_empty() && piece.bytes + chunk.bytes > ANSWER_BYTES_MAX {
                piece.next = at;
                carried = Some(chunk);
                break;
            }
            piece.bytes += chunk.bytes;
            piece.events.extend(chunk.events);
            if !chunk.is_whole {
                (piece.next, piece.is_whole) = (at, false);
                break;
            }
        }
        (!piece.events.is_empty()).then_some(piece)
    })
}

fn chunk(events: &mut Peekable<impl Iterator<Item = Event>>) -> Option<Chunk> {
    let revision = events.peek()?.revision;
    let mut chunk = Chunk { revision, events: Vec::new(), bytes: 0, is_whole: true };
    while let Some(event) = events.next_if(|event| {
        let fits = chunk.events.is_empty() || chunk.bytes + length(event) <= RESULT_BYTES_MAX;
        event.revision == revision && fits
    }) {
        chunk.bytes += length(&event);
        chunk.events.push(event);
    }
    chunk.is_whole = events.peek().is_none_or(|next| next.revision != revision);
    Some(chunk)
}

fn length(event: &Event) -> usize {
    /// Bytes of the event's tag and length in the answer.
    const AROUND: usize = 8;
    event.encoded_len() + AROUND
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_proto::v1;

    fn event(revision: u64, bytes: usize) -> Event {
        let register = v1::Register { value: vec![7; bytes], ..Default::default() };
        let kv = Some(v1::KeyValue { kv: Some(v1::key_value::Kv::Register(register)) });
        Event { revision, kv, ..Default::default() }
    }

    /// Returns for each piece: the revisions of its events, where to resume, and whether a client can resume there.
    fn cut(events: &[(u64, usize)]) -> Vec<(Vec<u64>, u64, bool)> {
        let events = events.iter().map(|(revision, bytes)| event(*revision, *bytes));
        let pieces = pieces(events, Revision::new(100).unwrap());
        let of = |piece: Piece| {
            assert!(piece.bytes <= RESULT_BYTES_MAX, "{}", piece.bytes);
            let revisions = piece.events.iter().map(|event| event.revision).collect();
            (revisions, piece.next.get(), piece.is_whole)
        };
        pieces.map(of).collect()
    }

    const HALF: usize = ANSWER_BYTES_MAX / 2;

    #[test]
    fn p11_answers_are_cut_between_revisions() {
        assert_eq!(cut(&[]), []);
        assert_eq!(cut(&[(1, 10), (2, HALF), (3, HALF)]), [(vec![1, 2], 3, true), (vec![3], 100, true)]);
        // A revision does not begin in an answer that it doesn't fit in.
        let two = [(1, 10), (2, HALF), (2, HALF), (3, 10)];
        assert_eq!(cut(&two), [(vec![1], 2, true), (vec![2, 2], 3, true), (vec![3], 100, true)]);
    }

    #[test]
    fn p11_a_revision_longer_than_a_message_is_cut_and_can_be_resumed_only_behind_its_end() {
        let long = [(1, 10), (2, 3 * HALF), (2, 3 * HALF), (2, 3 * HALF), (2, 3 * HALF), (2, 10), (3, 10)];
        let expected =
            [(vec![1], 2, true), (vec![2, 2], 2, false), (vec![2, 2, 2], 3, true), (vec![3], 100, true)];
        assert_eq!(cut(&long), expected);
    }
}
