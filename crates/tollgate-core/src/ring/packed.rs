//! Events as they lie in the ring: fixed fields first, then the strings.
//!
//! Made for writing: every lock operation packs one, few are ever read. It never leaves the process, so it is no
//! format that anything depends on; a snapshot writes events in the format of `format::events`.

use crate::event::{Change, ClaimState, Event, LockChange, RegisterChange, RegisterState};
use crate::format::{LockChanged, reason_from, reason_number};
use crate::watch::Watch;
use tollgate_types::{Key, LeaseId, Metadata, Mode, Name, Owner, Revision, Token, Value};

/// Revision, what it counts, length of what follows.
pub(super) const HEAD_BYTES: usize = 16;

/// Head and fixed fields of a change to a lock with both states, the longest there is.
const FIELDS_BYTES_MAX: usize = 140;

const CLAIM_STATE_BYTES: usize = 2 * 9 + 3 * 8;
const REGISTER_STATE_BYTES: usize = 4 * 8 + 4;

const HAS_NOW: u8 = 1;
const HAS_PREV: u8 = 2;
const VACANT: u8 = 4;
const REGISTER: u8 = 8;
const HAS_VALUE: u8 = 16;
const NO_REASON: u8 = u8::MAX;
const NO_MODE: u8 = u8::MAX;
const PERMIT: u8 = u8::MAX - 1;

/// The head of a packed event.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) revision: Revision,
    pub(super) counts: u64,
    pub(super) body_bytes: usize,
}

/// Fixed fields, gathered on the stack so that the ring is written in few pieces.
struct Fields {
    bytes: [u8; FIELDS_BYTES_MAX],
    len: usize,
}

impl Fields {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
    }

    #[inline]
    fn u64(&mut self, number: u64) {
        self.put(number.to_le_bytes());
    }

    #[inline]
    fn length(&mut self, bytes: &[u8]) {
        self.put(u32::try_from(bytes.len()).expect("strings are far below 4 GiB").to_le_bytes());
    }

    #[inline]
    fn mode(&mut self, mode: Option<Mode>) {
        let (tag, n, of) = match mode {
            None => (NO_MODE, 0, 0),
            Some(Mode::Permit { n, of }) => (PERMIT, n, of),
            Some(plain) => (u8::try_from(plain.index().expect("not a permit")).expect("five modes"), 0, 0),
        };
        self.put([tag]);
        self.put(n.to_le_bytes());
        self.put(of.to_le_bytes());
    }

    #[inline]
    fn claim_state(&mut self, state: &ClaimState) {
        self.mode(Some(state.mode));
        self.mode(state.wants);
        self.u64(state.token.map_or(0, Token::get));
        self.u64(state.mod_revision.get());
        self.u64(state.version);
    }

    fn register_state(&mut self, state: &RegisterState) {
        self.u64(state.lease.map_or(0, LeaseId::get));
        self.u64(state.create_revision.get());
        self.u64(state.mod_revision.get());
        self.u64(state.version);
        self.length(state.value.as_bytes());
    }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

/// Appends head, fixed fields and strings.
fn finish(mut fields: Fields, strings: &[&[u8]], out: &mut Vec<u8>) {
    let strings_bytes: usize = strings.iter().map(|bytes| bytes.len()).sum();
    let body = fields.len - HEAD_BYTES + strings_bytes;
    fields.bytes[12..16].copy_from_slice(&u32::try_from(body).expect("far below 4 GiB").to_le_bytes());
    out.extend_from_slice(&fields.bytes[..fields.len]);
    for bytes in strings.iter().filter(|bytes| !bytes.is_empty()) {
        out.extend_from_slice(bytes);
    }
}

fn start(revision: Revision, counts: u64) -> Fields {
    let mut fields = Fields { bytes: [0; FIELDS_BYTES_MAX], len: 0 };
    fields.u64(revision.get());
    fields.put(u32::try_from(counts).expect("an event is far below 4 GiB").to_le_bytes());
    fields.put([0; 4]);
    fields
}

pub(super) fn pack_lock(revision: Revision, counts: u64, changed: &LockChanged<'_>, out: &mut Vec<u8>) {
    let mut fields = start(revision, counts);
    let flags = flag(changed.now.is_some(), HAS_NOW)
        | flag(changed.prev.is_some(), HAS_PREV)
        | flag(changed.value.is_some(), HAS_VALUE)
        | flag(changed.vacant, VACANT);
    fields.put([flags, changed.end.map_or(NO_REASON, reason_number)]);
    fields.u64(changed.lease.get());
    fields.u64(changed.create_revision.get());
    let strings: [&[u8]; 4] = [
        changed.name.as_bytes(),
        changed.owner.as_bytes(),
        changed.metadata.as_bytes(),
        changed.note.as_bytes(),
    ];
    for bytes in strings {
        fields.length(bytes);
    }
    for state in [&changed.now, &changed.prev].into_iter().flatten() {
        fields.claim_state(state);
    }
    let Some(value) = changed.value else { return finish(fields, &strings, out) };
    fields.length(value.as_bytes());
    let [name, owner, metadata, note] = strings;
    finish(fields, &[name, owner, metadata, note, value.as_bytes()], out);
}

pub(super) fn pack_register(revision: Revision, counts: u64, change: &RegisterChange, out: &mut Vec<u8>) {
    let mut fields = start(revision, counts);
    fields.put([REGISTER | flag(change.now.is_some(), HAS_NOW) | flag(change.prev.is_some(), HAS_PREV)]);
    fields.length(change.key.as_bytes());
    let states = [&change.now, &change.prev];
    for state in states.into_iter().flatten() {
        fields.register_state(state);
    }
    let value = |state: &'_ Option<RegisterState>| -> Vec<u8> {
        state.as_ref().map_or_else(Vec::new, |state| state.value.as_bytes().to_vec())
    };
    let (now, prev) = (value(&change.now), value(&change.prev));
    finish(fields, &[change.key.as_bytes(), &now, &prev], out);
}

