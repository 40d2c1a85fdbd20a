//! The fingerprints of requests, as golden values.
//!
//! A group keeps fingerprints that other binaries made, so they never change: not their bytes, not the hash. The bytes
//! follow docs/semantics.md, put together by hand; the hashes of them are the output of Debian's `xxhsum -H3`. Never
//! change a line; a field that a command gets later is in a line of its own.

use super::frames::state_records;
use crate::codec::{hex, unhex};
use crate::commands::{
    Replica, acquire, convert, grant, key, lease, names, owner, permits, proclaim, put, seq,
};
use tollgate_core::{
    AcquireLock, Against, Command, Compare, ConvertLock, KeySelector, Op, Proclaim, RangeQuery, Relation,
    ReleaseBy, ReleaseLock, Request, Scope, Sort, Txn,
};
use tollgate_types::{DurationMs, Limits, Mode, Owner, SeqRanges, Token, Value};
use xxhash_rust::xxh3::xxh3_64;

const LEASE: u64 = 300;

/// A title, the command, the bytes of its fingerprint in hex, and their hash.
type Golden = (&'static str, Command, &'static str, u64);

fn numbered(scope: Scope) -> Request {
    Request { seq: seq(1), acked: SeqRanges::default(), scope }
}

#[allow(clippy::unnecessary_wraps, reason = "it stands where an optional request is asked for")]
fn whole() -> Option<Request> {
    Some(numbered(Scope::Whole))
}

/// A request that is part of a request for a and b.
#[allow(clippy::unnecessary_wraps, reason = "as above")]
fn part() -> Option<Request> {
    Some(numbered(Scope::PartOf(Box::new(names(&["a", "b"])))))
}

fn locks() -> Vec<Golden> {
    let lock = |change: AcquireLock| Command::AcquireLock(AcquireLock { request: whole(), ..change });
    let shared = AcquireLock {
        owner: owner("w"),
        mode: Mode::Shared,
        lock_delay: DurationMs::from_ms(9),
        max_hold: Some(DurationMs::from_ms(300)),
        ..acquire(LEASE, &["b", "a"])
    };
    let permit = AcquireLock {
        mode: permits(2, 5),
        value: Some(Value::new("me").expect("short")),
        ..acquire(LEASE, &["a"])
    };
    let of_part = Command::AcquireLock(AcquireLock { request: part(), ..acquire(LEASE, &["a"]) });
    vec![
        // Tag, names, owner, mode, lock-delay, max hold, option of a value.
        (
            "two names, shared, with delays",
            lock(shared),
            "05 02 0161 0162 0177 01 09 ac02 00",
            0xc3f0_b79e_a4f5_b1fb,
        ),
        (
            "two permits of five, with a value",
            lock(permit),
            "05 01 0161 00 05 02 05 00 00 01 026d65",
            0x755b_8f5b_b9ec_af8e,
        ),
        ("a part", of_part, "05 02 0161 0162 00 00 00 00 00", 0x2a43_53b0_8109_7c0c),
    ]
}

fn releases() -> Vec<Golden> {
    let release = |owner: Owner, token: Option<u64>, request: Option<Request>| {
        let token = token.map(|token| Token::new(token).expect("above 0"));
        let by = ReleaseBy::Holder { lease: lease(LEASE), owner, token, request };
        Command::ReleaseLock(ReleaseLock { names: names(&["a"]), by })
    };
    vec![
        // Tag, names, owner, token.
        (
            "a release with a token",
            release(owner("w"), Some(7), whole()),
            "06 01 0161 0177 07",
            0x5be4_1535_7adb_918b,
        ),
        (
            "a release without one",
            release(Owner::LEASE, None, whole()),
            "06 01 0161 00 00",
            0xf1c9_2d9c_3896_3ea0,
        ),
        (
            "a part of a release",
            release(Owner::LEASE, None, part()),
            "06 02 0161 0162 00 00",
            0x4ef7_6e43_6502_9b9f,
        ),
    ]
}

fn others() -> Vec<Golden> {
    let convert = ConvertLock { request: whole(), ..convert(LEASE, "a", Mode::SharedIntentExclusive) };
    let Command::Proclaim(proclaim) = proclaim(LEASE, "a", 7, b"hi") else { unreachable!("it makes one") };
    let compare = Compare { key: key("k"), relation: Relation::Equal, against: Against::Version(3) };
    let get = RangeQuery { keys: KeySelector::Key(key("k")), limit: 10, sort: Sort::Key };
    let txn = Txn {
        request: Some((lease(LEASE), numbered(Scope::Whole))),
        compares: vec![compare],
        then: vec![put("k", b"v", Some(LEASE))],
        otherwise: vec![Op::Delete(KeySelector::Prefix(key("p"))), Op::Get(get)],
    };
    vec![
        // Tag, names, owner, mode.
        ("a convert", Command::ConvertLock(convert), "07 01 0161 00 04", 0x343d_97ad_bf9b_4469),
        // Tag, name, owner, token, value.
        (
            "a proclaim",
            Command::Proclaim(Proclaim { request: whole(), ..proclaim }),
            "12 0161 00 07 026869",
            0x7725_5a27_7d51_235a,
        ),
        // Tag; one compare: k, equal, version 3; one step: put k v, lease 300; two: delete prefix p, get k, 10, by key.
        (
            "a transaction",
            Command::Txn(txn),
            "0a 01 016b000203 01 00016b0176ac02 02 02010170 0100016b0a00",
            0x7473_0b02_68d1_ebf1,
        ),
    ]
}

#[test]
fn p10_fingerprints_stay_as_they_are() {
    assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2, "it is the usual xxh3");
    for (what, command, bytes, golden) in locks().into_iter().chain(releases()).chain(others()) {
        assert_eq!(xxh3_64(&unhex(bytes)), golden, "{what}: the page and the number");
        let mut replica = Replica::new(&Limits::DEFAULT, None);
        replica.at(1, grant(LEASE, 60_000));
        let kept = |replica: &Replica| {
            let records = state_records(&replica.state);
            records.windows(8).any(|window| window == golden.to_le_bytes())
        };
        assert!(!kept(&replica), "{what}: before it was asked for");
        // An outcome is kept, whether the command succeeds or not.
        replica.at(2, command);
        assert!(kept(&replica), "{what}: {} is kept under another number", hex(&unhex(bytes)));
    }
}
