//! P9: grants follow the queue.
//!
//! A waiter that joined the queue of a lock earlier is granted the lock earlier, whatever the modes: only the first in
//! line is ever considered, and a request for several names keeps its place in each queue. Upgrades go first and are
//! left out. So is a holder with a request that was never answered, because the answer that it did get may be about an
//! upgrade.

use crate::evidence::{Evidence, Grant, Track};
use crate::report::{Promise, Report};
use tollgate_types::Revision;

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    for track in &evidence.tracks.0 {
        let mut last: Option<&Grant<'_>> = None;
        let mut by_queue: Vec<&Grant<'_>> =
            track.grants.iter().filter(|grant| grant.queued.is_some() && !is_upgrade(track, grant)).collect();
        // A holder that requested a stronger mode joined the queue once: its first token counts.
        by_queue.sort_by_key(|grant| (grant.queued, grant.token));
        by_queue.dedup_by_key(|grant| grant.queued);
        for grant in by_queue {
            if let Some(before) = last.filter(|before| before.token > grant.token) {
                let says = format!(
                    "on {} {}/{} joined the queue at {:?} and {}/{} at {:?}, but they were granted {} and {}",
                    track.name,
                    before.lease,
                    before.owner,
                    before.queued.unwrap_or_default(),
                    grant.lease,
                    grant.owner,
                    grant.queued.unwrap_or_default(),
                    before.token,
                    grant.token
                );
                report.broken(
                    Promise::P9,
                    before.events.iter().chain(&grant.events).copied().collect(),
                    says,
                );
            } else {
                last = Some(grant);
            }
        }
    }
}

/// Returns true if the holder may have held the lock already at the request: a request for a stronger mode goes first.
fn is_upgrade(track: &Track<'_>, grant: &Grant<'_>) -> bool {
    let Some(queued) = grant.queued else { return false };
    let over = |revision: Option<Revision>| revision.is_some_and(|revision| revision <= queued);
    track.grants.iter().any(|before| {
        let earlier = before.who() == grant.who() && before.token.get() < queued.get();
        earlier && !over(before.ended) && !over(before.gone_by)
    })
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::report::Promise::P9;
    use tollgate_types::Mode::{Exclusive, Shared};

    #[test]
    fn grants_in_the_order_of_the_queue_pass() {
        let mut run = Scenario::with_leases(3);
        run.lock("a", 1, 10);
        let (second, third) = (run.wait_for("a", 2, Exclusive), run.wait_for("a", 3, Exclusive));
        run.unlock("a", 1, 13)
            .granted(second, 14, 11, Exclusive)
            .unlock("a", 2, 15)
            .granted(third, 16, 12, Exclusive);
        run.passes();
    }

    #[test]
    fn a_waiter_that_overtakes_is_a_violation() {
        let mut run = Scenario::with_leases(3);
        run.lock("a", 1, 10);
        let (second, third) = (run.wait_for("a", 2, Exclusive), run.wait_for("a", 3, Exclusive));
        run.unlock("a", 1, 13)
            .granted(third, 14, 12, Exclusive)
            .unlock("a", 3, 15)
            .granted(second, 16, 11, Exclusive);
        run.breaks(P9, "joined the queue at r11");
    }

    #[test]
    fn a_holder_that_asks_for_more_goes_first() {
        let mut run = Scenario::with_leases(3);
        run.lock_as("a", 1, 10, Shared).lock_as("a", 2, 11, Shared);
        let (writer, upgrade) = (run.wait_for("a", 3, Exclusive), run.wait_for("a", 2, Exclusive));
        run.unlock("a", 1, 14)
            .granted(upgrade, 15, 13, Exclusive)
            .unlock("a", 2, 16)
            .granted(writer, 17, 12, Exclusive);
        run.passes();
    }

    #[test]
    fn a_reader_that_overtakes_a_writer_is_a_violation() {
        let mut run = Scenario::with_leases(3);
        run.lock_as("a", 1, 10, Shared);
        let (writer, reader) = (run.wait_for("a", 2, Exclusive), run.wait_for("a", 3, Shared));
        run.granted(reader, 13, 12, Shared)
            .unlock("a", 1, 14)
            .unlock("a", 3, 15)
            .granted(writer, 16, 11, Exclusive);
        run.breaks(P9, "joined the queue at r11");
    }
}
