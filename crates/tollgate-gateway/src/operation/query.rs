//! Reads: copies taken from the state on the driver's thread, and the answers made of them on other threads.
//!
//! [`Query::look`] copies what it needs and is bounded by the limits in force; [`Seen::result`] turns the copy into
//! messages, and may take its time. Not here: lists of all locks or leases, which are read from a snapshot (`listing`).

use super::context::{About, Context, HeaderInfo};
use super::election::leader_of_lock;
use super::error::{RESULT_BYTES_MAX, too_long, unexpected};
use super::rejection::error_of_rejection;
use super::view::{self, Addresses, Counts, Cut};
use tollgate_core::{LeaseClaim, LeaseView, LockView, RangeQuery, RegisterView, Rejection, State};
use tollgate_node::Sight;
use tollgate_proto::convert::{write_duration, write_seconds};
use tollgate_proto::v1::{self, operation_result::Result as Wire};
use tollgate_types::{Key, LeaseId, LogTime, Name, Revision};

/// Maximum number of claims listed for a lease.
pub(crate) const LEASE_KEYS_MAX: usize = 1_000;

/// A read of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// One lock.
    Lock(Name),
    /// One lease.
    Lease {
        /// Id of the lease.
        lease: LeaseId,
        /// True if the claims of the lease are to be listed.
        keys: bool,
    },
    /// One register.
    Register(Key),
    /// Several registers.
    Registers(RangeQuery),
}

/// Result of a read, with its revision and log time.
#[derive(Debug)]
pub struct Seen {
    revision: Revision,
    now: LogTime,
    /// Time until which no lock is granted, after a restore.
    closed_until: Option<LogTime>,
    found: Found,
}

#[derive(Debug)]
enum Found {
    Lock(Option<(LockView, Counts)>, Addresses),
    Lease(LeaseId, Option<(LeaseView, Vec<LeaseClaim>)>),
    Register(Option<RegisterView>),
    Registers(Result<(Vec<RegisterView>, u64), Rejection>),
}

impl Query {
    /// Carries out the read. Runs on the driver's thread, so it only takes copies.
    pub fn look(self, sight: Sight<'_>) -> Seen {
        let Sight { state, now, .. } = sight;
        let found = match self {
            Query::Lock(name) => {
                let mut view = state.lock(&name);
                let counts = view.as_mut().map(|view| Cut::ONE.apply(view));
                let addresses = view.as_ref().map(|view| addresses(view, state)).unwrap_or_default();
                Found::Lock(view.zip(counts), addresses)
            }
            Query::Lease { lease, keys } => {
                let claims = if keys { state.lease_claims(lease, LEASE_KEYS_MAX) } else { Vec::new() };
                Found::Lease(lease, state.lease(lease).map(|view| (view, claims)))
            }
            Query::Register(key) => Found::Register(state.register(&key)),
            Query::Registers(query) => Found::Registers(state.range(&query)),
        };
        let closed_until = state.closed_until().filter(|until| *until > now);
        Seen { revision: state.revision(), now, closed_until, found }
    }
}

/// Returns the addresses at which the clients of the holders and waiters shown were last seen.
fn addresses(view: &LockView, state: &State) -> Addresses {
    let holders = view.holders.iter().map(|holder| holder.lease);
    let waiters = view.waiters.iter().map(|waiter| waiter.lease);
    let mut addresses = Addresses::new();
    for lease in holders.chain(waiters) {
        if !addresses.contains_key(&lease)
            && let Some(view) = state.lease(lease)
        {
            addresses.insert(lease, view.address);
        }
    }
    addresses
}

impl Seen {
    /// Returns the revision of the read.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the log time of the read.
    pub fn now(&self) -> LogTime {
        self.now
    }

    /// Returns the time until which no lock is granted, whatever its name, because the group was restored from a
    /// backup.
    pub fn closed_until(&self) -> Option<LogTime> {
        self.closed_until
    }

    /// Estimates the bytes of the answer: hardly less than on the wire.
    pub fn length(&self) -> usize {
        /// Bytes of the numbers of one claim, or of an answer without variable parts.
        const ONE: usize = 256;
        match &self.found {
            Found::Lock(Some((view, _)), _) => {
                let said = view.holders.iter().flat_map(|holder| &holder.said);
                let said: usize = said.map(|(value, _)| value.len()).sum();
                let holders: usize = view.holders.iter().map(view::length_of_holder).sum();
                let waiters: usize = view.waiters.iter().map(view::length_of_waiter).sum();
                ONE + holders + waiters + said
            }
            Found::Lease(_, Some((_, claims))) => {
                let of_claim = |claim: &LeaseClaim| ONE + 2 * (claim.name.len() + claim.owner.len());
                ONE + claims.iter().map(of_claim).sum::<usize>()
            }
            Found::Register(Some(register)) => view::length_of_register(register),
            Found::Registers(Ok((registers, _))) => registers.iter().map(view::length_of_register).sum(),
            _ => ONE,
        }
    }

