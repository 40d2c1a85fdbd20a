//! Facts about leases that live in another group than their locks, as their homes know them.
//!
//! Not here: the reads of the homes (`elsewhere`).

use crate::elsewhere::as_told;
use std::collections::BTreeMap;
use std::sync::Arc;
use tollgate_proto::v1;
use tollgate_types::{GroupId, GroupMap, LeaseId};

/// A lease as its home knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AtHome {
    /// Remaining time to live; 0 if the lease has ended.
    pub remaining_ms: i64,
    /// Address at which its client was last seen.
    pub address: String,
}

/// Facts about leases, as their homes know them.
#[derive(Debug, Clone)]
pub struct Homes {
    map: Arc<GroupMap>,
    known: BTreeMap<LeaseId, AtHome>,
    missing: BTreeMap<GroupId, String>,
}

impl Homes {
    pub(crate) fn new(
        map: Arc<GroupMap>,
        known: BTreeMap<LeaseId, AtHome>,
        missing: BTreeMap<GroupId, String>,
    ) -> Homes {
        Homes { map, known, missing }
    }

    /// Returns the groups that could not be read, in their wire form.
    pub fn missing(&self) -> Vec<v1::Missing> {
        as_told(&self.missing)
    }

    /// Returns a lease whose home is another group than the one where it was found, if the home could be read.
    pub(super) fn of(&self, lease: LeaseId) -> Option<&AtHome> {
        self.known.get(&lease)
    }

    /// Returns the home of a lease, and the reason if the home could not be read.
    pub(super) fn silent(&self, lease: LeaseId) -> (GroupId, Option<&str>) {
        let home = self.map.group_of(lease.slot());
        (home, self.missing.get(&home).map(String::as_str))
    }

    /// Adds the known facts to the holders and waiters of a lock.
    pub(crate) fn complete(&self, lock: &mut v1::LockState) {
        self.complete_holders(&mut lock.holders);
        for waiter in &mut lock.waiters {
            if let Some(known) = self.found(waiter.lease_id) {
                waiter.address.clone_from(&known.address);
            }
        }
    }

    /// Adds the known facts to holders.
    pub(crate) fn complete_holders(&self, holders: &mut [v1::Holder]) {
        for holder in holders {
            if let Some(known) = self.found(holder.lease_id) {
                holder.address.clone_from(&known.address);
                // The max hold, which the lock's own group knows, may end before the lease does.
                let max_hold_ms =
                    u64::try_from(holder.remaining_ms).map_or(i64::MAX, |_| holder.remaining_ms);
                holder.remaining_ms = known.remaining_ms.min(max_hold_ms);
            }
        }
    }

    fn found(&self, lease: u64) -> Option<&AtHome> {
        self.known.get(&LeaseId::new(lease).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes() -> Homes {
        let known = AtHome { remaining_ms: 900, address: "10.0.0.9:1".into() };
        let lease = LeaseId::new(7).unwrap();
        Homes::new(Arc::new(GroupMap::single()), [(lease, known)].into(), BTreeMap::new())
    }

    #[test]
    fn a_grant_ends_with_its_lease_or_its_max_hold_whichever_is_first() {
        for (max_hold_ms, told_ms) in [(-1, 900), (2_000, 900), (300, 300), (0, 0)] {
            let holder = v1::Holder { lease_id: 7, remaining_ms: max_hold_ms, ..Default::default() };
            let mut lock = v1::LockState { holders: vec![holder], ..Default::default() };
            homes().complete(&mut lock);
            assert_eq!((lock.holders[0].remaining_ms, &*lock.holders[0].address), (told_ms, "10.0.0.9:1"));
        }
    }

    #[test]
    fn what_a_home_did_not_say_is_left_as_it_is() {
        let holder = v1::Holder { lease_id: 8, remaining_ms: 5, address: "a".into(), ..Default::default() };
        let waiter = v1::Waiter { lease_id: 7, remaining_ms: 5, ..Default::default() };
        let mut lock =
            v1::LockState { holders: vec![holder.clone()], waiters: vec![waiter], ..Default::default() };
        homes().complete(&mut lock);
        assert_eq!(lock.holders, [holder]);
        assert_eq!((lock.waiters[0].remaining_ms, &*lock.waiters[0].address), (5, "10.0.0.9:1"));
    }
}
