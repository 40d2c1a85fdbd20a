//! What other groups know of leases that were met in one: when a lease that lives elsewhere ends and where its client
//! is, and what hangs in other groups on a lease that lives here.
//!
//! A full node has a replica of every group, so it asks nobody: it looks at each here, as fresh as the caller wants the
//! answer to be, all at once and not for longer than [`PATIENCE`]. Invariant: what could not be looked at is named, and
//! never guessed. Not here: the reads that meet the leases (`operation`).

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

/// How long other groups may take; a read of one group alone has more.
const PATIENCE: Duration = Duration::from_secs(1);

/// Leases that one look at a group finds, on the driver's thread.
const LOOK_MAX: usize = 1_000;

/// What several groups said, in the order of the questions; and the groups that said nothing, with the reason.
type Looked<T> = (Vec<(GroupId, T)>, BTreeMap<GroupId, String>);

impl Router {
    /// What their homes know of the leases that live in another group than the one where each was met.
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

    /// Adds to locks what the homes of their holders' and waiters' leases know; returns who is missing.
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

    /// Adds to a lease what hangs on it in other groups: how much, and if asked for, what.
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
        // It was read before the others were asked.
        let passed_ms = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
        told.ttl_ms = told.ttl_ms.saturating_sub(passed_ms).max(0);
        told.ttl = told.ttl_ms / 1_000;
        lease.remaining_ms = lease.remaining_ms.saturating_sub(passed_ms).max(0);
        lease.last_seen_ms = lease.last_seen_ms.saturating_add(passed_ms);
    }

    /// Adds to leases how much hangs on each in other groups; returns who is missing.
    pub async fn complete_leases(
        &self,
        leases: &mut [v1::Lease],
        consistency: Consistency,
    ) -> Vec<v1::Missing> {
        /// Where in the list a lease is, its id and its incarnation.
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

    /// Looks at several groups at once.
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

    /// Why a group did not answer in time.
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

/// A lease as its home knows it. One that is not there has ended: the group that met it has yet to hear of it.
fn at_home(lease: LeaseId, sight: &Sight<'_>) -> AtHome {
    sight.state.lease(lease).map_or_else(AtHome::default, |view| AtHome {
        remaining_ms: write_duration(sight.now.until(view.deadline)),
        address: view.address.to_string(),
    })
}

/// How much hangs on the stub of a lease.
fn claims_on_stub(state: &State, lease: LeaseId, incarnation: u64) -> u64 {
    let stub = state.lease(lease).filter(|view| view.stub.is_some());
    stub.filter(|view| view.incarnation.get() == incarnation).map_or(0, |view| view.claims)
}

/// The leases of a lock's holders and waiters, each with the lock's group.
fn leases_of(lock: &v1::LockState, map: &GroupMap) -> Vec<(GroupId, LeaseId)> {
    let Ok(name) = Name::new(&lock.name) else { return Vec::new() };
    let holders = lock.holders.iter().map(|holder| holder.lease_id);
    let leases = holders.chain(lock.waiters.iter().map(|waiter| waiter.lease_id));
    let group = map.group_of(name.slot());
    leases.filter_map(|lease| Some((group, LeaseId::new(lease).ok()?))).collect()
}

/// Groups that said nothing, as the wire tells of them.
pub(crate) fn as_told(missing: &BTreeMap<GroupId, String>) -> Vec<v1::Missing> {
    let told = missing.iter().map(|(group, message)| v1::Missing {
        who: Some(Who::GroupId(group.number())),
        message: message.clone(),
    });
    told.collect()
}