/// Reads what was packed. Anything else is a bug, so it panics.
struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().expect("as long as asked for")
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn revision(&mut self) -> Revision {
        Revision::new(self.u64()).expect(PACKED)
    }

    fn mode(&mut self) -> Option<Mode> {
        let ([tag], n, of) = (self.array(), self.u32(), self.u32());
        match tag {
            NO_MODE => None,
            PERMIT => Some(Mode::Permit { n, of }),
            index => Some(Mode::PLAIN[usize::from(index)]),
        }
    }

    fn claim_state(&mut self) -> ClaimState {
        ClaimState {
            mode: self.mode().expect(PACKED),
            wants: self.mode(),
            token: Some(self.u64()).filter(|token| *token > 0).map(|token| Token::new(token).expect(PACKED)),
            mod_revision: self.revision(),
            version: self.u64(),
        }
    }

    /// A register's state without its value, and the length of that.
    fn register_state(&mut self) -> (RegisterState, usize) {
        let state = RegisterState {
            value: Value::EMPTY,
            lease: Some(self.u64()).filter(|id| *id > 0).map(|id| LeaseId::new(id).expect(PACKED)),
            create_revision: self.revision(),
            mod_revision: self.revision(),
            version: self.u64(),
        };
        (state, self.u32() as usize)
    }
}

const PACKED: &str = "the ring holds what it was given";

pub(super) fn head(bytes: &[u8]) -> Head {
    let mut cursor = Cursor { bytes };
    Head { revision: cursor.revision(), counts: u64::from(cursor.u32()), body_bytes: cursor.u32() as usize }
}

/// Whether a watch wants the event that begins here, told without unpacking it.
pub(super) fn matches(bytes: &[u8], watch: &Watch) -> bool {
    let mut cursor = Cursor { bytes: &bytes[HEAD_BYTES..] };
    let [flags] = cursor.array();
    let states = (flags & (HAS_NOW | HAS_PREV)).count_ones() as usize;
    if flags & REGISTER == 0 {
        cursor.take(1 + 8 + 8);
        let name_bytes = cursor.u32() as usize;
        let value_bytes = if flags & HAS_VALUE == 0 { 0 } else { 4 };
        cursor.take(3 * 4 + states * CLAIM_STATE_BYTES + value_bytes);
        watch.matches_lock(cursor.take(name_bytes))
    } else {
        let key_bytes = cursor.u32() as usize;
        cursor.take(states * REGISTER_STATE_BYTES);
        watch.matches_register(cursor.take(key_bytes))
    }
}

/// The event that begins here.
pub(super) fn unpack(bytes: &[u8]) -> Event {
    let mut cursor = Cursor { bytes };
    let revision = cursor.revision();
    cursor.take(HEAD_BYTES - 8);
    let [flags] = cursor.array();
    let change = if flags & REGISTER == 0 {
        Change::Lock(unpack_lock(flags, cursor))
    } else {
        Change::Register(unpack_register(flags, cursor))
    };
    Event { revision, change }
}

fn unpack_lock(flags: u8, mut cursor: Cursor<'_>) -> LockChange {
    let [reason] = cursor.array();
    let lease = LeaseId::new(cursor.u64()).expect(PACKED);
    let create_revision = cursor.revision();
    let lengths: [usize; 4] = std::array::from_fn(|_| cursor.u32() as usize);
    let now = (flags & HAS_NOW != 0).then(|| cursor.claim_state());
    let prev = (flags & HAS_PREV != 0).then(|| cursor.claim_state());
    let value_bytes = (flags & HAS_VALUE != 0).then(|| cursor.u32() as usize);
    let [name, owner, metadata, note] = lengths.map(|len| cursor.take(len));
    LockChange {
        name: Name::new(name).expect(PACKED),
        lease,
        owner: Owner::new(owner).expect(PACKED),
        metadata: Metadata::new(metadata).expect(PACKED),
        create_revision,
        now,
        prev,
        end: reason_from(reason),
        note: Metadata::new(note).expect(PACKED),
        value: value_bytes.map(|len| Value::new(cursor.take(len)).expect(PACKED)),
        vacant: flags & VACANT != 0,
    }
}

fn unpack_register(flags: u8, mut cursor: Cursor<'_>) -> RegisterChange {
    let key_bytes = cursor.u32() as usize;
    let now = (flags & HAS_NOW != 0).then(|| cursor.register_state());
    let prev = (flags & HAS_PREV != 0).then(|| cursor.register_state());
    let key = Key::new(cursor.take(key_bytes)).expect(PACKED);
    let mut with_value = |state: Option<(RegisterState, usize)>| {
        state
            .map(|(state, len)| RegisterState { value: Value::new(cursor.take(len)).expect(PACKED), ..state })
    };
    RegisterChange { key, now: with_value(now), prev: with_value(prev) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::EndReason;

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
            note: Metadata::new("because").unwrap(),
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
        let nothing = LockChange { now: None, prev: None, end: None, note: Metadata::NONE, ..lock.clone() };
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
                Watch::Register(key),
                Watch::RegisterPrefix(b"kk".to_vec()),
            ] {
                assert_eq!(matches(&bytes, &watch), watch.matches(&event), "{watch:?}");
            }
        }
    }
}
