//! P10: a request repeated with its sequence number has one effect and one answer.

use super::{ensure, histories, must_fail, must_hold};
use crate::commands::{Replica, acquire, cancel_seq, grant, name, request};
use crate::properties::repeat_of;
use crate::snapshots::state_records;
use tollgate_core::{AcquireLock, Bug, Command, Rejection, RenewLeases, Renewal, Reply};
use tollgate_types::{Limit, Limits, Revision, Seq, SeqRanges};

/// A request that ran, and its answer.
struct Sent {
    seq: Seq,
    again: Command,
    /// Incarnation of its lease: tells it from later ones with the same id, which number their requests anew.
    incarnation: Revision,
    lease: tollgate_types::LeaseId,
    reply: Reply,
}

/// True if a repeat got the answer of the first attempt, as far as that is kept.
fn is_same_answer(seq: Seq, first: &Reply, again: &Reply) -> bool {
    match (first, again) {
        // Details are not kept, only the outcome.
        (Reply::TxnDone { succeeded, revision, .. }, again) => {
            *again == Reply::TxnDone { succeeded: *succeeded, revision: *revision, results: Vec::new() }
        }
        (Reply::Rejected(first @ (Rejection::SeqAcked { .. } | Rejection::RejectedBefore { .. })), again) => {
            *again == Reply::Rejected(first.clone())
        }
        (Reply::Rejected(first), again) => {
            *again == Reply::Rejected(Rejection::RejectedBefore { seq, code: first.code() })
        }
        (first, again) => first == again,
    }
}

/// Like [`is_same_answer`], after others had their turn: a waiter may hold by now, and a holder may have ended.
fn is_later_answer(seq: Seq, first: &Reply, again: &Reply) -> bool {
    let acked = Reply::Rejected(Rejection::SeqAcked { seq });
    is_same_answer(seq, first, again)
        || *again == acked
        || match (first, again) {
            (Reply::Queued { .. }, Reply::Queued { .. } | Reply::Acquired { .. } | Reply::Ended { .. })
            | (Reply::Busy { .. }, Reply::Busy { .. }) => true,
            (Reply::Acquired { token, .. }, Reply::Acquired { token: now, .. }) => token <= now,
            (Reply::Acquired { token, .. }, Reply::Ended { token: had, .. }) => Some(*token) <= *had,
            _ => false,
        }
}

/// Repeats a request at the same log time, in a state in which nothing is due: any change would be the repeat's.
fn repeat(replica: &mut Replica, sent: &Sent) -> Result<Reply, String> {
    // An entry also drops the oldest events of a history that the entry before made too long.
    replica.at(replica.state.now().ms(), Command::Tick);
    let (revision, before) = (replica.state.revision(), state_records(&replica.state));
    let applied = replica.at(replica.state.now().ms(), sent.again.clone());
    ensure!(applied.revision == revision, "{:?} took a revision, answer {:?}", sent.again, applied.reply);
    ensure!(applied.resolved.is_empty(), "{:?} ended waits", sent.again);
    let after = state_records(&replica.state);
    let same = match &applied.reply {
        Reply::Queued { .. } | Reply::Acquired { .. } => differs_by_a_count(&before, &after),
        _ => before == after,
    };
    ensure!(same, "{:?} changed the state, answer {:?}", sent.again, applied.reply);
    Ok(applied.reply)
}

/// True if two states are the same except for the number of requests for one claim: a flag and a number of at most 5
/// bytes.
fn differs_by_a_count(before: &[u8], after: &[u8]) -> bool {
    const COUNT_BYTES_MAX: usize = 6;
    let shared = before.len().min(after.len());
    let first = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let last = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
    let last = last.min(shared - first);
    before.len() - first - last <= COUNT_BYTES_MAX && after.len() - first - last <= COUNT_BYTES_MAX
}

/// Sends every request of random histories twice in a row, and some again much later, with snapshots in between.
fn a_repeat_changes_nothing_and_is_told_the_same(bug: Option<Bug>) -> Result<(), String> {
    let mut repeats = 0;
    for history in histories() {
        let mut replica = Replica::new(&history.limits, bug);
        let mut sent: Vec<Sent> = Vec::new();
        for (i, entry) in history.entries.iter().enumerate() {
            let reply = replica.apply(entry).reply;
            if i % 40 == 23 {
                replica.restore(700)?;
            }
            if !replica.is_idle() {
                continue;
            }
            let told = |why| format!("seed {}, entry {i}: {why}", history.seed);
            if let Some(new) = first_attempt(&replica, &entry.command, reply) {
                let again = repeat(&mut replica, &new).map_err(told)?;
                ensure!(
                    is_same_answer(new.seq, &new.reply, &again),
                    "{}",
                    told(format!("{:?}, then {again:?}", new.reply))
                );
                sent.push(new);
                repeats += 1;
            }
            let old = sent.len().checked_sub(20).map(|at| &sent[at]);
            if let Some(old) = old.filter(|old| incarnation(&replica, old.lease) == Some(old.incarnation)) {
                let again = repeat(&mut replica, old).map_err(told)?;
                ensure!(
                    is_later_answer(old.seq, &old.reply, &again),
                    "{}",
                    told(format!("{:?}, later {again:?}", old.reply))
                );
            }
        }
    }
    ensure!(repeats > 1_000, "only {repeats} requests were repeated");
    Ok(())
}

