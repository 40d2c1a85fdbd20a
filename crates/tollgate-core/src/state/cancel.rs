//! Cancel: leaves a queue, or forbids a request that has not arrived yet.

use super::State;
use crate::claim::{Claim, QueueKey};
use crate::command::{CancelTarget, CancelWait};
use crate::lease::Lease;
use crate::planted::Bug;
use crate::reply::{EndReason, Rejection, Reply};
use crate::requests::{Kept, Outcome, Part};
use crate::slab::Id;
use tollgate_types::{Name, Owner, Reason, Revision, Seq};

const CANCELLED: Outcome = Outcome::Ended { token: None, reason: EndReason::Cancelled };

impl State {
    pub(super) fn cancel_wait(&mut self, cancel: &CancelWait) -> Reply {
        if let CancelTarget::Waiter { name, .. } | CancelTarget::Wait { name, .. } = &cancel.target {
            self.settle_names(std::slice::from_ref(name));
        }
        let lease = match self.living_lease(cancel.lease) {
            Ok(lease) => lease,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        if let Err(rejection) = self.acknowledge(lease, &cancel.acked) {
            return Reply::Rejected(rejection);
        }
        match &cancel.target {
            CancelTarget::Seq(seq) => self.cancel_seq(lease, *seq, None, cancel),
            CancelTarget::SeqOn { seq, name } => self.cancel_seq(lease, *seq, Some(name), cancel),
            CancelTarget::Waiter { name, owner } => self.cancel_waiter(lease, name, owner, cancel),
            CancelTarget::Wait { name, create_revision } => {
                self.cancel_one_wait(lease, name, *create_revision, cancel)
            }
        }
    }

    /// True if others asked for the claim too, and the cancel's `asks_max` makes it leave such a claim alone.
    fn is_wanted_by_more(&self, id: Id<Claim>, cancel: &CancelWait) -> bool {
        let more = cancel.asks_max.is_some_and(|max| self.claims.get(id).asks > max);
        more && !self.planted(Bug::AsksNotCounted)
    }

    fn cancel_one_wait(
        &mut self,
        lease: Id<Lease>,
        name: &Name,
        create_revision: Revision,
        cancel: &CancelWait,
    ) -> Reply {
        let Some(claim) = self.queued_claim(name, create_revision) else {
            return Reply::Rejected(Rejection::NotWaiting { name: name.clone() });
        };
        if self.claims.get(claim).lease != lease {
            return Reply::Rejected(Rejection::NotWaiting { name: name.clone() });
        }
        if self.is_wanted_by_more(claim, cancel) {
            return Reply::Done;
        }
        self.end_wait(claim, EndReason::Cancelled);
        Reply::Cancelled
    }

    /// The claim that joined the queue of a name at this revision, if it still stands there.
    pub(super) fn queued_claim(&self, name: &Name, create_revision: Revision) -> Option<Id<Claim>> {
        let queue = &self.locks.get(self.find_lock(name).1?).queue;
        let keys = [QueueKey::waiter(create_revision), QueueKey::upgrade(create_revision)];
        keys.iter().find_map(|key| queue.get(key).copied())
    }

    fn cancel_waiter(&mut self, lease: Id<Lease>, name: &Name, owner: &Owner, cancel: &CancelWait) -> Reply {
        let Some(claim) = self.claim_on(self.find_lock(name), lease, owner) else {
            return Reply::Rejected(Rejection::NotWaiting { name: name.clone() });
        };
        if self.is_wanted_by_more(claim, cancel) {
            return Reply::Done;
        }
        if !self.claims.get(claim).is_queued() {
            return self.cancel_granted(claim, cancel.release_if_granted);
        }
        self.end_wait(claim, EndReason::Cancelled);
        Reply::Cancelled
    }

    /// Cancels the request with a seq; `on` is the lock that the request is on, if the cancel says so.
    fn cancel_seq(&mut self, lease: Id<Lease>, seq: Seq, on: Option<&Name>, cancel: &CancelWait) -> Reply {
        let requests = &self.leases.get(lease).requests;
        if !requests.is_seen(seq) {
            return self.leave_tombstone(lease, seq);
        }
        if let Some(Kept::Claim { claim, .. }) = requests.get(seq) {
            let names = self.claims.get(claim).names.clone();
            let another = on.is_some_and(|name| !names.contains(name)) && self.knows_requests();
            if another && !self.planted(Bug::CancelTakesAnothersSeq) {
                return Reply::Rejected(Rejection::SeqReused { seq });
            }
            self.settle_names(names.as_slice());
        }
        match self.leases.get(lease).requests.get(seq) {
            Some(Kept::Claim { claim, .. }) if self.is_wanted_by_more(claim, cancel) => Reply::Done,
            Some(Kept::Claim { claim, part }) => {
                self.cancel_claim(lease, claim, part, seq, cancel.release_if_granted)
            }
            Some(Kept::Outcome(CANCELLED)) => Reply::Cancelled,
            Some(Kept::Outcome(outcome)) => self.outcome_reply(seq, outcome, None),
            None => Reply::Rejected(Rejection::SeqAcked { seq }),
        }
    }

    fn leave_tombstone(&mut self, lease: Id<Lease>, seq: Seq) -> Reply {
        if let Err(rejection) = self.room_for_one(lease) {
            return Reply::Rejected(rejection);
        }
        if !self.planted(Bug::TombstoneForgotten) {
            self.leases.get_mut(lease).requests.keep(seq, Kept::Outcome(CANCELLED));
        }
        Reply::Cancelled
    }

    fn cancel_claim(
        &mut self,
        lease: Id<Lease>,
        id: Id<Claim>,
        part: Part,
        seq: Seq,
        release: bool,
    ) -> Reply {
        if !self.seq_waits(id, part, seq) {
            return self.cancel_granted(id, release && part == Part::Acquire);
        }
        let claim = self.claims.get_mut(id);
        claim.forget_seq(seq);
        let wanted_by_others = match &claim.upgrade {
            Some(upgrade) => upgrade.anonymous || !upgrade.seqs.is_empty(),
            None => claim.anonymous || !claim.seqs.is_empty(),
        };
        self.leases.get_mut(lease).requests.keep(seq, Kept::Outcome(CANCELLED));
        if !wanted_by_others {
            self.end_wait(id, EndReason::Cancelled);
        }
        Reply::Cancelled
    }

    /// Ends a wait: the claim, or only its upgrade if the claim holds.
    pub(super) fn end_wait(&mut self, id: Id<Claim>, reason: EndReason) {
        let names = self.claims.get(id).names.clone();
        if self.claims.get(id).holds() {
            self.end_upgrade(id, reason);
        } else {
            self.end_claim(id, reason, self.now, &Reason::NONE);
        }
        self.settle_names(names.as_slice());
    }

    /// Answers a cancel that came after the grant, which is given back if `release`.
    fn cancel_granted(&mut self, id: Id<Claim>, release: bool) -> Reply {
        if !release {
            return self.claim_reply(id, false);
        }
        let (names, _) = self.end_claim(id, EndReason::Released, self.now, &Reason::NONE);
        let reply = Reply::Released { revision: self.revision };
        self.settle_names(names.as_slice());
        reply
    }
}
