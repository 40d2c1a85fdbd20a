//! Hostile snapshots: bytes that are framed and checksummed as they should be, and still no snapshot of any state, made
//! by a broken or hostile node. Loading them is an error, or gives a state that is sound and has exactly these bytes.

use super::frames::{bytes_of, framed, load, records_of};
use super::rich::Rich;
use crate::codec::Rng;
use crate::commands::{
    Replica, acquire, confirm, convert, end_stub, grant, lock, lock_as, name, names, permits, put, register,
    request, revoke, stub, txn, unlock,
};
use crate::{fuzz, properties};
use std::sync::Arc;
use tollgate_core::{AcquireLock, Command, ConvertLock, Entry, State};
use tollgate_types::{GroupId, GroupMap, Limits, Mode, REVISION_END, Slot, Value};

const MUTATIONS: u64 = 40_000;

/// The records of snapshots of all kinds of states.
pub(crate) fn corpus_of_records() -> Vec<Vec<u8>> {
    let mut corpus = vec![records_of(&bytes_of(&Rich::new().replica.state))];
    for seed in 0..60 {
        let (limits, entries) = properties::entries(seed, 40);
        let mut replica = Replica::new(&limits, None);
        for entry in &entries {
            replica.apply(entry);
        }
        corpus.push(records_of(&bytes_of(&replica.state)));
    }
    corpus
}

/// Loads records as a snapshot with the right checksums. Panics unless they are refused, or make a state that is sound
/// and has the same bytes. Returns true if they make one.
pub(crate) fn is_refused_or_sound(records: &[u8]) -> bool {
    let Ok(state) = load(&framed(records)) else { return false };
    state.assert_invariants();
    assert_eq!(records_of(&bytes_of(&state)), records, "what loads is canonical");
    live_on(state);
    true
}

/// Checks that a state that loaded goes on without a panic: a few commands, and above all time.
fn live_on(mut state: State) {
    // The last revisions have a test of their own; no real group gets there.
    if state.revision().get() >= REVISION_END / 2 {
        return;
    }
    for command in [lock(1, "a"), lock_as(2, "sem", permits(1, 3)), lock(3, "c"), unlock(1, "a")] {
        state.apply(Entry::new(state.now(), command));
    }
    for command in [stub(4, 2), end_stub(5, 1), register(1, 1, 1), revoke(1), revoke(2)] {
        state.apply(Entry::new(state.now(), command));
        state.assert_invariants();
    }
    for _ in 0..20 {
        let Some(next) = state.next_deadline() else { break };
        state.apply(Entry::new(next, Command::Tick));
    }
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let corpus = corpus_of_records();
    let mut accepted = 0;
    for seed in 0..MUTATIONS {
        let records = fuzz::input(&mut Rng::new(seed), &corpus);
        accepted += u64::from(is_refused_or_sound(&records));
    }
    assert!(
        accepted > MUTATIONS / 1_000,
        "{accepted} of {MUTATIONS}: mutations that nothing survives test little"
    );
}

/// The records with one piece replaced.
fn with(records: &[u8], piece: &[u8], other: &[u8]) -> Vec<u8> {
    let at = records.windows(piece.len()).position(|window| window == piece).expect("the piece is there");
    [&records[..at], other, &records[at + piece.len()..]].concat()
}

/// Otherwise one state would have two encodings, with two hashes.
#[test]
fn kept_outcomes_in_another_order_are_refused() {
    let mut replica = old();
    replica.at(0, grant(1, 1_000));
    for number in 1..=2 {
        let not_held = ConvertLock { request: request(number), ..convert(1, "jobs", Mode::Shared) };
        replica.at(0, Command::ConvertLock(not_held));
    }
    let records = records_of(&bytes_of(&replica.state));
    // Two outcomes are kept: seq 1 and seq 2, both rejected (6) because the lock is not held (4).
    let swapped = with(&records, &[2, 1, 6, 4, 2, 6, 4], &[2, 2, 6, 4, 1, 6, 4]);
    assert!(load(&framed(&swapped)).is_err());
}

/// A replica at version 1, whose records are short.
fn old() -> Replica {
    Replica::at_version_1(&Limits::DEFAULT, GroupId::MAP, &Arc::new(GroupMap::single()), None)
}

