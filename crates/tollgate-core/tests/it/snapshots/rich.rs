//! A state with at least one of everything that a snapshot can carry.

use crate::commands::{
    Replica, acquire, at, cancel_seq, confirm, convert, grant, lease, lock, lock_as, name, names, owner,
    permits, put, register, request, revoke, seq, stub,
};
use crate::properties;
use std::sync::Arc;
use tollgate_core::{
    AcquireLock, Command, ConvertLock, EndReason, Entry, ForceRelease, Op, Proclaim, Rejection,
    RejectionCode, ReleaseBy, ReleaseLock, RenewLeases, Renewal, Reply, Txn, Wait,
};
use tollgate_types::{
    DurationMs, GroupId, GroupMap, Limits, Metadata, Mode, Owner, Reason, SeqRanges, Token, Value,
};

pub(super) struct Rich {
    pub(super) limits: Limits,
    pub(super) replica: Replica,
    entries: Vec<Entry>,
}

/// A seq, the command to repeat, and a check that the answer is the kept one.
type Repeat = (u64, Command, fn(&Reply) -> bool);

/// Token of the grant of the keeper's seq 501.
const OWN_TOKEN: u64 = 22;
/// The lease that keeps an outcome of each kind.
const KEEPER: u64 = 2;
/// Log time in ms at which leases 4 and 5 fall due; all else happens at 0.
const DUE_MS: u64 = 100;

impl Rich {
    pub(super) fn new() -> Rich {
        Rich::of(|limits| Replica::new(limits, None))
    }

    /// The rich state in a group at apply version 1, as every group begins.
    pub(super) fn at_version_1() -> Rich {
        let map = Arc::new(GroupMap::single());
        Rich::of(|limits| Replica::at_version_1(limits, GroupId::MAP, &map, None))
    }

    fn of(replica: impl FnOnce(&Limits) -> Replica) -> Rich {
        // One step of work per entry, so that things that fall due together are not reaped together.
        let limits = Limits { reaps_per_entry_max: 1, ttl_ms_min: 1, ..Limits::DEFAULT };
        let mut rich = Rich { replica: replica(&limits), limits, entries: Vec::new() };
        for (id, ttl_ms) in [(1, 60_000), (2, 60_000), (3, 60_000), (4, DUE_MS), (5, DUE_MS)] {
            rich.apply(grant(id, ttl_ms));
        }
        rich.hold_and_wait();
        rich.write_registers();
        rich.keep_outcomes();
        rich.reach_over_groups();
        rich.fall_due();
        rich
    }

    /// Random entries that continue from this state.
    pub(super) fn entries_after(&self, seed: u64, count: u64) -> Vec<Entry> {
        properties::entries_after(&self.limits, &self.entries, seed, count)
    }

    fn apply(&mut self, command: Command) -> Reply {
        self.apply_at(0, command)
    }

    fn apply_at(&mut self, ms: u64, command: Command) -> Reply {
        let entry = at(ms, command);
        let applied = self.replica.apply(&entry);
        self.replica.state.assert_invariants();
        self.entries.push(entry);
        applied.reply
    }

    fn acquired(&mut self, command: Command) {
        let reply = self.apply(command);
        assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
    }

    fn queued(&mut self, command: Command) {
        let reply = self.apply(command);
        assert!(matches!(reply, Reply::Queued { .. }), "{reply:?}");
    }

    /// Makes holders in every mode, waiters with and without a deadline, an upgrade, several names, a lock-delay.
    fn hold_and_wait(&mut self) {
        self.acquired(lock_as(1, "a", Mode::Shared));
        self.acquired(lock_as(2, "a", Mode::Shared));
        self.queued(Command::ConvertLock(ConvertLock {
            request: request(510),
            ..convert(KEEPER, "a", Mode::Exclusive)
        }));
        self.queued(lock(3, "a"));
        self.acquired(lock_as(1, "a/b", Mode::IntentExclusive));
        self.acquired(lock_as(2, "a/b", Mode::IntentShared));
        self.acquired(lock_as(3, "c", Mode::SharedIntentExclusive));
        self.acquired(lock_as(1, "sem", permits(2, 3)));
        let wait = Wait::For(DurationMs::from_ms(5_000));
        self.queued(Command::AcquireLock(AcquireLock { mode: permits(2, 3), wait, ..acquire(2, &["sem"]) }));
        let max_hold = Some(DurationMs::from_ms(9_000));
        let metadata = Metadata::new("why").expect("good metadata");
        self.acquired(Command::AcquireLock(AcquireLock { max_hold, metadata, ..acquire(3, &["x"]) }));
        self.acquired(Command::AcquireLock(acquire(1, &["m1", "m2"])));
        self.queued(Command::AcquireLock(AcquireLock {
            owner: owner("w"),
            max_hold,
            ..acquire(2, &["m2", "m3"])
        }));
        let lock_delay = DurationMs::from_ms(30_000);
        let closing = Command::AcquireLock(AcquireLock { lock_delay, ..acquire(3, &["closed"]) });
        let Reply::Acquired { token, .. } = self.apply(closing) else { panic!("it is free") };
        let reason = Reason::new("stuck").expect("a good reason");
        self.apply(Command::ForceRelease(ForceRelease { name: name("closed"), token, reason }));
        self.queued(Command::AcquireLock(AcquireLock {
            request: request(509),
            ..acquire(KEEPER, &["closed"])
        }));
    }

