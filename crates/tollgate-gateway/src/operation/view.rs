//! What is in the state, as the wire shows it.
//!
//! Lists are cut where a message says so; counts are not. Times are what is left or has passed, never moments: log time
//! means nothing to a client. Not here: what changed (`event`), and sentences (`explain`).

use std::collections::BTreeMap;
use tollgate_core::{EndReason, HolderView, LeaseClaim, LeaseView, LockView, RegisterView, WaiterView};
use tollgate_proto::convert::{
    MetadataFields, ModeFields, metadata_fields_len, write_duration, write_lease_id, write_metadata,
    write_mode, write_remaining, write_token,
};
use tollgate_proto::{claim_key, v1};
use tollgate_types::{Address, GroupId, LeaseId, LogTime, Mode};

/// Where the clients of some leases were last seen.
pub type Addresses = BTreeMap<LeaseId, Address>;

/// A time or age that is not known here.
const NOT_KNOWN_MS: i64 = -1;

/// The numbers of a holder or waiter, and its address: about.
const SMALL_BYTES: usize = 256;

/// How much of a lock is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// At most so many holders.
    pub holders_max: usize,
    /// At most so many waiters.
    pub waiters_max: usize,
    /// Of either, at most about so many bytes; the first is shown in any case.
    pub bytes_max: usize,
}

/// How many there are of a lock, shown or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Holders.
    pub holders: usize,
    /// Waiters.
    pub waiters: usize,
}

impl Counts {
    /// Of a lock that is shown whole.
    pub fn of(view: &LockView) -> Counts {
        Counts { holders: view.holders.len(), waiters: view.waiters.len() }
    }
}

impl Cut {
    /// For an answer about one lock: both lists, and sentences about them, fit what a client takes.
    pub const ONE: Cut = Cut { holders_max: 1_000, waiters_max: 1_000, bytes_max: 1_536 << 10 };
    /// For one lock among many.
    pub const LISTED: Cut = Cut { holders_max: 8, waiters_max: 0, bytes_max: 64 << 10 };

    /// Leaves of a lock what is shown, and says how many there were.
    pub fn apply(self, view: &mut LockView) -> Counts {
        let counts = Counts::of(view);
        let holders = shown(view.holders.iter().map(length_of_holder), self.holders_max, self.bytes_max);
        view.holders.truncate(holders);
        // What leaders say is told of; what others say is not.
        for other in view.holders.iter_mut().filter(|holder| holder.mode != Mode::Exclusive) {
            other.said = None;
        }
        let waiters = shown(view.waiters.iter().map(length_of_waiter), self.waiters_max, self.bytes_max);
        view.waiters.truncate(waiters);
        counts
    }
}

/// How many of these lengths are at most `count_max` and fit `bytes_max`.
fn shown(lengths: impl Iterator<Item = usize>, count_max: usize, bytes_max: usize) -> usize {
    let mut sum = 0;
    let fits = |length: &usize| {
        let first = sum == 0;
        sum += length;
        first || sum <= bytes_max
    };
    lengths.take(count_max).take_while(fits).count()
}

/// About how long a holder is on the wire. What it says of itself is told elsewhere.
pub(super) fn length_of_holder(view: &HolderView) -> usize {
    SMALL_BYTES
        + view.key.len()
        + view.owner.len()
        + view.client_id.len()
        + metadata_fields_len(&view.metadata)
}

/// About how long a waiter is on the wire.
pub(super) fn length_of_waiter(view: &WaiterView) -> usize {
    let keys = view.waiter_key.len() + view.predecessor_key.as_ref().map_or(0, String::len);
    SMALL_BYTES + keys + view.owner.len() + view.client_id.len() + metadata_fields_len(&view.metadata)
}

/// A lock, and how many there are of those of whom it may have lost some ([`Cut::apply`]).
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

/// A holder. Without `now`, how long it has held and what is left of its time are not known.
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

/// A lease, in the group where it lives, with what hangs on it in that group.
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

/// A lock that a lease holds or awaits.
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

/// About how long a register is on the wire.
pub(super) fn length_of_register(view: &RegisterView) -> usize {
    view.key.len() + view.value.len() + 64
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
        EndReason::Deadlock => v1::EndReason::Deadlock,
    }
}
