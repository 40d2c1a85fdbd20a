//! Random entries: every kind, every optional field, every length that a field can have.

use tollgate_core::{
    AckLeaseEnd, AcquireLock, AddStub, Against, CancelTarget, CancelWait, Command, Compare, ConfirmStub,
    ConvertLock, EndDeadlock, EndStub, Entry, ForceRelease, GrantLease, KeySelector, LeaseChoice, LeaseEnd,
    Op, Proclaim, RangeQuery, RegisterStub, Relation, ReleaseBy, ReleaseLock, RenewLeases, Renewal, Request,
    RevokeLease, Scope, Sort, Txn, Wait,
};
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, Key, LeaseId, Limit, Limits, Lineage, LogTime, Metadata, Mode,
    Name, Names, Owner, REVISION_END, Reason, Revision, SEQ_RANGES_MAX, SLOTS, Seq, SeqRanges, Slot, Token,
    Value, WallTime,
};

/// splitmix64: small, and good enough to pick test data.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A number from `min` to `max`: all lengths in bits are about as likely, and so are both ends.
    fn number(&mut self, min: u64, max: u64) -> u64 {
        match self.below(16) {
            0 => min,
            1 => max,
            _ => {
                let shift = self.below(64);
                (self.next() >> shift).clamp(min, max)
            }
        }
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
        if self.one_in(2) { Some(make(self)) } else { None }
    }

    /// A length, mostly short; sometimes the longest allowed.
    fn length(&mut self, min: usize, max: usize) -> usize {
        let long = if self.one_in(64) { max } else { max.min(40) };
        min + self.below(long - min + 1)
    }

    fn bytes(&mut self, min: usize, max: usize) -> Vec<u8> {
        (0..self.length(min, max)).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    fn text(&mut self, min: usize, max: usize) -> String {
        const LETTERS: [char; 8] = ['a', 'b', '/', '{', '}', '0', 'é', '門'];
        let mut text = String::new();
        let length = self.length(min, max);
        while text.len() < length {
            let letter = LETTERS[self.below(LETTERS.len())];
            text.push(if text.len() + letter.len_utf8() > max { 'z' } else { letter });
        }
        text
    }
}

fn arbitrary_name(rng: &mut Rng) -> Name {
    Name::new(rng.text(1, Name::BYTES_MAX)).expect("made to be valid")
}

fn arbitrary_names(rng: &mut Rng) -> Names {
    let count = if rng.one_in(3) { 1 + rng.below(8) } else { 1 };
    let mut names: Vec<Name> = (0..count).map(|_| arbitrary_name(rng)).collect();
    names.sort();
    names.dedup();
    Names::new(names).expect("each once")
}

fn arbitrary_key(rng: &mut Rng) -> Key {
    Key::new(rng.bytes(1, Key::BYTES_MAX)).expect("made to be valid")
}

fn arbitrary_value(rng: &mut Rng) -> Value {
    Value::new(rng.bytes(0, Value::BYTES_MAX)).expect("made to be valid")
}

fn arbitrary_owner(rng: &mut Rng) -> Owner {
    Owner::new(rng.text(0, Owner::BYTES_MAX)).expect("made to be valid")
}

fn arbitrary_address(rng: &mut Rng) -> Address {
    Address::new(rng.text(0, Address::BYTES_MAX)).expect("made to be valid")
}

fn arbitrary_metadata(rng: &mut Rng) -> Metadata {
    Metadata::new(rng.bytes(0, Metadata::BYTES_MAX)).expect("made to be valid")
}

fn arbitrary_reason(rng: &mut Rng) -> Reason {
    Reason::new(rng.text(0, Reason::BYTES_MAX)).expect("made to be valid")
}

fn arbitrary_lease(rng: &mut Rng) -> LeaseId {
    LeaseId::new(rng.number(1, (1 << 63) - 1)).expect("in range")
}

