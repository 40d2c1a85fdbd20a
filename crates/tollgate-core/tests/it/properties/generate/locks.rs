//! The commands on locks, mostly aimed at names that are held or awaited.

use super::super::texts;
use super::{Generator, seq};
use crate::oracle::Oracle;
use tollgate_core::{
    AcquireLock, CancelTarget, CancelWait, Command, ConvertLock, ForceRelease, HolderView, LockView,
    Proclaim, ReleaseBy, ReleaseLock, Wait, WaiterView,
};
use tollgate_types::{DurationMs, LeaseId, Mode, Name, Names, Owner, Token};

impl Generator {
    pub(super) fn acquire(&mut self, oracle: &Oracle) -> Command {
        let lease = self.lease(oracle);
        let names = self.some_names();
        let mode = self.mode(&names.as_slice()[0].clone());
        Command::AcquireLock(AcquireLock {
            mode,
            names,
            lease,
            owner: self.owner(),
            wait: self.wait(),
            lock_delay: self.lock_delay(),
            max_hold: self.rng.percent(20).then(|| DurationMs::from_ms(*self.rng.pick(&[0, 1, 3, 10, 40]))),
            metadata: self.rng.pick(&self.metadata).clone(),
            value: self.rng.percent(25).then(|| self.rng.pick(&self.values).clone()),
            attended: self.rng.percent(60),
            request: self.request(lease),
        })
    }

    fn lock_delay(&mut self) -> DurationMs {
        DurationMs::from_ms([0, 1, 3, 10, 70_000][self.rng.weighted(&[750, 80, 80, 80, 10])])
    }

