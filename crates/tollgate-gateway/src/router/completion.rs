//! Completes answers of the driver by another read or a keepalive: adds the holders in the way, the leader of an
//! election, facts that other groups have about a lease (`elsewhere`), the circle of a deadlock across groups, and the
//! renewal of the lease of a caller that asked again for a lock it holds.

use super::{CallContext, Router};
use crate::link::Purpose;
use crate::operation::{self, Context};
use tollgate_core::Rejection;
use tollgate_node::{Consistency, Sight};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{Address, GroupId, LeaseId};

impl Router {
    /// Adds what the driver's answer lacks.
    pub async fn complete(
        &self,
        group: GroupId,
        context: &Context,
        held_already: bool,
        result: &mut OpResult,
    ) {
        match result {
            OpResult::Lock(response) => {
                if held_already && let Some(lease) = context.lease() {
                    response.renewed = self.renew(lease).await;
                }
                if !response.acquired && response.holders.is_empty() {
                    self.add_holders(group, context, response).await;
                }
            }
            OpResult::Campaign(response) => self.add_leader(group, context, response).await,
            OpResult::GetLock(response) => {
                let locks = response.lock.as_mut().map_or(&mut [][..], std::slice::from_mut);
                response.missing = self.complete_locks(locks, context.consistency()).await;
            }
            OpResult::Error(error) => self.add_circle(group, context, error),
            OpResult::LeaseTimeToLive(response) => self.complete_lease(response, context.wants_keys()).await,
            _ => {}
        }
    }

    /// Renews the lease of a caller that asked again for a lock it holds: the caller is alive, or it would not ask.
    async fn renew(&self, lease: LeaseId) -> bool {
        let mut keep =
            Op::LeaseKeepAlive(v1::LeaseKeepAliveRequest { id: lease.get(), ..Default::default() });
        let from = Address::NONE;
        let call_context = CallContext::new(&from, Purpose::Session);
        let Ok(prepared) = self.prepare(&keep, call_context) else { return false };
        // The lease's home may be another group, led by another node.
        let result = Box::pin(self.until_done(&mut keep, prepared, call_context)).await;
        matches!(result, OpResult::LeaseKeepAlive(kept) if kept.ttl_ms > 0)
    }

    /// Adds the holders in the way of a request whose wait is over.
    async fn add_holders(&self, group: GroupId, context: &Context, response: &mut v1::LockResponse) {
        let Some(query) = context.holders_query() else { return };
        let look = move |sight: Sight<'_>| query.look(sight);
        if let Ok(seen) = self.here().read(group, Consistency::Stale, look).await {
            response.holders = seen.holders();
            let leases = response.holders.iter().filter_map(|holder| LeaseId::new(holder.lease_id).ok());
            let met: Vec<_> = leases.map(|lease| (group, lease)).collect();
            self.homes(met, Consistency::Stale).await.complete_holders(&mut response.holders);
        }
    }

    /// Adds the circle of a deadlock across several groups, which the group that ended the wait does not know.
    fn add_circle(&self, group: GroupId, context: &Context, error: &mut v1::Error) {
        let found = context
            .waits_for()
            .and_then(|(lease, owner, names)| self.shared.deadlocks.circle_of(lease, owner, names));
        if let Some(cycle) = found {
            *error = operation::error_of_rejection(&Rejection::Deadlock { cycle }, group);
        }
    }

    /// Adds the leader and its current value: a leader elected earlier may have changed its value since, and a
    /// candidate that campaigned twice keeps its first value.
    async fn add_leader(&self, group: GroupId, context: &Context, response: &mut v1::CampaignResponse) {
        let Some(query) = context.holders_query() else { return };
        let look = move |sight: Sight<'_>| query.look(sight);
        let Ok(seen) = self.here().read(group, Consistency::Stale, look).await else { return };
        let leader = seen.lock().and_then(operation::leader_of_lock);
        let same = |now: &v1::Leader| response.leader.as_ref().is_none_or(|told| is_same_term(told, now));
        if let Some(now) = leader.filter(same) {
            response.leader = Some(now);
        }
    }
}

/// Returns true if an answer lacks something that [`Router::complete`] adds.
pub fn is_incomplete(held_already: bool, result: &OpResult) -> bool {
    match result {
        OpResult::Lock(response) => held_already || (!response.acquired && response.holders.is_empty()),
        OpResult::Campaign(response) => response.elected || response.leader.is_none(),
        // Only the home of a lease knows its client's address.
        OpResult::GetLock(v1::GetLockResponse { lock: Some(lock), .. }) => {
            lock.holders.iter().any(|holder| holder.address.is_empty())
                || lock.waiters.iter().any(|waiter| waiter.address.is_empty())
        }
        OpResult::Error(error) => error.reason() == v1::ErrorReason::Deadlock && error.cycle.is_empty(),
        OpResult::LeaseTimeToLive(response) => {
            response.lease.as_ref().is_some_and(|lease| !lease.other_group_ids.is_empty())
        }
        _ => false,
    }
}

fn is_same_term(told: &v1::Leader, now: &v1::Leader) -> bool {
    told.fencing_token == now.fencing_token
}
