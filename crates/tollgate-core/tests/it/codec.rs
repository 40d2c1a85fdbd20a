//! The log format: golden bytes, and the properties that hold for every entry.
#![allow(clippy::unwrap_used, reason = "the golden entries are made of constants")]

mod arbitrary;

pub(crate) use arbitrary::{Rng, arbitrary_entry};
use tollgate_core::{
    AckLeaseEnd, AcquireLock, AddStub, Against, CancelTarget, CancelWait, Command, Compare, ConfirmStub,
    ConvertLock, DecodeError, ENTRY_FORMAT_VERSION, EndDeadlock, EndStub, Entry, ForceRelease, GrantLease,
    KeySelector, LeaseChoice, LeaseEnd, Op, Proclaim, RENEWALS_MAX, RangeQuery, RegisterStub, Relation,
    ReleaseBy, ReleaseLock, RenewLeases, Renewal, Request, RevokeLease, Scope, Sort, TXN_STEPS_MAX, Txn,
    Wait, decode_entry, encode_command, encode_entry,
};
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, Key, LeaseId, Limits, Lineage, LogTime, Metadata, Mode, Name,
    Names, Owner, Reason, Revision, Seq, SeqRanges, Slot, Token, Value, WallTime,
};

pub(crate) fn encoded(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_entry(entry, &mut bytes);
    bytes
}

/// Encodes an entry in this format.
pub(crate) fn encoded_in(format: u8, entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(format, (entry.at, entry.wall), &entry.command, &mut bytes);
    bytes
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// Bytes of hex digits; spaces are for the reader.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits")).collect()
}

fn at(ms: u64, command: Command) -> Entry {
    Entry::new(LogTime::from_ms(ms), command)
}

fn names(texts: &[&str]) -> Names {
    Names::new(texts.iter().map(|text| Name::new(text).unwrap()).collect()).unwrap()
}

