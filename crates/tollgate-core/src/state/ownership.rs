//! Counts the claims of named owners, for leases with too many claims to walk (`owners`).

use super::State;
use crate::claim::Claim;
use crate::lease::Lease;
use crate::owners::{WALKED_MAX, owner_hash};
use crate::slab::Id;
use smallvec::SmallVec;
use tollgate_types::Owner;

impl State {
    /// True if a named owner holds or awaits anything.
    pub(super) fn owner_has_claims(&self, lease: Id<Lease>, owner: &Owner) -> bool {
        let record = self.leases.get(lease);
        if record.counted {
            return self.owners.has_claims(owner_hash(record.incarnation, owner.as_bytes()));
        }
        self.claims_of(lease).any(|(_, claim)| claim.owner == *owner)
    }

    /// The claims with which a named owner waits.
    pub(super) fn owner_waits(&self, lease: Id<Lease>, owner: &Owner) -> SmallVec<[Id<Claim>; 4]> {
        let record = self.leases.get(lease);
        if record.counted {
            let (_, waiting) = self.owners.claims(owner_hash(record.incarnation, owner.as_bytes()));
            let own = |id: &&Id<Claim>| {
                let claim = self.claims.get(**id);
                claim.lease == lease && claim.owner == *owner
            };
            return waiting.iter().filter(own).copied().collect();
        }
        let waiting = |(_, claim): &(Id<Claim>, &Claim)| claim.owner == *owner && claim.is_queued();
        self.claims_of(lease).filter(waiting).map(|(id, _)| id).collect()
    }

    /// The claims of a lease, oldest first.
    pub(super) fn claims_of(&self, lease: Id<Lease>) -> impl Iterator<Item = (Id<Claim>, &Claim)> {
        let first = self.leases.get(lease).oldest;
        std::iter::successors(first.map(|id| (id, self.claims.get(id))), |(_, claim)| {
            claim.younger.map(|id| (id, self.claims.get(id)))
        })
    }

    /// Counts a claim that was added to its lease's list.
    pub(super) fn count_claim(&mut self, id: Id<Claim>) {
        let claim = self.claims.get(id);
        let lease = self.leases.get(claim.lease);
        if lease.counted {
            self.count(id);
        } else if lease.claims as usize > WALKED_MAX {
            let lease_id = claim.lease;
            self.leases.get_mut(lease_id).counted = true;
            let all: Vec<Id<Claim>> = self.claims_of(lease_id).map(|(id, _)| id).collect();
            for id in all {
                self.count(id);
            }
        }
    }

    fn count(&mut self, id: Id<Claim>) {
        let claim = self.claims.get(id);
        if let Some(hash) = self.counted_hash(claim) {
            if claim.holds() {
                self.owners.hold(hash);
            }
            if claim.is_queued() {
                self.owners.wait(hash, id);
            }
        }
    }

    /// The hash under which a claim's owner is counted; none if it is not counted.
    pub(super) fn counted_hash(&self, claim: &Claim) -> Option<u64> {
        let lease = self.leases.get(claim.lease);
        let counted = lease.counted && !claim.owner.is_empty();
        counted.then(|| owner_hash(lease.incarnation, claim.owner.as_bytes()))
    }

    pub(super) fn count_hold(&mut self, id: Id<Claim>) {
        if let Some(hash) = self.counted_hash(self.claims.get(id)) {
            self.owners.hold(hash);
        }
    }

    pub(super) fn count_wait(&mut self, id: Id<Claim>) {
        if let Some(hash) = self.counted_hash(self.claims.get(id)) {
            self.owners.wait(hash, id);
        }
    }

    pub(super) fn uncount_wait(&mut self, id: Id<Claim>) {
        if let Some(hash) = self.counted_hash(self.claims.get(id)) {
            self.owners.unwait(hash, id);
        }
    }
}