fn arbitrary_token(rng: &mut Rng) -> Token {
    Token::new(rng.number(1, REVISION_END - 1)).expect("in range")
}

fn arbitrary_revision(rng: &mut Rng) -> Revision {
    Revision::new(rng.number(0, REVISION_END - 1)).expect("in range")
}

fn arbitrary_seq(rng: &mut Rng) -> Seq {
    Seq::new(rng.number(1, REVISION_END - 1)).expect("in range")
}

fn arbitrary_duration(rng: &mut Rng) -> DurationMs {
    DurationMs::from_ms(rng.number(0, u64::MAX))
}

fn arbitrary_acked(rng: &mut Rng) -> SeqRanges {
    let count = [0, 0, 0, 1, 1, 2, 3, SEQ_RANGES_MAX][rng.below(8)];
    let mut ranges = Vec::new();
    let mut from_min = 1;
    for _ in 0..count {
        // Near enough for the last range to stay in range; a single range may be anywhere.
        let near = if count == 1 { REVISION_END - 1 } else { 1 << 40 };
        let from = rng.number(from_min, from_min.max(near.min(from_min + (1 << 30))));
        let to = if count == 1 { rng.number(from, near) } else { rng.number(from, from + 1_000) };
        ranges.push((from, to));
        from_min = to + 2;
    }
    SeqRanges::new(ranges).expect("sorted, with gaps")
}

fn arbitrary_request(rng: &mut Rng) -> Request {
    let scope = if rng.one_in(4) { Scope::PartOf(Box::new(arbitrary_names(rng))) } else { Scope::Whole };
    Request { seq: arbitrary_seq(rng), acked: arbitrary_acked(rng), scope }
}

fn arbitrary_mode(rng: &mut Rng) -> Mode {
    if let Some(mode) = Mode::PLAIN.get(rng.below(7)) {
        return *mode;
    }
    let permits =
        |rng: &mut Rng, max: u32| u32::try_from(rng.number(1, u64::from(max))).expect("at most PERMITS_MAX");
    let of = permits(rng, Mode::PERMITS_MAX);
    Mode::permit(permits(rng, of), of).expect("in range")
}

fn arbitrary_wait(rng: &mut Rng) -> Wait {
    match rng.below(3) {
        0 => Wait::No,
        1 => Wait::For(arbitrary_duration(rng)),
        _ => Wait::Forever,
    }
}

fn arbitrary_grant_lease(rng: &mut Rng) -> GrantLease {
    let id = if rng.one_in(2) {
        LeaseChoice::Chosen(arbitrary_lease(rng))
    } else {
        let slot = rng.number(0, u64::from(SLOTS) - 1);
        LeaseChoice::Assigned(Slot::new(u16::try_from(slot).expect("below SLOTS")).expect("below SLOTS"))
    };
    GrantLease {
        id,
        ttl: arbitrary_duration(rng),
        client_id: ClientId::new(rng.text(0, ClientId::BYTES_MAX)).expect("made to be valid"),
        address: arbitrary_address(rng),
        revoke_on_disconnect: rng.one_in(2),
    }
}

fn arbitrary_renewal(rng: &mut Rng) -> Renewal {
    Renewal {
        lease: arbitrary_lease(rng),
        address: rng.maybe(arbitrary_address),
        acked: arbitrary_acked(rng),
    }
}

fn arbitrary_acquire_lock(rng: &mut Rng) -> AcquireLock {
    AcquireLock {
        names: arbitrary_names(rng),
        lease: arbitrary_lease(rng),
        owner: arbitrary_owner(rng),
        mode: arbitrary_mode(rng),
        wait: arbitrary_wait(rng),
        lock_delay: arbitrary_duration(rng),
        max_hold: rng.maybe(arbitrary_duration),
        metadata: arbitrary_metadata(rng),
        value: rng.maybe(arbitrary_value),
        attended: rng.one_in(2),
        request: rng.maybe(arbitrary_request),
    }
}

