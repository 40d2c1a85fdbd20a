//! P4, P13: acknowledged grants and leases are there when somebody looks, and released ones are not.
//!
//! Looks at each read, final state and lease alone, without the search: a grant that was known before the read began,
//! and that nothing can have ended by the end of the read, must be shown; a grant whose end was known must not. The
//! grants of a lease are gone with it in its home; other groups are told of the end later. Not here: registers.

use crate::call::{Holder, Op, Outcome};
use crate::event::Event;
use crate::evidence::{Evidence, Grant, Seen, Track, View};
use crate::report::{Promise, Report};

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for track in &evidence.tracks.0 {
        for view in &track.views {
            if let Seen::Exactly(holders, _) = view.seen {
                look(track, view, holders, report);
            }
        }
    }
    leases_found(evidence, report);
    leases_gone(evidence, report);
    leases_kept(evidence, report);
}

fn look(track: &Track<'_>, view: &View<'_>, holders: &[Holder], report: &mut Report) {
    let where_seen = if view.promise == Promise::P4 { "the final state" } else { "a read" };
    let mut blame = |grant: &Grant<'_>, what: &str| {
        let says = format!(
            "{where_seen} of {} {what}: {}/{} with token {}",
            track.name, grant.lease, grant.owner, grant.token
        );
        report.broken(view.promise, grant.events.iter().chain(&view.events).copied().collect(), says);
    };
    for grant in &track.grants {
        let shown = holders.iter().any(|holder| holder.token == grant.token && holder.lease == grant.lease);
        if shown && grant.ends_by < view.open {
            blame(grant, "shows a grant that had ended");
        }
        let surely = grant.told_by.is_some() && grant.close < view.open && grant.ends_from > view.close;
        if surely && !shown {
            blame(grant, "lacks an acknowledged grant");
        }
    }
}

/// Checks that every call finds a lease that lives.
fn leases_found(evidence: &Evidence<'_>, report: &mut Report) {
    for call in &evidence.calls.all {
        let answers = call.returned.into_iter().chain(call.again.iter().map(|again| (again.0, again.1)));
        let not_found = answers.filter(|(_, outcome)| matches!(outcome, Outcome::LeaseNotFound));
        let Some(place) = not_found.map(|(place, _)| place).min() else { continue };
        let lease = match call.op {
            Op::KeepAlive { lease } | Op::RevokeLease { lease } => *lease,
            _ => match call.claim() {
                Some((_, who)) => who.0,
                None => continue,
            },
        };
        let lives = |lease: &&crate::evidence::Lease| {
            lease.group == Some(call.group) && lease.surely_lives(call.invoked, place)
        };
        if let Some(lease) = evidence.leases.incarnations(lease).find(lives) {
            let says = format!(
                "lease {} was not found by {}, but it can't have ended before {}",
                lease.id, call.id, lease.expires_from
            );
            report.broken(Promise::P4, vec![call.invoked, place], says);
        }
    }
}

/// Checks that a lease that has ended is granted nothing in its home.
fn leases_gone(evidence: &Evidence<'_>, report: &mut Report) {
    let leases = &evidence.leases;
    for (track, grant) in
        evidence.tracks.0.iter().flat_map(|track| track.grants.iter().map(move |g| (track, g)))
    {
        let Some(lease) = leases.under(grant.lease, grant.group, grant.token.get()) else { continue };
        if lease.group != Some(grant.group) || leases.may_live_anew(lease, grant.close) {
            continue;
        }
        let ended = lease.ended_at_home().filter(|ended| ended.revision.get() < grant.token.get());
        let revoked = lease.revoked.filter(|(_, told)| *told < grant.open);
        if let Some(gone) = ended.map(|ended| ended.place).or(revoked.map(|(_, told)| told)) {
            let says = format!(
                "{} was granted to {}/{} with token {}, but that lease had ended",
                track.name, grant.lease, grant.owner, grant.token
            );
            report.broken(Promise::P4, grant.events.iter().copied().chain([gone]).collect(), says);
        }
    }
}

