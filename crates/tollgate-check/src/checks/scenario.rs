//! Small histories, written call by call. For tests.
//!
//! There is one group; client n has lease n, with a TTL of ten seconds. Every call takes two milliseconds and is
//! followed by one millisecond of silence; the answer, if there is one, is given with the call.

use crate::at::At;
use crate::call::{CallId, EndReason, Holder, Op, Outcome, Wait};
use crate::event::{Change, ChangeKind, Event, Filter, FinalLock, LeaseEnd};
use crate::history::History;
use crate::report::{Kind, Promise};
use crate::settings::Settings;
use tollgate_types::{GroupId, Key, LeaseId, Mode, Name, Names, Owner, Revision, Token, Value};

const GROUP: GroupId = GroupId::new(1);
const OTHER_GROUP: GroupId = GroupId::new(2);

pub(crate) struct Scenario {
    history: History,
    now: At,
    calls: u64,
    ttl_ms: u64,
    terms: u64,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn lease(number: u64) -> LeaseId {
    LeaseId::new(number).unwrap()
}

fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn holder((of, with): (u64, u64)) -> Holder {
    Holder { lease: lease(of), owner: Owner::LEASE, token: token(with), mode: Mode::Exclusive }
}

/// Returns the answer to a request that was granted.
pub(crate) fn granted(with: u64, queued: u64, mode: Mode) -> Outcome {
    Outcome::Granted { token: token(with), create_revision: Some(revision(queued)), mode }
}

/// Returns a grant as a watch delivers it.
pub(crate) fn gave(lock: &str, to: u64, with: u64) -> Change {
    let kind = ChangeKind::Granted { token: token(with), mode: Mode::Exclusive };
    Change { revision: revision(with), name: name(lock), lease: lease(to), owner: Owner::LEASE, kind }
}

/// Returns a release as a watch delivers it.
pub(crate) fn ended(lock: &str, of: u64, with: u64, at: u64) -> Change {
    let kind = ChangeKind::Ended { token: Some(token(with)), reason: EndReason::Released };
    Change { revision: revision(at), name: name(lock), lease: lease(of), owner: Owner::LEASE, kind }
}

impl Scenario {
    /// Creates a scenario with leases 1 to `count`, granted at revisions of the same numbers.
    pub(crate) fn with_leases(count: u64) -> Scenario {
        let history = History::new(Settings::with_rho_ppm(10_000));
        let mut run = Scenario { history, now: At::ZERO, calls: 0, ttl_ms: 10_000, terms: 0 };
        run.grant_leases(count);
        run
    }

    fn grant_leases(&mut self, count: u64) {
        for number in 1..=count {
            let ttl_ms = self.ttl_ms;
            let op = Op::GrantLease { lease: Some(lease(number)), ttl_ms };
            let incarnation = revision(number);
            let outcome = Outcome::LeaseGranted { lease: lease(number), incarnation, ttl_ms, renewed: false };
            self.call(number, op, Some(outcome));
        }
    }

    /// Grants another incarnation of a lease.
    pub(crate) fn grant_anew(&mut self, of: u64, at: u64) -> &mut Self {
        let (ttl_ms, incarnation) = (self.ttl_ms, revision(at));
        let outcome = Outcome::LeaseGranted { lease: lease(of), incarnation, ttl_ms, renewed: false };
        self.call(of, Op::GrantLease { lease: Some(lease(of)), ttl_ms }, Some(outcome))
    }

    /// Requests a lease with a call that a leader received but nobody answered: the lease may have been granted.
    pub(crate) fn grant_unanswered(&mut self, of: u64) -> &mut Self {
        self.call(of, Op::GrantLease { lease: Some(lease(of)), ttl_ms: self.ttl_ms }, None);
        self.record(Event::Received { call: self.last_call() })
    }

    /// Starts anew with as many leases, which outlive the run.
    pub(crate) fn with_long_leases(self) -> Scenario {
        let count = self.calls;
        let history = History::new(self.history.settings().clone());
        let mut run = Scenario { history, now: At::ZERO, calls: 0, ttl_ms: 100_000, terms: 0 };
        run.grant_leases(count);
        run
    }

    pub(crate) fn record(&mut self, event: Event) -> &mut Self {
        self.history.record(self.now, event);
        self
    }

    pub(crate) fn wait_ms(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.after_ms(ms);
        self
    }