/// Values in fields of format 2 that no state has.
#[test]
fn subjects_and_seqs_that_no_state_has_are_refused() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, grant(1, 1_000));
    // One name is in slot 13450, the other in 11155 (computed elsewhere): sorted, the slots are [11155, 13450].
    let not_held =
        ConvertLock { request: request(9), names: names(&["a", "b"]), ..convert(1, "a", Mode::Shared) };
    replica.at(0, Command::ConvertLock(not_held));
    let records = records_of(&bytes_of(&replica.state));
    let slots: Vec<_> = ["a", "b"].iter().map(|text| name(text).slot()).collect();
    let (low, high) = (slots[0].min(slots[1]), slots[0].max(slots[1]));
    let bytes = |slot: Slot| {
        let number = slot.number();
        [0x80 | u8::try_from(number & 0x7f).unwrap(), u8::try_from(number >> 7).unwrap()]
    };
    let (low, high) = (bytes(low), bytes(high));
    let listed = |pair: [[u8; 2]; 2]| [&[2][..], &pair[0], &pair[1]].concat();
    for pair in [[high, low], [low, low]] {
        assert!(load(&framed(&with(&records, &listed([low, high]), &listed(pair)))).is_err());
    }
    // The seqs of the lease begin at 0; seq 9 was seen.
    let seqs = |from: &[u8]| [from, &[1, 8, 0, 1, 9, 6, 4]].concat();
    assert!(load(&framed(&with(&records, &seqs(&[0]), &seqs(&[7])))).is_ok());
    let too_high = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert!(load(&framed(&with(&records, &seqs(&[0]), &seqs(&too_high)))).is_err());
    // Group 0 has all slots of the map of epoch 1; no lineage; then the lease.
    let head = |lineage: &[u8]| [&[0, 1, 1, 0, 0], lineage, &[2, 1, 1]].concat();
    let drawn = |number: u8| [&[1, number][..], &[0; 7]].concat();
    assert!(load(&framed(&with(&records, &head(&[0]), &head(&drawn(7))))).is_ok());
    assert!(load(&framed(&with(&records, &head(&[0]), &head(&drawn(0))))).is_err());
}

/// The upgrade of the rich state: to exclusive, queued at revision 8 and time 0, without a deadline, for seq 510.
const UPGRADE: [u8; 18] = [1, 0, 8, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 1, 254, 3, 0];

/// Otherwise the lock would be of two kinds once the upgrade is granted.
#[test]
fn an_upgrade_to_permits_is_refused() {
    let records = records_of(&bytes_of(&Rich::at_version_1().replica.state));
    let permits = [&[1, 5, 2, 3], &UPGRADE[2..]].concat();
    assert!(load(&framed(&with(&records, &UPGRADE, &permits))).is_err());
}

/// Otherwise a later wait that is queued at that revision would replace it.
#[test]
fn an_upgrade_from_the_future_is_refused() {
    let records = records_of(&bytes_of(&Rich::at_version_1().replica.state));
    let future = [&[1, 0, 127], &UPGRADE[3..]].concat();
    assert!(load(&framed(&with(&records, &UPGRADE, &future))).is_err());
    // Otherwise the time spent waiting would be negative.
    let since = [&[1, 0, 8, 0xff, 0xff, 0x7f], &UPGRADE[4..]].concat();
    assert!(load(&framed(&with(&records, &UPGRADE, &since))).is_err());
}

/// Otherwise nothing would ever wake the waiter, though something else is due.
#[test]
fn a_waiter_that_waits_for_nobody_is_refused() {
    let records = records_of(&bytes_of(&Rich::new().replica.state));
    let clean = with(&records, b"\x06\x0adirty-name", b"");
    assert!(load(&framed(&clean)).is_err());
}

/// Otherwise a repeat of the request would be answered with a grant that does not exist.
#[test]
fn a_waiter_that_was_converted_is_refused() {
    let mut replica = old();
    replica.at(0, grant(1, 1_000));
    replica.at(0, grant(2, 1_000));
    replica.at(0, lock(1, "jobs"));
    let waits = AcquireLock { request: request(1), ..acquire(2, &["jobs"]) };
    replica.at(0, Command::AcquireLock(waits));
    let records = records_of(&bytes_of(&replica.state));
    // Without a deadline, max hold or lock-delay; one seq, 1, of its Acquire (0), that waited (128); not anonymous, no
    // upgrade.
    let tail = |part: u8| [&[255; 9][..], &[1, 0, 0, 1, 1, part, 0, 0]].concat();
    assert!(load(&framed(&with(&records, &tail(128), &tail(129)))).is_err());
    // A wait that does not count as a wait would not be bounded.
    assert!(load(&framed(&with(&records, &tail(128), &tail(0)))).is_err());
    assert!(load(&framed(&with(&records, &tail(128), &tail(2)))).is_err());
}

/// A waiter that proclaims a value, or a holder that did so before its time.
#[test]
fn a_value_from_another_time_is_refused() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, grant(1, 1_000));
    replica.at(0, grant(2, 1_000));
    for id in 1..=2 {
        let value = Value::new("val").ok();
        replica.at(0, Command::AcquireLock(AcquireLock { value, ..acquire(id, &["jobs"]) }));
    }
    let records = records_of(&bytes_of(&replica.state));
    // Anonymous, and with a value: since revision 3 for the holder, and since none for the waiter; no upgrade.
    let said = |since: u8| [9, 3, b'v', b'a', b'l', since, 0];
    assert!(load(&framed(&records)).is_ok());
    for (was, is) in [(3, 2), (3, 4), (3, 0), (0, 3)] {
        assert!(load(&framed(&with(&records, &said(was), &said(is)))).is_err(), "{was} to {is}");
    }
}

/// Otherwise the next put would count past the greatest number.
#[test]
fn a_register_that_was_put_too_often_is_refused() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, txn(vec![put("k", b"v", None)]));
    let records = records_of(&bytes_of(&replica.state));
    let register = |version: u8| [5, 1, b'k', 0, 1, b'v', 0, 1, 1, version];
    assert!(load(&framed(&with(&records, &register(1), &register(2)))).is_err());
}

