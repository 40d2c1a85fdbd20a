//! Views of locks and leases for clients, one by one and in lists.
//!
//! Lists are read from a snapshot: names are hashed, not sorted, because keeping a million of them sorted would cost
//! every lock operation more than all the rest of it. A list therefore looks at every claim, and does so on a thread of
//! its own while entries go on being applied.

use crate::claim::{Claim, Death};
use crate::event::claim_key;
use crate::format::snapshot::Snapshot;
use crate::lease::Lease;
use crate::view::{HolderView, LeaseView, LockView, WaiterView};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_types::{Address, DurationMs, LeaseId, LogTime, Name};

/// A claim with its lease.
pub(crate) type Member<'a> = (&'a Claim, &'a Lease);

/// The living claims on one lock.
#[derive(Default)]
pub(crate) struct Members<'a> {
    /// In order of token.
    pub(crate) holders: Vec<Member<'a>>,
    /// In queue order.
    pub(crate) queue: Vec<Member<'a>>,
    pub(crate) closed_until: Option<LogTime>,
}

impl Members<'_> {
    /// The lock as clients see it; none if it has no holder, no waiter and no lock-delay.
    pub(crate) fn view(&self, name: &Name, now: LogTime) -> Option<LockView> {
        let holders: Vec<HolderView> = self.holders.iter().map(|member| holder_view(name, *member)).collect();
        let mut waiters: Vec<WaiterView> = Vec::with_capacity(self.queue.len());
        for (member, position) in self.queue.iter().zip(1..) {
            let mut waiter = waiter_view(name, *member, position);
            waiter.predecessor_key = match waiters.last() {
                Some(before) => Some(before.waiter_key.clone()),
                None => holders.iter().rev().map(|h| &h.key).find(|key| **key != waiter.waiter_key).cloned(),
            };
            waiters.push(waiter);
        }
        let closed_until = self.closed_until.filter(|until| *until > now);
        let visible = !holders.is_empty() || !waiters.is_empty() || closed_until.is_some();
        visible.then(|| LockView { name: name.clone(), holders, waiters, closed_until })
    }
}

pub(crate) fn holder_view(name: &Name, (claim, lease): Member<'_>) -> HolderView {
    HolderView {
        key: claim_key(name, claim.lease_id, &claim.owner),
        lease: claim.lease_id,
        owner: claim.owner.clone(),
        client_id: lease.client_id.clone(),
        mode: claim.mode,
        token: claim.token.expect("holders hold"),
        metadata: claim.metadata.clone(),
        said: claim.said().map(|said| (said.value.clone(), said.revision)),
        create_revision: claim.create_revision,
        mod_revision: claim.mod_revision,
        version: claim.version,
        since: claim.since,
        expiration: lease.deadline.min(claim.until),
    }
}

fn waiter_view(name: &Name, (claim, lease): Member<'_>, position: u64) -> WaiterView {
    let deadline = claim.upgrade.as_ref().map_or(claim.until, |upgrade| upgrade.wait_until);
    WaiterView {
        waiter_key: claim_key(name, claim.lease_id, &claim.owner),
        predecessor_key: None,
        position,
        lease: claim.lease_id,
        owner: claim.owner.clone(),
        client_id: lease.client_id.clone(),
        mode: claim.wanted(),
        upgrade: claim.upgrade.is_some(),
        metadata: claim.metadata.clone(),
        create_revision: claim.wait_revision(),
        since: claim.upgrade.as_ref().map_or(claim.since, |upgrade| upgrade.since),
        deadline: (deadline != LogTime::NEVER).then_some(deadline),
        attended: claim.is_attended(),
        asks: claim.asks,
    }
}

