//! Builds a state from the records of a snapshot, and freezes a state into them.
//!
//! Invariant: every record is checked against those before it, so that bytes which only look like a snapshot end in an
//! error, never in a panic or a wrong state; at the end all invariants are checked.

use super::{APPLY_VERSION_SUPPORTED, State};
use crate::claim::{Claim, Locks};
use crate::event::{Change, RegisterState};
use crate::format::snapshot::{Header, Snapshot, SnapshotError};
use crate::format::{KeptOutcome, SeqOnClaim};
use crate::index::hash_number;
use crate::lease::{Lease, Residence, Unacked};
use crate::register::Register;
use crate::reply::{Kind, LeaseEnd};
use crate::requests::{Kept, KeptFor, Part};
use crate::ring::Ring;
use crate::slab::Id;
use std::collections::BTreeMap;
use std::sync::Arc;
use tollgate_types::{GroupId, Key, LogTime, Name, Revision};

impl State {
    /// Returns the present state, to be written or hashed on another thread while this state goes on.
    ///
    /// Costs a pointer per thousand records and per chunk of history; later writes copy the pages that they touch. Drop
    /// the snapshot on that other thread too: freeing a large state takes time.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            header: Header {
                now: self.now,
                revision: self.revision,
                apply_version: self.apply_version,
                min_revision: self.ring.min_revision(),
                limits: self.limits.clone(),
                group: self.group(),
                map: Arc::clone(self.map()),
                lineage: self.lineage,
            },
            closed_until: self.closed_until,
            leases: self.leases.freeze(),
            unacked: self.unacked.freeze(),
            claims: self.claims.freeze(),
            closures: self.closures.freeze(),
            registers: self.registers.freeze(),
            dirty: self.dirty.iter().cloned().collect(),
            ring: self.ring.freeze(),
            planted: self.planted,
        }
    }
}

/// A state being rebuilt, record by record. Errors name the contradiction.
pub(crate) struct Restore {
    state: State,
    incarnations: BTreeMap<Revision, Id<Lease>>,
}

type Restored = Result<(), String>;

impl Restore {
    pub(crate) fn new(header: Header) -> Result<Restore, SnapshotError> {
        let valid = header.limits.validate();
        valid.map_err(|invalid| SnapshotError::Inconsistent(invalid.to_string()))?;
        if header.apply_version == 0 {
            return Err(SnapshotError::Inconsistent("there is no apply version 0".to_owned()));
        }
        if header.apply_version > APPLY_VERSION_SUPPORTED {
            let (found, known) = (header.apply_version, APPLY_VERSION_SUPPORTED);
            return Err(SnapshotError::ApplyVersion { found, known });
        }
        if header.min_revision.get() > header.revision.get() + 1 {
            return Err(SnapshotError::Inconsistent("history starts after the present".to_owned()));
        }
        let mut state = State::of_group(header.limits, header.group, header.map);
        state.now = header.now;
        state.revision = header.revision;
        state.apply_version = header.apply_version;
        state.lineage = header.lineage;
        state.ring = Ring::restore(header.min_revision);
        Ok(Restore { state, incarnations: BTreeMap::new() })
    }

    pub(crate) fn closed(&mut self, until: LogTime) -> Restored {
        if until == LogTime::ZERO || until == LogTime::NEVER {
            return Err("it was never closed, or is for ever".to_owned());
        }
        self.state.closed_until = until;
        Ok(())
    }

    fn past(&self, revision: Revision) -> Restored {
        let past = revision > Revision::ZERO && revision <= self.state.revision;
        if past { Ok(()) } else { Err(format!("{revision:?} is not a revision of the past")) }
    }