    fn invoke(&mut self, client: u64, op: Op) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        let client = u32::try_from(client).unwrap();
        self.record(Event::Invoke { call, client, group: GROUP, op }).wait_ms(1);
        call
    }

    fn call(&mut self, client: u64, op: Op, outcome: Option<Outcome>) -> &mut Self {
        let renews = matches!(op, Op::GrantLease { .. } | Op::KeepAlive { .. });
        let call = self.invoke(client, op);
        if renews && outcome.is_some() {
            self.record(Event::Received { call });
        }
        self.wait_ms(1);
        if let Some(outcome) = outcome {
            self.record(Event::Return { call, outcome });
        }
        self.wait_ms(1)
    }

    pub(crate) fn last_call(&self) -> CallId {
        CallId(self.calls)
    }

    fn request(lock: &str, of: u64, mode: Mode, wait: Wait) -> Op {
        Op::Lock {
            names: name(lock).into(),
            lease: lease(of),
            owner: Owner::LEASE,
            mode,
            wait,
            max_hold_ms: None,
        }
    }

    pub(crate) fn lock_as(&mut self, lock: &str, of: u64, with: u64, mode: Mode) -> &mut Self {
        self.call(of, Self::request(lock, of, mode, Wait::No), Some(granted(with, with, mode)))
    }

    pub(crate) fn lock(&mut self, lock: &str, of: u64, with: u64) -> &mut Self {
        self.lock_as(lock, of, with, Mode::Exclusive)
    }

    pub(crate) fn lock_unanswered(&mut self, lock: &str, of: u64) -> &mut Self {
        self.call(of, Self::request(lock, of, Mode::Exclusive, Wait::No), None)
    }

    pub(crate) fn lock_busy(&mut self, lock: &str, of: u64, holders: &[(u64, u64)]) -> &mut Self {
        let holders = holders.iter().copied().map(holder).collect();
        let op = Self::request(lock, of, Mode::Exclusive, Wait::No);
        self.call(of, op, Some(Outcome::Busy { holders }))
    }

    /// Makes a request that waits; answered by [`Scenario::granted`] or not at all.
    pub(crate) fn wait_for(&mut self, lock: &str, of: u64, mode: Mode) -> CallId {
        self.invoke(of, Self::request(lock, of, mode, Wait::Forever))
    }

    pub(crate) fn wait_for_ms(&mut self, lock: &str, of: u64, ms: u64) -> CallId {
        self.invoke(of, Self::request(lock, of, Mode::Exclusive, Wait::ForMs(ms)))
    }

    pub(crate) fn granted(&mut self, call: CallId, with: u64, queued: u64, mode: Mode) -> &mut Self {
        self.record(Event::Return { call, outcome: granted(with, queued, mode) }).wait_ms(1)
    }

    /// Answers a cancel, and then the request that it cancels: the claim was granted and released.
    pub(crate) fn cancel_told_released(
        &mut self,
        of: CallId,
        client: u64,
        with: u64,
        release_if_granted: bool,
    ) -> &mut Self {
        let outcome = Outcome::Ended { token: Some(token(with)), reason: EndReason::Released };
        self.call(client, Op::Cancel { of, release_if_granted }, Some(outcome.clone()));
        self.record(Event::Return { call: of, outcome }).wait_ms(1)
    }

    pub(crate) fn again(&mut self, call: CallId, outcome: Outcome) -> &mut Self {
        self.record(Event::AnsweredAgain { call, outcome }).wait_ms(1)
    }

    fn release(lock: &str, of: u64) -> Op {
        Op::Unlock { names: name(lock).into(), lease: lease(of), owner: Owner::LEASE, token: None }
    }

    pub(crate) fn unlock(&mut self, lock: &str, of: u64, at: u64) -> &mut Self {
        self.call(of, Self::release(lock, of), Some(Outcome::Released { revision: revision(at) }))
    }

    pub(crate) fn unlock_unanswered(&mut self, lock: &str, of: u64) -> &mut Self {
        self.call(of, Self::release(lock, of), None)
    }

    pub(crate) fn unlock_not_held(&mut self, lock: &str, of: u64) -> &mut Self {
        self.call(of, Self::release(lock, of), Some(Outcome::NotHeld))
    }

    pub(crate) fn convert(&mut self, lock: &str, of: u64, with: u64, mode: Mode) -> &mut Self {
        let (names, lease, owner, wait) = (name(lock).into(), lease(of), Owner::LEASE, Wait::No);
        let op = Op::Convert { names, lease, owner, mode, wait };
        self.call(of, op, Some(Outcome::Granted { token: token(with), create_revision: None, mode }))
    }