pub(crate) fn lease_view(lease: &Lease, now: LogTime) -> LeaseView {
    LeaseView {
        lease: lease.id,
        incarnation: lease.home_incarnation(),
        ttl: lease.ttl,
        remaining: if lease.stub().is_some() { DurationMs::ZERO } else { now.until(lease.deadline) },
        deadline: lease.deadline,
        client_id: lease.client_id.clone(),
        address: lease.address.clone(),
        last_seen: lease.last_seen,
        revoke_on_disconnect: lease.revoke_on_disconnect,
        claims: u64::from(lease.claims),
        groups: lease.groups().to_vec(),
        stub: lease.stub_view(),
    }
}

impl Snapshot {
    /// Returns the locks whose name begins with `prefix`, in order of name, from the first after `after`: at most
    /// `limit`.
    pub fn locks(&self, prefix: &[u8], after: Option<&Name>, limit: usize) -> Vec<LockView> {
        let mut found = FirstNames { prefix, after, limit, members: BTreeMap::new() };
        for (_, claim) in self.claims.iter() {
            let lease = self.leases.get(claim.lease);
            let death = claim.death(lease, lease.deadline <= self.header.now, self.header.now);
            if matches!(death, Some(Death::Claim(..))) {
                continue;
            }
            for name in claim.names.as_slice() {
                let Some(members) = found.members_of(name) else { continue };
                if claim.holds() {
                    members.holders.push((claim, lease));
                }
                if claim.is_queued() && death.is_none() {
                    members.queue.push((claim, lease));
                }
            }
        }
        for (_, closure) in self.closures.iter().filter(|(_, closure)| closure.until > self.header.now) {
            if let Some(members) = found.members_of(&closure.name) {
                members.closed_until = Some(closure.until);
            }
        }
        let views = found.members.into_iter().filter_map(|(name, mut members)| {
            members.holders.sort_by_key(|(claim, _)| claim.token);
            members.queue.sort_by_key(|(claim, _)| claim.queue_key());
            members.view(name, self.header.now)
        });
        views.collect()
    }

    /// Returns the last known addresses of the clients of these leases, as far as this group knows them. One pass over
    /// all leases.
    pub fn addresses(&self, of: &BTreeSet<LeaseId>) -> BTreeMap<LeaseId, Address> {
        if of.is_empty() {
            return BTreeMap::new();
        }
        let living =
            self.leases.iter().map(|(_, lease)| lease).filter(|lease| lease.deadline > self.header.now);
        let wanted = living.filter(|lease| !lease.address.is_empty() && of.contains(&lease.id));
        wanted.map(|lease| (lease.id, lease.address.clone())).collect()
    }

    /// Returns the leases in order of id, stubs included, from the first after `after`: at most `limit`.
    pub fn leases(&self, after: Option<LeaseId>, limit: usize) -> Vec<LeaseView> {
        let mut found: BTreeMap<LeaseId, &Lease> = BTreeMap::new();
        for (_, lease) in self.leases.iter().filter(|(_, lease)| lease.deadline > self.header.now) {
            if after.is_none_or(|after| lease.id > after) {
                found.insert(lease.id, lease);
                if found.len() > limit {
                    found.pop_last();
                }
            }
        }
        found.into_values().map(|lease| lease_view(lease, self.header.now)).collect()
    }
}

/// The first names of a list, gathered in one pass over claims in any order.
struct FirstNames<'a> {
    prefix: &'a [u8],
    after: Option<&'a Name>,
    limit: usize,
    members: BTreeMap<&'a Name, Members<'a>>,
}

impl<'a> FirstNames<'a> {
    /// Returns the members of a name, to be added to; none if the name is not among the first. A name that drops out
    /// never comes back, because the last of the first names only moves forward.
    fn members_of(&mut self, name: &'a Name) -> Option<&mut Members<'a>> {
        let wanted = name.as_bytes().starts_with(self.prefix) && self.after.is_none_or(|after| name > after);
        if !wanted || self.limit == 0 {
            return None;
        }
        if self.members.len() == self.limit && !self.members.contains_key(name) {
            let last = *self.members.last_key_value()?.0;
            if name > last {
                return None;
            }
            self.members.pop_last();
        }
        Some(self.members.entry(name).or_default())
    }
}
