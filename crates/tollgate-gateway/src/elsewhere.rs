//! Looks up in other groups what one group does not know about its leases: the deadline and client address of a lease
//! whose home is another group, and the claims in other groups of a lease whose home is this one.
//!
//! A full node has a replica of every group, so no other node is asked: all local replicas are read at once, with the
//! consistency that the caller wants, for at most [`PATIENCE`]. Invariant: a group that could not be read is named, and
//! its contents are never guessed. Not here: the reads that return the leases (`operation`).

use crate::operation::{AtHome, Homes, LEASE_KEYS_MAX, lease_claim};
use crate::router::Router;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tollgate_core::{LeaseClaim, State};
use tollgate_node::{Consistency, Sight};
use tollgate_proto::convert::write_duration;
use tollgate_proto::v1::{self, missing::Who};
use tollgate_types::{GroupId, GroupMap, LeaseId, Name};

/// Maximum time to read the other groups; a read of a single group has more.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum number of leases looked up by one read of a group, on the driver's thread.
const LOOK_MAX: usize = 1_000;

/// Results of reading several groups, in the order of the questions; and the groups that could not be read, with the
/// reason.
type Looked<T> = (Vec<(GroupId, T)>, BTreeMap<GroupId, String>);

impl Router {
    /// Reads the homes of those leases that were found in another group than their home.
    pub async fn homes(
        &self,
        met: impl IntoIterator<Item = (GroupId, LeaseId)>,
        consistency: Consistency,
    ) -> Homes {
        let map = self.map();
        let mut leases: BTreeMap<GroupId, BTreeSet<LeaseId>> = BTreeMap::new();
        if !map.is_single() {
            for (group, lease) in met {
                let home = map.group_of(lease.slot());
                if home != group {
                    leases.entry(home).or_default().insert(lease);
                }
            }
        }
        let asks = leases.into_iter().flat_map(|(home, leases)| {
            let leases: Vec<LeaseId> = leases.into_iter().collect();
            leases.chunks(LOOK_MAX).map(|chunk| (home, chunk.to_vec())).collect::<Vec<_>>()
        });
        let look = |leases: Vec<LeaseId>, sight: Sight<'_>| {
            let found = leases.into_iter().map(|lease| (lease, at_home(lease, &sight)));
            found.collect::<Vec<_>>()
        };
        let (looked, missing) = self.look_at_all(asks.collect(), consistency, look).await;
        Homes::new(map, looked.into_iter().flat_map(|(_, found)| found).collect(), missing)
    }

    /// Adds to locks what the homes of their holders' and waiters' leases know; returns the groups that could not be
    /// read.
    pub async fn complete_locks(
        &self,
        locks: &mut [v1::LockState],
        consistency: Consistency,
    ) -> Vec<v1::Missing> {
        let map = self.map();
        let homes = self.homes(locks.iter().flat_map(|lock| leases_of(lock, &map)), consistency).await;
        for lock in locks.iter_mut() {
            homes.complete(lock);
        }
        homes.missing()
    }

    /// Adds to a lease the number of its claims in other groups and, if `keys` is true, the claims themselves.
    pub(crate) async fn complete_lease(&self, told: &mut v1::LeaseTimeToLiveResponse, keys: bool) {
        let Some(lease) = told.lease.as_mut() else { return };
        let Ok(id) = LeaseId::new(lease.id) else { return };
        let (began, incarnation) = (Instant::now(), lease.incarnation);
        let groups = lease.other_group_ids.iter().map(|group| (GroupId::new(*group), ()));
        let look = move |(), sight: Sight<'_>| {
            let claims = claims_on_stub(sight.state, id, incarnation);
            (
                claims,
                if claims > 0 && keys { sight.state.lease_claims(id, LEASE_KEYS_MAX) } else { Vec::new() },
            )
        };
        let (looked, missing) = self.look_at_all(groups.collect(), Consistency::Linearizable, look).await;
        for (_, (claims, found)) in looked {
            lease.claims += claims;
            told.keys.extend(found.iter().map(|claim: &LeaseClaim| lease_claim(claim, id)));
        }
        told.keys.sort_by(|a, b| (&a.name, &a.owner).cmp(&(&b.name, &b.owner)));
        told.keys.truncate(LEASE_KEYS_MAX);
        told.missing = as_told(&missing);
        // The lease was read before the other groups were: correct its times by the time that has passed.
        let passed_ms = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
        told.ttl_ms = told.ttl_ms.saturating_sub(passed_ms).max(0);
        told.ttl = told.ttl_ms / 1_000;
        lease.remaining_ms = lease.remaining_ms.saturating_sub(passed_ms).max(0);
        lease.last_seen_ms = lease.last_seen_ms.saturating_add(passed_ms);
    }

    /// Adds to leases the number of their claims in other groups; returns the groups that could not be read.
    pub async fn complete_leases(
        &self,
        leases: &mut [v1::Lease],
        consistency: Consistency,
    ) -> Vec<v1::Missing> {
        /// Index of a lease in the list, its id and its incarnation.
        type Listed = (usize, LeaseId, u64);
        let mut asks: BTreeMap<u32, Vec<Listed>> = BTreeMap::new();
        for (place, lease) in leases.iter().enumerate() {
            for group in &lease.other_group_ids {
                let Ok(id) = LeaseId::new(lease.id) else { continue };
                asks.entry(*group).or_default().push((place, id, lease.incarnation));
            }
        }
        let asks = asks.into_iter().map(|(group, listed)| (GroupId::new(group), listed)).collect();
        let look = |listed: Vec<Listed>, sight: Sight<'_>| {
            let claims = |(place, id, incarnation)| (place, claims_on_stub(sight.state, id, incarnation));
            listed.into_iter().map(claims).collect::<Vec<_>>()
        };
        let (looked, missing) = self.look_at_all(asks, consistency, look).await;
        for (place, claims) in looked.into_iter().flat_map(|(_, found)| found) {
            leases[place].claims += claims;
        }
        as_told(&missing)
    }

    /// Reads several groups at once.
    async fn look_at_all<Q, T>(
        &self,
        asks: Vec<(GroupId, Q)>,
        consistency: Consistency,
        look: impl Fn(Q, Sight<'_>) -> T + Copy + Send + 'static,
    ) -> Looked<T>
    where
        Q: Send + 'static,
        T: Send + 'static,
    {
        let (mut looks, mut missing) = (JoinSet::new(), BTreeMap::new());
        for (place, (group, asked)) in asks.into_iter().enumerate() {
            if let Some(why) = self.why_behind(group).filter(|_| consistency != Consistency::Stale) {
                missing.insert(group, why);
                continue;
            }
            let (router, consistency) = (self.clone(), self.consistency_here(group, consistency));
            looks.spawn(async move {
                let looked = router.look(group, consistency, move |sight| look(asked, sight));
                (place, group, tokio::time::timeout(PATIENCE, looked).await)
            });
        }
        let mut found = BTreeMap::new();
        while let Some(looked) = looks.join_next().await {
            match looked.expect("a look does not panic, and is not aborted") {
                (place, group, Ok(Ok((_, seen)))) => {
                    found.insert(place, (group, seen));
                }
                (_, group, failed) => {
                    let error = failed.ok().and_then(Result::err).map(|error| error.to_string());
                    missing.insert(group, error.unwrap_or_else(|| self.why_silent(group)));
                }
            }
        }
        (found.into_values().collect(), missing)
    }

    /// Explains why a group did not answer in time.
    fn why_silent(&self, group: GroupId) -> String {
        // The disk may have filled up meanwhile.
        if let Some(why) = self.why_behind(group) {
            return why;
        }
        match self.status().borrow().leader(group) {
            None => format!("group {group} has no leader that this node knows of"),
            Some(leader) => {
                format!("no quorum of group {group} confirmed its leader, node {leader}, within {PATIENCE:?}")
            }
        }
    }
}

