//! Steps of a client's tasks: lock, write under the lock, change modes, release, cancel, read.
//!
//! Invariant: nothing is done under a lease that the client does not believe in, except by zombies, which exist to be
//! refused by the stores. Not here: the lease (`session`), and the sending (`client`).

use super::belief::span_us;
use super::call::{Again, NewCall, Why};
use super::plan::{self, Plan};
use super::task::{Cancel, Grant, Locking, Step, Zombie};
use super::{Client, ClientContext};
use crate::fenced::{FencedWrite, STORES, fence_mode};
use crate::front::{Ask, Lane};
use crate::rng::Rng;
use crate::types::At;
use tollgate_check::{CallId, EndReason, Op, Outcome};
use tollgate_core::{
    AcquireLock, CancelTarget, CancelWait, Command, ConvertLock, ForceRelease, ReleaseBy, ReleaseLock,
    Request, Txn, Wait,
};
use tollgate_types::{
    DurationMs, GroupId, LeaseId, Metadata, Mode, Name, Names, Owner, Reason, SeqRanges, Token, Value,
};

/// Draws the metadata of a request: none for most, a few random bytes for some. From a stream of its own, so that
/// everything else drawn for a seed stays what it was.
fn metadata(lease: LeaseId, request: &Request) -> Metadata {
    let rng = &mut Rng::stream(lease.get(), "metadata", request.seq.get());
    if !rng.percent(20) {
        return Metadata::NONE;
    }
    let bytes: Vec<u8> = (0..rng.below(20)).map(|_| rng.bits().to_le_bytes()[0]).collect();
    Metadata::new(bytes).expect("a few bytes are metadata")
}

impl Client {
    /// Takes a task's next step, if it is due.
    pub(super) fn act(&mut self, index: usize, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let task = &mut self.tasks[index];
        if now < task.next_at {
            return;
        }
        let lease = self.session.as_ref().and_then(|session| session.believed(now));
        let Some(lease) = lease else {
            task.next_at = if self.healing { u64::MAX } else { now + 20_000 + self.rng.below(80_000) };
            return;
        };
        match &task.step {
            Step::Resting => self.next_step(index, lease, now, at, ctx),
            Step::Locking(locking) if locking.cancel == Cancel::No => self.leave_wait(index, lease, now, ctx),
            _ => task.next_at = u64::MAX,
        }
    }

    fn next_step(&mut self, index: usize, lease: LeaseId, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        self.drop_held_too_long(index, now);
        let task = &self.tasks[index];
        if self.healing {
            if task.grants.is_empty() {
                self.tasks[index].next_at = u64::MAX;
            } else {
                self.unlock(index, lease, now);
            }
            return;
        }
        let roll = self.rng.below(100);
        let holds = task.grants.len();
        match (holds, roll) {
            (0, 0..7) => self.put(index, lease, now),
            (0, 7..14) => self.read_register(index, now),
            (0, 14..20) | (_, 50..53) => self.read_lock(index, now),
            (0, _) | (1, 53..63) => self.lock(index, lease, now),
            (_, 0..50) => self.write(index, now, at, ctx),
            (_, 63..71) => self.convert(index, lease, now),
            (_, 71..74) => self.rest(index, now, 8),
            (_, 74..77) => self.unlock_by_stale_token(index, lease, now),
            _ => self.unlock(index, lease, now),
        }
    }

    /// Lets a task rest, for at most `slow` times as long as usual.
    fn rest(&mut self, index: usize, now: u64, slow: u64) {
        let us = self.rng.below(self.settings.think_ms_max * 1_000 * slow + 1);
        self.tasks[index].take_step(Step::Resting, now + us);
    }

