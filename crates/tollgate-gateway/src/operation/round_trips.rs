//! Round trips: an operation is prepared, applied to a real state, and its answer worded.
//!
//! Checks that the parts fit together; the tests of single parts are not repeated here.

use super::*;
use tollgate_core::{Applied, EndDeadlock, Entry, RenewLeases, Reply, State};
use tollgate_node::{Answer, Sight};
use tollgate_proto::v1::operation_result::Result as Wire;
use tollgate_proto::v1::txn_op_result::Result as Step;
use tollgate_proto::v1::{CancelOutcome, EndReason, ErrorReason};
use tollgate_replica::ProposeError;
use tollgate_types::{ClusterId, DurationMs, Limits, Lineage, LogTime, NodeId, Revision};

const HEADER: HeaderInfo = HeaderInfo {
    cluster: ClusterId::new(5),
    node: NodeId::new(2),
    group: GroupId::MAP,
    revision: Revision::ZERO,
    term: 9,
    lineage: Lineage::new(8),
};

/// One group that a test talks to directly.
struct Group {
    state: State,
    now_ms: u64,
    /// Result of the last entry.
    applied: Option<Applied>,
}

impl Group {
    /// Returns a group with living leases 1 and 2.
    fn new() -> Group {
        let mut group = Group { state: State::new(Limits::DEFAULT), now_ms: 0, applied: None };
        for id in [1, 2] {
            group.run(grant(id));
        }
        group
    }

    fn apply(&mut self, command: Command) -> (Revision, Reply, bool) {
        let applied = self.state.apply(Entry::new(LogTime::from_ms(self.now_ms), command));
        let replied = (applied.revision, applied.reply.clone(), applied.events_from.is_some());
        self.applied = Some(applied);
        replied
    }

    /// Applies an operation and returns the answer as the `Dispatcher` would give it.
    fn answer(&mut self, op: Op) -> (Context, Answer) {
        let Prepared { kind, context, .. } = prepared(op);
        let answer = match kind {
            Kind::Command { command, .. } => match self.apply(command) {
                (_, Reply::Queued { create_revision, position }, _) => {
                    Answer::Queued { create_revision, position }
                }
                (revision, reply, changed) => Answer::Replied { revision, reply, changed },
            },
            Kind::KeepAlive(renewal) => {
                let renewals = vec![renewal];
                let (revision, reply, _) = self.apply(Command::RenewLeases(RenewLeases { renewals }));
                let Reply::LeasesRenewed(renewed) = reply else { panic!("{reply:?}") };
                Answer::Renewed { revision, renewed: renewed[0] }
            }
            Kind::Read { .. } => panic!("reads have no answer"),
        };
        (context, answer)
    }

    fn run(&mut self, op: Op) -> Wire {
        if let Prepared { kind: Kind::Read { query, .. }, context, .. } = prepared(op.clone()) {
            return query
                .look(Sight { state: &self.state, now: self.state.now(), applied: 0 })
                .result(&context, &HEADER);
        }
        let (context, answer) = self.answer(op);
        context.finish(answer, &HEADER, None, 0)
    }

    /// Applies an operation that must queue.
    fn queue(&mut self, op: Op) -> (Context, (Revision, u64)) {
        match self.answer(op) {
            (context, Answer::Queued { create_revision, position }) => (context, (create_revision, position)),
            _ => panic!("it must queue"),
        }
    }

    /// Returns the answer to a wait that ended with the last entry.
    fn resolve(&self, context: &Context, queued: (Revision, u64)) -> Wire {
        let applied = self.applied.as_ref().unwrap();
        let resolution = applied.resolved.iter().find(|ended| ended.create_revision == queued.0).unwrap();
        let (create_revision, outcome) = (resolution.create_revision, resolution.outcome);
        let answer = Answer::Resolved { create_revision, revision: applied.revision, outcome };
        context.finish(answer, &HEADER, Some(queued), 70)
    }

    fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        self.apply(Command::Tick);
    }

    fn error(&mut self, op: Op) -> v1::Error {
        error(self.run(op))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "tests make operations where they use them")]
fn prepared(op: Op) -> Prepared {
    prepare(&op, &GroupMap::single(), &Address::new("10.0.0.9:1").unwrap()).unwrap()
}

