//! P1: incompatible grants never overlap, judged by their revisions and the bounds of their ends.
//!
//! Goes through the grants of a lock by token. A grant whose release has a revision above a later token overlapped with
//! the later grant for certain; so did a grant that nothing can have ended by the time the later one was known. Not
//! here: answers that no order of events explains (`search`).

use crate::evidence::{Evidence, Grant, Track};
use crate::report::{Promise, Report};
use tollgate_types::Mode;

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for track in &evidence.tracks.0 {
        check_track(track, report);
    }
}

fn check_track(track: &Track<'_>, report: &mut Report) {
    let mut before: Vec<&Grant<'_>> = Vec::new();
    for grant in &track.grants {
        before.retain(|earlier| may_matter(track, earlier, grant));
        let held = |earlier: &&&Grant<'_>| surely_held(earlier, grant);
        for earlier in before.iter().filter(held) {
            if !may_go_together(track, earlier, grant) {
                blame(track, &[earlier, grant], report);
            }
        }
        if let Mode::Permit { n, of } = grant.mode {
            let others: Vec<&Grant<'_>> =
                before.iter().copied().filter(|earlier| surely_held(earlier, grant)).collect();
            let taken: u64 = others.iter().map(|earlier| permits(earlier.mode)).sum();
            if taken + u64::from(n) > u64::from(of) {
                let all: Vec<&Grant<'_>> = others.into_iter().chain([grant]).collect();
                blame(track, &all, report);
            }
        }
        before.push(grant);
    }
}

/// Returns true if `earlier` may still be held at `grant`, or at a grant after it.
fn may_matter(track: &Track<'_>, earlier: &Grant<'_>, grant: &Grant<'_>) -> bool {
    let gone = [earlier.ended, earlier.gone_by].into_iter().flatten().min();
    let gone = gone.is_some_and(|revision| revision.get() <= grant.token.get());
    // If the earlier grant can have ended by then, an incompatible later grant shows that it had.
    let may_have_ended = earlier.ended.is_none() && earlier.ends_from <= grant.close;
    let gave_way = may_have_ended && !may_go_together(track, earlier, grant);
    earlier.who() != grant.who() && !gone && !gave_way
}

fn surely_held(earlier: &Grant<'_>, grant: &Grant<'_>) -> bool {
    match earlier.ended {
        Some(revision) => revision.get() > grant.token.get(),
        None => earlier.ends_from > grant.close,
    }
}

/// Returns true if the grants are compatible in the mode of the earlier one, or in a mode to which it can have been
/// converted by then.
fn may_go_together(track: &Track<'_>, earlier: &Grant<'_>, grant: &Grant<'_>) -> bool {
    let mut weaker = track.weakenings.iter().filter(|weakening| {
        weakening.who == earlier.who() && weakening.open <= grant.close && earlier.mode.covers(weakening.mode)
    });
    go_together(earlier.mode, grant.mode) || weaker.any(|weakening| go_together(weakening.mode, grant.mode))
}

/// Returns true if two modes are compatible. Permits of one semaphore are counted instead, by the caller.
fn go_together(a: Mode, b: Mode) -> bool {
    match (a, b) {
        (Mode::Permit { of, .. }, Mode::Permit { of: other, .. }) => of == other,
        _ => a.compatible(b),
    }
}

fn permits(mode: Mode) -> u64 {
    if let Mode::Permit { n, .. } = mode { u64::from(n) } else { 0 }
}

fn blame(track: &Track<'_>, grants: &[&Grant<'_>], report: &mut Report) {
    let whose: Vec<String> = grants
        .iter()
        .map(|grant| format!("{}/{} ({}, token {})", grant.lease, grant.owner, grant.mode, grant.token))
        .collect();
    let says = format!("{} is held at once by {}", track.name, whose.join(" and "));
    let events = grants.iter().flat_map(|grant| grant.events.iter().copied()).collect();
    report.broken(Promise::P1, events, says);
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::report::Promise::P1;
    use tollgate_types::Mode;

    fn permit(n: u32) -> Mode {
        Mode::permit(n, 3).unwrap()
    }

    #[test]
    fn grants_one_after_the_other_pass() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).unlock("a", 1, 11).lock("a", 2, 12);
        run.passes();
    }

    #[test]
    fn two_overlapping_exclusive_grants_are_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).lock("a", 2, 12);
        run.breaks(P1, "a is held at once by");
    }

    #[test]
    fn a_grant_below_the_revision_of_the_release_before_it_is_a_violation() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).unlock("a", 1, 13).lock("a", 2, 12);
        run.breaks(P1, "a is held at once by");
    }

    #[test]
    fn shared_grants_overlap_but_not_with_an_exclusive_one() {
        let mut run = Scenario::with_leases(3);
        run.lock_as("a", 1, 10, Mode::Shared).lock_as("a", 2, 11, Mode::Shared);
        run.passes();
        run.lock("a", 3, 12);
        run.breaks(P1, "(exclusive, token 12)");
    }

    #[test]
    fn more_permits_than_there_are_are_a_violation() {
        let mut run = Scenario::with_leases(3);
        run.lock_as("a", 1, 10, permit(1)).lock_as("a", 2, 11, permit(2));
        run.passes();
        run.lock_as("a", 3, 12, permit(1));
        run.breaks(P1, "a is held at once by");
    }

    #[test]
    fn a_grant_after_the_lease_of_the_last_holder_ended_passes() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10)
            .wait_ms(5_000)
            .keep_alive(2)
            .wait_ms(5_100)
            .lease_expired(1, 11)
            .lock("a", 2, 12);
        run.passes();
    }

    #[test]
    fn a_grant_that_was_made_weaker_goes_with_others() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).convert("a", 1, 10, Mode::Shared).lock_as("a", 2, 12, Mode::Shared);
        run.passes();
    }

    #[test]
    fn a_release_that_was_never_answered_explains_the_next_grant() {
        let mut run = Scenario::with_leases(2);
        run.lock("a", 1, 10).unlock_unanswered("a", 1).lock("a", 2, 12);
        run.passes();
    }
}