    /// Makes a conversion of several locks that waits for ever.
    pub(crate) fn convert_unanswered(&mut self, locks: &[&str], of: u64) -> &mut Self {
        let names = Names::new(locks.iter().map(|lock| name(lock)).collect()).unwrap();
        let (lease, owner, mode, wait) = (lease(of), Owner::LEASE, Mode::Exclusive, Wait::Forever);
        self.call(of, Op::Convert { names, lease, owner, mode, wait }, None)
    }

    pub(crate) fn read(&mut self, lock: &str, at: u64, holders: &[(u64, u64)]) -> &mut Self {
        let holders = holders.iter().copied().map(holder).collect();
        self.call(
            0,
            Op::ReadLock { name: name(lock) },
            Some(Outcome::Lock { revision: revision(at), holders }),
        )
    }

    pub(crate) fn keep_alive(&mut self, of: u64) -> &mut Self {
        self.call(of, Op::KeepAlive { lease: lease(of) }, Some(Outcome::Renewed { ttl_ms: self.ttl_ms }))
    }

    pub(crate) fn keep_alive_not_found(&mut self, of: u64) -> &mut Self {
        self.call(of, Op::KeepAlive { lease: lease(of) }, Some(Outcome::LeaseNotFound))
    }

    pub(crate) fn keep_alive_unanswered(&mut self, of: u64, received: bool) -> &mut Self {
        self.call(of, Op::KeepAlive { lease: lease(of) }, None);
        if received {
            self.record(Event::Received { call: self.last_call() });
        }
        self
    }

    pub(crate) fn revoke(&mut self, of: u64) -> &mut Self {
        self.call(of, Op::RevokeLease { lease: lease(of) }, Some(Outcome::LeaseRevoked))
    }

    pub(crate) fn revoke_unanswered(&mut self, of: u64) -> &mut Self {
        self.call(of, Op::RevokeLease { lease: lease(of) }, None)
    }

    pub(crate) fn revoke_not_found(&mut self, of: u64) -> &mut Self {
        self.call(of, Op::RevokeLease { lease: lease(of) }, Some(Outcome::LeaseNotFound))
    }

    pub(crate) fn lease_expired(&mut self, of: u64, at: u64) -> &mut Self {
        self.lease_ended(of, at, LeaseEnd::Expired, false)
    }

    pub(crate) fn lease_ended(&mut self, of: u64, at: u64, reason: LeaseEnd, stub: bool) -> &mut Self {
        self.lease_ended_carried(of, at, reason, stub, 0)
    }

    /// Ends a lease by an entry whose messages spent `ms` milliseconds in the network.
    pub(crate) fn lease_ended_carried(
        &mut self,
        of: u64,
        at: u64,
        reason: LeaseEnd,
        stub: bool,
        ms: u64,
    ) -> &mut Self {
        let group = if stub { OTHER_GROUP } else { GROUP };
        let (lease, incarnation, revision) = (lease(of), revision(of), revision(at));
        let carried_us = ms * 1_000;
        self.record(Event::LeaseEnded { group, lease, incarnation, reason, revision, stub, carried_us })
    }

    pub(crate) fn believes_ms(&mut self, of: u64, ms: u64) -> &mut Self {
        // The answer came three milliseconds after the keepalive was sent.
        let until = At::from_us(self.now.us() - 3_000).after_ms(ms);
        self.record(Event::Believes { client: u32::try_from(of).unwrap(), lease: lease(of), until })
    }

    /// Leaves the group without a leader for `ms` milliseconds; then a leader is elected in a new term.
    pub(crate) fn leaderless_ms(&mut self, ms: u64) -> &mut Self {
        self.terms += 1;
        self.interrupted_ms(ms)
    }

    /// Keeps the leader from committing for `ms` milliseconds; then the same leader goes on.
    pub(crate) fn interrupted_ms(&mut self, ms: u64) -> &mut Self {
        let (group, term) = (GROUP, self.terms);
        self.record(Event::Leaderless { group }).wait_ms(ms).record(Event::Led { group, node: 1, term })
    }

    pub(crate) fn paused_ms(&mut self, ms: u64) -> &mut Self {
        let group = GROUP;
        self.record(Event::LeaderPaused { group }).wait_ms(ms).record(Event::LeaderResumed { group })
    }