    pub(super) fn make(
        &mut self,
        group: GroupId,
        ask: Ask,
        op: Op,
        request: Option<&Request>,
        why: Why,
        now: u64,
    ) -> CallId {
        let (seq, epoch) = (request.map(|request| request.seq), self.epoch);
        let reads = matches!(ask, Ask::ReadLock(_) | Ask::ReadRegister(_));
        let again = if seq.is_some() || reads { Again::Same } else { Again::NewCall };
        self.calls.make(NewCall { group, ask, op: Some(op), seq, why, again, epoch }, now)
    }

    fn next_request(&mut self) -> Request {
        self.session.as_mut().expect("a lease is believed in").next_request()
    }

    fn lock(&mut self, index: usize, lease: LeaseId, now: u64) {
        let taken: Vec<&Names> = self.tasks[index].grants.iter().map(|grant| &grant.names).collect();
        let takes_part = !self.tasks[index].owner.is_empty();
        let Some(plan) = Plan::draw(&self.settings, self.groups, &taken, takes_part, &mut self.rng) else {
            return self.rest(index, now, 1);
        };
        if self.tasks[index].grants.is_empty() {
            self.tasks[index].owner = self.draw_owner(index);
        }
        let owner = self.tasks[index].owner.clone();
        let request = self.next_request();
        let Plan { names, group, mode, wait, lock_delay_ms, max_hold_ms, leave_after_us, single, .. } =
            plan.clone();
        let op = Op::Lock {
            names: names.clone(),
            lease,
            owner: owner.clone(),
            mode,
            wait: told_wait(wait),
            max_hold_ms,
        };
        let command = Command::AcquireLock(AcquireLock {
            names,
            lease,
            owner,
            mode,
            wait,
            lock_delay: DurationMs::from_ms(lock_delay_ms),
            max_hold: max_hold_ms.map(DurationMs::from_ms),
            metadata: metadata(lease, &request),
            value: None,
            attended: single,
            request: Some(request.clone()),
        });
        let ask = Ask::Command(Box::new(command));
        let call = self.make(group, ask, op, Some(&request), Why::Task(index), now);
        self.set_lane(call, single);
        let (seq, cancel, attempts_before, answer) = (request.seq, Cancel::No, 0, None);
        let next_at = leave_after_us.map_or(u64::MAX, |us| now + us);
        let left = false;
        let locking = Box::new(Locking { call, seq, plan, cancel, left, attempts_before, answer });
        self.tasks[index].take_step(Step::Locking(locking), next_at);
    }

    /// Draws the owner of a task's requests: the task's own name, by which deadlocks are seen, or a name that was never
    /// used before. The only task of a client sometimes asks as the lease itself.
    fn draw_owner(&mut self, index: usize) -> Owner {
        if self.settings.tasks == 1 && self.rng.percent(20) {
            return Owner::LEASE;
        }
        self.owners += 1;
        let text = if self.rng.percent(50) { format!("t{index}") } else { format!("o{}", self.owners) };
        Owner::new(text).expect("a short text is an owner")
    }

    fn set_lane(&mut self, call: CallId, single: bool) {
        if let Some(call) = self.calls.get_mut(call).filter(|_| single) {
            call.lane = Lane::Single;
        }
    }

    /// Cancels the wait of a task's request, sent or not; with `asks_max`, unless others want the claim too.
    pub(super) fn cancel(&mut self, index: usize, lease: LeaseId, now: u64, asks_max: Option<u32>) {
        let release_if_granted = self.healing || asks_max.is_some() || self.rng.percent(60);
        let Step::Locking(locking) = &mut self.tasks[index].step else { return };
        let (of, seq, group) = (locking.call, locking.seq, locking.plan.group);
        if self.calls.get(of).is_none_or(|call| call.attempts == 0) {
            self.calls.drop_unsent(of);
            return self.rest(index, now, 1);
        }
        locking.cancel = Cancel::Asked;
        if let Some(call) = self.calls.get_mut(of) {
            call.cancelled = true;
        }
        let op = Op::Cancel { of, release_if_granted };
        let target = CancelTarget::Seq(seq);
        let acked = SeqRanges::default();
        let command = Command::CancelWait(CancelWait { lease, target, release_if_granted, asks_max, acked });
        let why = Why::Cancel { task: index, of };
        self.make(group, Ask::Command(Box::new(command)), op, None, why, now);
        self.tasks[index].next_at = u64::MAX;
    }

