//! Transactions over few keys, with compares that hold about half the time.

use super::Generator;
use crate::oracle::Oracle;
use tollgate_core::{
    Against, Command, Compare, KeySelector, Op, RangeQuery, RegisterView, Relation, Sort, Txn,
};
use tollgate_types::{Key, Revision};

impl Generator {
    pub(super) fn txn(&mut self, oracle: &Oracle) -> Command {
        let lease = self.lease(oracle);
        let request = self.request(lease).map(|request| (lease, request));
        let compares = (0..self.rng.weighted(&[50, 35, 15])).map(|_| self.compare(oracle)).collect();
        let then = (0..self.rng.weighted(&[5, 45, 30, 20])).map(|_| self.op(oracle)).collect();
        let otherwise = (0..self.rng.weighted(&[40, 40, 20])).map(|_| self.op(oracle)).collect();
        Command::Txn(Txn { request, compares, then, otherwise })
    }

    fn key(&mut self) -> Key {
        self.rng.pick(&self.keys).clone()
    }

    fn compare(&mut self, oracle: &Oracle) -> Compare {
        let key = self.key();
        let relations = [Relation::Equal, Relation::NotEqual, Relation::Less, Relation::Greater];
        let relation = relations[self.rng.weighted(&[50, 20, 15, 15])];
        let register = oracle.registers().into_iter().find(|register| register.key == key);
        let against = self.against(oracle, register.as_ref());
        Compare { key, relation, against }
    }

    /// An attribute of the register, or a value near it.
    fn against(&mut self, oracle: &Oracle, register: Option<&RegisterView>) -> Against {
        let off = self.rng.below(2);
        let near = |revision: Option<Revision>| {
            Revision::new(revision.map_or(0, Revision::get) + off).expect("revisions are small")
        };
        match self.rng.below(5) {
            0 => Against::Create(near(register.map(|it| it.create_revision))),
            1 => Against::Mod(near(register.map(|it| it.mod_revision))),
            2 => Against::Version(register.map_or(0, |it| it.version) + off),
            3 => {
                let value = register.filter(|_| off == 0).map(|it| it.value.clone());
                Against::Value(value.unwrap_or_else(|| self.rng.pick(&self.values).clone()))
            }
            _ => {
                let other = self.rng.percent(50).then(|| self.lease(oracle));
                Against::Lease(if off == 0 { register.and_then(|it| it.lease) } else { other })
            }
        }
    }

    fn op(&mut self, oracle: &Oracle) -> Op {
        match self.rng.weighted(&[60, 20, 20]) {
            0 => Op::Put {
                key: self.key(),
                value: self.rng.pick(&self.values).clone(),
                lease: self.rng.percent(60).then(|| self.lease(oracle)),
            },
            1 => {
                let sorts = [Sort::Key, Sort::KeyDescending, Sort::Create, Sort::CreateDescending];
                let limit = u32::try_from(self.rng.below(4)).expect("below 4");
                Op::Get(RangeQuery { keys: self.selector(), limit, sort: *self.rng.pick(&sorts) })
            }
            _ => Op::Delete(self.selector()),
        }
    }

    fn selector(&mut self) -> KeySelector {
        match self.rng.weighted(&[50, 40, 10]) {
            0 => KeySelector::Key(self.key()),
            1 => KeySelector::Prefix(self.key()),
            _ => KeySelector::All,
        }
    }
}
