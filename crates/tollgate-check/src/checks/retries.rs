//! P10: a repeated request has one effect and one answer.
//!
//! A later answer may report what has become of the effect since, and nothing else: a grant that has ended or was
//! upgraded, the holders that are in the way by now, or that the lease is gone and with it what was known of the
//! request. Not here: a grant that no request explains, which is found where grants are put together (`evidence`), and
//! a lease that is not found though it lives (`durability`).

use crate::call::{EndReason, Op, Outcome};
use crate::evidence::{Call, Evidence};
use crate::report::{Promise, Report};
use tollgate_types::{Mode, Name, Token};

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for call in &evidence.calls.all {
        returns_once(call, report);
        if !call.again.is_empty() {
            agree(evidence, call, report);
        }
    }
}

/// Checks that any two answers agree, not only neighbours: between two grants there may be an answer that agrees with
/// both.
fn agree(evidence: &Evidence<'_>, call: &Call<'_>, report: &mut Report) {
    let again = call.again.iter().map(|(place, outcome, _)| (*place, *outcome));
    let mut answers: Vec<(usize, &Outcome)> = call.returned.into_iter().chain(again).collect();
    answers.sort_by_key(|(place, _)| *place);
    for (nth, &(place, outcome)) in answers.iter().enumerate() {
        let upgraded = |token, mode, later| is_upgrade(evidence, call, (token, mode), (later, place));
        let clashes = |&&(earlier, before): &&(usize, &Outcome)| {
            // Answers may arrive in another order than they were made in.
            let fits = may_follow(before, outcome, upgraded) || may_follow(outcome, before, upgraded);
            !fits || is_back_from_the_dead(evidence, call, (earlier, before), (place, outcome))
        };
        if let Some((earlier, before)) = answers[..nth].iter().find(clashes) {
            let says = format!("{} was answered {before:?}, and then {outcome:?}", call.id);
            report.broken(Promise::P10, vec![call.invoked, *earlier, place], says);
            return;
        }
    }
}

/// Returns true if a grant to this request can have got another token by an upgrade: by then its holder had requested a
/// stronger mode, for a lock on which no end of the first grant is known.
fn is_upgrade(
    evidence: &Evidence<'_>,
    call: &Call<'_>,
    (token, mode): (Token, Mode),
    (later, place): (Token, usize),
) -> bool {
    let Some((names, who)) = call.claim() else { return false };
    let gone = |name: &Name| {
        let track = evidence.tracks.0.iter().find(|track| track.name == name);
        let mut grants = track.into_iter().flat_map(|track| &track.grants);
        grants.any(|grant| {
            let ended = grant.ended.is_some_and(|ended| ended.get() < later.get());
            grant.token == token && grant.who() == who && ended
        })
    };
    let kept: Vec<&Name> = names.as_slice().iter().filter(|name| !gone(name)).collect();
    let about_it = |other: &&Call<'_>| {
        let same = other.claim().filter(|(_, other_who)| *other_who == who);
        let shares = same.is_some_and(|(names, _)| kept.iter().any(|name| names.contains(name)));
        other.id != call.id && other.invoked < place && shares
    };
    // A grant that a conversion may have made weaker can be made as strong again, and then has another token.
    let mut modes = vec![mode];
    let mut wanted = Vec::new();
    for other in evidence.calls.all.iter().filter(about_it) {
        let (Op::Lock { mode, .. } | Op::Convert { mode, .. }) = other.op else { continue };
        if matches!(other.op, Op::Convert { .. }) {
            modes.push(*mode);
        }
        let in_vain = matches!(
            other.outcome(),
            Some(Outcome::Busy { .. } | Outcome::Deadlock | Outcome::NotHeld | Outcome::Refused)
        );
        if !in_vain {
            wanted.push(*mode);
        }
    }
    wanted.iter().any(|wanted| modes.iter().any(|mode| !mode.covers(*wanted)))
}