    /// Cuts this group's leader off from the other group's for `ms` milliseconds, while both groups are led.
    pub(crate) fn cut_from_other_group_ms(&mut self, ms: u64) -> &mut Self {
        let (from, to) = (GROUP, OTHER_GROUP);
        self.record(Event::LeadersCut { from, to }).wait_ms(ms).record(Event::LeadersLinked { from, to })
    }

    /// Records a read of the whole group: leases, and locks with one holder each.
    pub(crate) fn final_state(&mut self, at: u64, leases: &[u64], locks: &[(&str, u64, u64)]) -> &mut Self {
        let lock = |(lock, of, with): &(&str, u64, u64)| {
            let (name, holders, waiters) = (name(lock), vec![holder((*of, *with))], Vec::new());
            FinalLock { name, holders, waiters }
        };
        let (locks, leases) =
            (locks.iter().map(lock).collect(), leases.iter().map(|l| (lease(*l), revision(*l))));
        let (group, asked, leases) = (GROUP, self.now, leases.collect());
        self.record(Event::FinalState { group, asked, revision: revision(at), locks, leases })
    }

    pub(crate) fn put(&mut self, key: &str, value: &str, at: u64) -> &mut Self {
        let op = Op::PutRegister { key: Key::new(key).unwrap(), value: Value::new(value).unwrap() };
        self.call(0, op, Some(Outcome::Written { revision: revision(at) }))
    }

    pub(crate) fn put_unanswered(&mut self, key: &str, value: &str) -> &mut Self {
        self.call(0, Op::PutRegister { key: Key::new(key).unwrap(), value: Value::new(value).unwrap() }, None)
    }

    pub(crate) fn read_register(&mut self, key: &str, at: u64, found: Option<(&str, u64)>) -> &mut Self {
        let found = found.map(|(value, written)| (Value::new(value).unwrap(), revision(written)));
        let op = Op::ReadRegister { key: Key::new(key).unwrap() };
        self.call(0, op, Some(Outcome::Register { revision: revision(at), found }))
    }

    pub(crate) fn watch(&mut self, watch: u32, from: u64, filter: Filter) -> &mut Self {
        self.record(Event::Watch { watch, group: GROUP, from: Some(revision(from)), filter })
    }

    /// Opens a watch from now on.
    pub(crate) fn watch_now(&mut self, watch: u32, filter: Filter) -> &mut Self {
        self.record(Event::Watch { watch, group: GROUP, from: None, filter }).wait_ms(1)
    }

    pub(crate) fn begins(&mut self, watch: u32, from: u64) -> &mut Self {
        self.record(Event::WatchBegan { watch, from: revision(from) }).wait_ms(1)
    }

    pub(crate) fn delivers(&mut self, watch: u32, changes: &[Change], next: u64) -> &mut Self {
        self.record(Event::WatchEvents { watch, changes: changes.to_vec(), next: revision(next) })
    }

    pub(crate) fn compacted(&mut self, watch: u32, min_revision: u64) -> &mut Self {
        self.record(Event::WatchCompacted { watch, min_revision: revision(min_revision) })
    }

    pub(crate) fn client_gone(&mut self, client: u32) -> &mut Self {
        self.record(Event::ClientGone { client })
    }

    pub(crate) fn healed(&mut self) -> &mut Self {
        self.record(Event::Healed)
    }

    pub(crate) fn end(&mut self) -> &mut Self {
        self.record(Event::End)
    }

    pub(crate) fn limit_search(&mut self, search_steps_max: u64) -> &mut Self {
        let mut history = History::new(Settings { search_steps_max, ..self.history.settings().clone() });
        for (at, event) in self.history.events() {
            history.record(*at, event.clone());
        }
        self.history = history;
        self
    }

    pub(crate) fn judge(&self) -> crate::report::Report {
        self.history.judge()
    }

    pub(crate) fn passes(&self) {
        let report = self.history.judge();
        assert!(report.is_clean(), "{report}");
    }

    pub(crate) fn breaks(&self, promise: Promise, says: &str) {
        let report = self.history.judge();
        let fits = |violation: &&crate::report::Violation| {
            violation.promise == promise && violation.kind == Kind::Broken && violation.says.contains(says)
        };
        let found = report.violations.iter().find(fits);
        assert!(found.is_some(), "no {promise} that says {says:?} in: {report}");
        let all = self.history.events().len();
        assert!(report.violations.iter().all(|violation| violation.events.iter().all(|event| *event < all)));
    }
}
