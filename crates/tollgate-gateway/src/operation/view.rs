//! Wire forms of the records in the state.
//!
//! Lists are cut where a message says so; counts are not. Times are durations, remaining or elapsed, and never points
//! in time: log time means nothing to a client. Not here: changes (`event`), and sentences (`explain`).

use std::collections::BTreeMap;
use tollgate_core::{EndReason, HolderView, LeaseClaim, LeaseView, LockView, RegisterView, WaiterView};
use tollgate_proto::convert::{
    MetadataFields, ModeFields, metadata_fields_len, write_duration, write_lease_id, write_metadata,
    write_mode, write_remaining, write_token,
};
use tollgate_proto::{claim_key, v1};
use tollgate_types::{Address, GroupId, LeaseId, LogTime, Mode};

/// Addresses at which the clients of some leases were last seen.
pub type Addresses = BTreeMap<LeaseId, Address>;

/// Value of a time or age that is unknown.
const NOT_KNOWN_MS: i64 = -1;

/// Approximate bytes of a holder's or waiter's numbers and address.
const SMALL_BYTES: usize = 256;

/// Limits on the part of a lock that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Maximum number of holders.
    pub holders_max: usize,
    /// Maximum number of waiters.
    pub waiters_max: usize,
    /// Approximate maximum of the bytes of either list; its first entry is always shown.
    pub bytes_max: usize,
}

/// Numbers of a lock's holders and waiters, whether shown or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Holders.
    pub holders: usize,
    /// Waiters.
    pub waiters: usize,
}

impl Counts {
    /// Returns the counts of a lock that is not cut.
    pub fn of(view: &LockView) -> Counts {
        Counts { holders: view.holders.len(), waiters: view.waiters.len() }
    }
}

impl Cut {
    /// Limits for an answer about one lock: both lists, and sentences about them, fit a message that clients accept.
    pub const ONE: Cut = Cut { holders_max: 1_000, waiters_max: 1_000, bytes_max: 1_536 << 10 };
    /// Limits for one lock among many.
    pub const LISTED: Cut = Cut { holders_max: 8, waiters_max: 0, bytes_max: 64 << 10 };

    /// Cuts a lock to what is shown; returns the full counts.
    pub fn apply(self, view: &mut LockView) -> Counts {
        let counts = Counts::of(view);
        let holders = shown(view.holders.iter().map(length_of_holder), self.holders_max, self.bytes_max);
        view.holders.truncate(holders);
        // Only the values of leaders are shown.
        for other in view.holders.iter_mut().filter(|holder| holder.mode != Mode::Exclusive) {
            other.said = None;
        }
        let waiters = shown(view.waiters.iter().map(length_of_waiter), self.waiters_max, self.bytes_max);
        view.waiters.truncate(waiters);
        counts
    }
}

/// Returns how many of these lengths are shown: at most `count_max`, and together at most `bytes_max`.
fn shown(lengths: impl Iterator<Item = usize>, count_max: usize, bytes_max: usize) -> usize {
    let mut sum = 0;
    let fits = |length: &usize| {
        let first = sum == 0;
        sum += length;
        first || sum <= bytes_max
    };
    lengths.take(count_max).take_while(fits).count()
}

/// Estimates the length of a holder on the wire, without its value, which is shown elsewhere.
pub(super) fn length_of_holder(view: &HolderView) -> usize {
    SMALL_BYTES
        + view.key.len()
        + view.owner.len()
        + view.client_id.len()
        + metadata_fields_len(&view.metadata)
}

/// Estimates the length of a waiter on the wire.
pub(super) fn length_of_waiter(view: &WaiterView) -> usize {
    let keys = view.waiter_key.len() + view.predecessor_key.as_ref().map_or(0, String::len);
    SMALL_BYTES + keys + view.owner.len() + view.client_id.len() + metadata_fields_len(&view.metadata)
}

/// Returns the wire form of a lock that may have been cut; `counts` are the full counts ([`Cut::apply`]).
pub fn lock_state(view: &LockView, counts: Counts, now: LogTime, addresses: &Addresses) -> v1::LockState {
    v1::LockState {
        name: view.name.to_string(),
        holders: view.holders.iter().map(|view| holder(view, Some(now), addresses)).collect(),
        waiters: view.waiters.iter().map(|view| waiter(view, now, addresses)).collect(),
        holder_count: counts.holders as u64,
        waiter_count: counts.waiters as u64,
        closed_ms: view.closed_until.map_or(0, |until| write_duration(now.until(until))),
        restored: false,
    }
}

/// Returns the wire form of a holder. Without `now`, its hold time and remaining time are marked as unknown.
pub fn holder(view: &HolderView, now: Option<LogTime>, addresses: &Addresses) -> v1::Holder {
    let ModeFields { mode, permits, of } = write_mode(view.mode);
    let MetadataFields { metadata, metadata_bytes } = write_metadata(&view.metadata);
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
        metadata,
        metadata_bytes,
        create_revision: view.create_revision.get(),
        mod_revision: view.mod_revision.get(),
        version: view.version,
        held_ms: now.map_or(NOT_KNOWN_MS, |now| write_duration(view.since.until(now))),
        remaining_ms: now.map_or(NOT_KNOWN_MS, |now| write_remaining(now, view.expiration)),
    }
}

fn waiter(view: &WaiterView, now: LogTime, addresses: &Addresses) -> v1::Waiter {
    let ModeFields { mode, permits, of } = write_mode(view.mode);
    let MetadataFields { metadata, metadata_bytes } = write_metadata(&view.metadata);
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
        metadata,
        metadata_bytes,
        create_revision: view.create_revision.get(),
        waited_ms: write_duration(view.since.until(now)),
        remaining_ms: view.deadline.map_or(-1, |deadline| write_remaining(now, deadline)),
        address: address(view.lease, addresses),
    }
}

fn address(lease: LeaseId, addresses: &Addresses) -> String {
    addresses.get(&lease).map(ToString::to_string).unwrap_or_default()
}

/// Returns the wire form of a lease, as known in `group`, with the number of its claims there.
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
        other_group_ids: view.groups.iter().map(|group| group.number()).collect(),
    }
}

/// Returns the wire form of a lock that a lease holds or waits for.
pub(crate) fn lease_claim(claim: &LeaseClaim, lease: LeaseId) -> v1::LeaseClaim {
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

/// Estimates the length of a register on the wire.
pub(super) fn length_of_register(view: &RegisterView) -> usize {
    view.key.len() + view.value.len() + 64
}

/// Returns the wire form of a register.
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

/// Returns the wire form of the reason a claim or wait ended.
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
        EndReason::Deadlock => v1::EndReason::Deadlock,
    }
}
