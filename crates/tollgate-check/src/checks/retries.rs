//! P10: a repeated request has one effect and one answer.
//!
//! A later answer may say what became of the effect since, and of nothing else: a grant that has ended or was upgraded,
//! who is in the way by now. Not here: a grant that no request explains, which is found where grants are put together.

use crate::call::{EndReason, Op, Outcome};
use crate::evidence::{Call, Evidence};
use crate::report::{Promise, Report};

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for call in &evidence.calls.all {
        let Some((mut before_place, mut before)) =
            call.returned.or(call.again.first().map(|again| (again.0, again.1)))
        else {
            continue;
        };
        for (place, outcome, _) in &call.again {
            // Answers may arrive in another order than they were made.
            let fits = may_follow(before, outcome) || may_follow(outcome, before);
            if !fits || (other_grant(before, outcome) && !asked_for_more(evidence, call, *place)) {
                let says = format!("{} was answered {before:?}, and then {outcome:?}", call.id);
                report.broken(Promise::P10, vec![call.invoked, before_place, *place], says);
            }
            (before_place, before) = (*place, outcome);
        }
        returns_once(call, report);
    }
}

/// Whether two answers tell of different grants.
fn other_grant(first: &Outcome, then: &Outcome) -> bool {
    matches!((first, then), (Outcome::Granted { token, .. }, Outcome::Granted { token: other, .. }) if token != other)
}

/// Whether the same holder had asked for a stronger mode by then: only that gives a grant another token.
fn asked_for_more(evidence: &Evidence<'_>, call: &Call<'_>, place: usize) -> bool {
    let holder = |op: &Op| match op {
        Op::Lock { lease, owner, .. } | Op::Convert { lease, owner, .. } => Some((*lease, owner.clone())),
        _ => None,
    };
    let who = holder(call.op);
    let mut others = evidence.calls.all.iter().filter(|other| other.id != call.id && other.invoked < place);
    others.any(|other| who.is_some() && holder(other.op) == who)
}

fn returns_once(call: &Call<'_>, report: &mut Report) {
    let waits = matches!(call.op, Op::Lock { .. } | Op::Convert { .. });
    if let Some((place, _, _)) = call.again.iter().find(|(_, _, returned)| *returned && waits) {
        let says = format!("{} ended twice for its client", call.id);
        report.broken(Promise::P8, call.events().into_iter().chain([*place]).collect(), says);
    }
}

/// Whether an answer to a request can be followed by another to the same request.
fn may_follow(first: &Outcome, then: &Outcome) -> bool {
    use Outcome::{
        Busy, Cancelled, Ended, Granted, LeaseGranted, LeaseNotFound, LeaseRevoked, Lock, Refused, Register,
    };
    match (first, then) {
        (Granted { token, .. }, Granted { token: later, .. }) => later >= token,
        (Granted { token, .. }, Ended { token: Some(ended), .. }) => ended >= token,
        // The end of a waiter is told without the token of what its owner held meanwhile; a repeat may know it.
        (Ended { token: None, reason }, Ended { reason: later, .. })
        | (Ended { reason, .. }, Ended { token: None, reason: later }) => reason == later,
        // Once its lease is gone a request is refused, and one that was acknowledged is a stray.
        (_, LeaseNotFound | Refused)
        | (Cancelled, Ended { token: None, reason: EndReason::Cancelled })
        | (Ended { token: None, reason: EndReason::Cancelled }, Cancelled)
        | (Busy { .. }, Busy { .. })
        | (LeaseRevoked, LeaseRevoked)
        | (Lock { .. }, Lock { .. })
        | (Register { .. }, Register { .. }) => true,
        (LeaseGranted { lease, incarnation, .. }, LeaseGranted { lease: other, incarnation: later, .. }) => {
            lease == other && later >= incarnation
        }
        _ => first == then,
    }
}

#[cfg(test)]
mod tests {
    use crate::call::{EndReason, Outcome};
    use crate::checks::scenario::{Scenario, granted};
    use crate::report::Promise::{P8, P10};
    use tollgate_types::{Mode, Revision, Token};

    #[test]
    fn a_repeat_that_is_told_the_same_passes() {
        let mut run = Scenario::with_leases(1);
        let call = run.wait_for("a", 1, Mode::Exclusive);
        run.granted(call, 5, 5, Mode::Exclusive)
            .again(call, granted(5, 5, Mode::Exclusive))
            .unlock("a", 1, 6);
        let ended = Outcome::Ended { token: Some(Token::new(5).unwrap()), reason: EndReason::Released };
        run.again(call, ended);
        run.passes();
    }

    #[test]
    fn a_repeat_may_know_the_token_that_ended() {
        let ended = |token| Outcome::Ended { token, reason: EndReason::MaxHold };
        let token = Token::new(7).ok();
        assert!(super::may_follow(&ended(None), &ended(token)));
        assert!(!super::may_follow(&ended(Token::new(8).ok()), &ended(token)));
    }

    #[test]
    fn two_grants_by_one_request_are_a_violation() {
        let granted = |token: u64| Outcome::Granted {
            token: Token::new(token).expect("a token"),
            create_revision: None,
            mode: Mode::Exclusive,
        };
        assert!(super::other_grant(&granted(5), &granted(9)));
        assert!(!super::other_grant(&granted(5), &granted(5)));
    }

    #[test]
    fn two_answers_are_a_violation() {
        let mut run = Scenario::with_leases(1);
        let call = run.wait_for("a", 1, Mode::Exclusive);
        run.granted(call, 5, 5, Mode::Exclusive);
        run.again(call, Outcome::Ended { token: None, reason: EndReason::TimedOut });
        run.breaks(P10, "was answered Granted");
    }

    #[test]
    fn two_releases_by_one_request_are_a_violation() {
        let mut run = Scenario::with_leases(1);
        let call = run.lock("a", 1, 5).unlock("a", 1, 6).last_call();
        run.again(call, Outcome::Released { revision: Revision::new(8).unwrap() });
        run.breaks(P10, "Released { revision: r8 }");
    }

    #[test]
    fn a_waiter_that_ends_twice_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        let call = run.wait_for("a", 1, Mode::Exclusive);
        run.granted(call, 5, 5, Mode::Exclusive).granted(call, 5, 5, Mode::Exclusive);
        run.breaks(P8, "ended twice");
    }

    #[test]
    fn a_grant_that_nobody_asked_for_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 5).unlock("a", 1, 6).read("a", 7, &[(1, 7)]);
        run.breaks(P10, "none of its requests can have been granted it");
    }
}
