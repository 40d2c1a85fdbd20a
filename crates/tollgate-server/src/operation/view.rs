//! What is in the state, as the wire shows it.
//!
//! Lists are cut where a message says so; counts are not. Times are what is left or has passed, never moments: log time
//! means nothing to a client. Not here: what changed (`event`), and sentences (`explain`).

use std::collections::BTreeMap;
use tollgate_core::{EndReason, HolderView, LeaseClaim, LeaseView, LockView, RegisterView, WaiterView};
use tollgate_proto::convert::{
    ModeFields, write_duration, write_lease_id, write_mode, write_remaining, write_token,
};
use tollgate_proto::{claim_key, v1};
use tollgate_types::{Address, GroupId, LeaseId, LogTime};

/// Where the clients of some leases were last seen.
pub type Addresses = BTreeMap<LeaseId, Address>;

/// A time or age that is not known here.
const NOT_KNOWN_MS: i64 = -1;

/// How much of a lock is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// At most so many holders.
    pub holders_max: usize,
    /// At most so many waiters.
    pub waiters_max: usize,
}

impl Cut {
    /// For an answer about one lock.
    pub const ONE: Cut = Cut { holders_max: 1_000, waiters_max: 1_000 };
    /// For one lock among many.
    pub const LISTED: Cut = Cut { holders_max: 8, waiters_max: 0 };
}

/// A lock.
pub fn lock_state(view: &LockView, now: LogTime, cut: Cut, addresses: &Addresses) -> v1::LockState {
    let holders = view.holders.iter().take(cut.holders_max);
    let waiters = view.waiters.iter().take(cut.waiters_max);
    v1::LockState {
        name: view.name.to_string(),
        holders: holders.map(|view| holder(view, Some(now), addresses)).collect(),
        waiters: waiters.map(|view| waiter(view, now, addresses)).collect(),
        holder_count: view.holders.len() as u64,
        waiter_count: view.waiters.len() as u64,
        closed_ms: view.closed_until.map_or(0, |until| write_duration(now.until(until))),
    }
}

/// A holder. Without `now`, how long it has held and what is left of its time are not known.
pub fn holder(view: &HolderView, now: Option<LogTime>, addresses: &Addresses) -> v1::Holder {
    let ModeFields { mode, permits, of } = write_mode(view.mode);
    v1::Holder {
        key: view.key.clone(),
        lease_id: view.lease.get(),
        owner: view.owner.to_string(),
        mode: mode.into(),
        permits,
        of,
        fencing_token: view.token.get(),
        client_id: view.client_id.to_string(),
        address: address(view.lease, addresses),
        metadata: view.metadata.to_string(),
        create_revision: view.create_revision.get(),
        mod_revision: view.mod_revision.get(),
        version: view.version,
        held_ms: now.map_or(NOT_KNOWN_MS, |now| write_duration(view.since.until(now))),
        remaining_ms: now.map_or(NOT_KNOWN_MS, |now| write_remaining(now, view.expiration)),
    }
}

fn waiter(view: &WaiterView, now: LogTime, addresses: &Addresses) -> v1::Waiter {
    let ModeFields { mode, permits, of } = write_mode(view.mode);
    v1::Waiter {
        waiter_key: view.waiter_key.clone(),
        predecessor_key: view.predecessor_key.clone().unwrap_or_default(),
        position: view.position,
        lease_id: view.lease.get(),
        owner: view.owner.to_string(),
        mode: mode.into(),
        permits,
        of,
        upgrade: view.upgrade,
        client_id: view.client_id.to_string(),
        metadata: view.metadata.to_string(),
        create_revision: view.create_revision.get(),
        waited_ms: write_duration(view.since.until(now)),
        remaining_ms: view.deadline.map_or(-1, |deadline| write_remaining(now, deadline)),
        address: address(view.lease, addresses),
    }
}

fn address(lease: LeaseId, addresses: &Addresses) -> String {
    addresses.get(&lease).map(ToString::to_string).unwrap_or_default()
}

/// A lease, in the group where it lives.
pub fn lease(view: &LeaseView, now: LogTime, group: GroupId) -> v1::Lease {
    v1::Lease {
        id: view.lease.get(),
        granted_ttl_ms: write_duration(view.ttl),
        remaining_ms: write_duration(if view.stub.is_some() {
            view.remaining
        } else {
            now.until(view.deadline)
        }),
        client_id: view.client_id.to_string(),
        address: view.address.to_string(),
        last_seen_ms: write_duration(view.last_seen.until(now)),
        revoke_on_disconnect: view.revoke_on_disconnect,
        claims: view.claims,
        incarnation: view.incarnation.get(),
        group_id: view.stub.map_or(group, |stub| stub.home).number(),
    }
}

/// A lock that a lease holds or awaits.
pub(super) fn lease_claim(claim: &LeaseClaim, lease: LeaseId) -> v1::LeaseClaim {
    let ModeFields { mode, permits, of } = write_mode(claim.mode);
    v1::LeaseClaim {
        key: claim_key(&claim.name, lease, &claim.owner),
        name: claim.name.to_string(),
        owner: claim.owner.to_string(),
        mode: mode.into(),
        permits,
        of,
        fencing_token: write_token(claim.token),
    }
}

/// A register.
pub fn register(view: &RegisterView) -> v1::Register {
    v1::Register {
        key: view.key.as_bytes().to_vec(),
        value: view.value.as_bytes().to_vec(),
        lease_id: write_lease_id(view.lease),
        create_revision: view.create_revision.get(),
        mod_revision: view.mod_revision.get(),
        version: view.version,
    }
}

/// Why a claim, or a wait, ended.
pub const fn end_reason(reason: EndReason) -> v1::EndReason {
    match reason {
        EndReason::Released => v1::EndReason::Released,
        EndReason::LeaseExpired => v1::EndReason::LeaseExpired,
        EndReason::LeaseRevoked => v1::EndReason::LeaseRevoked,
        EndReason::Disconnected => v1::EndReason::Disconnected,
        EndReason::Forced => v1::EndReason::Forced,
        EndReason::MaxHold => v1::EndReason::MaxHold,
        EndReason::TimedOut => v1::EndReason::TimedOut,
        EndReason::Cancelled => v1::EndReason::Cancelled,
    }
}
