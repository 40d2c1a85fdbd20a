//! Transactions on registers: compares pick a branch, whose writes share one revision.

use super::State;
use super::identity::Answer;
use crate::command::{Against, Compare, KeySelector, Op, RangeQuery, Relation, Sort, Txn};
use crate::event::{RegisterChange, RegisterState};
use crate::fingerprint::Asks;
use crate::lease::Lease;
use crate::planted::Bug;
use crate::register::Register;
use crate::reply::{OpResult, Rejection, Reply};
use crate::slab::Id;
use crate::view::RegisterView;
use std::cmp::Ordering;
use std::ops::Bound;
use tollgate_types::{Key, LeaseId, Limit, Revision, Value};

impl State {
    pub(super) fn txn(&mut self, txn: &Txn) -> Reply {
        let Some((lease, request)) = &txn.request else {
            return match self.run_txn(txn) {
                Ok(reply) => reply,
                Err(rejection) => Reply::Rejected(rejection),
            };
        };
        let lease = match self.living_lease(*lease) {
            Ok(lease) => lease,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let asks = Asks::Txn(txn);
        let asked = match self.begin(lease, Some(request), &asks, true) {
            Ok(asked) => asked,
            Err(reply) => return reply,
        };
        let result = self.run_txn(txn).map(Answer::from);
        self.finish(asked, result)
    }

    fn run_txn(&mut self, txn: &Txn) -> Result<Reply, Rejection> {
        self.check(Limit::TxnOps, txn.compares.len() as u64)?;
        self.check(Limit::TxnOps, txn.then.len() as u64)?;
        self.check(Limit::TxnOps, txn.otherwise.len() as u64)?;
        for op in txn.then.iter().chain(&txn.otherwise) {
            if let Op::Put { value, .. } = op {
                self.check(Limit::ValueBytes, value.len() as u64)?;
            }
        }
        check_keys_once(&txn.then)?;
        check_keys_once(&txn.otherwise)?;
        let succeeded = txn.compares.iter().all(|compare| self.holds_true(compare));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        self.check_branch(ops)?;
        self.end_dead_registers_of(ops);
        let results = self.run_ops(ops);
        Ok(Reply::TxnDone { succeeded, revision: self.revision, results })
    }

    fn holds_true(&self, compare: &Compare) -> bool {
        let register = self.living_register(&compare.key).map(|id| &self.registers.get(id).state);
        let zero = Revision::ZERO;
        let ordering = match &compare.against {
            Against::Create(revision) => register.map_or(zero, |r| r.create_revision).cmp(revision),
            Against::Mod(revision) => register.map_or(zero, |r| r.mod_revision).cmp(revision),
            Against::Version(version) => register.map_or(0, |r| r.version).cmp(version),
            Against::Lease(lease) => register.and_then(|r| r.lease).cmp(lease),
            Against::Value(value) => match register {
                Some(register) => register.value.cmp(value),
                None => return false,
            },
        };
        match compare.relation {
            Relation::Equal => ordering == Ordering::Equal,
            Relation::NotEqual => ordering != Ordering::Equal,
            Relation::Less => ordering == Ordering::Less,
            Relation::Greater => ordering == Ordering::Greater,
        }
    }

    /// Checks everything that could refuse the branch, before any of it runs.
    fn check_branch(&self, ops: &[Op]) -> Result<(), Rejection> {
        for op in ops {
            if let Op::Put { lease: Some(lease), .. } = op {
                self.living_lease(*lease)?;
            }
        }
        self.check_ranges(ops)?;
        let new = ops.iter().filter(|op| matches!(op, Op::Put { key, .. } if !self.keys.contains_key(key)));
        let new = new.count() as u64;
        // Writing to a register that exists is never refused, even if the limit was lowered below the present number.
        if new > 0 { self.check(Limit::Registers, self.registers.len() as u64 + new) } else { Ok(()) }
    }

    fn end_dead_registers_of(&mut self, ops: &[Op]) {
        for op in ops {
            if let Op::Put { key, .. } = op
                && self.keys.contains_key(key)
                && self.living_register(key).is_none()
            {
                self.end_register(key);
            }
        }
    }

    fn run_ops(&mut self, ops: &[Op]) -> Vec<OpResult> {
        // The first write takes the revision that all writes share; their events are in order of key.
        let mut revision = None;
        let mut changes: Vec<RegisterChange> = Vec::new();
        let mut results = Vec::with_capacity(ops.len());
        for op in ops {
            results.push(match op {
                Op::Put { key, value, lease } => {
                    let revision = *revision.get_or_insert_with(|| self.bump());
                    changes.push(self.put(key, value, *lease, revision));
                    OpResult::Put
                }
                Op::Get(query) => {
                    let (registers, count) = self.sorted_range(query);
                    OpResult::Got { registers, count }
                }
                Op::Delete(keys) => {
                    let living = self.looked_at(keys, false).into_iter().filter(|id| self.is_living(*id));
                    let keys: Vec<Key> = living.map(|id| self.registers.get(id).key.clone()).collect();
                    for key in &keys {
                        revision.get_or_insert_with(|| self.bump());
                        changes.push(self.delete(key));
                    }
                    OpResult::Deleted(keys.len() as u64)
                }
            });
        }
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        for change in changes {
            self.emit_register(&change);
        }
        results
    }

    fn put(
        &mut self,
        key: &Key,
        value: &Value,
        lease_id: Option<LeaseId>,
        revision: Revision,
    ) -> RegisterChange {
        let lease = lease_id.map(|lease| self.find_lease(lease).expect("checked before the branch ran"));
        let found = self.keys.get(key).copied();
        let prev = found.map(|id| self.registers.get(id).state.clone());
        let now = RegisterState {
            value: value.clone(),
            lease: lease_id,
            create_revision: prev.as_ref().map_or(revision, |prev| prev.create_revision),
            mod_revision: revision,
            version: prev.as_ref().map_or(1, |prev| prev.version + 1),
        };
        let id = if let Some(id) = found {
            self.detach(id);
            self.registers.get_mut(id).state = now.clone();
            id
        } else {
            let register = Register { key: key.clone(), state: now.clone(), lease: None };
            let id = self.registers.insert(register);
            self.keys.insert(key.clone(), id);
            id
        };
        self.attach_register(id, lease);
        RegisterChange { key: key.clone(), now: Some(now), prev }
    }

    pub(super) fn attach_register(&mut self, id: Id<Register>, lease: Option<Id<Lease>>) {
        let register = self.registers.get_mut(id);
        register.lease = lease;
        if let Some(lease) = lease {
            let incarnation = self.leases.get(lease).incarnation;
            self.lease_registers.insert((incarnation, register.key.clone()));
        }
    }

    fn detach(&mut self, id: Id<Register>) {
        let register = self.registers.get_mut(id);
        if let Some(lease) = register.lease.take() {
            let incarnation = self.leases.get(lease).incarnation;
            let known = self.lease_registers.remove(&(incarnation, register.key.clone()));
            assert!(known, "a lease knows its registers");
        }
    }

    /// The register with the least key that is attached to a lease.
    pub(super) fn first_register_of(&self, incarnation: Revision) -> Option<Key> {
        let least = Key::new([0]).expect("one byte is a key");
        let (first, key) = self.lease_registers.range((incarnation, least)..).next()?;
        (*first == incarnation).then(|| key.clone())
    }

    fn delete(&mut self, key: &Key) -> RegisterChange {
        let id = self.keys.remove(key).expect("the caller found it");
        self.detach(id);
        let register = self.registers.remove(id);
        RegisterChange { key: register.key, now: None, prev: Some(register.state) }
    }

    /// Ends a register with its lease, at a revision of its own.
    pub(super) fn end_register(&mut self, key: &Key) {
        self.bump();
        let change = self.delete(key);
        self.emit_register(&change);
    }

    fn emit_register(&mut self, change: &RegisterChange) {
        self.ring.push_register(self.revision, change);
        self.scratch.events_from.get_or_insert(self.revision);
    }

    /// Returns the register, unless its lease has ended.
    pub(super) fn living_register(&self, key: &Key) -> Option<Id<Register>> {
        self.keys.get(key).copied().filter(|id| self.is_living(*id))
    }

    fn is_living(&self, id: Id<Register>) -> bool {
        let lease = self.registers.get(id).lease;
        lease.is_none_or(|lease| !self.is_past(self.leases.get(lease).deadline))
            || self.planted(Bug::RegisterOutlivesLease)
    }

    /// Refuses a branch whose ranges look at more registers than the limit allows, each and together.
    fn check_ranges(&self, ops: &[Op]) -> Result<(), Rejection> {
        let (mut ranges, mut looks) = (0, 0);
        for op in ops {
            let keys = match op {
                Op::Put { .. } => continue,
                Op::Delete(keys) => {
                    self.check(Limit::Range, self.looks_at(keys))?;
                    keys
                }
                Op::Get(query) => {
                    self.check_sortable(query)?;
                    &query.keys
                }
            };
            ranges += 1;
            looks += self.looks_at(keys);
        }
        // A single range by key may match more than the limit: it is cut.
        if ranges > 1 { self.check(Limit::Range, looks) } else { Ok(()) }
    }

    /// Sorting by revision needs all matching registers at once, so there must not be too many.
    fn check_sortable(&self, query: &RangeQuery) -> Result<(), Rejection> {
        match query.sort {
            Sort::Key | Sort::KeyDescending => Ok(()),
            Sort::Create | Sort::CreateDescending => self.check(Limit::Range, self.looks_at(&query.keys)),
        }
    }

    /// The registers that a range looks at: those that match, living or not, but no more than one above the limit.
    /// `last_first` decides which ones are left out.
    fn looked_at(&self, keys: &KeySelector, last_first: bool) -> Vec<Id<Register>> {
        let most = usize::try_from(self.limits.range_max + 1).expect("limits fit in memory");
        let matching = self.keys.range(bounds(keys)).map(|(_, id)| *id);
        if last_first { matching.rev().take(most).collect() } else { matching.take(most).collect() }
    }

    fn looks_at(&self, keys: &KeySelector) -> u64 {
        self.looked_at(keys, false).len() as u64
    }

    /// Returns the living registers that match, sorted and cut to the limit, and the number of matches. A range looks
    /// at no more than `range_max` + 1 registers: a count above `range_max` means that more may match, and so many
    /// can't be sorted by revision.
    pub fn range(&self, query: &RangeQuery) -> Result<(Vec<RegisterView>, u64), Rejection> {
        self.check_sortable(query)?;
        Ok(self.sorted_range(query))
    }

    fn sorted_range(&self, query: &RangeQuery) -> (Vec<RegisterView>, u64) {
        let max = self.limits.range_max;
        let limit = if query.limit == 0 { max } else { u64::from(query.limit).min(max) };
        let limit = usize::try_from(limit).expect("limits fit in memory");
        let mut ids = self.looked_at(&query.keys, query.sort == Sort::KeyDescending);
        let cut_off = ids.len() as u64 > max;
        ids.retain(|id| self.is_living(*id));
        let count = if cut_off { max + 1 } else { ids.len() as u64 };
        match query.sort {
            Sort::Key | Sort::KeyDescending => {}
            // The sort is stable, and the ids come by key.
            Sort::Create => ids.sort_by_key(|id| self.registers.get(*id).state.create_revision),
            Sort::CreateDescending => {
                ids.sort_by_key(|id| self.registers.get(*id).state.create_revision);
                ids.reverse();
            }
        }
        ids.truncate(limit);
        (ids.into_iter().map(|id| self.registers.get(id).view()).collect(), count)
    }
}

/// Refuses a branch whose events would have one key twice at one revision; names the first such put.
fn check_keys_once(ops: &[Op]) -> Result<(), Rejection> {
    let put = |op: &Op| if let Op::Put { key, .. } = op { Some(key.clone()) } else { None };
    let deletes = |op: &Op, key: &Key| matches!(op, Op::Delete(keys) if selects(keys, key));
    let mut sorted: Vec<Key> = ops.iter().filter_map(put).collect();
    sorted.sort();
    for key in ops.iter().filter_map(put) {
        let first = sorted.partition_point(|other| *other < key);
        let twice = sorted.get(first + 1) == Some(&key);
        if twice || ops.iter().any(|op| deletes(op, &key)) {
            return Err(Rejection::KeyTwice { key });
        }
    }
    Ok(())
}

fn selects(keys: &KeySelector, key: &Key) -> bool {
    match keys {
        KeySelector::Key(one) => one == key,
        KeySelector::Prefix(prefix) => key.as_bytes().starts_with(prefix.as_bytes()),
        KeySelector::All => true,
    }
}

fn bounds(keys: &KeySelector) -> (Bound<Key>, Bound<Key>) {
    match keys {
        KeySelector::Key(key) => (Bound::Included(key.clone()), Bound::Included(key.clone())),
        KeySelector::Prefix(prefix) => (Bound::Included(prefix.clone()), after_prefix(prefix)),
        KeySelector::All => (Bound::Unbounded, Bound::Unbounded),
    }
}

/// The least key above all keys with this prefix: the prefix with its last byte below 0xff raised.
fn after_prefix(prefix: &Key) -> Bound<Key> {
    let mut bytes = prefix.as_bytes().to_vec();
    while let Some(last) = bytes.pop() {
        if last < 0xff {
            bytes.push(last + 1);
            return Bound::Excluded(Key::new(&bytes).expect("no longer than the prefix, and not empty"));
        }
    }
    Bound::Unbounded
}
