//! Events as they are packed in the ring: a head of fixed size, then the change in the bytes of the snapshot format.
//!
//! So a snapshot copies the history instead of encoding it anew. The head serves to find the next event without reading
//! this one, and to know the bytes that are freed with it; it never leaves the process. Not here: the bytes of a change
//! (`format::events`).

use crate::event::{Event, RegisterChange};
use crate::format::snapshot::SNAPSHOT_FORMAT_VERSION;
use crate::format::{
    LockChanged, Reader, Watched, Writer, read_event, watched, write_lock_changed, write_register_change,
};
use crate::watch::Watch;
use tollgate_types::Revision;

/// Revision, bytes in the count against the bound, length of the body.
pub(super) const HEAD_BYTES: usize = 16;

/// Enough for most changes, so that the buffer grows once per event.
const USUAL_BYTES: usize = 160;

/// The head of a packed event.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) revision: Revision,
    pub(super) counts: u64,
    pub(super) body_bytes: usize,
}

pub(super) fn pack_lock(revision: Revision, counts: u64, changed: &LockChanged<'_>, out: &mut Vec<u8>) {
    pack(revision, counts, out, |writer| write_lock_changed(writer, changed));
}

pub(super) fn pack_register(revision: Revision, counts: u64, change: &RegisterChange, out: &mut Vec<u8>) {
    pack(revision, counts, out, |writer| write_register_change(writer, change));
}

/// Appends a head and the body that `write` makes.
#[inline]
fn pack(revision: Revision, counts: u64, out: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
    out.reserve(HEAD_BYTES + USUAL_BYTES);
    let start = out.len();
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&revision.get().to_le_bytes());
    head[8..12].copy_from_slice(&u32::try_from(counts).expect("an event is far below 4 GiB").to_le_bytes());
    out.extend_from_slice(&head);
    write(&mut Writer::new(out));
    let body = u32::try_from(out.len() - start - HEAD_BYTES).expect("as above");
    out[start + 12..start + HEAD_BYTES].copy_from_slice(&body.to_le_bytes());
}

const PACKED: &str = "the ring holds what it was given";

#[inline]
pub(super) fn head(bytes: &[u8]) -> Head {
    let head: &[u8; HEAD_BYTES] = bytes.first_chunk().expect(PACKED);
    let [revision @ .., c0, c1, c2, c3, b0, b1, b2, b3] = *head;
    Head {
        revision: Revision::new(u64::from_le_bytes(revision)).expect(PACKED),
        counts: u64::from(u32::from_le_bytes([c0, c1, c2, c3])),
        body_bytes: u32::from_le_bytes([b0, b1, b2, b3]) as usize,
    }
}

/// The body of an event: its change in the snapshot format.
#[inline]
pub(super) fn body(bytes: &[u8]) -> &[u8] {
    &bytes[HEAD_BYTES..]
}

/// True if a watch wants the event that begins here; looks without unpacking the event.
pub(super) fn matches(bytes: &[u8], watch: &Watch) -> bool {
    match watched(&mut Reader::new(body(bytes))).expect(PACKED) {
        Watched::Lock(name, lease) => watch.matches_lock(name, lease),
        Watched::Register(key) => watch.matches_register(key),
    }
}

/// Unpacks the event that begins here.
pub(super) fn unpack(bytes: &[u8]) -> Event {
    // The newest format, which reads the changes of every format: the events are of this state, or were checked when it
    // was loaded.
    let change = read_event(&mut Reader::new(body(bytes)), SNAPSHOT_FORMAT_VERSION).expect(PACKED);
    Event { revision: head(bytes).revision, change }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Change, ClaimState, LockChange, RegisterState};
    use crate::reply::EndReason;
    use tollgate_types::{Key, LeaseId, Metadata, Mode, Name, Owner, Reason, Token, Value};

    #[test]
    fn what_is_packed_is_what_is_unpacked() {
        let revision = Revision::new(77).unwrap();
        let state = ClaimState {
            mode: Mode::Permit { n: 2, of: 5 },
            token: Some(Token::new(9).unwrap()),
            wants: None,
            mod_revision: revision,
            version: 3,
        };
        let lock = LockChange {
            name: Name::new("a name of more than twenty-two bytes").unwrap(),
            lease: LeaseId::new(5).unwrap(),
            owner: Owner::new("o").unwrap(),
            metadata: Metadata::new("why").unwrap(),
            create_revision: revision,
            now: Some(state),
            prev: Some(ClaimState { token: None, wants: Some(Mode::Exclusive), mode: Mode::Shared, ..state }),
            end: Some(EndReason::Forced),
            note: Reason::new("because").unwrap(),
            value: None,
            vacant: true,
        };
        let said = LockChange { value: Some(Value::new("leads").unwrap()), ..lock.clone() };
        let says_nothing = LockChange { value: Some(Value::EMPTY), ..lock.clone() };
        let value = |bytes: &[u8]| RegisterState {
            value: Value::new(bytes).unwrap(),
            lease: Some(lock.lease),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
        };
        let register = RegisterChange {
            key: Key::new("k").unwrap(),
            now: Some(value(b"now")),
            prev: Some(value(b"before")),
        };
        let deleted = RegisterChange { now: None, ..register.clone() };
        let nothing = LockChange { now: None, prev: None, end: None, note: Reason::NONE, ..lock.clone() };
        let locks = [lock, nothing, said, says_nothing].map(Change::Lock);
        for change in locks.into_iter().chain([register, deleted].map(Change::Register)) {
            let mut bytes = Vec::new();
            match &change {
                Change::Lock(lock) => pack_lock(revision, 500, &lock.borrowed(), &mut bytes),
                Change::Register(register) => pack_register(revision, 500, register, &mut bytes),
            }
            let head = head(&bytes);
            assert_eq!((head.revision, head.counts), (revision, 500));
            assert_eq!(head.body_bytes, bytes.len() - HEAD_BYTES);
            let event = Event { revision, change };
            assert_eq!(unpack(&bytes), event);
            let (name, key) = ("a name of more than twenty-two bytes", Key::new("k").unwrap());
            for watch in [
                Watch::All,
                Watch::Lock(Name::new(name).unwrap()),
                Watch::LockPrefix(b"a name".to_vec()),
                Watch::LockPrefix(b"another".to_vec()),
                Watch::Lease(LeaseId::new(5).unwrap()),
                Watch::Lease(LeaseId::new(6).unwrap()),
                Watch::Register(key),
                Watch::RegisterPrefix(b"kk".to_vec()),
            ] {
                assert_eq!(matches(&bytes, &watch), watch.matches(&event), "{watch:?}");
            }
        }
    }
}
