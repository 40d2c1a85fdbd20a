//! The command that breaks a deadlock, mostly aimed at a wait that exists and at a grant in its way.

use super::Generator;
use crate::oracle::Oracle;
use tollgate_core::{Command, EndDeadlock, LockView};
use tollgate_types::Revision;

impl Generator {
    pub(super) fn end_deadlock(&mut self, oracle: &Oracle) -> Command {
        let locks = oracle.lock_names().into_iter().filter_map(|name| oracle.lock(&name));
        let awaited: Vec<LockView> = locks.filter(|lock| !lock.waiters.is_empty()).collect();
        if awaited.is_empty() || self.rng.percent(8) {
            let name = self.rng.pick(&self.names).clone();
            let create_revision = Revision::new(self.rng.between(1, 20)).expect("small");
            return Command::EndDeadlock(EndDeadlock { name, create_revision, blocker: self.stale_token() });
        }
        let lock = self.rng.pick(&awaited).clone();
        let create_revision = self.rng.pick(&lock.waiters).create_revision;
        let stale = lock.holders.is_empty() || self.rng.percent(15);
        let blocker = if stale { self.stale_token() } else { self.rng.pick(&lock.holders).token };
        Command::EndDeadlock(EndDeadlock { name: lock.name, create_revision, blocker })
    }
}
