//! P5 and P6: a lease ends neither early nor late.
//!
//! Early: before the TTL has passed since a leader received the last acknowledged renewal, on any trusted clock. Late:
//! after the TTL since the last renewal that can have happened, plus the slack, plus what elections and pauses add,
//! plus the time for which the network carried the entry that ended the lease. A stub has the slack and all of these
//! additions once more, and the time for which its group could not hear of the end. Where no server was recorded, only
//! what calls show is judged. Not here: whether the client knew (`belief`).

use crate::at::At;
use crate::call::{Op, Outcome};
use crate::event::{Event, LeaseEnd};
use crate::evidence::{Call, Evidence, Lease};
use crate::report::{Promise, Report};
use tollgate_types::GroupId;

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let over =
        evidence.timeline.iter().find(|(_, event)| matches!(event, Event::End)).map(|(place, _)| place);
    for call in &evidence.calls.all {
        not_renewed_when_gone(evidence, call, report);
    }
    for lease in &evidence.leases.all {
        not_early(evidence, lease, report);
        if evidence.settings.server_side {
            not_late(evidence, lease, over, report);
        }
    }
}

/// Reports a keepalive that was sent after its lease had ended, and acknowledged: by a node that could not know.
fn not_renewed_when_gone(evidence: &Evidence<'_>, call: &Call<'_>, report: &mut Report) {
    let (lease, gone) = match (call.op, call.outcome()) {
        (Op::KeepAlive { lease }, Some(Outcome::Renewed { .. })) => {
            (lease, evidence.leases.gone_before(*lease, call))
        }
        (_, Some(Outcome::LeaseGranted { lease, incarnation, renewed: true, .. })) => {
            let mut known = evidence.leases.incarnations(*lease);
            let renewed = known.find(|known| known.incarnation == *incarnation);
            (lease, renewed.and_then(Lease::gone_from).filter(|gone| *gone < call.invoked))
        }
        _ => return,
    };
    if let Some(gone) = gone {
        let says = format!("lease {lease} had ended when a keepalive of it was sent, and acknowledged");
        report.broken(Promise::P4, call.events().into_iter().chain([gone]).collect(), says);
    }
}

fn not_early(evidence: &Evidence<'_>, lease: &Lease, report: &mut Report) {
    for ended in &lease.ended {
        let at = evidence.timeline.at(ended.place);
        if ended.stub && evidence.settings.server_side {
            // The end at home is reported when the last claim is gone; a stub hears of the end when the first claim
            // goes.
            let told = lease.ended_at_home().is_some_and(|home| home.place < ended.place);
            let revoked = lease.revokes.iter().any(|(invoked, _)| *invoked < ended.place);
            if !told && !revoked && at < lease.expires_from {
                let says = format!("a stub of lease {} ended at {at}, but in its home it lived on", lease.id);
                report.broken(Promise::P5, events(lease, Some(ended.place)), says);
            }
            continue;
        }
        match ended.reason {
            LeaseEnd::Expired if at < lease.expires_from => {
                let says = format!(
                    "lease {} expired at {at}, but its last acknowledged renewal keeps it until {}",
                    lease.id, lease.expires_from
                );
                report.broken(Promise::P5, events(lease, Some(ended.place)), says);
            }
            LeaseEnd::Revoked if lease.revokes.iter().all(|(invoked, _)| *invoked > ended.place) => {
                let says = format!("lease {} was revoked at {at}, but nobody had asked for it", lease.id);
                report.broken(Promise::P5, events(lease, Some(ended.place)), says);
            }
            _ => {}
        }
    }
}

fn not_late(evidence: &Evidence<'_>, lease: &Lease, over: Option<usize>, report: &mut Report) {
    let (Some((base, due)), Some(home)) = (due(evidence, lease), lease.group) else { return };
    // The reason does not matter: none lets a lease live longer.
    for ended in &lease.ended {
        // A stub's end waits for two entries, the one that ends the lease and the one that ends the stub, and for the
        // message between them.
        let at_home = lease.ended_at_home().filter(|_| ended.stub);
        let carried_us = ended.carried_us + at_home.map_or(0, |home| home.carried_us);
        let at = evidence.timeline.at(ended.place).before_us(carried_us);
        let cut_us = at_home.map_or(0, |told| {
            let from = evidence.timeline.at(told.place);
            let to = evidence.timeline.at(ended.place).before_us(ended.carried_us);
            evidence.allowances.cut_us((home, ended.group), from.us(), to.us())
        });
        let other = ended.stub.then_some((ended.group, cut_us));
        blame_if_late(evidence, lease, (base, due), (home, other), (ended.place, at, "ended"), report);
    }
    if let Some(over) = over.filter(|_| lease.ended_at_home().is_none()) {
        let at = evidence.timeline.at(over);
        blame_if_late(evidence, lease, (base, due), (home, None), (over, at, "still lives"), report);
    }
}