    fn unlock(&mut self, index: usize, lease: LeaseId, now: u64) {
        let Some(grant) = self.tasks[index].grants.last().cloned() else {
            return self.rest(index, now, 1);
        };
        // Now and then one name of several is released first.
        let names = match &grant.names {
            Names::Many(names) if self.rng.percent(25) => Names::One(self.rng.pick(names).clone()),
            all => all.clone(),
        };
        let request = self.next_request();
        let token = self.rng.percent(80).then_some(grant.token);
        let op = Op::Unlock { names: names.clone(), lease, owner: grant.owner.clone(), token };
        let by = ReleaseBy::Holder { lease, owner: grant.owner, token, request: Some(request.clone()) };
        let command = Command::ReleaseLock(ReleaseLock { names: names.clone(), by });
        let ask = Ask::Command(Box::new(command));
        let call = self.make(grant.group, ask, op, Some(&request), Why::Task(index), now);
        self.tasks[index].take_step(Step::Unlocking { call, names }, u64::MAX);
    }

    /// Releases a grant with too low a token, as a client that mixes up its grants would: this must be refused, and the
    /// grant stays.
    fn unlock_by_stale_token(&mut self, index: usize, lease: LeaseId, now: u64) {
        let Grant { names, group, owner, token, .. } = self.rng.pick(&self.tasks[index].grants).clone();
        let stale = Token::new(token.get().saturating_sub(self.rng.range(1, 5)).max(1));
        let Some(stale) = stale.ok().filter(|stale| *stale < token) else {
            return self.rest(index, now, 1);
        };
        let request = self.next_request();
        let token = Some(stale);
        let op = Op::Unlock { names: names.clone(), lease, owner: owner.clone(), token };
        let by = ReleaseBy::Holder { lease, owner, token, request: Some(request.clone()) };
        let ask = Ask::Command(Box::new(Command::ReleaseLock(ReleaseLock { names, by })));
        let call = self.make(group, ask, op, Some(&request), Why::Task(index), now);
        self.tasks[index].take_step(Step::Asking { call }, u64::MAX);
    }

    fn convert(&mut self, index: usize, lease: LeaseId, now: u64) {
        let place = self.rng.index(self.tasks[index].grants.len());
        let grant = self.tasks[index].grants[place].clone();
        let mode = plan::mode(&mut self.rng);
        if matches!(grant.mode, Mode::Permit { .. }) || mode == grant.mode {
            return self.rest(index, now, 1);
        }
        let wait = if self.rng.percent(40) {
            Wait::No
        } else {
            Wait::For(DurationMs::from_ms(self.rng.range(20, self.settings.wait_ms_max)))
        };
        let request = self.next_request();
        let Grant { names, group, owner, .. } = grant;
        let told = told_wait(wait);
        let op = Op::Convert { names: names.clone(), lease, owner: owner.clone(), mode, wait: told };
        let request_sent = Some(request.clone());
        let attended = self.rng.percent(self.settings.single_percent);
        let command = Command::ConvertLock(ConvertLock {
            names,
            lease,
            owner,
            mode,
            wait,
            attended,
            request: request_sent,
        });
        let ask = Ask::Command(Box::new(command));
        let call = self.make(group, ask, op, Some(&request), Why::Task(index), now);
        self.set_lane(call, attended);
        self.tasks[index].take_step(Step::Converting { call, grant: place }, u64::MAX);
    }