/// Checks that the final state shows every lease that lives, and none that had ended.
fn leases_kept(evidence: &Evidence<'_>, report: &mut Report) {
    for (place, event) in evidence.timeline.iter() {
        let Event::FinalState { group, asked, leases, .. } = event else { continue };
        let open = evidence.timeline.place(*asked).min(place);
        for lease in evidence.leases.all.iter().filter(|lease| lease.group == Some(*group)) {
            let shown = leases.contains(&(lease.id, lease.incarnation));
            if !shown && lease.surely_lives(open, place) {
                let says = format!("the final state lacks lease {}, which lives", lease.id);
                report.broken(Promise::P4, vec![place], says);
            }
            if shown && lease.ended_at_home().is_some_and(|ended| ended.place < open) {
                let says = format!("the final state shows lease {}, which had ended", lease.id);
                report.broken(Promise::P4, vec![place], says);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::call::Outcome;
    use crate::checks::scenario::Scenario;
    use crate::report::Promise::{P4, P13};
    use tollgate_types::Mode;

    #[test]
    fn a_final_state_with_all_that_was_acknowledged_passes() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).lock("b", 2, 11).unlock("b", 2, 12).final_state(12, &[1, 2], &[("a", 1, 10)]);
        run.passes();
    }

    #[test]
    fn a_lost_grant_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).final_state(12, &[1], &[]);
        run.breaks(P4, "the final state of a lacks an acknowledged grant");
    }

    /// The first attempt of the cancel released the grant, and the answer to that attempt was lost with a leader.
    #[test]
    fn a_grant_that_a_repeated_cancel_gave_back_is_not_lost() {
        let run = |release_if_granted| {
            let mut run = Scenario::with_leases(1);
            let call = run.wait_for("a", 1, Mode::Exclusive);
            run.cancel_told_released(call, 1, 10, release_if_granted).read("a", 11, &[]);
            run
        };
        run(true).passes();
        run(false).breaks(P13, "a read of a lacks an acknowledged grant");
    }

    #[test]
    fn a_lost_release_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).unlock("a", 1, 11).final_state(12, &[1], &[("a", 1, 10)]);
        run.breaks(P4, "the final state of a shows a grant that had ended");
    }

    #[test]
    fn a_read_that_lacks_a_grant_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).read("a", 10, &[]);
        run.breaks(P13, "a read of a lacks an acknowledged grant");
    }

    #[test]
    fn a_lost_lease_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.final_state(12, &[1], &[]);
        run.breaks(P4, "the final state lacks lease L-0000000000000002");
    }

    #[test]
    fn a_lease_that_is_not_found_though_it_was_renewed_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(8_000).keep_alive(1).wait_ms(5_000).keep_alive_not_found(1);
        run.breaks(P4, "lease L-0000000000000001 was not found");
    }

    #[test]
    fn a_repeat_that_finds_no_lease_though_it_lives_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        let call = run.lock("a", 1, 10).last_call();
        run.again(call, Outcome::LeaseNotFound);
        run.breaks(P4, "lease L-0000000000000001 was not found");
    }

    #[test]
    fn a_grant_that_outlives_an_acknowledged_revocation_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).revoke(1).read("a", 10, &[(1, 10)]);
        run.breaks(P13, "a read of a shows a grant that had ended");
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).revoke(1).final_state(11, &[], &[("a", 1, 10)]);
        run.breaks(P4, "the final state of a shows a grant that had ended");
    }

    #[test]
    fn a_revocation_without_an_answer_proves_nothing() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 10).revoke_unanswered(1).read("a", 10, &[(1, 10)]).read("a", 11, &[]);
        run.passes();
    }

    #[test]
    fn a_grant_to_a_lease_that_was_revoked_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.revoke(1).lock("a", 1, 10);
        run.breaks(P4, "a was granted to L-0000000000000001/");
        let mut run = Scenario::with_leases(1);
        run.revoke(1).grant_anew(1, 8).lock("a", 1, 10).read("a", 10, &[(1, 10)]);
        run.passes();
        let mut run = Scenario::with_leases(1);
        run.revoke(1).grant_unanswered(1).lock("a", 1, 10).read("a", 10, &[(1, 10)]);
        run.passes();
    }

    #[test]
    fn a_grant_above_the_revision_at_which_its_lease_ended_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        let call = run.wait_ms(5_000).wait_for("a", 1, Mode::Exclusive);
        run.wait_ms(5_100).lease_expired(1, 9).granted(call, 10, 10, Mode::Exclusive);
        run.breaks(P4, "that lease had ended");
        let mut run = Scenario::with_leases(1);
        let call = run.wait_ms(5_000).wait_for("a", 1, Mode::Exclusive);
        run.wait_ms(5_100).lease_expired(1, 11).granted(call, 10, 10, Mode::Exclusive);
        run.passes();
    }

    #[test]
    fn a_lease_that_is_not_found_after_its_time_passes() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_000).keep_alive_not_found(1);
        run.passes();
    }
}