    /// Returns the holders of the lock that was read, up to the number that a busy answer lists.
    pub fn holders(&self) -> Vec<v1::Holder> {
        let Found::Lock(Some((view, _)), addresses) = &self.found else { return Vec::new() };
        let shown = view.holders.iter().take(tollgate_core::Reply::BUSY_HOLDERS_MAX);
        shown.map(|holder| view::holder(holder, Some(self.now), addresses)).collect()
    }

    /// Returns the lock that was read, cut to what is shown; none if it is free, or no lock was read.
    pub fn lock(&self) -> Option<&LockView> {
        self.counted_lock().map(|(view, _)| view)
    }

    /// Returns the lock that was read, and the full numbers of its holders and waiters, some of which may not be shown.
    pub(super) fn counted_lock(&self) -> Option<(&LockView, Counts)> {
        match &self.found {
            Found::Lock(Some((view, counts)), _) => Some((view, *counts)),
            _ => None,
        }
    }

    /// Returns the wire form of the lock `name`, also if it is free.
    pub(super) fn lock_state(&self, name: &Name) -> v1::LockState {
        let mut state = match &self.found {
            Found::Lock(Some((view, counts)), addresses) => {
                view::lock_state(view, *counts, self.now, addresses)
            }
            _ => v1::LockState { name: name.to_string(), ..v1::LockState::default() },
        };
        if let Some(until) = self.closed_until {
            state.closed_ms = state.closed_ms.max(write_duration(self.now.until(until)));
            state.restored = true;
        }
        state
    }

    /// Returns the leader of the election that was read.
    pub fn observed(&self, header: &HeaderInfo) -> v1::ObserveResponse {
        let leader = self.lock().and_then(leader_of_lock);
        v1::ObserveResponse { header: header.at(self.revision), leader }
    }

    /// Returns the wire form of the answer. An answer longer than clients accept is not even worded.
    pub fn result(self, context: &Context, header: &HeaderInfo) -> Wire {
        let length = self.length();
        if length > RESULT_BYTES_MAX {
            return Wire::Error(too_long(length, RESULT_BYTES_MAX));
        }
        let head = header.at(self.revision);
        match (context.about(), self.found) {
            (About::GetLock { name, .. }, found @ Found::Lock(..)) => {
                let lock = Some(Seen { found, ..self }.lock_state(name));
                Wire::GetLock(v1::GetLockResponse { header: head, lock, missing: Vec::new() })
            }
            (About::Leader, Found::Lock(view, _)) => {
                let leader = view.as_ref().and_then(|(view, _)| leader_of_lock(view));
                Wire::Leader(v1::LeaderResponse { header: head, leader })
            }
            (About::LeaseTimeToLive { .. }, Found::Lease(lease, found)) => {
                time_to_live(lease, found, self.now, head, header)
            }
            (About::Get, Found::Register(found)) => {
                let register = found.as_ref().map(view::register);
                Wire::Get(v1::GetResponse { header: head, register })
            }
            (About::Range, Found::Registers(Ok((registers, count)))) => {
                let registers = registers.iter().map(view::register).collect();
                Wire::Range(v1::RangeResponse { header: head, registers, count })
            }
            (About::Range, Found::Registers(Err(rejection))) => {
                Wire::Error(error_of_rejection(&rejection, header.group))
            }
            _ => Wire::Error(unexpected("read")),
        }
    }
}

fn time_to_live(
    lease: LeaseId,
    found: Option<(LeaseView, Vec<LeaseClaim>)>,
    now: LogTime,
    head: Option<v1::Header>,
    header: &HeaderInfo,
) -> Wire {
    let Some((view, mut claims)) = found else {
        return Wire::Error(error_of_rejection(&Rejection::LeaseNotFound { lease }, header.group));
    };
    if let Some(stub) = view.stub {
        let rejection = Rejection::NotHome { lease, home: stub.home };
        return Wire::Error(error_of_rejection(&rejection, header.group));
    }
    claims.sort_by(|a, b| (&a.name, &a.owner).cmp(&(&b.name, &b.owner)));
    let ttl_ms = write_duration(now.until(view.deadline));
    Wire::LeaseTimeToLive(v1::LeaseTimeToLiveResponse {
        header: head,
        id: lease.get(),
        ttl: ttl_ms / 1_000,
        ttl_ms,
        granted_ttl: write_seconds(view.ttl),
        granted_ttl_ms: write_duration(view.ttl),
        keys: claims.iter().map(|claim| view::lease_claim(claim, lease)).collect(),
        lease: Some(view::lease(&view, now, header.group)),
        missing: Vec::new(),
    })
}