    fn put(&mut self, index: usize, lease: LeaseId, now: u64) {
        let (key, group) = plan::register(&self.settings, self.groups, &mut self.rng);
        self.values += 1;
        let value = Value::new(format!("{}-{}", self.no, self.values)).expect("a short text is a value");
        let request = self.next_request();
        let op = Op::PutRegister { key: key.clone(), value: value.clone() };
        let put = tollgate_core::Op::Put { key, value, lease: None };
        let (compares, otherwise) = (Vec::new(), Vec::new());
        let txn = Txn { request: Some((lease, request.clone())), compares, then: vec![put], otherwise };
        let ask = Ask::Command(Box::new(Command::Txn(txn)));
        let call = self.make(group, ask, op, Some(&request), Why::Task(index), now);
        self.tasks[index].take_step(Step::Asking { call }, u64::MAX);
    }

    fn read_register(&mut self, index: usize, now: u64) {
        let (key, group) = plan::register(&self.settings, self.groups, &mut self.rng);
        let op = Op::ReadRegister { key: key.clone() };
        let call = self.make(group, Ask::ReadRegister(key), op, None, Why::Task(index), now);
        self.tasks[index].take_step(Step::Asking { call }, u64::MAX);
    }

    fn read_lock(&mut self, index: usize, now: u64) {
        let (name, group) = plan::hot_lock(&self.settings, self.groups, &mut self.rng);
        let op = Op::ReadLock { name: name.clone() };
        let call = self.make(group, Ask::ReadLock(name), op, None, Why::Task(index), now);
        self.tasks[index].take_step(Step::Asking { call }, u64::MAX);
    }

    fn write(&mut self, index: usize, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        let grant = self.rng.pick(&self.tasks[index].grants).clone();
        let store = self.draw_store();
        for accepted in write_all(&grant, store, at, ctx) {
            ctx.stats.writes += u64::from(accepted);
            ctx.stats.believers_refused += u64::from(!accepted);
        }
        self.rest(index, now, 1);
    }

    fn draw_store(&mut self) -> u32 {
        u32::try_from(self.rng.below(u64::from(STORES))).expect("below the number of stores")
    }

    /// Goes on writing with the tokens of lost grants.
    pub(super) fn write_as_zombies(&mut self, now: u64, at: At, ctx: &mut ClientContext<'_>) {
        for place in 0..self.zombies.len() {
            if self.zombies[place].next_at > now {
                continue;
            }
            let store = self.draw_store();
            let pause_us = self.rng.below(self.settings.ttl_ms * 1_000);
            let zombie = &mut self.zombies[place];
            zombie.writes_left -= 1;
            zombie.next_at = now + pause_us;
            for accepted in write_all(&zombie.grant, store, at, ctx) {
                ctx.stats.zombie_writes_taken += u64::from(accepted);
                ctx.stats.zombie_writes_refused += u64::from(!accepted);
            }
        }
        self.zombies.retain(|zombie| zombie.writes_left > 0);
    }

    /// Drops all grants of the lost lease; some of them live on as zombies, which take no note of the loss.
    pub(super) fn lose_grants(&mut self, now: u64) {
        for index in 0..self.tasks.len() {
            for grant in std::mem::take(&mut self.tasks[index].grants) {
                self.lost(grant, now);
            }
        }
    }

    fn lost(&mut self, grant: Grant, now: u64) {
        if !self.healing && self.rng.percent(self.settings.zombie_percent) {
            let writes_left = u32::try_from(self.rng.range(1, 4)).expect("a few");
            let next_at = now + self.rng.below(self.settings.ttl_ms * 1_000);
            self.zombies.push(Zombie { grant, writes_left, next_at });
        }
    }

    fn drop_held_too_long(&mut self, index: usize, now: u64) {
        let over = |grant: &Grant| grant.until.is_some_and(|until| until <= now);
        let grants = std::mem::take(&mut self.tasks[index].grants);
        let (lost, kept): (Vec<Grant>, Vec<Grant>) = grants.into_iter().partition(over);
        self.tasks[index].grants = kept;
        for grant in lost {
            self.lost(grant, now);
        }
    }