/// Returns true if an effect came after an answer that its lease is gone. That answer was made before it arrived, and
/// the effect may be older still, unless its revision is above that of a call which was made after the arrival.
fn is_back_from_the_dead(
    evidence: &Evidence<'_>,
    call: &Call<'_>,
    (earlier, before): (usize, &Outcome),
    (place, outcome): (usize, &Outcome),
) -> bool {
    let (Outcome::LeaseNotFound, Some(revision), Some((_, (lease, _)))) =
        (before, made_at(outcome), call.claim())
    else {
        return false;
    };
    // In a group other than its home the lease may arrive late, and an id may be granted again.
    let mut known = evidence.leases.incarnations(lease);
    let (Some(lease), None) = (known.next(), known.next()) else { return false };
    if lease.group != Some(call.group) || evidence.leases.may_live_anew(lease, place) {
        return false;
    }
    evidence.calls.all.iter().any(|other| {
        let below = other.outcome().and_then(as_of).is_some_and(|as_of| as_of < revision);
        other.group == call.group && other.invoked > earlier && below
    })
}

/// Returns the revision of the effect that an answer reports.
fn made_at(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Granted { token, .. } => Some(token.get()),
        Outcome::Released { revision } | Outcome::Written { revision } => Some(revision.get()),
        _ => None,
    }
}

/// Returns a revision that the group reached while the call was under way. A grant shows none: a request by a holder is
/// answered with the token that it already has.
fn as_of(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Released { revision }
        | Outcome::Written { revision }
        | Outcome::Lock { revision, .. }
        | Outcome::Register { revision, .. } => Some(revision.get()),
        _ => None,
    }
}

fn returns_once(call: &Call<'_>, report: &mut Report) {
    let waits = matches!(call.op, Op::Lock { .. } | Op::Convert { .. });
    if let Some((place, _, _)) = call.again.iter().find(|(_, _, returned)| *returned && waits) {
        let says = format!("{} ended twice for its client", call.id);
        report.broken(Promise::P8, call.events().into_iter().chain([*place]).collect(), says);
    }
}