    /// One name, or several that are taken together.
    fn some_names(&mut self) -> Names {
        let count = (self.rng.weighted(&[60, 28, 12]) + 1).min(self.names.len());
        let mut names: Vec<Name> = Vec::new();
        while names.len() < count {
            let name = self.rng.pick(&self.names).clone();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Names::new(names).expect("each once")
    }

    fn mode(&mut self, first: &Name) -> Mode {
        let semaphore = first.as_bytes().starts_with(texts::SEMAPHORE.as_bytes());
        let permits = if self.rng.percent(4) { !semaphore } else { semaphore };
        if permits {
            let of = if self.rng.percent(92) { 3 } else { 2 };
            let n = u32::try_from(self.rng.between(1, 2)).expect("at most 2");
            return Mode::permit(n, of).expect("n is at most of");
        }
        // In the order of `Mode::PLAIN`: IS, IX, S, SIX, X.
        Mode::PLAIN[self.rng.weighted(&[8, 10, 32, 8, 42])]
    }

    fn wait(&mut self) -> Wait {
        match self.rng.weighted(&[15, 3, 30, 52]) {
            0 => Wait::No,
            1 => Wait::For(DurationMs::ZERO),
            2 => Wait::For(DurationMs::from_ms(self.rng.between(1, 12))),
            _ => Wait::Forever,
        }
    }

    fn locks(oracle: &Oracle) -> Vec<LockView> {
        oracle.lock_names().iter().filter_map(|name| oracle.lock(name)).collect()
    }

    /// A holder, and the names held with its token: all of them, or one.
    fn holder(&mut self, oracle: &Oracle) -> Option<(HolderView, Names)> {
        let locks = Generator::locks(oracle);
        let all: Vec<(&Name, &HolderView)> =
            locks.iter().flat_map(|lock| lock.holders.iter().map(|holder| (&lock.name, holder))).collect();
        if all.is_empty() {
            return None;
        }
        let (name, holder) = *self.rng.pick(&all);
        let whole = self.rng.percent(75);
        let same =
            all.iter().filter(|(_, other)| other.token == holder.token).map(|(name, _)| (*name).clone());
        let names = if whole { same.collect() } else { vec![name.clone()] };
        Some((holder.clone(), Names::new(names).expect("each once")))
    }

    pub(super) fn stale_token(&mut self) -> Token {
        if self.tokens.is_empty() { Token::new(1).expect("above 0") } else { *self.rng.pick(&self.tokens) }
    }

    pub(super) fn release(&mut self, oracle: &Oracle) -> Command {
        let blind = self.rng.percent(15);
        let aimed = if blind { None } else { self.holder(oracle) };
        let (lease, owner, token, names) = match aimed {
            Some((holder, names)) => (holder.lease, holder.owner, holder.token, names),
            None => (self.lease(oracle), self.owner(), self.stale_token(), self.some_names()),
        };
        // Names of several claims of the same owner at once.
        let names =
            if self.rng.percent(10) { self.held_by(oracle, lease, &owner).unwrap_or(names) } else { names };
        let token = if self.rng.percent(8) { self.stale_token() } else { token };
        if self.rng.percent(25) {
            return Command::ReleaseLock(ReleaseLock { names, by: ReleaseBy::Token(token) });
        }
        let token = self.rng.percent(50).then_some(token);
        let request = self.request(lease);
        Command::ReleaseLock(ReleaseLock { names, by: ReleaseBy::Holder { lease, owner, token, request } })
    }

    fn held_by(&mut self, oracle: &Oracle, lease: LeaseId, owner: &Owner) -> Option<Names> {
        let holds = |lock: &LockView| lock.holders.iter().any(|it| it.lease == lease && it.owner == *owner);
        let locks = Generator::locks(oracle);
        let mut names: Vec<Name> = locks.into_iter().filter(holds).map(|lock| lock.name).collect();
        if names.len() > 2 && self.rng.percent(50) {
            names.remove(0);
        }
        Names::new(names).ok()
    }

    pub(super) fn convert(&mut self, oracle: &Oracle) -> Command {
        let blind = self.rng.percent(8);
        let aimed = if blind { None } else { self.holder(oracle) };
        let (lease, owner, names) = match aimed {
            Some((holder, names)) => (holder.lease, holder.owner, names),
            None => (self.lease(oracle), self.owner(), self.some_names()),
        };
        let mode = self.mode(&names.as_slice()[0].clone());
        let wait = self.wait();
        if self.rng.percent(25) {
            return self.acquire_again(names, lease, owner, mode, wait);
        }
        let (attended, request) = (self.rng.percent(60), self.request(lease));
        Command::ConvertLock(ConvertLock { names, lease, owner, mode, wait, attended, request })
    }

    /// An Acquire of names that are held already.
    fn acquire_again(
        &mut self,
        names: Names,
        lease: LeaseId,
        owner: Owner,
        mode: Mode,
        wait: Wait,
    ) -> Command {
        let (lock_delay, max_hold) = (DurationMs::ZERO, None);
        let metadata = self.metadata[0].clone();
        let (attended, request) = (self.rng.percent(60), self.request(lease));
        Command::AcquireLock(AcquireLock {
            names,
            lease,
            owner,
            mode,
            wait,
            lock_delay,
            max_hold,
            metadata,
            value: self.rng.percent(25).then(|| self.rng.pick(&self.values).clone()),
            attended,
            request,
        })
    }

    pub(super) fn force(&mut self, oracle: &Oracle) -> Command {
        let (name, token) = match self.holder(oracle) {
            Some((holder, names)) => (names.as_slice()[0].clone(), holder.token),
            None => (self.rng.pick(&self.names).clone(), self.stale_token()),
        };
        let name = if self.rng.percent(10) { self.rng.pick(&self.names).clone() } else { name };
        let token = if self.rng.percent(25) { self.stale_token() } else { token };
        Command::ForceRelease(ForceRelease { name, token, reason: self.rng.pick(&self.reasons).clone() })
    }

    pub(super) fn proclaim(&mut self, oracle: &Oracle) -> Command {
        let blind = self.rng.percent(10);
        let aimed = if blind { None } else { self.holder(oracle) };
        let (name, lease, owner, token) = match aimed {
            Some((holder, names)) => (names.as_slice()[0].clone(), holder.lease, holder.owner, holder.token),
            None => {
                (self.rng.pick(&self.names).clone(), self.lease(oracle), self.owner(), self.stale_token())
            }
        };
        let token = if self.rng.percent(15) { self.stale_token() } else { token };
        let (value, request) = (self.rng.pick(&self.values).clone(), self.request(lease));
        Command::Proclaim(Proclaim { name, lease, owner, token, value, request })
    }

    pub(super) fn cancel(&mut self, oracle: &Oracle) -> Command {
        let by_seq = self.rng.percent(55);
        let (lease, target) = if by_seq { self.cancel_seq(oracle) } else { self.cancel_waiter(oracle) };
        let release_if_granted = self.rng.percent(40);
        let asks_max = self.rng.percent(50).then(|| u32::try_from(self.rng.between(0, 3)).expect("few"));
        let acked = self.acked(lease);
        Command::CancelWait(CancelWait { lease, target, release_if_granted, asks_max, acked })
    }

    /// A seq that was given out, the later the likelier, or one of the next, whose request then comes too late.
    fn cancel_seq(&mut self, oracle: &Oracle) -> (LeaseId, CancelTarget) {
        let lease = self.lease(oracle);
        let last = self.seqs.get(&lease).copied().unwrap_or(0);
        let number = match self.rng.weighted(&[60, 25, 15]) {
            0 => last.saturating_sub(self.rng.below(4)).max(1),
            1 => self.rng.between(1, last.max(1)),
            _ => last + self.rng.between(1, 2),
        };
        let seq = seq(number);
        if self.reuse_chance > 0 && self.rng.percent(50) {
            return (lease, CancelTarget::SeqOn { seq, name: self.rng.pick(&self.names).clone() });
        }
        (lease, CancelTarget::Seq(seq))
    }

    fn cancel_waiter(&mut self, oracle: &Oracle) -> (LeaseId, CancelTarget) {
        let locks = Generator::locks(oracle);
        let one_wait = self.rng.percent(50);
        let waiters: Vec<(LeaseId, CancelTarget)> = locks
            .into_iter()
            .flat_map(|lock| {
                let name = lock.name;
                let target = move |waiter: WaiterView| {
                    let (name, WaiterView { owner, create_revision, .. }) = (name.clone(), waiter);
                    if one_wait {
                        CancelTarget::Wait { name, create_revision }
                    } else {
                        CancelTarget::Waiter { name, owner }
                    }
                };
                lock.waiters.into_iter().map(move |waiter| (waiter.lease, target(waiter)))
            })
            .collect();
        if !waiters.is_empty() && self.rng.percent(80) {
            return self.rng.pick(&waiters).clone();
        }
        let name = self.rng.pick(&self.names).clone();
        (self.lease(oracle), CancelTarget::Waiter { name, owner: self.owner() })
    }
}