/// Returns the moment at which the last renewal that can have happened was received, and the moment at which that lease
/// is due.
fn due(evidence: &Evidence<'_>, lease: &Lease) -> Option<(At, At)> {
    let longest = lease.renewals.iter().filter_map(|renewal| renewal.ttl_ms).max()?;
    let received = lease.renewals.iter().filter_map(|renewal| {
        let at = evidence.timeline.at(renewal.received.or(renewal.returned)?);
        Some((at, evidence.settings.at_most_after(at, renewal.ttl_ms.unwrap_or(longest))))
    });
    received.max_by_key(|(_, due)| *due)
}

fn blame_if_late(
    evidence: &Evidence<'_>,
    lease: &Lease,
    (base, due): (At, At),
    (home, other): (GroupId, Option<(GroupId, u64)>),
    (place, at, what): (usize, At, &str),
    report: &mut Report,
) {
    let slack_us = evidence.settings.late_slack_ms * 1_000;
    let added = |group| evidence.allowances.us(group, base.us(), at.us(), slack_us);
    let latest = due.after_us(slack_us).after_us(added(home));
    let latest = other.map_or(latest, |(other, cut_us)| latest.after_us(slack_us + added(other) + cut_us));
    if at > latest {
        let carried_us = evidence.timeline.at(place).since(at);
        let carried = if carried_us == 0 {
            String::new()
        } else {
            format!(", of which messages were on their way for {} ms", carried_us.div_ceil(1_000))
        };
        let at = evidence.timeline.at(place);
        let says = format!("lease {} {what} at {at}{carried}: it had to be gone by {latest}", lease.id);
        report.broken(Promise::P6, events(lease, Some(place)), says);
    }
}