/// Returns true if an answer to a request can be followed by another to the same request; `upgraded` tells whether a
/// grant with a token and mode can have got a later token.
fn may_follow(first: &Outcome, then: &Outcome, upgraded: impl Fn(Token, Mode, Token) -> bool) -> bool {
    use Outcome::{
        Busy, Cancelled, Ended, Granted, LeaseGranted, LeaseNotFound, LeaseRevoked, Lock, Register,
    };
    match (first, then) {
        (Granted { token, mode, .. }, Granted { token: later, .. } | Ended { token: Some(later), .. }) => {
            later == token || (later > token && upgraded(*token, *mode, *later))
        }
        // The end of a waiter is reported without the token of what its owner held meanwhile; a repeat may know the
        // token.
        (Ended { token: None, reason }, Ended { reason: later, .. })
        | (Ended { reason, .. }, Ended { token: None, reason: later }) => reason == later,
        // Once the lease is gone, the fate of its requests is unknown.
        (_, LeaseNotFound)
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
        let never = |_, _, _| false;
        assert!(super::may_follow(&ended(None), &ended(token), never));
        assert!(!super::may_follow(&ended(Token::new(8).ok()), &ended(token), never));
    }

    #[test]
    fn two_grants_by_one_request_are_a_violation() {
        let mut run = Scenario::with_leases(1);
        let call = run.wait_for("a", 1, Mode::Exclusive);
        run.granted(call, 5, 5, Mode::Exclusive).unlock("a", 1, 6);
        run.again(call, granted(9, 9, Mode::Exclusive));
        run.breaks(P10, "was answered Granted { token: t5");
    }

    #[test]
    fn two_grants_are_a_violation_whatever_stands_between_them() {
        let mut run = Scenario::with_leases(1);
        let call = run.wait_for("a", 1, Mode::Exclusive);
        run.granted(call, 5, 5, Mode::Exclusive).unlock("a", 1, 6).wait_ms(10_100).lease_expired(1, 20);
        run.again(call, Outcome::LeaseNotFound).again(call, granted(9, 9, Mode::Exclusive));
        run.breaks(P10, "was answered Granted { token: t5");
    }

    #[test]
    fn a_grant_that_was_upgraded_is_told_with_its_new_token() {
        let mut run = Scenario::with_leases(1);
        let call = run.lock_as("a", 1, 5, Mode::Shared).last_call();
        run.convert("a", 1, 7, Mode::Exclusive).again(call, granted(7, 5, Mode::Exclusive));
        run.passes();
        let ended = Outcome::Ended { token: Some(Token::new(7).unwrap()), reason: EndReason::Released };
        run.unlock("a", 1, 8).again(call, ended);
        run.passes();
    }

    #[test]
    fn a_grant_that_was_made_weaker_can_be_made_as_strong_again() {
        let mut run = Scenario::with_leases(1);
        let call = run.lock("a", 1, 5).last_call();
        run.convert("a", 1, 5, Mode::Shared).convert("a", 1, 7, Mode::Exclusive);
        run.again(call, granted(7, 5, Mode::Exclusive));
        run.passes();
    }

    #[test]
    fn what_is_no_upgrade_gives_no_other_token() {
        // The conversion asked for less.
        let mut run = Scenario::with_leases(1);
        let call = run.lock("a", 1, 5).last_call();
        run.convert("a", 1, 5, Mode::Shared).again(call, granted(7, 5, Mode::Exclusive));
        run.breaks(P10, "was answered Granted { token: t5");
        // The request asked for more, of another lock.
        let mut run = Scenario::with_leases(1);
        let call = run.lock_as("a", 1, 5, Mode::Shared).last_call();
        run.lock("b", 1, 6).again(call, granted(7, 5, Mode::Exclusive));
        run.breaks(P10, "was answered Granted { token: t5");
        // The request asked for more after the first grant had ended.
        let mut run = Scenario::with_leases(1);
        let call = run.lock_as("a", 1, 5, Mode::Shared).last_call();
        run.unlock("a", 1, 6).lock("a", 1, 7).again(call, granted(7, 5, Mode::Exclusive));
        run.breaks(P10, "was answered Granted { token: t5");
    }

    #[test]
    fn a_refusal_goes_with_no_other_answer() {
        let mut run = Scenario::with_leases(1);
        let call = run.lock("a", 1, 5).last_call();
        run.again(call, Outcome::Refused);
        run.breaks(P10, "and then Refused");
    }

    #[test]
    fn a_request_whose_lease_is_gone_may_be_told_so_before_its_first_answer_arrives() {
        let mut run = Scenario::with_leases(1);
        let call = run.wait_for("a", 1, Mode::Exclusive);
        run.wait_ms(10_100).lease_expired(1, 7).again(call, Outcome::LeaseNotFound).read("a", 7, &[]);
        run.again(call, granted(5, 5, Mode::Exclusive));
        run.passes();
    }

    #[test]
    fn an_effect_after_the_lease_was_gone_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        let call = run.wait_for("a", 1, Mode::Exclusive);
        run.wait_ms(10_100).again(call, Outcome::LeaseNotFound).read("b", 4, &[]);
        run.again(call, granted(5, 5, Mode::Exclusive));
        run.breaks(P10, "was answered LeaseNotFound, and then Granted");
    }

    #[test]
    fn a_token_of_old_does_not_show_what_came_first() {
        let mut run = Scenario::with_leases(2);
        run.lock("b", 2, 4);
        let call = run.wait_for("a", 1, Mode::Exclusive);
        run.wait_ms(5_000).keep_alive(2).wait_ms(5_100).again(call, Outcome::LeaseNotFound);
        run.convert("b", 2, 4, Mode::Shared).again(call, granted(5, 5, Mode::Exclusive));
        run.passes();
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