    /// Handles the answer to a task's call; the outcome is none if it can't be known.
    pub(super) fn task_answered(
        &mut self,
        index: usize,
        call: CallId,
        outcome: Option<Outcome>,
        now: u64,
        ctx: &mut ClientContext<'_>,
    ) {
        match &mut self.tasks[index].step {
            Step::Locking(locking) if locking.call == call => {
                let sent = self.calls.get(call).map_or(now, |call| call.first_sent);
                locking.answer = Some((outcome, sent));
                if locking.cancel != Cancel::Asked {
                    self.lock_settled(index, now, ctx);
                }
            }
            Step::Converting { call: pending, grant } if *pending == call => {
                let grant = *grant;
                self.converted(index, grant, outcome.as_ref(), now, ctx);
            }
            Step::Unlocking { call: pending, names } if *pending == call => {
                let names = names.clone();
                self.unlocked(index, &names, outcome.as_ref(), now, ctx);
            }
            Step::Asking { call: pending } if *pending == call => {
                match outcome {
                    Some(Outcome::Written { .. }) => ctx.stats.puts += 1,
                    Some(Outcome::Lock { .. } | Outcome::Register { .. }) => ctx.stats.reads += 1,
                    Some(Outcome::StaleToken { .. }) => ctx.stats.stale_refused += 1,
                    _ => self.doubt_lease(now),
                }
                self.rest(index, now, 1);
            }
            _ => {}
        }
    }

    /// Handles the answer to a cancel.
    pub(super) fn cancel_answered(
        &mut self,
        index: usize,
        of: CallId,
        outcome: Option<Outcome>,
        now: u64,
        ctx: &mut ClientContext<'_>,
    ) {
        let Step::Locking(locking) = &mut self.tasks[index].step else { return };
        if locking.call != of || locking.cancel != Cancel::Asked {
            return;
        }
        ctx.stats.cancels += u64::from(outcome == Some(Outcome::Cancelled));
        // With one attempt nobody else can have asked for the claim: an end was promised, and a grant came first.
        let once = self.calls.get(of).is_some_and(|call| call.attempts == 1);
        if locking.left && once && matches!(outcome, Some(Outcome::Released { .. })) {
            ctx.violations
                .push(format!("call {} hung up, and was granted its lock without being told", of.0));
        }
        let left_alone = outcome.is_none();
        locking.cancel = Cancel::Answered(outcome);
        if locking.answer.is_some() {
            self.lock_settled(index, now, ctx);
            return;
        }
        if left_alone {
            // The task's own repeats count as somebody who wants the claim too: the task waits on, and in the end
            // cancels once more.
            locking.cancel = Cancel::No;
            self.tasks[index].next_at = if self.healing { now } else { u64::MAX };
        }
        if let Some(call) = self.calls.get_mut(of) {
            // The node may have told nobody of the waiter's end: ask at once.
            call.ask_again(now, 20_000, &mut self.rng);
        }
    }

    /// Finishes a request for locks that is over, as is its cancel if there was one.
    fn lock_settled(&mut self, index: usize, now: u64, ctx: &mut ClientContext<'_>) {
        let step = std::mem::replace(&mut self.tasks[index].step, Step::Resting);
        let Step::Locking(locking) = step else {
            unreachable!("only requests for locks are settled: {step:?}")
        };
        let Locking { seq, plan, cancel, answer, .. } = *locking;
        let (outcome, sent) = answer.expect("it is settled once it has its answer");
        if let Some(session) = &mut self.session {
            session.has_answer(seq);
        }
        match outcome {
            Some(Outcome::Granted { token, mode, .. }) => {
                ctx.stats.grants += 1;
                if cancel.leaves_grant() {
                    self.hold(index, plan, token, mode, sent);
                }
            }
            Some(Outcome::Busy { holders }) => {
                ctx.stats.busy += 1;
                if let (Names::One(name), Some(holder)) = (&plan.names, holders.first())
                    && self.rng.percent(self.settings.force_percent)
                {
                    self.force(name.clone(), plan.group, holder.token, now);
                }
            }
            Some(Outcome::Ended { reason: EndReason::TimedOut, .. }) => ctx.stats.timeouts += 1,
            Some(Outcome::Deadlock | Outcome::Ended { reason: EndReason::Deadlock, .. }) => {
                ctx.stats.deadlocks += 1;
            }
            Some(Outcome::Refused) => ctx.stats.refused += 1,
            Some(Outcome::LeaseNotFound) => self.doubt_lease(now),
            _ => {}
        }
        self.rest(index, now, 1);
    }