fn events(lease: &Lease, place: Option<usize>) -> Vec<usize> {
    let last = lease.renewals.iter().filter(|renewal| renewal.sure).max_by_key(|renewal| renewal.invoked);
    let last =
        last.into_iter().flat_map(|renewal| [Some(renewal.invoked), renewal.received, renewal.returned]);
    last.chain([place]).flatten().collect()
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::event::LeaseEnd::{Disconnected, Expired, Revoked};
    use crate::report::Promise::{P4, P5, P6};

    #[test]
    fn a_lease_that_ends_in_time_passes() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(4_000).keep_alive(1).wait_ms(10_200).lease_expired(1, 2);
        run.passes();
    }

    #[test]
    fn a_lease_that_ends_early_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(4_000).keep_alive(1).wait_ms(9_800).lease_expired(1, 2);
        run.breaks(P5, "expired at");
    }

    #[test]
    fn a_keepalive_acknowledged_after_the_end_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_100).lease_expired(1, 2).wait_ms(100).keep_alive(1);
        run.breaks(P4, "had ended when a keepalive");
        let mut run = Scenario::with_leases(1);
        run.revoke(1).keep_alive(1);
        run.breaks(P4, "had ended when a keepalive");
    }

    #[test]
    fn a_keepalive_that_may_have_met_a_living_lease_passes() {
        let mut run = Scenario::with_leases(1);
        run.revoke(1).lease_ended(1, 6, Revoked, false).grant_anew(1, 7).keep_alive(1);
        run.passes();
        let mut run = Scenario::with_leases(1);
        run.revoke(1).lease_ended(1, 6, Revoked, false).grant_unanswered(1).keep_alive(1);
        run.passes();
        let mut run = Scenario::with_leases(1);
        run.revoke_unanswered(1).keep_alive(1);
        run.passes();
    }

    #[test]
    fn a_grant_that_was_proposed_before_the_end_does_not_make_the_lease_anew() {
        let mut run = Scenario::with_leases(1);
        run.grant_unanswered(1).wait_ms(1).revoke(1).keep_alive(1);
        run.breaks(P4, "had ended when a keepalive");
    }

    #[test]
    fn a_revocation_that_never_happened_does_not_keep_a_lease() {
        let mut run = Scenario::with_leases(1);
        run.revoke_unanswered(1).wait_ms(20_000).end();
        run.breaks(P6, "still lives");
    }

    #[test]
    fn a_renewal_that_was_never_answered_does_not_keep_a_lease() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(9_000).keep_alive_unanswered(1, false).wait_ms(1_100).lease_expired(1, 2);
        run.passes();
    }

    #[test]
    fn a_renewal_that_was_received_excuses_a_late_end() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(9_000).keep_alive_unanswered(1, true).wait_ms(10_100).lease_expired(1, 2);
        run.passes();
    }

    #[test]
    fn a_lease_that_ends_late_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_700).lease_expired(1, 2);
        run.breaks(P6, "ended at");
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_700).revoke(1).lease_ended(1, 2, Revoked, false);
        run.breaks(P6, "ended at");
    }

    #[test]
    fn a_lease_that_never_ends_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_700).end();
        run.breaks(P6, "still lives");
    }

    #[test]
    fn elections_and_pauses_may_delay_an_end() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(5_000).leaderless_ms(2_000).paused_ms(1_000).wait_ms(6_000).lease_expired(1, 2);
        run.passes();
        let mut run = Scenario::with_leases(1);
        run.wait_ms(5_000).leaderless_ms(2_000).paused_ms(1_000).wait_ms(6_300).lease_expired(1, 2);
        run.breaks(P6, "had to be gone by");
    }

    #[test]
    fn a_leader_that_comes_and_goes_is_no_election() {
        let mut run = Scenario::with_leases(1);
        run.leaderless_ms(100).interrupted_ms(100).interrupted_ms(100).wait_ms(11_000).lease_expired(1, 2);
        run.passes();
        let mut run = Scenario::with_leases(1);
        run.leaderless_ms(100).interrupted_ms(100).interrupted_ms(100).wait_ms(11_200).lease_expired(1, 2);
        run.breaks(P6, "had to be gone by");
    }

    #[test]
    fn an_entry_that_the_network_carried_for_long_may_end_a_lease_that_much_later() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(11_000).lease_ended_carried(1, 2, Expired, false, 450);
        run.passes();
        let mut run = Scenario::with_leases(1);
        run.wait_ms(11_000).lease_ended_carried(1, 2, Expired, false, 350);
        run.breaks(P6, "messages were on their way for 350 ms: it had to be gone by");
    }

    #[test]
    fn what_happened_while_the_network_carried_the_entry_excuses_no_second_time() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_900).leaderless_ms(300).lease_ended_carried(1, 2, Expired, false, 350);
        run.breaks(P6, "had to be gone by");
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_500).leaderless_ms(300).wait_ms(350).lease_ended_carried(1, 2, Expired, false, 350);
        run.passes();
    }

    #[test]
    fn the_stub_of_a_lease_waits_for_two_entries() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_900)
            .lease_ended_carried(1, 2, Expired, false, 400)
            .wait_ms(900)
            .lease_ended_carried(1, 9, Expired, true, 350);
        run.passes();
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_900)
            .lease_ended_carried(1, 2, Expired, false, 400)
            .wait_ms(1_000)
            .lease_ended_carried(1, 9, Expired, true, 300);
        run.breaks(P6, "had to be gone by");
    }

    #[test]
    fn p6_the_stub_of_a_lease_waits_while_the_leaders_are_cut_off_from_each_other() {
        let late = |cut_ms, later_ms| {
            let mut run = Scenario::with_leases(1);
            run.wait_ms(10_500).lease_ended(1, 2, Expired, false).cut_from_other_group_ms(cut_ms);
            run.wait_ms(later_ms).lease_ended(1, 9, Expired, true);
            run
        };
        late(3_000, 500).passes();
        late(3_000, 700).breaks(P6, "had to be gone by");
        late(0, 3_500).breaks(P6, "had to be gone by");
    }

    #[test]
    fn p6_a_cut_while_the_network_carried_the_end_of_a_stub_excuses_no_second_time() {
        let late = |later_ms| {
            let mut run = Scenario::with_leases(1);
            run.wait_ms(10_500).lease_ended(1, 2, Expired, false).wait_ms(later_ms);
            run.cut_from_other_group_ms(350).lease_ended_carried(1, 9, Expired, true, 350);
            run
        };
        late(400).passes();
        late(600).breaks(P6, "had to be gone by");
    }

    #[test]
    fn p6_a_cut_before_a_lease_ended_at_home_excuses_no_stub() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(7_500).cut_from_other_group_ms(3_000).lease_ended(1, 2, Expired, false);
        run.wait_ms(700).lease_ended(1, 9, Expired, true);
        run.breaks(P6, "had to be gone by");
    }

    #[test]
    fn the_stub_of_a_lease_may_end_one_commit_later() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_500).lease_ended(1, 2, Expired, false).wait_ms(400).lease_ended(1, 9, Expired, true);
        run.passes();
        let mut run = Scenario::with_leases(1);
        run.wait_ms(10_500).lease_ended(1, 2, Expired, false).wait_ms(700).lease_ended(1, 9, Expired, true);
        run.breaks(P6, "had to be gone by");
    }

    #[test]
    fn a_stub_that_ends_before_its_lease_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(4_000).keep_alive(1).wait_ms(9_800).lease_ended(1, 9, Expired, true);
        run.breaks(P5, "in its home it lived on");
    }

    #[test]
    fn the_stub_of_a_revoked_lease_may_call_it_expired() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(1_000)
            .lease_ended(1, 2, Disconnected, false)
            .wait_ms(100)
            .lease_ended(1, 9, Expired, true);
        run.passes();
    }

    #[test]
    fn a_revocation_that_nobody_asked_for_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lease_ended(1, 3, Disconnected, false);
        run.passes();
        run.lease_ended(2, 4, Revoked, false);
        run.breaks(P5, "nobody had asked");
    }

    #[test]
    fn a_revocation_whose_second_attempt_finds_nothing_passes() {
        let mut run = Scenario::with_leases(1);
        run.revoke_not_found(1).lease_ended(1, 6, Revoked, false);
        run.passes();
    }

    #[test]
    fn a_revoked_lease_may_end_at_any_time_after_that() {
        let mut run = Scenario::with_leases(1);
        run.lock("a", 1, 5).revoke(1).lease_ended(1, 6, Revoked, false);
        run.passes();
    }
}
