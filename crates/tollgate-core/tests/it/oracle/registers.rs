//! Registers: transactions over them.

use super::claims::register_state;
use super::identity::{Answer, about};
use super::{Oracle, Register};
use std::collections::{BTreeMap, BTreeSet};
use tollgate_core::{
    Against, Change, Compare, Event, KeySelector, Op, OpResult, RangeQuery, RegisterChange, RegisterState,
    RegisterView, Rejection, Relation, Reply, Sort, Txn,
};
use tollgate_types::{Key, LeaseId, Limit, Revision};

impl Oracle {
    pub(super) fn txn(&mut self, txn: &Txn) -> Reply {
        match &txn.request {
            Some((lease, request)) => {
                let about = about(None, Some(request), &("txn", &txn.compares, &txn.then, &txn.otherwise));
                self.identified(*lease, Some(request), (None, about), true, |oracle, _| oracle.run_txn(txn))
            }
            None => self.run_txn(txn).map_or_else(Reply::Rejected, |answer| answer.reply),
        }
    }

    fn run_txn(&mut self, txn: &Txn) -> Result<Answer, Rejection> {
        for count in [txn.compares.len(), txn.then.len(), txn.otherwise.len()] {
            self.check_limit(Limit::TxnOps, count as u64)?;
        }
        for op in txn.then.iter().chain(&txn.otherwise) {
            if let Op::Put { value, .. } = op {
                self.check_limit(Limit::ValueBytes, value.len() as u64)?;
            }
        }
        check_written_once(&txn.then)?;
        check_written_once(&txn.otherwise)?;
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        self.check_ops(ops)?;
        for key in put_keys(ops) {
            if self.registers.get(key).is_some_and(|register| !self.is_alive(register)) {
                self.end_register(key);
            }
        }
        let results = self.run_ops(ops);
        Ok(Answer::outcome(Reply::TxnDone { succeeded, revision: self.revision, results }))
    }

    fn is_alive(&self, register: &Register) -> bool {
        register.lease.is_none_or(|(_, incarnation)| self.lease_of(incarnation).deadline > self.now)
    }

    pub(super) fn living_register(&self, key: &Key) -> Option<&Register> {
        self.registers.get(key).filter(|register| self.is_alive(register))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let register = self.living_register(&compare.key);
        let number = |of: fn(&Register) -> u64| register.map_or(0, of);
        let order = match &compare.against {
            Against::Create(given) => number(|register| register.create_revision.get()).cmp(&given.get()),
            Against::Mod(given) => number(|register| register.mod_revision.get()).cmp(&given.get()),
            Against::Version(given) => number(|register| register.version).cmp(given),
            Against::Lease(given) => {
                let lease: Option<LeaseId> = register.and_then(|register| register.lease.map(|(id, _)| id));
                lease.cmp(given)
            }
            Against::Value(given) => match register {
                Some(register) => register.value.cmp(given),
                None => return false,
            },
        };
        match compare.relation {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Less => order.is_lt(),
            Relation::Greater => order.is_gt(),
        }
    }

    /// Reading: all three rules look at the registers as they are before the first step.
    fn check_ops(&self, ops: &[Op]) -> Result<(), Rejection> {
        for op in ops {
            if let Op::Put { lease: Some(lease), .. } = op {
                self.living(*lease)?;
            }
        }
        let mut looks = Vec::new();
        for op in ops {
            match op {
                Op::Put { .. } => {}
                Op::Delete(keys) => {
                    self.check_limit(Limit::Range, self.looks_at(keys))?;
                    looks.push(self.looks_at(keys));
                }
                Op::Get(query) => {
                    self.check_sortable(query)?;
                    looks.push(self.looks_at(&query.keys));
                }
            }
        }
        if looks.len() > 1 {
            self.check_limit(Limit::Range, looks.iter().sum())?;
        }
        let new = put_keys(ops).into_iter().filter(|key| !self.registers.contains_key(*key)).count();
        if new == 0 {
            return Ok(());
        }
        self.check_limit(Limit::Registers, (self.registers.len() + new) as u64)
    }

    /// Number of registers that a range looks at, dead ones included: at most one above the limit.
    fn looks_at(&self, keys: &KeySelector) -> u64 {
        let matching = self.registers.keys().filter(|key| selects(keys, key)).count() as u64;
        matching.min(self.limits.range_max + 1)
    }

    fn check_sortable(&self, query: &RangeQuery) -> Result<(), Rejection> {
        match query.sort {
            Sort::Key | Sort::KeyDescending => Ok(()),
            Sort::Create | Sort::CreateDescending => {
                self.check_limit(Limit::Range, self.looks_at(&query.keys))
            }
        }
    }

    /// A range outside a transaction.
    pub(crate) fn read_range(&self, query: &RangeQuery) -> Result<(Vec<RegisterView>, u64), Rejection> {
        self.check_sortable(query)?;
        Ok(self.range(query))
    }