/// Incarnation of a lease; for a stub, the revision at which it was added, because a stub of the same lease that is
/// added later numbers its requests anew.
fn incarnation(replica: &Replica, lease: tollgate_types::LeaseId) -> Option<Revision> {
    replica.state.lease(lease).map(|view| view.stub.map_or(view.incarnation, |stub| stub.added))
}

/// None for a command without identity, and for one that was refused because too many requests are in flight or because
/// the stub is pending: it may still run.
fn first_attempt(replica: &Replica, command: &Command, reply: Reply) -> Option<Sent> {
    let (lease, seq, again) = repeat_of(command)?;
    let in_flight = Limit::OpsInFlightPerLease;
    if matches!(&reply, Reply::Rejected(Rejection::LimitExceeded { limit, .. }) if *limit == in_flight) {
        return None;
    }
    if matches!(&reply, Reply::Rejected(Rejection::StubPending { lease: pending, .. }) if *pending == lease) {
        return None;
    }
    // Another request had the seq before.
    if matches!(reply, Reply::Rejected(Rejection::SeqReused { .. })) {
        return None;
    }
    Some(Sent { seq, again, incarnation: incarnation(replica, lease)?, lease, reply })
}

/// The client has the answer, so nobody waits for the duplicate: it takes nothing.
fn a_delayed_duplicate_of_an_acknowledged_request_takes_nothing(bug: Option<Bug>) -> Result<(), String> {
    let mut replica = Replica::new(&Limits::DEFAULT, bug);
    replica.at(0, grant(1, 60_000));
    let first = Command::AcquireLock(AcquireLock { request: request(1), ..acquire(1, &["jobs"]) });
    replica.at(0, first.clone());
    replica.at(0, crate::commands::unlock(1, "jobs"));
    let acked = SeqRanges::new(vec![(1, 1)]).expect("one range");
    let renewals = vec![Renewal { lease: crate::commands::lease(1), address: None, acked }];
    replica.at(0, Command::RenewLeases(RenewLeases { renewals }));
    let reply = replica.at(0, first).reply;
    ensure!(matches!(reply, Reply::Rejected(Rejection::SeqAcked { .. })), "{reply:?}");
    ensure!(replica.state.lock(&name("jobs")).is_none(), "the lock went to nobody");
    Ok(())
}

/// A cancel that overtook its request: the request never runs.
fn a_request_that_was_cancelled_before_it_came_takes_nothing(bug: Option<Bug>) -> Result<(), String> {
    let mut replica = Replica::new(&Limits::DEFAULT, bug);
    replica.at(0, grant(1, 60_000));
    let reply = replica.at(0, cancel_seq(1, 7)).reply;
    ensure!(reply == Reply::Cancelled, "{reply:?}");
    let late = Command::AcquireLock(AcquireLock { request: request(7), ..acquire(1, &["jobs"]) });
    let reply = replica.at(0, late).reply;
    ensure!(matches!(reply, Reply::Ended { token: None, .. }), "{reply:?}");
    ensure!(replica.state.lock(&name("jobs")).is_none(), "the lock went to nobody");
    Ok(())
}

#[test]
fn p10_a_repeat_has_no_effect_and_the_same_answer() {
    must_hold(a_repeat_changes_nothing_and_is_told_the_same);
    must_fail(a_repeat_changes_nothing_and_is_told_the_same, Bug::RepeatRunsAgain);
    must_fail(a_repeat_changes_nothing_and_is_told_the_same, Bug::AckedSeqRunsAgain);
    must_fail(a_repeat_changes_nothing_and_is_told_the_same, Bug::OutcomesLostInSnapshot);
}

#[test]
fn p10_a_delayed_duplicate_takes_nothing() {
    must_hold(a_delayed_duplicate_of_an_acknowledged_request_takes_nothing);
    must_fail(a_delayed_duplicate_of_an_acknowledged_request_takes_nothing, Bug::AckedSeqRunsAgain);
}

#[test]
fn p10_a_cancel_that_comes_first_wins() {
    must_hold(a_request_that_was_cancelled_before_it_came_takes_nothing);
    must_fail(a_request_that_was_cancelled_before_it_came_takes_nothing, Bug::TombstoneForgotten);
}