fn arbitrary_release_lock(rng: &mut Rng) -> ReleaseLock {
    let by = if rng.one_in(3) {
        ReleaseBy::Token(arbitrary_token(rng))
    } else {
        ReleaseBy::Holder {
            lease: arbitrary_lease(rng),
            owner: arbitrary_owner(rng),
            token: rng.maybe(arbitrary_token),
            request: rng.maybe(arbitrary_request),
        }
    };
    ReleaseLock { names: arbitrary_names(rng), by }
}

fn arbitrary_convert_lock(rng: &mut Rng) -> ConvertLock {
    ConvertLock {
        names: arbitrary_names(rng),
        lease: arbitrary_lease(rng),
        owner: arbitrary_owner(rng),
        mode: arbitrary_mode(rng),
        wait: arbitrary_wait(rng),
        attended: rng.one_in(2),
        request: rng.maybe(arbitrary_request),
    }
}

fn arbitrary_cancel_wait(rng: &mut Rng) -> CancelWait {
    let target = match rng.number(0, 3) {
        0 => CancelTarget::Seq(arbitrary_seq(rng)),
        3 => CancelTarget::SeqOn { seq: arbitrary_seq(rng), name: arbitrary_name(rng) },
        1 => CancelTarget::Waiter { name: arbitrary_name(rng), owner: arbitrary_owner(rng) },
        _ => CancelTarget::Wait { name: arbitrary_name(rng), create_revision: arbitrary_revision(rng) },
    };
    CancelWait {
        lease: arbitrary_lease(rng),
        target,
        release_if_granted: rng.one_in(2),
        asks_max: rng.maybe(arbitrary_u32),
        acked: arbitrary_acked(rng),
    }
}

fn arbitrary_compare(rng: &mut Rng) -> Compare {
    let relations = [Relation::Equal, Relation::NotEqual, Relation::Less, Relation::Greater];
    Compare {
        key: arbitrary_key(rng),
        relation: relations[rng.below(4)],
        against: match rng.below(5) {
            0 => Against::Create(arbitrary_revision(rng)),
            1 => Against::Mod(arbitrary_revision(rng)),
            2 => Against::Version(rng.number(0, u64::MAX)),
            3 => Against::Value(arbitrary_value(rng)),
            _ => Against::Lease(rng.maybe(arbitrary_lease)),
        },
    }
}

fn arbitrary_selector(rng: &mut Rng) -> KeySelector {
    match rng.below(3) {
        0 => KeySelector::Key(arbitrary_key(rng)),
        1 => KeySelector::Prefix(arbitrary_key(rng)),
        _ => KeySelector::All,
    }
}

fn arbitrary_u32(rng: &mut Rng) -> u32 {
    u32::try_from(rng.number(0, u64::from(u32::MAX))).expect("clamped")
}

fn arbitrary_group(rng: &mut Rng) -> GroupId {
    GroupId::new(arbitrary_u32(rng))
}

fn arbitrary_op(rng: &mut Rng) -> Op {
    let sorts = [Sort::Key, Sort::KeyDescending, Sort::Create, Sort::CreateDescending];
    match rng.below(3) {
        0 => Op::Put {
            key: arbitrary_key(rng),
            value: arbitrary_value(rng),
            lease: rng.maybe(arbitrary_lease),
        },
        1 => Op::Get(RangeQuery {
            keys: arbitrary_selector(rng),
            limit: arbitrary_u32(rng),
            sort: sorts[rng.below(4)],
        }),
        _ => Op::Delete(arbitrary_selector(rng)),
    }
}

fn arbitrary_txn(rng: &mut Rng) -> Txn {
    Txn {
        request: rng.maybe(|rng| (arbitrary_lease(rng), arbitrary_request(rng))),
        compares: (0..rng.below(4)).map(|_| arbitrary_compare(rng)).collect(),
        then: (0..rng.below(4)).map(|_| arbitrary_op(rng)).collect(),
        otherwise: (0..rng.below(4)).map(|_| arbitrary_op(rng)).collect(),
    }
}