fn lease(id: u64) -> LeaseId {
    LeaseId::new(id).unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn request(seq: u64, acked: &[(u64, u64)]) -> Request {
    Request {
        seq: Seq::new(seq).unwrap(),
        acked: SeqRanges::new(acked.to_vec()).unwrap(),
        scope: Scope::Unsaid,
    }
}

/// Entries in format 1, which older binaries wrote: a change here would mean that their logs no longer decode. Never
/// change a line; a new format version gets lines of its own. The lines were computed from the layout that
/// `format::command` documents, not recorded from the encoder.
fn golden() -> Vec<(&'static str, Entry)> {
    let acquire = AcquireLock {
        names: names(&["jobs"]),
        lease: lease(300),
        owner: Owner::new("w1").unwrap(),
        mode: Mode::Exclusive,
        wait: Wait::For(DurationMs::from_ms(5_000)),
        lock_delay: DurationMs::ZERO,
        max_hold: Some(DurationMs::from_ms(60_000)),
        metadata: Metadata::new("why").unwrap(),
        value: None,
        attended: false,
        request: Some(request(7, &[(1, 6)])),
    };
    let plain_acquire = |mode| {
        let lock_delay = DurationMs::from_ms(1);
        let (owner, metadata) = (Owner::LEASE, Metadata::NONE);
        let names = names(&["a"]);
        let (wait, max_hold, request) = (Wait::No, None, None);
        let (lease, attended) = (lease(5), false);
        AcquireLock {
            names,
            lease,
            owner,
            mode,
            wait,
            lock_delay,
            max_hold,
            metadata,
            value: None,
            attended,
            request,
        }
    };
    let convert = |wait, request| ConvertLock {
        names: names(&["a"]),
        lease: lease(5),
        owner: Owner::LEASE,
        mode: Mode::permit(2, 3).unwrap(),
        wait,
        attended: false,
        request,
    };
    let value = |text: &str| Value::new(text).unwrap();
    let proclaim = |text: &str, request| Proclaim {
        name: Name::new("a").unwrap(),
        lease: lease(5),
        owner: Owner::LEASE,
        token: Token::new(9).unwrap(),
        value: value(text),
        request,
    };
    let end_deadlock = EndDeadlock {
        name: Name::new("a").unwrap(),
        create_revision: Revision::new(300).unwrap(),
        blocker: Token::new(9).unwrap(),
    };
    let release = |token: Option<u64>, request| ReleaseLock {
        names: names(&["b", "a"]),
        by: ReleaseBy::Holder {
            lease: lease(5),
            owner: Owner::LEASE,
            token: token.map(|token| Token::new(token).unwrap()),
            request,
        },
    };
    let cancel = |target, release_if_granted, acked: &[(u64, u64)]| CancelWait {
        lease: lease(5),
        target,
        release_if_granted,
        asks_max: None,
        acked: SeqRanges::new(acked.to_vec()).unwrap(),
    };
    let grant = |id, revoke_on_disconnect| GrantLease {
        id,
        ttl: DurationMs::from_secs(10),
        client_id: ClientId::new("c").unwrap(),
        address: Address::new("h").unwrap(),
        revoke_on_disconnect,
    };
    let renewals = vec![
        Renewal { lease: lease(1), address: None, acked: SeqRanges::default() },
        Renewal {
            lease: lease(2),
            address: Some(Address::new("h").unwrap()),
            acked: SeqRanges::new(vec![(2, 2), (5, 9)]).unwrap(),
        },
    ];
    let compare = |relation, against| Compare { key: key("k"), relation, against };
    let revision = |number| Revision::new(number).unwrap();
    let end_stub = |reason| EndStub { lease: lease(300), incarnation: revision(7), reason };
    let get = |keys, limit, sort| Op::Get(RangeQuery { keys, limit, sort });
    vec![
        ("01 ac02 01", at(300, Command::Tick)),
        ("01 ffffffffffffffffff01 01", at(u64::MAX, Command::Tick)),
        (
            "01 00 02 03 02 904e 0163 0168",
            at(0, Command::GrantLease(grant(LeaseChoice::Assigned(Slot::new(2).unwrap()), true))),
        ),
        (
            "01 00 02 00 ac02 904e 0163 0168",
            at(0, Command::GrantLease(grant(LeaseChoice::Chosen(lease(300)), false))),
        ),
        (
            "01 8001 03 02 01 00 00 02 01 0168 02 01 00 01 04",
            at(128, Command::RenewLeases(RenewLeases { renewals })),
        ),
        (
            "01 e807 04 05 01 0168",
            at(
                1_000,
                Command::RevokeLease(RevokeLease {
                    lease: lease(5),
                    disconnected: Some(Address::new("h").unwrap()),
                }),
            ),
        ),
        (
            "01 e807 04 05 00",
            at(1_000, Command::RevokeLease(RevokeLease { lease: lease(5), disconnected: None })),
        ),
        (
            "01 e807 05 0d 01 04 6a6f6273 ac02 02 7731 00 8827 00 e0d403 03 776879 07 01 00 05",
            at(1_000, Command::AcquireLock(acquire)),
        ),
        ("01 00 05 00 01 0161 05 00 00 01 00", at(0, Command::AcquireLock(plain_acquire(Mode::Exclusive)))),
        ("01 00 05 00 01 0161 05 00 01 01 00", at(0, Command::AcquireLock(plain_acquire(Mode::Shared)))),
        (
            "01 00 05 00 01 0161 05 00 02 01 00",
            at(0, Command::AcquireLock(plain_acquire(Mode::IntentShared))),
        ),
        (
            "01 00 05 00 01 0161 05 00 03 01 00",
            at(0, Command::AcquireLock(plain_acquire(Mode::IntentExclusive))),
        ),
        (
            "01 00 05 00 01 0161 05 00 04 01 00",
            at(0, Command::AcquireLock(plain_acquire(Mode::SharedIntentExclusive))),
        ),
        (
            "01 00 06 06 02 0161 0162 05 00 09 04 00",
            at(0, Command::ReleaseLock(release(Some(9), Some(request(4, &[]))))),
        ),
        ("01 00 06 02 02 0161 0162 05 00 09", at(0, Command::ReleaseLock(release(Some(9), None)))),
        (
            "01 00 06 04 02 0161 0162 05 00 04 00",
            at(0, Command::ReleaseLock(release(None, Some(request(4, &[]))))),
        ),
        (
            "01 00 06 01 01 0161 09",
            at(
                0,
                Command::ReleaseLock(ReleaseLock {
                    names: names(&["a"]),
                    by: ReleaseBy::Token(Token::new(9).unwrap()),
                }),
            ),
        ),
        ("01 00 07 02 01 0161 05 00 05 02 03", at(0, Command::ConvertLock(convert(Wait::Forever, None)))),
        (
            "01 00 07 09 01 0161 05 00 05 02 03 64 04 00",
            at(0, Command::ConvertLock(convert(Wait::For(DurationMs::from_ms(100)), Some(request(4, &[]))))),
        ),
        (
            "01 01 08 01 05 03 00",
            at(1, Command::CancelWait(cancel(CancelTarget::Seq(Seq::new(3).unwrap()), true, &[]))),
        ),
        (
            "01 01 08 02 05 0161 01 77 01 02 00",
            at(
                1,
                Command::CancelWait(cancel(
                    CancelTarget::Waiter { name: Name::new("a").unwrap(), owner: Owner::new("w").unwrap() },
                    false,
                    &[(3, 3)],
                )),
            ),
        ),
        (
            "01 00 05 10 01 0161 05 00 00 01 00",
            at(0, Command::AcquireLock(AcquireLock { attended: true, ..plain_acquire(Mode::Exclusive) })),
        ),
        (
            "01 00 05 28 01 0161 05 00 00 01 00 0176 04 00",
            at(
                0,
                Command::AcquireLock(AcquireLock {
                    value: Some(value("v")),
                    request: Some(request(4, &[])),
                    ..plain_acquire(Mode::Exclusive)
                }),
            ),
        ),
        ("01 00 12 00 0161 05 00 09 00", at(0, Command::Proclaim(proclaim("", None)))),
        ("01 00 13 0161 ac02 09", at(0, Command::EndDeadlock(end_deadlock))),
        (
            "01 00 12 01 0161 05 00 09 0176 04 00",
            at(0, Command::Proclaim(proclaim("v", Some(request(4, &[]))))),
        ),
        (
            "01 00 07 12 01 0161 05 00 05 02 03",
            at(0, Command::ConvertLock(ConvertLock { attended: true, ..convert(Wait::Forever, None) })),
        ),
        (
            "01 01 08 0c 05 0161 09 02 00",
            at(
                1,
                Command::CancelWait(CancelWait {
                    asks_max: Some(2),
                    ..cancel(
                        CancelTarget::Wait { name: Name::new("a").unwrap(), create_revision: revision(9) },
                        false,
                        &[],
                    )
                }),
            ),
        ),
        (
            "01 00 09 0161 09 02 6e6f",
            at(
                0,
                Command::ForceRelease(ForceRelease {
                    name: Name::new("a").unwrap(),
                    token: Token::new(9).unwrap(),
                    reason: Reason::new("no").unwrap(),
                }),
            ),
        ),
        (
            "01 00 0a 01 05 04 00 \
             06 016b 00 00 08  016b 01 01 08  016b 02 02 ac02  016b 03 03 0176  016b 00 04 00  016b 00 04 05 \
             04 00 016b 0176 00  00 016b 00 05  02 00 016b  02 02 \
             04 01 00 016b 00 00  01 01 016b 0a 01  01 02 ac02 02  01 02 00 03",
            at(
                0,
                Command::Txn(Txn {
                    request: Some((lease(5), request(4, &[]))),
                    compares: vec![
                        compare(Relation::Equal, Against::Create(revision(8))),
                        compare(Relation::NotEqual, Against::Mod(revision(8))),
                        compare(Relation::Less, Against::Version(300)),
                        compare(Relation::Greater, Against::Value(value("v"))),
                        compare(Relation::Equal, Against::Lease(None)),
                        compare(Relation::Equal, Against::Lease(Some(lease(5)))),
                    ],
                    then: vec![
                        Op::Put { key: key("k"), value: value("v"), lease: None },
                        Op::Put { key: key("k"), value: value(""), lease: Some(lease(5)) },
                        Op::Delete(KeySelector::Key(key("k"))),
                        Op::Delete(KeySelector::All),
                    ],
                    otherwise: vec![
                        get(KeySelector::Key(key("k")), 0, Sort::Key),
                        get(KeySelector::Prefix(key("k")), 10, Sort::KeyDescending),
                        get(KeySelector::All, 300, Sort::Create),
                        get(KeySelector::All, 0, Sort::CreateDescending),
                    ],
                }),
            ),
        ),
        (
            "01 00 0a 00 00 00 00",
            at(0, Command::Txn(Txn { request: None, compares: vec![], then: vec![], otherwise: vec![] })),
        ),
        (
            "01 00 0b 16 8004 8020 80ade204 c0843d 80897a 904e 904e 10 8008 64 \
             c0cf24 e0d403 904e c0843d 808004 8001 904e 80808020 e807 a09c01 904e a08d06",
            at(0, Command::SetLimits(Box::new(Limits::DEFAULT))),
        ),
        ("01 00 0c 02", at(0, Command::RaiseApplyVersion(2))),
        ("01 00 0c ffffffff0f", at(0, Command::RaiseApplyVersion(u32::MAX))),
        (
            "01 00 0d ac02 07 0163 02",
            at(
                0,
                Command::AddStub(AddStub {
                    lease: lease(300),
                    incarnation: revision(7),
                    client_id: ClientId::new("c").unwrap(),
                    home: GroupId::new(2),
                }),
            ),
        ),
        (
            "01 00 0e ac02 07 8001",
            at(
                0,
                Command::ConfirmStub(ConfirmStub {
                    lease: lease(300),
                    incarnation: revision(7),
                    added: revision(128),
                }),
            ),
        ),
        ("01 00 0f ac02 07 01", at(0, Command::EndStub(end_stub(LeaseEnd::Expired)))),
        ("01 00 0f ac02 07 02", at(0, Command::EndStub(end_stub(LeaseEnd::Revoked)))),
        ("01 00 0f ac02 07 03", at(0, Command::EndStub(end_stub(LeaseEnd::Disconnected)))),
        (
            "01 00 10 ac02 07 ffffffff0f",
            at(
                0,
                Command::RegisterStub(RegisterStub {
                    lease: lease(300),
                    incarnation: revision(7),
                    group: GroupId::new(u32::MAX),
                }),
            ),
        ),
        (
            "01 00 11 ac02 07 00",
            at(
                0,
                Command::AckLeaseEnd(AckLeaseEnd {
                    lease: lease(300),
                    incarnation: revision(7),
                    group: GroupId::MAP,
                }),
            ),
        ),
    ]
}

/// Entries that format 2 encodes differently from format 1: the wall time after the log time, the scope after a
/// request, a name after the seq of a cancel; and the lineage.
fn golden_of_format_2() -> Vec<(&'static str, Entry)> {
    let wall = WallTime::from_unix_ms(300);
    let entry = |command| Entry { at: LogTime::from_ms(1), wall, command };
    let acquire = |scope| AcquireLock {
        names: names(&["a"]),
        lease: lease(5),
        owner: Owner::LEASE,
        mode: Mode::Exclusive,
        wait: Wait::Forever,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: Metadata::NONE,
        value: None,
        attended: false,
        request: Some(Request { scope, ..request(7, &[(1, 6)]) }),
    };
    let cancel = |target| CancelWait {
        lease: lease(5),
        target,
        release_if_granted: true,
        asks_max: None,
        acked: SeqRanges::default(),
    };
    let seq = Seq::new(3).unwrap();
    let part_of = Scope::PartOf(Box::new(names(&["a", "b"])));
    let by = ReleaseBy::Holder {
        lease: lease(5),
        owner: Owner::LEASE,
        token: None,
        request: Some(Request { scope: part_of.clone(), ..request(8, &[]) }),
    };
    vec![
        ("02 01 ac02 01", entry(Command::Tick)),
        ("02 01 00 01", at(1, Command::Tick)),
        (
            "02 01 ac02 05 0a 01 0161 05 00 00 00 00 07 01 00 05 00",
            entry(Command::AcquireLock(acquire(Scope::Whole))),
        ),
        (
            "02 01 ac02 05 0a 01 0161 05 00 00 00 00 07 01 00 05 01 02 0161 0162",
            entry(Command::AcquireLock(acquire(part_of))),
        ),
        (
            "02 01 ac02 06 04 01 0161 05 00 08 00 01 02 0161 0162",
            entry(Command::ReleaseLock(ReleaseLock { names: names(&["a"]), by })),
        ),
        ("02 01 ac02 08 01 05 03 00", entry(Command::CancelWait(cancel(CancelTarget::Seq(seq))))),
        (
            "02 01 ac02 08 11 05 03 0161 00",
            entry(Command::CancelWait(cancel(CancelTarget::SeqOn { seq, name: Name::new("a").unwrap() }))),
        ),
        (
            "02 01 ac02 14 0807060504030201",
            entry(Command::SetLineage(Lineage::new(0x0102_0304_0506_0708).unwrap())),
        ),
    ]
}

/// Entries that format 3 encodes differently from format 2: metadata that is not plain text.
fn golden_of_format_3() -> Vec<(&'static str, Entry)> {
    let entry = |bytes: &[u8]| Entry {
        at: LogTime::from_ms(1),
        wall: WallTime::from_unix_ms(300),
        command: Command::AcquireLock(AcquireLock {
            names: names(&["a"]),
            lease: lease(5),
            owner: Owner::LEASE,
            mode: Mode::Exclusive,
            wait: Wait::No,
            lock_delay: DurationMs::ZERO,
            max_hold: None,
            metadata: Metadata::new(bytes).unwrap(),
            value: None,
            attended: false,
            request: None,
        }),
    };
    vec![
        ("03 01 ac02 05 00 01 0161 05 00 00 00 00", entry(b"")),
        ("03 01 ac02 05 00 01 0161 05 00 00 00 04 7b0a097d", entry(b"{\n\t}")),
        ("03 01 ac02 05 00 01 0161 05 00 00 00 03 00ff80", entry(b"\0\xff\x80")),
    ]
}

#[test]
fn the_log_format_stays_as_it_is() {
    for (golden, entry) in golden_of_format_3() {
        let golden = unhex(golden);
        assert_eq!(hex(&encoded(&entry)), hex(&golden), "{entry:?}");
        assert_eq!(decode_entry(&golden), Ok(entry));
    }
    // Every other entry is as in format 2, except for the version.
    for (golden, entry) in golden_of_format_2() {
        let newer = [&[3], &unhex(golden)[1..]].concat();
        assert_eq!(hex(&encoded(&entry)), hex(&newer), "{entry:?}");
        assert_eq!(decode_entry(&newer), Ok(entry));
    }
}

/// P12: input that a binary that knows only format 2 refuses is refused by this binary in format 2 as well, and never
/// written.
#[test]
fn p12_formats_before_3_have_no_metadata_but_plain_text() {
    for (golden, entry) in &golden_of_format_3()[1..] {
        let mut golden = unhex(golden);
        golden[0] = 2;
        let at = golden.len() - 1 - entry_metadata(entry).len();
        let refused = decode_entry(&golden).unwrap_err();
        assert!(matches!(refused, DecodeError::Invalid { at: found, .. } if found == at), "{refused:?}");
        // Format 1 has no wall time.
        golden[0] = 1;
        golden.drain(2..4);
        assert!(matches!(decode_entry(&golden), Err(DecodeError::Invalid { .. })));
        for format in [1, 2] {
            let written = std::panic::catch_unwind(|| encoded_in(format, entry));
            assert!(written.is_err(), "format {format}: {entry:?}");
            let mut fitted = entry.clone();
            fitted.command.fit_into(format);
            let read = decode_entry(&encoded_in(format, &fitted)).unwrap();
            assert_eq!(read.command, fitted.command, "who kept it has what others read");
            assert_eq!(entry_metadata(&read).len(), entry_metadata(entry).len());
        }
    }
}

fn entry_metadata(entry: &Entry) -> &Metadata {
    let Command::AcquireLock(acquire) = &entry.command else { panic!("{entry:?} has none") };
    &acquire.metadata
}

#[test]
fn the_log_format_2_is_read_and_written() {
    for (golden, entry) in golden_of_format_2() {
        let golden = unhex(golden);
        assert_eq!(hex(&encoded_in(2, &entry)), hex(&golden), "{entry:?}");
        assert_eq!(decode_entry(&golden), Ok(entry));
    }
    for (golden, entry) in golden() {
        // Format 2 has the same bytes as format 1 after the wall time, and ends with the scope of a request.
        let (golden, mut entry) = (unhex(golden), entry);
        let time = (1..golden.len()).find(|i| golden[*i] < 0x80).unwrap() + 1;
        entry = with_scope(entry, &Scope::Whole);
        let (head, body) = (&golden[1..time], &golden[time..]);
        let newer = encoded_in(2, &entry);
        assert!(newer.starts_with(&[&[2], head, &[0]].concat()), "{entry:?}");
        let extra = usize::from(has_request(&entry));
        assert_eq!(newer.len(), golden.len() + 1 + extra, "{entry:?}");
        if extra == 0 {
            assert_eq!(newer[time + 1..], *body, "{entry:?}");
        }
        assert_eq!(decode_entry(&newer), Ok(entry));
    }
}

fn with_scope(mut entry: Entry, scope: &Scope) -> Entry {
    if let Some((_, request)) = crate::properties::request_of_mut(&mut entry.command) {
        request.scope = scope.clone();
    }
    entry
}

fn has_request(entry: &Entry) -> bool {
    crate::properties::request_of_mut(&mut entry.clone().command).is_some()
}

#[test]
fn what_has_no_place_in_a_format_is_taken_away_before() {
    let mut rng = Rng::new(5);
    for _ in 0..2_000 {
        let mut entry = arbitrary_entry(&mut rng);
        if matches!(entry.command, Command::SetLineage(_)) {
            continue;
        }
        entry.wall = WallTime::UNKNOWN;
        let whole = entry.clone();
        entry.command.fit_into(3);
        assert_eq!(entry, whole, "format 3 has a place for everything");
        entry.command.fit_into(2);
        assert_eq!(decode_entry(&encoded_in(2, &entry)).as_ref(), Ok(&entry), "as below");
        entry.command.fit_into(1);
        assert_eq!(decode_entry(&encoded_in(1, &entry)), Ok(entry), "who kept it has what others read");
    }
}

#[test]
fn the_log_format_of_the_version_before_is_read() {
    let mut tags = std::collections::BTreeSet::new();
    for (golden, entry) in golden() {
        let golden = unhex(golden);
        assert_eq!(hex(&encoded_in(1, &entry)), hex(&golden), "{entry:?}");
        assert_eq!(decode_entry(&golden), Ok(entry));
        let log_time_end = (1..golden.len()).find(|i| golden[*i] < 0x80).unwrap();
        tags.insert(golden[log_time_end + 1]);
    }
    assert!(tags.into_iter().eq(1..=19), "every command has a line");
}

#[test]
fn what_was_encoded_decodes_to_itself() {
    let mut rng = Rng::new(1);
    let mut out = b"what was there".to_vec();
    for _ in 0..5_000 {
        let entry = arbitrary_entry(&mut rng);
        let bytes = encoded(&entry);
        assert_eq!(decode_entry(&bytes).as_ref(), Ok(&entry));
        out.truncate(14);
        encode_entry(&entry, &mut out);
        assert_eq!(out[14..], bytes, "it is appended");
    }
    assert!(out.starts_with(b"what was there"));
}

#[test]
fn an_entry_that_is_cut_short_or_goes_on_is_refused() {
    let mut rng = Rng::new(2);
    for _ in 0..1_000 {
        let mut bytes = encoded(&arbitrary_entry(&mut rng));
        if bytes.len() > 2_000 {
            continue;
        }
        for length in 0..bytes.len() {
            let result = decode_entry(&bytes[..length]);
            assert!(
                matches!(result, Err(DecodeError::Truncated { at }) if at <= length),
                "{length}: {result:?}"
            );
        }
        let at = bytes.len();
        bytes.extend([0, 0]);
        assert_eq!(decode_entry(&bytes), Err(DecodeError::Trailing { at, extra: 2 }));
    }
}

#[test]
fn a_flipped_bit_is_refused_or_makes_another_entry() {
    let mut rng = Rng::new(3);
    let (mut refused, mut other) = (0, 0);
    for _ in 0..1_000 {
        let entry = arbitrary_entry(&mut rng);
        let mut bytes = encoded(&entry);
        if bytes.len() > 500 {
            continue;
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(decoded) = decode_entry(&bytes) {
                assert_eq!(encoded_in(bytes[0], &decoded), bytes, "{decoded:?}");
                // The bytes of two formats may be the same except for the version.
                assert!(decoded != entry || bytes[0] != ENTRY_FORMAT_VERSION, "{decoded:?}");
                other += 1;
            } else {
                refused += 1;
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(refused > 1_000 && other > 1_000, "{refused} refused, {other} other entries");
}

#[test]
fn an_unknown_version_or_tag_is_refused() {
    for found in (0..=255).filter(|version| !(1..=ENTRY_FORMAT_VERSION).contains(version)) {
        let error = DecodeError::UnsupportedVersion { what: "entry", found, supported: ENTRY_FORMAT_VERSION };
        assert_eq!(decode_entry(&[found, 0, 1]), Err(error));
    }
    for tag in (0..=255).filter(|tag| !(1..=20).contains(tag)) {
        let error = DecodeError::UnknownTag { what: "command", tag, at: 3 };
        assert_eq!(decode_entry(&[2, 0, 0, tag]), Err(error));
    }
    let error = DecodeError::UnknownTag { what: "command", tag: 20, at: 2 };
    assert_eq!(decode_entry(&[1, 0, 20, 1, 0, 0, 0, 0, 0, 0, 0]), Err(error), "format 1 has no lineage");
}

/// Each case is a golden entry with one value that its constructor, or the canonical form, does not allow.
#[test]
fn a_refusal_says_what_is_wrong_and_where() {
    let cases = [
        ("", "byte 0: the value here is cut off by the end of the input"),
        ("04 00 01", "the entry has format version 4: this binary reads up to version 3"),
        (
            "02 00 00 05 00 01 0161 05 00 00 00 02 610a",
            "byte 12: metadata has the control character 0x0a at byte 1: use printable text",
        ),
        ("02 00 00 05 00 01 0161 05 00 00 00 01 ff", "byte 12: metadata is not UTF-8 from byte 0 on"),
        (
            "03 00 00 05 00 01 0161 05 00 00 00 8120",
            "byte 12: metadata of length 4097: at most 4096 is possible",
        ),
        ("03 00 00 09 0161 05 01 ff", "byte 7: reason is not UTF-8 from byte 0 on"),
        ("02 00 00 14 0000000000000000", "byte 4: lineage is empty: give it at least one byte"),
        ("02 00 00 08 12 05 0161 0161 00", "byte 4: 0x12 is not a known flags of a cancel"),
        ("01 00 08 10 05 03 0161 00", "byte 3: 0x10 is not a known flags of a cancel"),
        ("02 00 00 06 04 01 0161 05 00 08 00 02", "byte 12: 0x02 is not a known names of the whole request"),
        ("01 8000 01", "byte 1: this number has more bytes than it needs or can have"),
        ("01 00 01 00", "byte 3: the value ends here, but 1 more bytes follow"),
        ("01 00 02 04 05 00 00 00", "byte 3: 0x04 is not a known flags of a grant"),
        ("01 00 02 02 808001 00 00 00", "byte 4: slot is 16384: it must be from 0 to 16383"),
        ("01 00 03 a18d06", "byte 3: renewals of length 100001: at most 100000 is possible"),
        ("01 00 03 a08d06", "byte 3: the value here is cut off by the end of the input"),
        ("01 00 04 00 00", "byte 3: lease id is 0: it must be from 1 to 9223372036854775807"),
        ("01 00 04 05 02", "byte 4: 0x02 is not a known option of a revoke"),
        ("01 00 05 03 01 0161 05 00 00 00 00", "byte 3: 0x03 is not a known flags of an acquire"),
        ("01 00 05 00 00 05 00 00 00 00", "byte 4: names is empty: give it at least one byte"),
        (
            "01 00 05 00 02 0162 0161 05 00 00 00 00",
            "byte 7: this element of names comes before the one ahead of it: they must be sorted",
        ),
        ("01 00 05 00 02 0161 0161 05 00 00 00 00", r#"byte 4: names has "a" twice: name each once"#),
        (
            "01 00 05 00 01 010a 05 00 00 00 00",
            "byte 5: name has the control character 0x0a at byte 0: use printable text",
        ),
        ("01 00 05 00 01 0161 05 41", "byte 8: owner of length 65: at most 64 is possible"),
        (
            "01 00 05 00 01 0161 05 00 05 03 02 00 00",
            "byte 9: permits asked for is 3: it must be from 1 to 2",
        ),
        ("01 00 06 03 01 0161 09", "byte 3: 0x03 is not a known flags of a release"),
        ("01 00 06 01 01 0161 00", "byte 7: fencing token is 0: it must be from 1 to 9007199254740991"),
        ("01 00 08 00 05 03 41", "byte 6: seq ranges of length 65: at most 64 is possible"),
        ("01 00 0a 00 8108", "byte 4: compares of length 1025: at most 1024 is possible"),
        ("01 00 0a 00 00 8108", "byte 5: steps of then of length 1025: at most 1024 is possible"),
        ("01 00 0a 00 00 01 03 02 00", "byte 6: 0x03 is not a known step of a transaction"),
        ("01 00 0b 13", "byte 3: the value here is cut off by the end of the input"),
        ("01 00 0f 05 07 04", "byte 5: 0x04 is not a known end of a lease"),
        ("01 00 10 05 07 8080808010", "byte 5: group is 4294967296: it must be from 0 to 4294967295"),
        ("01 00 0c 8080808010", "byte 3: apply version is 4294967296: it must be from 0 to 4294967295"),
    ];
    for (bytes, says) in cases {
        assert_eq!(decode_entry(&unhex(bytes)).unwrap_err().to_string(), says, "{bytes}");
    }
}

#[test]
fn the_longest_lists_have_room() {
    let renewal = Renewal { lease: lease(1), address: None, acked: SeqRanges::default() };
    let renew = at(0, Command::RenewLeases(RenewLeases { renewals: vec![renewal; RENEWALS_MAX] }));
    let compare = Compare { key: key("k"), relation: Relation::Equal, against: Against::Version(0) };
    let delete = Op::Delete(KeySelector::All);
    let txn = at(
        0,
        Command::Txn(Txn {
            request: None,
            compares: vec![compare; TXN_STEPS_MAX],
            then: vec![delete.clone(); TXN_STEPS_MAX],
            otherwise: vec![delete; TXN_STEPS_MAX],
        }),
    );
    for entry in [renew, txn] {
        assert_eq!(decode_entry(&encoded(&entry)), Ok(entry));
    }
}