    pub(crate) fn lease(&mut self, lease: Lease, kept: Vec<KeptOutcome>) -> Restored {
        self.past(lease.incarnation)?;
        if lease.ttl.ms() == 0 && lease.stub().is_none() {
            return Err(format!("lease {:?} lives for no time", lease.id));
        }
        if LeaseEnd::from_reason(lease.end_reason).is_none() {
            return Err(format!("lease {:?} ends as no lease does", lease.id));
        }
        if lease.stub().is_some() && lease.deadline != LogTime::NEVER && lease.deadline > self.state.now {
            return Err(format!("the stub of lease {:?} has a deadline", lease.id));
        }
        let hash = hash_number(lease.id.get());
        let same = self.state.lease_ids.find(hash, |other| self.state.leases.get(other).id == lease.id);
        if let Some(same) = same
            && !self.state.is_past(self.state.leases.get(same).deadline)
        {
            return Err(format!("lease {:?} lives twice", lease.id));
        }
        let incarnation = lease.incarnation;
        let mut lease = lease;
        if !kept.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(format!("lease {:?} keeps requests out of order", lease.id));
        }
        for (seq, outcome, subject, waited) in kept {
            if !lease.requests.is_seen(seq) || lease.requests.get(seq).is_some() {
                return Err(format!("{seq:?} of lease {:?} is kept without having been seen once", lease.id));
            }
            lease.requests.keep_for(KeptFor { seq, kept: Kept::Outcome(outcome), subject, waited });
        }
        let id = self.state.insert_lease(lease);
        self.incarnations.insert(incarnation, id);
        Ok(())
    }

    pub(crate) fn groups(&mut self, incarnation: Revision, groups: Vec<GroupId>) -> Restored {
        let id = self.lease_of(incarnation)?;
        if self.state.leases.get(id).stub().is_some() {
            return Err(format!("the stub of {incarnation:?} has stubs"));
        }
        self.state.leases.get_mut(id).residence = Residence::HereAndStubs(groups.into());
        self.state.registered.insert(incarnation, id);
        Ok(())
    }

    pub(crate) fn unacked(&mut self, unacked: Unacked) -> Restored {
        self.past(unacked.incarnation)?;
        let record = self.incarnations.get(&unacked.incarnation).map(|id| self.state.leases.get(*id));
        if let Some(lease) = record.filter(|lease| lease.id == unacked.lease) {
            let ended = self.state.is_past(lease.deadline) && lease.end_reason == unacked.reason.into();
            if !ended || lease.stub().is_some() || !lease.groups().is_empty() {
                return Err(format!("lease {:?} has ended and has not", lease.id));
            }
        }
        self.state.insert_unacked(unacked);
        Ok(())
    }

    /// Adds a claim. `claim.locks`, `claim.lease` and the neighbours are filled in here. `seqs` are the claim's own
    /// seqs and then those of its upgrade, in their order.
    pub(crate) fn claim(
        &mut self,
        incarnation: Revision,
        claim: Box<Claim>,
        seqs: Vec<SeqOnClaim>,
    ) -> Restored {
        let mut claim = *claim;
        claim.lease = self.lease_of(incarnation)?;
        if claim.lease_id != self.state.leases.get(claim.lease).id {
            return Err(format!("{:?} is on another lease", claim.create_revision));
        }
        self.past(claim.create_revision)?;
        self.past(claim.mod_revision)?;
        self.check_timers(&claim)?;
        if claim.version > claim.mod_revision.get() {
            return Err(format!(
                "{:?} has changed more often than there are revisions",
                claim.create_revision
            ));
        }
        if !claim.holds() && claim.seqs.iter().any(|(_, part)| *part == Part::Convert) {
            return Err(format!("{:?} was converted without being held", claim.create_revision));
        }
        if claim.upgrade.is_some() && !claim.holds() {
            return Err(format!("{:?} upgrades what it does not hold", claim.create_revision));
        }
        if let Some(upgrade) = &claim.upgrade {
            self.past(upgrade.queued_at)?;
            if Kind::of(upgrade.mode) != Kind::of(claim.mode) || claim.mode.covers(upgrade.mode) {
                return Err(format!("{:?} upgrades to {}", claim.create_revision, upgrade.mode));
            }
        }
        let kind = Kind::of(claim.mode);
        let mut locks = Vec::with_capacity(claim.names.as_slice().len());
        for name in claim.names.as_slice() {
            let (hash, found) = self.state.find_lock(name);
            let lock = found.unwrap_or_else(|| self.state.make_lock(name, hash, kind));
            self.check_joins(&claim, lock)?;
            self.state.locks.get_mut(lock).kind = kind;
            locks.push(lock);
        }
        claim.locks = Locks::new(locks);
        let id = self.state.insert_claim(claim);
        self.keep_claim(id, seqs)
    }

    fn lease_of(&self, incarnation: Revision) -> Result<Id<Lease>, String> {
        let lease = self.incarnations.get(&incarnation).copied();
        lease.ok_or_else(|| format!("there is no lease of {incarnation:?}"))
    }

    fn check_timers(&self, claim: &Claim) -> Restored {
        for timer in super::grant::timers(claim).into_iter().flatten() {
            if self.state.claim_deadlines.contains_key(&timer) {
                return Err(format!("{:?} has the deadline of another claim", claim.create_revision));
            }
        }
        Ok(())
    }

    fn check_joins(&self, claim: &Claim, lock: Id<crate::lock::Lock>) -> Restored {
        let lock = self.state.locks.get(lock);
        let who = |id| self.state.claims.get(id);
        let taken = claim.token.is_some_and(|token| lock.holder(token).is_some())
            || (claim.is_queued() && lock.queue.contains_key(&claim.queue_key()))
            || lock.find_member(claim.lease, &claim.owner, who).is_some();
        let mixed = lock.has_members() && lock.kind != Kind::of(claim.mode);
        if taken || mixed {
            return Err(format!(
                "{:?} can't be on {} beside its other claims",
                claim.create_revision, lock.name
            ));
        }
        Ok(())
    }

    /// Records a claim's seqs in its lease, which finds the claim by them.
    fn keep_claim(&mut self, id: Id<Claim>, seqs: Vec<SeqOnClaim>) -> Restored {
        let claim = self.state.claims.get(id);
        let own = claim.seqs.iter().map(|(_, part)| *part);
        let upgrade = claim.upgrade.iter().flat_map(|upgrade| upgrade.seqs.iter());
        let parts = own.chain(upgrade.map(|_| Part::Convert));
        let requests = &mut self.state.leases.get_mut(claim.lease).requests;
        for ((seq, subject, waited), part) in seqs.into_iter().zip(parts) {
            if !requests.is_seen(seq) || requests.get(seq).is_some() {
                return Err(format!("{seq:?} of {:?} is kept twice or unseen", claim.lease_id));
            }
            if !claim.holds() && !waited {
                return Err(format!("{seq:?} of {:?} waits without having waited", claim.lease_id));
            }
            requests.keep_for(KeptFor { seq, kept: Kept::Claim { claim: id, part }, subject, waited });
        }
        Ok(())
    }

    pub(crate) fn closure(&mut self, name: &Name, until: LogTime) -> Restored {
        let (hash, found) = self.state.find_lock(name);
        let lock = found.unwrap_or_else(|| self.state.make_lock(name, hash, Kind::Modes));
        if self.state.locks.get(lock).closure.is_some() {
            return Err(format!("{name} is closed twice"));
        }
        self.state.close_lock(lock, until);
        Ok(())
    }

    pub(crate) fn register(
        &mut self,
        key: Key,
        state: RegisterState,
        incarnation: Option<Revision>,
    ) -> Restored {
        let lease = incarnation.map(|incarnation| self.lease_of(incarnation)).transpose()?;
        if self.state.keys.contains_key(&key) {
            return Err(format!("{key} is there twice"));
        }
        if state.version == 0 || state.version > state.mod_revision.get() {
            return Err(format!("{key} has been put more often than there are revisions"));
        }
        if state.lease != lease.map(|lease| self.state.leases.get(lease).id) {
            return Err(format!("{key} is on another lease"));
        }
        let register = Register { key: key.clone(), state, lease: None };
        let id = self.state.registers.insert(register);
        self.state.keys.insert(key, id);
        self.state.attach_register(id, lease);
        Ok(())
    }

    pub(crate) fn dirty(&mut self, name: Name) -> Restored {
        if self.state.dirty.insert(name) { Ok(()) } else { Err("a name is dirty twice".to_owned()) }
    }

    pub(crate) fn event(&mut self, revision: Revision, change: &Change) -> Restored {
        self.past(revision)?;
        match change {
            Change::Lock(lock) => self.state.ring.push_lock(revision, &lock.borrowed()),
            Change::Register(register) => self.state.ring.push_register(revision, register),
        }
        Ok(())
    }

    /// Returns the state, if all records fit together.
    pub(crate) fn finish(mut self) -> Result<State, String> {
        self.state.scratch.overdue = self.state.is_due();
        self.state.check_invariants()?;
        Ok(self.state)
    }
}