/// Limits with any values, valid or not: refusing them is the state's task.
fn arbitrary_limits(rng: &mut Rng) -> Limits {
    let mut limits = Limits::DEFAULT;
    for &limit in Limit::ALL {
        if rng.one_in(3) {
            limits.set(limit, rng.number(0, u64::MAX));
        }
    }
    limits
}

/// An entry of any kind, with any of its optional fields.
pub(crate) fn arbitrary_entry(rng: &mut Rng) -> Entry {
    let command = match rng.below(20) {
        0 => Command::Tick,
        1 => Command::GrantLease(arbitrary_grant_lease(rng)),
        2 => {
            let renewals = (0..rng.below(6)).map(|_| arbitrary_renewal(rng)).collect();
            Command::RenewLeases(RenewLeases { renewals })
        }
        3 => {
            let disconnected = rng.one_in(2).then(|| arbitrary_address(rng));
            Command::RevokeLease(RevokeLease { lease: arbitrary_lease(rng), disconnected })
        }
        4 => Command::AcquireLock(arbitrary_acquire_lock(rng)),
        5 => Command::ReleaseLock(arbitrary_release_lock(rng)),
        6 => Command::ConvertLock(arbitrary_convert_lock(rng)),
        7 => Command::CancelWait(arbitrary_cancel_wait(rng)),
        8 => Command::ForceRelease(ForceRelease {
            name: arbitrary_name(rng),
            token: arbitrary_token(rng),
            reason: arbitrary_reason(rng),
        }),
        9 => Command::Txn(arbitrary_txn(rng)),
        10 => Command::SetLimits(Box::new(arbitrary_limits(rng))),
        11 => Command::AddStub(AddStub {
            lease: arbitrary_lease(rng),
            incarnation: arbitrary_revision(rng),
            client_id: ClientId::new(rng.text(0, ClientId::BYTES_MAX)).expect("made to be valid"),
            home: arbitrary_group(rng),
        }),
        12 => Command::ConfirmStub(ConfirmStub {
            lease: arbitrary_lease(rng),
            incarnation: arbitrary_revision(rng),
            added: arbitrary_revision(rng),
        }),
        13 => Command::EndStub(EndStub {
            lease: arbitrary_lease(rng),
            incarnation: arbitrary_revision(rng),
            reason: [LeaseEnd::Expired, LeaseEnd::Revoked, LeaseEnd::Disconnected][rng.below(3)],
        }),
        14 => Command::RegisterStub(RegisterStub {
            lease: arbitrary_lease(rng),
            incarnation: arbitrary_revision(rng),
            group: arbitrary_group(rng),
        }),
        15 => Command::AckLeaseEnd(AckLeaseEnd {
            lease: arbitrary_lease(rng),
            incarnation: arbitrary_revision(rng),
            group: arbitrary_group(rng),
        }),
        16 => Command::Proclaim(Proclaim {
            name: arbitrary_name(rng),
            lease: arbitrary_lease(rng),
            owner: arbitrary_owner(rng),
            token: arbitrary_token(rng),
            value: arbitrary_value(rng),
            request: rng.maybe(arbitrary_request),
        }),
        17 => Command::EndDeadlock(EndDeadlock {
            name: arbitrary_name(rng),
            create_revision: arbitrary_revision(rng),
            blocker: arbitrary_token(rng),
        }),
        18 => Command::SetLineage(Lineage::new(rng.number(1, u64::MAX)).expect("above 0")),
        _ => Command::RaiseApplyVersion(arbitrary_u32(rng)),
    };
    let (at, wall) = (rng.number(0, u64::MAX), rng.number(0, u64::MAX));
    Entry { at: LogTime::from_ms(at), wall: WallTime::from_unix_ms(wall), command }
}