    fn matching(&self, keys: &KeySelector) -> Vec<Key> {
        let alive = self.registers.iter().filter(|(_, register)| self.is_alive(register));
        alive.filter(|(key, _)| selects(keys, key)).map(|(key, _)| key.clone()).collect()
    }

    /// All writes of a branch share one revision, which is taken only if there is a write.
    fn run_ops(&mut self, ops: &[Op]) -> Vec<OpResult> {
        let revision = self.revision.next();
        let mut changes: BTreeMap<Key, RegisterChange> = BTreeMap::new();
        let mut results = Vec::new();
        for op in ops {
            results.push(match op {
                Op::Put { key, .. } => {
                    changes.insert(key.clone(), self.put(op, key, revision));
                    OpResult::Put
                }
                Op::Get(query) => {
                    let (registers, count) = self.range(query);
                    OpResult::Got { registers, count }
                }
                Op::Delete(keys) => {
                    let matching = self.matching(keys);
                    for key in &matching {
                        let prev = self.registers.remove(key).map(|register| register_state(&register));
                        changes.insert(key.clone(), RegisterChange { key: key.clone(), now: None, prev });
                    }
                    OpResult::Deleted(matching.len() as u64)
                }
            });
        }
        if !changes.is_empty() {
            self.next_revision();
        }
        let events = changes.into_values().map(|change| Event { revision, change: Change::Register(change) });
        self.events.extend(events);
        results
    }

    fn put(&mut self, op: &Op, key: &Key, revision: Revision) -> RegisterChange {
        let Op::Put { value, lease, .. } = op else { unreachable!("only called for a put") };
        let lease = lease.map(|id| (id, self.living(id).expect("checked before the first step")));
        let old = self.registers.remove(key);
        let register = Register {
            value: value.clone(),
            lease,
            create_revision: old.as_ref().map_or(revision, |old| old.create_revision),
            mod_revision: revision,
            version: old.as_ref().map_or(0, |old| old.version) + 1,
        };
        let (now, prev) = (Some(register_state(&register)), old.as_ref().map(register_state));
        self.registers.insert(key.clone(), register);
        RegisterChange { key: key.clone(), now, prev }
    }

    /// The living registers that match, sorted and cut, and how many match in all.
    fn range(&self, query: &RangeQuery) -> (Vec<RegisterView>, u64) {
        let max = self.limits.range_max;
        let most = usize::try_from(max + 1).expect("limits are small");
        let mut keys: Vec<&Key> = self.registers.keys().filter(|key| selects(&query.keys, key)).collect();
        if query.sort == Sort::KeyDescending {
            keys.reverse();
        }
        keys.truncate(most);
        let living = self.registers();
        let mut found: Vec<RegisterView> =
            living.into_iter().filter(|view| keys.contains(&&view.key)).collect();
        let count = if keys.len() == most { max + 1 } else { found.len() as u64 };
        match query.sort {
            Sort::Key => {}
            Sort::KeyDescending => found.reverse(),
            Sort::Create => found.sort_by_key(|view| (view.create_revision, view.key.clone())),
            Sort::CreateDescending => {
                found.sort_by_key(|view| (view.create_revision, view.key.clone()));
                found.reverse();
            }
        }
        let limit = if query.limit == 0 { max } else { u64::from(query.limit).min(max) };
        found.truncate(usize::try_from(limit).expect("limits are small"));
        (found, count)
    }

    /// The living registers by key.
    pub(crate) fn registers(&self) -> Vec<RegisterView> {
        let alive = self.registers.iter().filter(|(_, register)| self.is_alive(register));
        alive.map(|(key, register)| view(key, register_state(register))).collect()
    }
}

fn view(key: &Key, state: RegisterState) -> RegisterView {
    RegisterView {
        key: key.clone(),
        value: state.value,
        lease: state.lease,
        create_revision: state.create_revision,
        mod_revision: state.mod_revision,
        version: state.version,
    }
}

fn selects(keys: &KeySelector, key: &Key) -> bool {
    match keys {
        KeySelector::Key(one) => one == key,
        KeySelector::Prefix(prefix) => key.as_bytes().starts_with(prefix.as_bytes()),
        KeySelector::All => true,
    }
}

fn put_keys(ops: &[Op]) -> Vec<&Key> {
    ops.iter().filter_map(|op| if let Op::Put { key, .. } = op { Some(key) } else { None }).collect()
}

/// Reading: the key reported is that of the first put whose key another step of the branch writes.
fn check_written_once(ops: &[Op]) -> Result<(), Rejection> {
    let mut put: BTreeSet<&Key> = BTreeSet::new();
    let twice: BTreeSet<&Key> = put_keys(ops).into_iter().filter(|key| !put.insert(key)).collect();
    let deleted = |key: &Key| ops.iter().any(|op| matches!(op, Op::Delete(keys) if selects(keys, key)));
    match put_keys(ops).into_iter().find(|key| twice.contains(key) || deleted(key)) {
        Some(key) => Err(Rejection::KeyTwice { key: key.clone() }),
        None => Ok(()),
    }
}