    fn hold(&mut self, index: usize, plan: Plan, token: Token, mode: Mode, sent: u64) {
        let until = plan.max_hold_ms.map(|ms| sent + span_us(ms, self.settings.rho_ppm));
        let task = &mut self.tasks[index];
        let owner = task.owner.clone();
        task.grants.push(Grant { names: plan.names, group: plan.group, owner, token, mode, until });
    }

    fn force(&mut self, name: Name, group: GroupId, token: Token, now: u64) {
        let op = Op::ForceRelease { name: name.clone(), token };
        let reason = Reason::new("in the way").expect("a short text is a reason");
        let command = Command::ForceRelease(ForceRelease { name, token, reason });
        self.make(group, Ask::Command(Box::new(command)), op, None, Why::Nobody, now);
    }

    fn converted(
        &mut self,
        index: usize,
        place: usize,
        outcome: Option<&Outcome>,
        now: u64,
        ctx: &mut ClientContext<'_>,
    ) {
        let keeps = match outcome {
            Some(Outcome::Granted { token, mode, .. }) => {
                ctx.stats.converts += 1;
                let grant = &mut self.tasks[index].grants[place];
                (grant.token, grant.mode) = (*token, *mode);
                true
            }
            Some(Outcome::Ended { token, reason }) => {
                token.is_none()
                    && matches!(reason, EndReason::TimedOut | EndReason::Cancelled | EndReason::Deadlock)
            }
            Some(Outcome::Busy { .. } | Outcome::Deadlock | Outcome::Refused) => true,
            _ => false,
        };
        if !keeps {
            let grant = self.tasks[index].grants.remove(place);
            self.lost(grant, now);
            self.doubt_lease(now);
        }
        self.rest(index, now, 1);
    }

    fn unlocked(
        &mut self,
        index: usize,
        names: &Names,
        outcome: Option<&Outcome>,
        now: u64,
        ctx: &mut ClientContext<'_>,
    ) {
        let grant = self.tasks[index].grants.pop().expect("what is given back is still there");
        if matches!(outcome, Some(Outcome::Released { .. })) {
            ctx.stats.releases += 1;
            let rest = names.as_slice().iter().try_fold(grant.names.clone(), |rest, name| rest.without(name));
            if let Some(rest) = rest {
                self.tasks[index].grants.push(Grant { names: rest, ..grant });
            }
        } else {
            self.lost(grant, now);
            self.doubt_lease(now);
        }
        self.rest(index, now, 1);
    }
}

/// Writes to what each of the grant's locks guards; returns for each whether the store accepted the write.
fn write_all(grant: &Grant, store: u32, at: At, ctx: &mut ClientContext<'_>) -> Vec<bool> {
    let Some(mode) = fence_mode(grant.mode) else { return Vec::new() };
    let token = grant.token;
    let names = grant.names.as_slice().iter();
    names.map(|name| ctx.stores.write(&FencedWrite { store, name, token, mode }, at, ctx.history)).collect()
}

fn told_wait(wait: Wait) -> tollgate_check::Wait {
    match wait {
        Wait::No => tollgate_check::Wait::No,
        Wait::For(duration) => tollgate_check::Wait::ForMs(duration.ms()),
        Wait::Forever => tollgate_check::Wait::Forever,
    }
}
