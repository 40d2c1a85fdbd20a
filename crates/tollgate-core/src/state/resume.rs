//! Prepares the state of a backup for a new cluster that goes on from it.
//!
//! A backup is older than the last state of its cluster. Since the backup that cluster may have granted any lock, with
//! tokens that this state does not know, to holders that may still believe in their grants. So the state's revision
//! goes above all of those tokens (P2), nothing is granted until no holder can believe any more (P1), and no lease of
//! the backup lives on: its claims were released, lost or passed on in a history that is gone.
//!
//! Not here: the choice of the revision and of the time, which the operator's command makes (`tollgate snapshot
//! restore`).

use super::State;
use crate::lease::Lease;
use crate::planted::Bug;
use crate::reply::EndReason;
use crate::ring::Ring;
use crate::slab::Id;
use crate::view::Closed;
use tollgate_types::{DurationMs, LogTime, Names, REVISION_END, Revision};

/// Fewest revisions that must be left for a state to go on: as many as a busy group uses in an hour.
const REVISIONS_LEFT_MIN: u64 = 1 << 32;

/// Reason why a state can't go on above the given revision. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The state itself has given out higher tokens.
    #[error("tokens up to {revision} are in the backup itself: go on above {revision} or a higher token")]
    Below {
        /// Revision of the state.
        revision: Revision,
    },
    /// There is not enough room above the given revision, because tokens stay below 2^53.
    #[error("above token {above} there is no room left: tokens stay below 2^53")]
    NoRoom {
        /// Revision that was asked for.
        above: u64,
    },
}

impl State {
    /// Goes on above a revision, in a new cluster: every lease ends now, history is gone, and no lock is granted for
    /// `grace`. Every replica of the new cluster must be made like this from the same state, with the same arguments.
    pub fn resume(&mut self, above: u64, grace: DurationMs) -> Result<(), ResumeError> {
        if above < self.revision.get() {
            return Err(ResumeError::Below { revision: self.revision });
        }
        let no_room = ResumeError::NoRoom { above };
        if above > REVISION_END - REVISIONS_LEFT_MIN {
            return Err(no_room);
        }
        let above = Revision::new(above).map_err(|_| no_room)?;
        if !self.planted(Bug::ResumedTokensReused) {
            self.revision = above;
        }
        self.ring = Ring::restore(self.revision.next());
        self.closed_until = self.now.after(grace);
        if !self.planted(Bug::ResumedLeasesLive) {
            self.end_all_leases();
        }
        Ok(())
    }

    /// Makes every lease and stub due, as if nobody had renewed it: `work` reaps them in bounded steps, with their
    /// lock-delays. A home still owes its groups notice of the ends; each group has ended its stub by itself and
    /// acknowledges.
    fn end_all_leases(&mut self) {
        let living: Vec<Id<Lease>> =
            self.leases.iter().filter(|(_, lease)| !self.is_past(lease.deadline)).map(|(id, _)| id).collect();
        for id in living {
            self.forget_stub(self.leases.get(id).id, id);
            self.end_lease_now(id, EndReason::LeaseExpired);
        }
    }

    /// Returns the longest time for which a client of this group can believe in a lease after its last keepalive: the
    /// longest TTL allowed, or the longest TTL of a present lease if the limit was lowered since that was granted.
    pub fn ttl_longest(&self) -> DurationMs {
        let granted = self.leases.iter().map(|(_, lease)| lease.ttl).max();
        granted.unwrap_or_default().max(DurationMs::from_ms(self.limits.ttl_ms_max))
    }

    /// Returns the log time until which no lock is granted, because the group was restored from a backup; none if the
    /// group was never restored, or that time has passed.
    pub fn closed_until(&self) -> Option<LogTime> {
        (self.closed_until > self.now).then_some(self.closed_until)
    }

    /// True if nothing may be granted, whatever the name.
    #[inline]
    pub(super) fn is_all_closed(&self) -> bool {
        self.closed_until > self.now && !self.planted(Bug::ResumedGrantsEarly)
    }

    /// The time for which the names are closed, if any of them is: by a lock-delay of its own, or with all others.
    pub(super) fn closed(&self, names: &Names) -> Option<Closed> {
        let locks = names.as_slice().iter().filter_map(|name| self.find_lock(name).1);
        let closures = locks.filter_map(|lock| self.locks.get(lock).closure);
        let until = closures.map(|closure| self.closures.get(closure).until).max();
        let until = until.max(Some(self.closed_until)).filter(|until| *until > self.now)?;
        Some(Closed { left: self.now.until(until), restored: self.closed_until > self.now })
    }
}