/// Otherwise the lease would be due at the moment of its renewal.
#[test]
fn a_lease_that_lives_for_no_time_is_refused() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, grant(1, 1_000));
    let records = records_of(&bytes_of(&replica.state));
    let lease = [2, 1, 1, 0xe8, 7, 0xe8, 7];
    assert!(load(&framed(&with(&records, &lease, &[2, 1, 1, 0, 0xe8, 7]))).is_err());
}

/// Record of a stub of lease 1, of incarnation 5 in group 2, added at revision 1.
fn stub_record(pending: u8, ended: &[u8], seen: &[u8]) -> Vec<u8> {
    [&[9, 1, 1, 5, 2, pending], ended, &[0, 0], seen, &[0]].concat()
}

fn records_with_a_stub(commands: impl IntoIterator<Item = Command>) -> Vec<u8> {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, stub(1, 5));
    for command in commands {
        replica.at(0, command);
    }
    records_of(&bytes_of(&replica.state))
}

#[test]
fn a_stub_that_was_used_before_it_was_confirmed_is_refused() {
    let records = records_with_a_stub([confirm(1, 5, 1), lock(1, "jobs")]);
    let pending = with(&records, &stub_record(0, &[0], &[0]), &stub_record(1, &[0], &[0]));
    assert!(load(&framed(&pending)).is_err());
    let records = records_with_a_stub([confirm(1, 5, 1), txn(vec![put("k", b"v", Some(1))])]);
    let pending = with(&records, &stub_record(0, &[0], &[0]), &stub_record(1, &[0], &[0]));
    assert!(load(&framed(&pending)).is_err());
    let records = records_with_a_stub([]);
    let seen = with(&records, &stub_record(1, &[0], &[0]), &stub_record(1, &[0], &[1, 0, 0]));
    assert!(load(&framed(&seen)).is_err());
}

/// Otherwise time would end the stub, or the number that stands for no end would.
#[test]
fn a_stub_with_a_deadline_is_refused() {
    let records = records_with_a_stub([]);
    let ended = |end: &[u8]| with(&records, &stub_record(1, &[0], &[0]), &stub_record(1, end, &[0]));
    assert!(load(&framed(&ended(&[1, 0, 2]))).is_ok(), "it has ended now");
    assert!(load(&framed(&ended(&[1, 1, 2]))).is_err(), "in the future");
    assert!(load(&framed(&ended(&[1, 0, 4]))).is_err(), "as no lease ends");
    let never = [&[1][..], &[255; 9], &[1, 2]].concat();
    assert!(load(&framed(&ended(&never))).is_err(), "at no time");
}

/// Lease 1 has ended, and groups 3 and 4 must be told: with a lease's reason, in order, and only if the lease has
/// ended.
#[test]
fn an_end_that_can_not_be_owed_is_refused() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, grant(1, 1_000));
    replica.at(0, register(1, 1, 3));
    replica.at(0, register(1, 1, 4));
    let living = records_of(&bytes_of(&replica.state));
    replica.at(0, revoke(1));
    let records = records_of(&bytes_of(&replica.state));
    let owed = |lease, incarnation, reason, groups: &[u8]| {
        let other = [&[11, lease, incarnation, reason], groups].concat();
        with(&records, &[11, 1, 1, 2, 2, 3, 4], &other)
    };
    assert!(load(&framed(&owed(1, 1, 3, &[2, 3, 4]))).is_ok());
    assert!(load(&framed(&owed(1, 1, 0, &[2, 3, 4]))).is_err(), "no lease ends as released");
    assert!(load(&framed(&owed(1, 1, 2, &[0]))).is_err(), "nobody is told");
    assert!(load(&framed(&owed(1, 1, 2, &[2, 4, 3]))).is_err(), "out of order");
    assert!(load(&framed(&owed(1, 1, 2, &[2, 3, 3]))).is_err(), "twice");
    assert!(load(&framed(&owed(1, 2, 2, &[2, 3, 4]))).is_err(), "of the future");
    // The lease with its groups, and the unacked end besides.
    let groups = [10, 1, 2, 3, 4];
    let both = with(&living, &groups, &[&groups[..], &[11, 1, 1, 2, 1, 5]].concat());
    assert!(load(&framed(&both)).is_err(), "it lives");
    let alone = with(&living, &groups, &[11, 1, 1, 2, 1, 5]);
    assert!(load(&framed(&alone)).is_err(), "it lives");
    assert!(load(&framed(&with(&living, &groups, &[10, 1, 0]))).is_err(), "no group");
    assert!(load(&framed(&with(&living, &groups, &[10, 2, 1, 3]))).is_err(), "of no lease");
}

#[test]
fn a_stub_with_stubs_is_refused() {
    let records = records_with_a_stub([]);
    let record = stub_record(1, &[0], &[0]);
    let groups = with(&records, &record, &[&record[..], &[10, 1, 1, 3]].concat());
    assert!(load(&framed(&groups)).is_err());
}