    fn write_registers(&mut self) {
        let puts = vec![put("k/1", b"with", Some(1)), put("k", b"without", None), put("m", b"due", Some(4))];
        let reply = self.apply(txn(puts, None));
        assert!(matches!(reply, Reply::TxnDone { .. }), "{reply:?}");
    }

    /// Gives lease 2 an outcome of each kind, a claim with a seq, a tombstone, and acks with gaps.
    fn keep_outcomes(&mut self) {
        for (seq, command, _) in Rich::repeats() {
            // The other seqs are used already, or are forbidden below before they come.
            if (501..=507).contains(&seq) || seq == 511 {
                self.apply(command);
            }
        }
        self.apply(cancel_seq(KEEPER, 508));
        let acked = SeqRanges::new(vec![(1, 40), (42, 50)]).expect("sorted with gaps");
        let renewals = vec![Renewal { lease: lease(KEEPER), address: None, acked }];
        self.apply(Command::RenewLeases(RenewLeases { renewals }));
    }

    /// Makes stubs of both kinds, one of them in use, a lease with stubs elsewhere, and an unacked end.
    fn reach_over_groups(&mut self) {
        self.apply(stub(11, 5));
        self.apply(stub(12, 6));
        let added = self.replica.state.revision().get();
        self.apply(confirm(12, 6, added));
        self.acquired(Command::AcquireLock(AcquireLock { request: request(1), ..acquire(12, &["by-stub"]) }));
        self.apply(register(1, 1, 8));
        self.apply(grant(13, 60_000));
        let incarnation = self.replica.state.revision().get();
        for group in [9, 7] {
            assert_eq!(self.apply(register(13, incarnation, group)), Reply::StubRegistered);
        }
        self.apply(revoke(13));
    }

    /// The request of each seq, and the answer that a repeat gets.
    pub(super) fn repeats() -> Vec<Repeat> {
        let own = |text, number| AcquireLock { request: request(number), ..acquire(KEEPER, &[text]) };
        let busy = AcquireLock { wait: Wait::No, ..own("x", 503) };
        let upgrade = ConvertLock { request: request(510), ..convert(KEEPER, "a", Mode::Exclusive) };
        let proclaim = Proclaim {
            name: name("own"),
            lease: lease(KEEPER),
            owner: Owner::LEASE,
            token: Token::new(OWN_TOKEN).expect("above 0"),
            value: Value::new("said").expect("short"),
            request: request(511),
        };
        vec![
            (501, Command::AcquireLock(own("own", 501)), |reply| matches!(reply, Reply::Acquired { .. })),
            (502, Command::AcquireLock(own("own", 502)), |reply| matches!(reply, Reply::Acquired { .. })),
            (
                503,
                Command::AcquireLock(busy),
                |reply| matches!(reply, Reply::Busy { holders, .. } if holders.len() == 1),
            ),
            (504, Command::AcquireLock(own("own-2", 504)), |reply| {
                matches!(reply, Reply::Ended { token: Some(_), reason: EndReason::Released })
            }),
            (505, release("own-2", Some(505)), |reply| matches!(reply, Reply::Released { .. })),
            (506, txn(vec![put("k/2", b"", None)], Some(506)), |reply| {
                matches!(reply, Reply::TxnDone { .. })
            }),
            (507, release("never-held", Some(507)), |reply| {
                let code = RejectionCode::NotHeld;
                *reply == Reply::Rejected(Rejection::RejectedBefore { seq: seq(507), code })
            }),
            (508, Command::AcquireLock(own("own-3", 508)), |reply| {
                *reply == Reply::Ended { token: None, reason: EndReason::Cancelled }
            }),
            (509, Command::AcquireLock(own("closed", 509)), |reply| matches!(reply, Reply::Queued { .. })),
            (510, Command::ConvertLock(upgrade), |reply| matches!(reply, Reply::Queued { .. })),
            (511, Command::Proclaim(proclaim), |reply| matches!(reply, Reply::Proclaimed { .. })),
            (42, Command::AcquireLock(own("own-3", 42)), |reply| {
                *reply == Reply::Rejected(Rejection::SeqAcked { seq: seq(42) })
            }),
        ]
    }

    /// Lets leases 4 and 5 fall due together; an entry may do one step, so most of the work is left, and a name is
    /// dirty.
    fn fall_due(&mut self) {
        self.acquired(lock(4, "first-to-go"));
        self.acquired(Command::AcquireLock(acquire(4, &["asked-for", "dirty-name"])));
        self.acquired(lock(5, "c-5"));
        self.queued(Command::AcquireLock(AcquireLock { owner: owner("d"), ..acquire(1, &["dirty-name"]) }));
        // The step ends the claim on first-to-go. The request for asked-for ends the other claim, and dirty-name is
        // left over.
        let asked = AcquireLock { wait: Wait::No, ..acquire(3, &["asked-for"]) };
        let reply = self.apply_at(DUE_MS, Command::AcquireLock(asked));
        assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
    }
}

fn release(text: &str, number: Option<u64>) -> Command {
    let (lease, owner, token) = (lease(KEEPER), Owner::LEASE, None);
    let by = ReleaseBy::Holder { lease, owner, token, request: number.and_then(request) };
    Command::ReleaseLock(ReleaseLock { names: names(&[text]), by })
}

fn txn(then: Vec<Op>, number: Option<u64>) -> Command {
    let request = number.and_then(request).map(|request| (lease(KEEPER), request));
    Command::Txn(Txn { request, compares: Vec::new(), then, otherwise: Vec::new() })
}