/// Returns a lease as its home knows it. A lease that its home does not have has ended: the group that still has it has
/// yet to hear of that.
fn at_home(lease: LeaseId, sight: &Sight<'_>) -> AtHome {
    sight.state.lease(lease).map_or_else(AtHome::default, |view| AtHome {
        remaining_ms: write_duration(sight.now.until(view.deadline)),
        address: view.address.to_string(),
    })
}

/// Returns the number of claims on the stub of a lease; 0 if there is no stub of this incarnation.
fn claims_on_stub(state: &State, lease: LeaseId, incarnation: u64) -> u64 {
    let stub = state.lease(lease).filter(|view| view.stub.is_some());
    stub.filter(|view| view.incarnation.get() == incarnation).map_or(0, |view| view.claims)
}

/// Returns the leases of a lock's holders and waiters, each with the lock's group.
fn leases_of(lock: &v1::LockState, map: &GroupMap) -> Vec<(GroupId, LeaseId)> {
    let Ok(name) = Name::new(&lock.name) else { return Vec::new() };
    let holders = lock.holders.iter().map(|holder| holder.lease_id);
    let leases = holders.chain(lock.waiters.iter().map(|waiter| waiter.lease_id));
    let group = map.group_of(name.slot());
    leases.filter_map(|lease| Some((group, LeaseId::new(lease).ok()?))).collect()
}

/// Converts the groups that could not be read to their wire form.
pub(crate) fn as_told(missing: &BTreeMap<GroupId, String>) -> Vec<v1::Missing> {
    let told = missing.iter().map(|(group, message)| v1::Missing {
        who: Some(Who::GroupId(group.number())),
        message: message.clone(),
    });
    told.collect()
}