/// Returns the command that cancels the request of a caller that is gone.
fn leaving(context: &Context) -> Command {
    match prepared(Op::CancelWait(context.cancel().unwrap())).kind {
        Kind::Command { command, .. } => command,
        other => panic!("{other:?}"),
    }
}

fn grant(id: u64) -> Op {
    Op::LeaseGrant(v1::LeaseGrantRequest {
        id,
        ttl_ms: 10_000,
        client_id: format!("worker-{id}"),
        ..Default::default()
    })
}

fn lock_request(name: &str, lease_id: u64, timeout_ms: i64) -> v1::LockRequest {
    v1::LockRequest { name: name.into(), lease_id, timeout_ms, metadata: "why".into(), ..Default::default() }
}

fn lock(name: &str, lease_id: u64, timeout_ms: i64) -> Op {
    Op::Lock(lock_request(name, lease_id, timeout_ms))
}

fn numbered(seq: u64) -> v1::Request {
    v1::Request { seq, ..Default::default() }
}

fn locked(wire: Wire) -> v1::LockResponse {
    match wire {
        Wire::Lock(response) => response,
        other => panic!("{other:?}"),
    }
}

fn error(wire: Wire) -> v1::Error {
    match wire {
        Wire::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

fn unlock(name: &str, lease_id: u64, fencing_token: u64) -> Op {
    Op::Unlock(v1::UnlockRequest { name: name.into(), lease_id, fencing_token, ..Default::default() })
}

#[test]
fn a_free_lock_is_had_at_once_and_given_back() {
    let mut group = Group::new();
    let got = locked(group.run(lock("jobs", 1, 0)));
    assert!(got.acquired && got.holders.is_empty() && got.tokens.is_empty());
    assert_eq!((got.key.as_str(), got.fencing_token), ("jobs/0000000000000001", 3));
    assert_eq!((got.mode(), got.create_revision, got.waited_ms), (v1::Mode::Exclusive, 3, 0));
    let header =
        v1::Header { cluster_id: 5, member_id: 2, group_id: 0, revision: 3, raft_term: 9, lineage: 8 };
    assert_eq!(got.header, Some(header));
    let Wire::Unlock(gone) = group.run(unlock("jobs", 1, 3)) else { panic!("unlocked") };
    assert_eq!(gone.revision, 4);
    let again = group.error(unlock("jobs", 1, 3));
    assert_eq!((again.reason(), again.name.as_str()), (ErrorReason::NotHeld, "jobs"));
    assert_eq!(again.code, tonic::Code::NotFound as i32, "a repeated release is harmless");
    assert!(again.message.contains("nothing was held"), "{}", again.message);
    group.run(lock("jobs", 1, 0));
    let stale = group.error(unlock("jobs", 1, 3));
    assert_eq!(
        (stale.reason(), stale.code),
        (ErrorReason::StaleToken, tonic::Code::FailedPrecondition as i32)
    );
}

#[test]
fn a_busy_lock_is_an_answer_with_its_holders() {
    let mut group = Group::new();
    group.run(lock("jobs", 1, 0));
    let busy = locked(group.run(Op::TryLock(lock_request("jobs", 2, 0))));
    assert!(!busy.acquired && busy.fencing_token == 0 && busy.key.is_empty());
    let [holder] = busy.holders.as_slice() else { panic!("one holder: {busy:?}") };
    assert_eq!(
        (holder.lease_id, holder.client_id.as_str(), holder.metadata.as_str()),
        (1, "worker-1", "why")
    );
    assert_eq!((busy.end_reason(), holder.remaining_ms), (EndReason::Unspecified, -1));
    let fast =
        Answer::Busy { revision: Revision::ZERO, reply: Reply::Busy { holders: Vec::new(), closed: None } };
    let context = prepared(lock("jobs", 2, 0)).context;
    assert!(!locked(context.finish(fast, &HEADER, None, 0)).acquired);
}

#[test]
fn a_waiter_is_told_its_place_and_then_its_token() {
    let mut group = Group::new();
    group.run(lock("jobs", 1, 0));
    let (context, queued) = group.queue(lock("jobs", 2, -1));
    let answer = Answer::Queued { create_revision: queued.0, position: queued.1 };
    let Wire::Queued(told) = context.finish(answer, &HEADER, None, 0) else { panic!("queued") };
    assert_eq!((told.position, told.create_revision), (1, queued.0.get()));
    group.run(unlock("jobs", 1, 0));
    let got = locked(group.resolve(&context, queued));
    assert!(got.acquired && got.fencing_token > told.create_revision);
    assert_eq!((got.waited_ms, got.create_revision, got.position), (70, told.create_revision, 0));
}

#[test]
fn a_wait_that_timed_out_is_no_error() {
    let mut group = Group::new();
    group.run(lock("jobs", 1, 0));
    let (context, queued) = group.queue(lock("jobs", 2, 500));
    group.tick(500);
    let ended = locked(group.resolve(&context, queued));
    assert!(!ended.acquired);
    assert_eq!((ended.end_reason(), ended.position, ended.waited_ms), (EndReason::TimedOut, 1, 70));
}

#[test]
fn a_wait_whose_lease_ended_is_an_error() {
    for disconnect in [false, true] {
        let mut group = Group::new();
        group.run(lock("jobs", 1, 0));
        let (context, queued) = group.queue(lock("jobs", 2, -1));
        if disconnect {
            group.run(Op::LeaseRevoke(v1::LeaseRevokeRequest { id: 2 }));
        } else {
            group.now_ms += 5_000;
            group.run(Op::LeaseKeepAlive(v1::LeaseKeepAliveRequest { id: 1, ..Default::default() }));
            group.tick(5_000);
        }
        let error = error(group.resolve(&context, queued));
        assert_eq!(error.reason(), ErrorReason::LeaseNotFound);
        assert!(!error.may_have_happened);
    }
}

#[test]
fn a_cancelled_wait_is_answered_on_both_sides() {
    let mut group = Group::new();
    group.run(lock("jobs", 1, 0));
    let (context, queued) = group.queue(lock("jobs", 2, -1));
    let cancel = v1::CancelWaitRequest { lease_id: 2, name: "jobs".into(), ..Default::default() };
    let Wire::CancelWait(done) = group.run(Op::CancelWait(cancel.clone())) else { panic!("cancelled") };
    assert_eq!(done.outcome(), CancelOutcome::Cancelled);
    let ended = locked(group.resolve(&context, queued));
    assert!(!ended.acquired);
    assert_eq!(ended.end_reason(), EndReason::Cancelled);
    assert_eq!(group.error(Op::CancelWait(cancel)).reason(), ErrorReason::NotWaiting);
}

#[test]
fn a_cancel_that_comes_too_late_says_what_it_found() {
    let mut group = Group::new();
    let cancel = |seq, release_if_granted| {
        let request = v1::CancelWaitRequest { lease_id: 1, seq, release_if_granted, ..Default::default() };
        Op::CancelWait(request)
    };
    let outcome = |wire| match wire {
        Wire::CancelWait(response) => response,
        other => panic!("{other:?}"),
    };
    let mut request = lock_request("jobs", 1, 0);
    request.request = Some(numbered(1));
    let token = locked(group.run(Op::Lock(request.clone()))).fencing_token;
    let granted = outcome(group.run(cancel(1, false)));
    assert_eq!((granted.outcome(), granted.fencing_token), (CancelOutcome::Granted, token));
    assert_eq!(granted.mode(), v1::Mode::Exclusive);
    let released = outcome(group.run(cancel(1, true)));
    assert_eq!(released.outcome(), CancelOutcome::Released);
    let finished = outcome(group.run(cancel(1, true)));
    assert_eq!((finished.outcome(), finished.fencing_token), (CancelOutcome::Finished, token));
    assert_eq!(finished.end_reason(), EndReason::Released);
    // A repeat of the lock request gets the same answer.
    let repeat = locked(group.run(Op::Lock(request)));
    assert!(!repeat.acquired);
    assert_eq!((repeat.fencing_token, repeat.end_reason()), (token, EndReason::Released));
    // A refused request has finished, too.
    let request = Some(v1::Request { seq: 2, ..Default::default() });
    let refused = v1::UnlockRequest { name: "x".into(), lease_id: 1, request, ..Default::default() };
    assert_eq!(group.error(Op::Unlock(refused.clone())).reason(), ErrorReason::NotHeld);
    assert_eq!(outcome(group.run(cancel(2, true))).outcome(), CancelOutcome::Finished);
    let before = group.error(Op::Unlock(refused));
    assert_eq!((before.reason(), before.cause()), (ErrorReason::RejectedBefore, ErrorReason::NotHeld));
}

#[test]
fn a_request_that_was_cancelled_before_it_came_has_no_effect() {
    let mut group = Group::new();
    let cancel = |seq| v1::CancelWaitRequest { lease_id: 1, seq, ..Default::default() };
    group.run(Op::CancelWait(cancel(8)));
    let mut request = lock_request("jobs", 1, -1);
    request.request = Some(numbered(8));
    let late = locked(group.run(Op::Lock(request)));
    assert!(!late.acquired && late.end_reason() == EndReason::Cancelled);
    group.run(Op::CancelWait(cancel(9)));
    let put = v1::PutRequest {
        key: b"k".to_vec(),
        request: Some(v1::Request { seq: 9, lease_id: 1, ..Default::default() }),
        ..Default::default()
    };
    let error = group.error(Op::Put(put));
    assert_eq!(error.reason(), ErrorReason::Cancelled);
    assert!(!error.may_have_happened);
}

#[test]
fn a_seq_that_was_used_for_something_else_is_refused() {
    let mut group = Group::new();
    let mut request = lock_request("jobs", 1, 0);
    request.request = Some(numbered(1));
    group.run(Op::Lock(request));
    let unlock = v1::UnlockRequest {
        name: "jobs".into(),
        lease_id: 1,
        request: Some(numbered(1)),
        ..Default::default()
    };
    let error = group.error(Op::Unlock(unlock));
    assert_eq!((error.reason(), error.field.as_str()), (ErrorReason::BadField, "request.seq"));
}

#[test]
fn several_names_have_one_token_each_told_by_name() {
    let mut group = Group::new();
    let mut request = lock_request("", 1, 0);
    request.names = vec!["b".into(), "a".into()];
    let got = locked(group.run(Op::Lock(request)));
    let names: Vec<&str> = got.tokens.iter().map(|token| token.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(got.tokens.iter().all(|token| token.fencing_token == got.fencing_token));
    assert!(got.key.starts_with("a/"));
}

#[test]
fn a_semaphore_tells_its_permits() {
    let mut group = Group::new();
    let request = v1::LockRequest { permits: 2, of: 3, ..lock_request("pool", 1, 0) };
    let got = locked(group.run(Op::Lock(request)));
    assert_eq!((got.mode(), got.permits, got.of), (v1::Mode::Permit, 2, 3));
    let error = group.error(lock("pool", 2, 0));
    assert_eq!((error.reason(), error.name.as_str()), (ErrorReason::OtherKind, "pool"));
}

#[test]
fn an_upgrade_has_a_new_token_and_a_downgrade_keeps_it() {
    let mut group = Group::new();
    let mut request = lock_request("jobs", 1, 0);
    request.mode = v1::Mode::Shared.into();
    let shared = locked(group.run(Op::Lock(request)));
    let convert = |mode: v1::Mode| {
        let mode = mode.into();
        Op::Convert(v1::ConvertRequest { name: "jobs".into(), lease_id: 1, mode, ..Default::default() })
    };
    let exclusive = locked(group.run(convert(v1::Mode::Exclusive)));
    assert!(exclusive.acquired && exclusive.fencing_token > shared.fencing_token);
    let weaker = locked(group.run(convert(v1::Mode::Shared)));
    assert_eq!((weaker.fencing_token, weaker.mode()), (exclusive.fencing_token, v1::Mode::Shared));
    let stranger = v1::ConvertRequest { name: "jobs".into(), lease_id: 2, ..Default::default() };
    assert_eq!(group.error(Op::Convert(stranger)).reason(), ErrorReason::NotHeld);
}

#[test]
fn a_deadlock_is_told_with_its_cycle() {
    let mut group = Group::new();
    let owned = |name, lease, timeout_ms| {
        let owner = "t".into();
        Op::Lock(v1::LockRequest { owner, ..lock_request(name, lease, timeout_ms) })
    };
    group.run(owned("a", 1, 0));
    group.run(owned("b", 2, 0));
    group.queue(owned("b", 1, -1));
    let error = group.error(owned("a", 2, -1));
    assert_eq!((error.reason(), error.cycle.len()), (ErrorReason::Deadlock, 2));
    assert_eq!(error.code, 10, "aborted");
}

#[test]
fn a_wait_that_was_ended_to_break_a_deadlock_is_told_as_one() {
    let mut group = Group::new();
    let token = locked(group.run(lock("jobs", 1, 0))).fencing_token;
    let request = Some(numbered(4));
    let waiting = Op::Lock(v1::LockRequest { request, ..lock_request("jobs", 2, -1) });
    let (context, queued) = group.queue(waiting.clone());
    group.apply(Command::EndDeadlock(EndDeadlock {
        name: tollgate_types::Name::new("jobs").unwrap(),
        create_revision: queued.0,
        blocker: tollgate_types::Token::new(token).unwrap(),
    }));
    for told in [error(group.resolve(&context, queued)), group.error(waiting)] {
        assert_eq!((told.reason(), told.code), (ErrorReason::Deadlock, 10), "{}", told.message);
        assert!(!told.may_have_happened && told.message.contains("over several groups"), "{}", told.message);
    }
}

#[test]
fn who_held_the_lock_already_is_known_by_the_answer() {
    let mut group = Group::new();
    let (context, first) = group.answer(lock("jobs", 1, 0));
    assert!(!context.held_already(&first));
    let (context, again) = group.answer(lock("jobs", 1, 0));
    assert!(context.held_already(&again));
    let response = locked(context.finish(again, &HEADER, None, 0));
    assert!(response.acquired && !response.renewed);
}

#[test]
fn a_cancel_for_a_caller_that_is_gone_leaves_nothing_of_its_request() {
    let mut group = Group::new();
    group.run(lock("jobs", 1, 0));
    let numbered =
        |name, seq| Op::Lock(v1::LockRequest { request: Some(numbered(seq)), ..lock_request(name, 2, -1) });
    let (context, queued) = group.queue(numbered("jobs", 4));
    group.apply(leaving(&context));
    assert_eq!(locked(group.resolve(&context, queued)).end_reason(), EndReason::Cancelled);
    // If the request was granted, the grant is given back.
    let (context, _) = group.answer(numbered("free", 5));
    group.apply(leaving(&context));
    assert!(group.state.lock(&tollgate_types::Name::new("free").unwrap()).is_none());
    assert!(prepared(lock("jobs", 1, -1)).context.cancel().is_none(), "nothing tells what is its own");
}

#[test]
fn one_who_hangs_up_gives_back_only_what_is_known_to_be_that_requests() {
    let seq = |seq| {
        let request = (seq != 0).then(|| numbered(seq));
        v1::LockRequest { request, ..lock_request("jobs", 1, -1) }
    };
    let cancel = |op| prepared(op).context.cancel();
    let of_lock = cancel(Op::Lock(seq(3))).unwrap();
    assert_eq!((of_lock.seq, &*of_lock.name, of_lock.asked_at_most), (3, "jobs", 1));
    assert_eq!(cancel(Op::Lock(seq(0))), None, "it may have been held before");
    let at_once = v1::LockRequest { timeout_ms: 0, ..seq(3) };
    assert_eq!(cancel(Op::Lock(at_once)), None, "it never waits");
    let convert = v1::ConvertRequest {
        name: "jobs".into(),
        lease_id: 1,
        timeout_ms: -1,
        request: seq(3).request,
        ..Default::default()
    };
    assert_eq!(cancel(Op::Convert(convert)), None, "what was held before stays");
}

#[test]
fn only_a_cancel_that_can_give_back_nothing_new_is_repeated() {
    let may_repeat = |seq: u64, release_if_granted| {
        let name = if seq == 0 { "jobs".to_owned() } else { String::new() };
        let cancel =
            v1::CancelWaitRequest { lease_id: 1, seq, name, release_if_granted, ..Default::default() };
        prepared(Op::CancelWait(cancel)).context.may_repeat()
    };
    assert!(may_repeat(3, true) && may_repeat(0, false));
    assert!(!may_repeat(0, true));
}

#[test]
fn a_forced_release_names_the_token() {
    let mut group = Group::new();
    let token = locked(group.run(lock("jobs", 1, 0))).fencing_token;
    let force = |fencing_token| {
        let (name, reason) = ("jobs".into(), "it hangs".into());
        Op::ForceRelease(v1::ForceReleaseRequest { name, fencing_token, reason })
    };
    let stale = group.error(force(token - 1));
    assert_eq!((stale.reason(), stale.fencing_token), (ErrorReason::StaleToken, token));
    let Wire::ForceRelease(done) = group.run(force(token)) else { panic!("released") };
    assert_eq!(done.revision, token + 1);
}

#[test]
fn a_lease_is_granted_renewed_read_and_revoked() {
    let mut group = Group::new();
    let Wire::LeaseGrant(granted) = group.run(grant(7)) else { panic!("granted") };
    assert_eq!((granted.id, granted.ttl, granted.ttl_ms, granted.renewed), (7, 10, 10_000, false));
    let Wire::LeaseGrant(again) = group.run(grant(7)) else { panic!("granted") };
    assert!(again.renewed && again.incarnation == granted.incarnation);
    let other = v1::LeaseGrantRequest { id: 7, ttl: 10, client_id: "other".into(), ..Default::default() };
    assert_eq!(group.error(Op::LeaseGrant(other)).reason(), ErrorReason::LeaseTaken);
    let short = v1::LeaseGrantRequest { ttl_ms: 1, ..Default::default() };
    assert_eq!(group.error(Op::LeaseGrant(short)).reason(), ErrorReason::TtlOutOfRange);

    group.now_ms += 4_000;
    group.run(lock("b", 7, 0));
    group.run(lock("a", 7, 0));
    let time_to_live = |id| Op::LeaseTimeToLive(v1::LeaseTimeToLiveRequest { id, keys: true });
    let Wire::LeaseTimeToLive(left) = group.run(time_to_live(7)) else { panic!("it lives") };
    assert_eq!((left.ttl, left.ttl_ms, left.granted_ttl_ms), (6, 6_000, 10_000));
    let names: Vec<&str> = left.keys.iter().map(|claim| claim.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let lease = left.lease.unwrap();
    assert_eq!((lease.last_seen_ms, lease.claims, lease.address.as_str()), (4_000, 2, "10.0.0.9:1"));

    let keep = |id| Op::LeaseKeepAlive(v1::LeaseKeepAliveRequest { id, seq: 33, ..Default::default() });
    let Wire::LeaseKeepAlive(kept) = group.run(keep(7)) else { panic!("kept") };
    assert_eq!((kept.id, kept.seq, kept.ttl, kept.ttl_ms), (7, 33, 10, 10_000));
    assert!(matches!(group.run(Op::LeaseRevoke(v1::LeaseRevokeRequest { id: 7 })), Wire::LeaseRevoke(_)));
    let Wire::LeaseKeepAlive(gone) = group.run(keep(7)) else { panic!("no error") };
    assert_eq!((gone.id, gone.seq, gone.ttl, gone.ttl_ms), (7, 33, 0, 0));
    assert_eq!(group.error(time_to_live(7)).reason(), ErrorReason::LeaseNotFound);
    assert_eq!(group.error(lock("a", 7, 0)).reason(), ErrorReason::LeaseNotFound);
}

#[test]
fn a_lock_is_shown_with_all_who_hold_and_wait() {
    let mut group = Group::new();
    let get = || Op::GetLock(v1::GetLockRequest { name: "jobs".into(), consistency: 0 });
    let shown = |wire| match wire {
        Wire::GetLock(response) => response.lock.unwrap(),
        other => panic!("{other:?}"),
    };
    let free = shown(group.run(get()));
    assert_eq!((free.name.as_str(), free.holder_count, free.waiter_count), ("jobs", 0, 0));
    group.run(lock("jobs", 1, 0));
    group.queue(lock("jobs", 2, 700));
    let lock = shown(group.run(get()));
    assert_eq!((lock.holder_count, lock.waiter_count, lock.closed_ms), (1, 1, 0));
    let (holder, waiter) = (&lock.holders[0], &lock.waiters[0]);
    assert_eq!((holder.address.as_str(), holder.remaining_ms, holder.held_ms), ("10.0.0.9:1", 10_000, 0));
    assert_eq!((waiter.predecessor_key.as_str(), waiter.remaining_ms), (holder.key.as_str(), 700));
}

/// A leader's time advances between two entries.
#[test]
fn times_are_told_as_of_the_present_not_of_the_last_entry() {
    let mut group = Group::new();
    group.run(lock("jobs", 1, 0));
    group.queue(lock("jobs", 2, 700));
    let now = group.state.now().after(DurationMs::from_ms(200));
    let read = |op: Op| {
        let Prepared { kind: Kind::Read { query, .. }, context, .. } = prepared(op) else { panic!("a read") };
        query.look(Sight { state: &group.state, now, applied: 0 }).result(&context, &HEADER)
    };
    let get = Op::GetLock(v1::GetLockRequest { name: "jobs".into(), consistency: 0 });
    let Wire::GetLock(v1::GetLockResponse { lock: Some(shown), .. }) = read(get) else { panic!("a lock") };
    let (holder, waiter) = (&shown.holders[0], &shown.waiters[0]);
    assert_eq!((holder.held_ms, holder.remaining_ms), (200, 9_800));
    assert_eq!((waiter.waited_ms, waiter.remaining_ms), (200, 500));
    let ttl = Op::LeaseTimeToLive(v1::LeaseTimeToLiveRequest { id: 1, keys: false });
    let Wire::LeaseTimeToLive(told) = read(ttl) else { panic!("a lease") };
    assert_eq!((told.ttl_ms, told.lease.unwrap().remaining_ms), (9_800, 9_800));
}

#[test]
fn registers_are_put_read_ranged_and_deleted() {
    let mut group = Group::new();
    let put = |key: &str| {
        let (key, value) = (key.into(), b"v".to_vec());
        Op::Put(v1::PutRequest { key, value, lease_id: 1, ..Default::default() })
    };
    let Wire::Put(first) = group.run(put("k1")) else { panic!("put") };
    group.run(put("k2"));
    let get = Op::Get(v1::GetRequest { key: b"k1".to_vec(), consistency: 0 });
    let Wire::Get(got) = group.run(get.clone()) else { panic!("got") };
    let register = got.register.unwrap();
    assert_eq!((register.value.as_slice(), register.lease_id), (b"v".as_slice(), 1));
    assert_eq!((register.mod_revision, register.version), (first.revision, 1));
    let range = v1::RangeRequest { prefix: b"k".to_vec(), limit: 1, ..Default::default() };
    let Wire::Range(found) = group.run(Op::Range(range)) else { panic!("found") };
    assert_eq!((found.registers.len(), found.count), (1, 2));
    let delete = Op::Delete(v1::DeleteRequest { all: true, ..Default::default() });
    let Wire::Delete(gone) = group.run(delete) else { panic!("deleted") };
    assert_eq!(gone.deleted, 2);
    let Wire::Get(none) = group.run(get) else { panic!("got") };
    assert_eq!(none.register, None);
}

#[test]
fn a_transaction_tells_its_steps_once() {
    let mut group = Group::new();
    let put = v1::PutRequest { key: b"k".to_vec(), value: b"v".to_vec(), ..Default::default() };
    let get = v1::RangeRequest { key: b"k".to_vec(), ..Default::default() };
    let delete = v1::DeleteRequest { key: b"other".to_vec(), ..Default::default() };
    let step = |op| v1::TxnOp { op: Some(op) };
    let txn = Op::Txn(v1::TxnRequest {
        compares: vec![v1::Compare {
            key: b"k".to_vec(),
            relation: 0,
            against: Some(v1::compare::Against::CreateRevision(0)),
        }],
        then_ops: vec![
            step(v1::txn_op::Op::Put(put)),
            step(v1::txn_op::Op::Get(get)),
            step(v1::txn_op::Op::Delete(delete)),
        ],
        else_ops: vec![],
        request: Some(v1::Request { seq: 3, lease_id: 1, ..Default::default() }),
    });
    let Wire::Txn(done) = group.run(txn.clone()) else { panic!("done") };
    assert!(done.succeeded && !done.without_results);
    let results: Vec<Step> = done.results.into_iter().filter_map(|result| result.result).collect();
    let [Step::Put(put), Step::Get(got), Step::Delete(deleted)] = &results[..] else { panic!("{results:?}") };
    assert_eq!(
        (put.revision, got.registers[0].mod_revision, deleted.deleted),
        (done.revision, put.revision, 0)
    );
    let Wire::Txn(repeat) = group.run(txn) else { panic!("done") };
    assert!(repeat.succeeded && repeat.without_results && repeat.results.is_empty());
    assert_eq!(repeat.revision, done.revision);
}

#[test]
fn an_election_has_one_leader_after_another() {
    let mut group = Group::new();
    let campaign = |lease_id, timeout_ms| {
        let (name, value) = ("boss".into(), format!("node-{lease_id}").into_bytes());
        Op::Campaign(v1::CampaignRequest { name, lease_id, value, timeout_ms, ..Default::default() })
    };
    let leader = || Op::Leader(v1::LeaderRequest { name: "boss".into(), consistency: 0 });
    let led_by = |wire| match wire {
        Wire::Leader(response) => response.leader,
        other => panic!("{other:?}"),
    };
    assert_eq!(led_by(group.run(leader())), None);
    let Wire::Campaign(won) = group.run(campaign(1, -1)) else { panic!("campaigned") };
    let first = won.leader.unwrap();
    assert!(won.elected && first.value == b"node-1" && first.value_revision == first.fencing_token);
    let seen = led_by(group.run(leader())).unwrap();
    assert_eq!((seen.fencing_token, seen.client_id.as_str()), (first.fencing_token, "worker-1"));
    let Wire::Campaign(lost) = group.run(campaign(2, 0)) else { panic!("campaigned") };
    assert!(!lost.elected && lost.leader.unwrap().lease_id == 1);
    let (context, queued) = group.queue(campaign(2, -1));
    let resign = |lease_id, fencing_token| {
        let name = "boss".into();
        Op::Resign(v1::ResignRequest { name, lease_id, fencing_token, ..Default::default() })
    };
    assert!(matches!(group.run(resign(1, first.fencing_token)), Wire::Resign(_)));
    let Wire::Campaign(next) = group.resolve(&context, queued) else { panic!("campaigned") };
    assert!(next.elected && next.leader.unwrap().fencing_token > first.fencing_token);
    assert_eq!(group.error(resign(1, first.fencing_token)).reason(), ErrorReason::NotHeld);
    // A candidate withdraws without a token.
    let (context, queued) = group.queue(campaign(1, -1));
    assert!(matches!(group.run(resign(1, 0)), Wire::Resign(_)));
    let Wire::Campaign(gave_up) = group.resolve(&context, queued) else { panic!("campaigned") };
    assert!(!gave_up.elected && gave_up.end_reason() == EndReason::Cancelled);
}

#[test]
fn what_may_be_repeated_without_a_seq_has_no_second_effect() {
    let may = |op| prepared(op).context.may_repeat();
    assert!(may(lock("a", 1, -1)) && may(grant(3)));
    assert!(may(Op::LeaseKeepAlive(v1::LeaseKeepAliveRequest { id: 1, ..Default::default() })));
    assert!(may(Op::GetLock(v1::GetLockRequest { name: "a".into(), consistency: 0 })));
    assert!(!may(unlock("a", 1, 0)));
    assert!(!may(Op::LeaseGrant(v1::LeaseGrantRequest { ttl: 9, ..Default::default() })));
    let mut release =
        v1::UnlockRequest { name: "a".into(), lease_id: 1, request: Some(numbered(1)), ..Default::default() };
    assert!(may(Op::Unlock(release.clone())));
    release.request = None;
    assert!(!may(Op::Unlock(release)));
}

#[test]
fn an_operation_that_was_not_done_says_why() {
    let context = prepared(unlock("a", 1, 0)).context;
    let unsure = Answer::NotDone(ProposeError::Indeterminate { group: GroupId::MAP });
    let wire = error(context.finish(unsure, &HEADER, None, 0));
    assert!(wire.may_have_happened && wire.message.contains("it has no seq"));
    let context = prepared(lock("a", 1, -1)).context;
    let again = Answer::AskAgain { group: GroupId::MAP, leader: NodeId::new(3) };
    let wire = error(context.finish(again, &HEADER, None, 0));
    assert_eq!((wire.reason(), wire.leader_id), (ErrorReason::Indeterminate, 3));
    let not_home = Answer::Compacted { watch: 1, from: Revision::ZERO, min_revision: Revision::ZERO };
    assert_eq!(error(context.finish(not_home, &HEADER, None, 0)).reason(), ErrorReason::Internal);
}

#[test]
fn an_answer_to_another_question_is_an_internal_error() {
    let context = prepared(grant(3)).context;
    let odd = Answer::Replied { revision: Revision::ZERO, reply: Reply::Done, changed: false };
    assert_eq!(error(context.finish(odd, &HEADER, None, 0)).reason(), ErrorReason::Internal);
}

#[test]
fn the_lease_of_an_operation_is_known() {
    let lease = |op| prepared(op).context.lease().map(tollgate_types::LeaseId::get);
    assert_eq!(lease(lock("a", 1, 0)), Some(1));
    assert_eq!(lease(unlock("a", 0, 5)), None);
    assert_eq!(lease(grant(4)), Some(4));
    assert_eq!(lease(Op::LeaseRevoke(v1::LeaseRevokeRequest { id: 6 })), Some(6));
}
