//! The work of a client under its lease: lock, write under the lock, change modes, release, cancel, read.
//!
//! Invariant: a task counts as held only grants that it was told of and has not asked to release, and does nothing
//! under a lease that its client does not believe in. Not here: the lease (`session`), the transport (`connection`).

use crate::connection::{Acks, Again, Made, NewCall};
use crate::pace::Pace;
use crate::record::{Recorder, count};
use crate::rng::Rng;
use crate::session::Session;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tollgate_check::{EndReason, Op, Outcome, Wait};
use tollgate_proto::convert::{ModeFields, write_mode};
use tollgate_proto::v1::{self, operation::Op as Wire};
use tollgate_types::{GroupId, Key, Mode, Name, Names, Owner, Token, Value};

/// Permits of every semaphore.
pub(crate) const PERMITS: u32 = 3;

/// The locks and registers that clients compete for.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub(crate) locks: u64,
    /// Tags in the braces of names, with as many locks for each, so that it is known which locks share a group. Empty
    /// if all do.
    pub(crate) tags: Arc<[String]>,
    pub(crate) registers: u64,
    /// Maximum pause of a task between two steps, in milliseconds.
    pub(crate) think_ms_max: u64,
    /// Shared limit on the rate of steps of all tasks, if there is one.
    pub(crate) pace: Option<Arc<Pace>>,
}

impl Ground {
    /// Draws up to `count` names that can be locked together.
    pub(crate) fn draw_locks(&self, rng: &mut Rng, count: u64) -> Vec<Name> {
        let first = rng.below(self.locks);
        let others = (0..count - 1).map(|_| rng.below(self.locks));
        let numbers: BTreeSet<u64> = std::iter::once(first).chain(others).collect();
        let tag = (!self.tags.is_empty()).then(|| rng.below(self.tags.len() as u64));
        let name = |number: u64| match tag {
            None => format!("lock/{number}"),
            Some(tag) => format!("{{{}}}/{number}", self.tags[usize::try_from(tag).unwrap()]),
        };
        numbers.into_iter().map(|number| Name::new(name(number)).unwrap()).collect()
    }

    /// Draws a semaphore; all of them have the same number of permits.
    pub(crate) fn draw_semaphore(&self, rng: &mut Rng) -> Name {
        let tagged = |rng: &mut Rng| {
            let tag = rng.below(self.tags.len() as u64);
            format!("{{{}}}/semaphore", self.tags[usize::try_from(tag).unwrap()])
        };
        Name::new(if self.tags.is_empty() { "semaphore".to_owned() } else { tagged(rng) }).unwrap()
    }
}

/// A task that performs one step after the other, under its client's present lease.
pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) ground: Ground,
    pub(crate) rng: Rng,
    pub(crate) sessions: watch::Receiver<Option<Arc<Session>>>,
    /// True once no new work should begin.
    pub(crate) ending: watch::Receiver<bool>,
}

/// Locks that a task holds, as far as it knows.
#[derive(Debug, Clone)]
struct Grant {
    names: Names,
    owner: Owner,
    token: Token,
    mode: Mode,
}

impl Task {
    /// Works until no new work should begin, and then releases what it holds.
    pub(crate) async fn run(mut self) {
        while let Some(session) = self.session().await {
            let mut run =
                Run { task: &mut self, grants: Vec::new(), owner: Owner::LEASE, owners: 0, session };
            run.until_over().await;
        }
    }

    /// Waits for the present session; `None` if no new work should begin.
    async fn session(&mut self) -> Option<Arc<Session>> {
        loop {
            if *self.ending.borrow() {
                return None;
            }
            let session = self.sessions.borrow_and_update().clone();
            if let Some(session) = session.filter(|session| session.is_believed()) {
                return Some(session);
            }
            tokio::select! {
                changed = self.sessions.changed() => changed.ok()?,
                _ = self.ending.wait_for(|ending| *ending) => return None,
                // A session that is no longer believed in is replaced soon.
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    }
}

/// A task under one lease.
struct Run<'a> {
    task: &'a mut Task,
    session: Arc<Session>,
    grants: Vec<Grant>,
    /// Owner of the task's requests until it holds nothing again.
    owner: Owner,
    owners: u64,
}

impl Run<'_> {
    fn recorder(&self) -> Arc<Recorder> {
        Arc::clone(self.session.connection.recorder())
    }

    async fn until_over(&mut self) {
        while self.session.is_believed() {
            if *self.task.ending.borrow() {
                if self.grants.is_empty() {
                    return;
                }
                self.unlock().await;
                continue;
            }
            if let Some(pace) = &self.task.ground.pace {
                pace.turn().await;
            }
            self.step().await;
            let think_ms = self.task.rng.below(self.task.ground.think_ms_max + 1);
            tokio::time::sleep(Duration::from_millis(think_ms)).await;
        }
    }

    async fn step(&mut self) {
        let roll = self.task.rng.below(100);
        match (self.grants.len(), roll) {
            (0, 0..7) => self.put().await,
            (0, 7..14) => self.read_register().await,
            (0, 14..20) | (_, 40..43) => self.read_lock().await,
            (0, _) | (1, 43..51) => self.lock().await,
            (_, 0..40) => self.write(),
            (_, 51..60) => self.convert().await,
            (_, 60..63) => self.unlock_by_stale_token().await,
            _ => self.unlock().await,
        }
    }

    /// Makes a call with a seq. The caller acknowledges the outcome, or the connection if `acks` is true.
    fn make(&mut self, op: Op, wire: Wire, seq: u64, acks: bool) -> Made {
        let group = self.group_of(&op);
        self.session.connection.make(NewCall {
            op,
            group,
            wire,
            again: Again::Same,
            acks: Arc::clone(&self.session.acks),
            seq: acks.then_some(seq),
            loses_answer: self.task.rng.percent(4),
        })
    }

    fn make_without_seq(&self, op: Op, group: GroupId, wire: Wire, again: Again) -> Made {
        let acks: Arc<Acks> = Arc::clone(&self.session.acks);
        let loses_answer = false;
        self.session.connection.make(NewCall { op, group, wire, again, acks, seq: None, loses_answer })
    }

    fn group_of(&self, op: &Op) -> GroupId {
        let recorder = self.session.connection.recorder();
        match op {
            Op::Lock { names, .. } | Op::Convert { names, .. } | Op::Unlock { names, .. } => {
                recorder.group_of_name(&names.as_slice()[0])
            }
            Op::ReadLock { name } => recorder.group_of_name(name),
            Op::PutRegister { key, .. } | Op::ReadRegister { key } => recorder.group_of(key.slot()),
            other => panic!("no task asks for this: {other:?}"),
        }
    }

    fn hot_lock(&mut self) -> Name {
        self.task.ground.draw_locks(&mut self.task.rng, 1).remove(0)
    }

    fn draw_names(&mut self) -> (Names, Mode) {
        if self.task.rng.percent(15) {
            let n = 1 + u32::try_from(self.task.rng.below(2)).unwrap();
            let name = self.task.ground.draw_semaphore(&mut self.task.rng);
            return (Names::One(name), Mode::Permit { n, of: PERMITS });
        }
        let mode = self.draw_mode();
        let count = if self.task.rng.percent(10) { 2 } else { 1 };
        let names = self.task.ground.draw_locks(&mut self.task.rng, count);
        (Names::new(names).unwrap(), mode)
    }

    fn draw_mode(&mut self) -> Mode {
        match self.task.rng.below(10) {
            0..6 => Mode::Exclusive,
            6..9 => Mode::Shared,
            _ => Mode::IntentExclusive,
        }
    }

    async fn lock(&mut self) {
        let (names, mode) = self.draw_names();
        let taken = |name: &Name| self.grants.iter().any(|grant| grant.names.contains(name));
        if names.as_slice().iter().any(taken) {
            return;
        }
        if self.grants.is_empty() {
            self.owners += 1;
            let text = format!("t{}-{}", self.task.number, self.owners);
            self.owner = if self.task.rng.percent(50) { Owner::new(text).unwrap() } else { self.own_owner() };
        }
        let (wait, timeout_ms) = match self.task.rng.below(100) {
            0..25 => (Wait::No, 0),
            25..40 if self.grants.is_empty() => (Wait::Forever, -1),
            _ => {
                let ms = 20 + self.task.rng.below(800);
                (Wait::ForMs(ms), i64::try_from(ms).unwrap())
            }
        };
        let request = self.session.next_request();
        let (seq, lease, owner) = (request.seq, self.session.lease, self.owner.clone());
        let ModeFields { mode: wire_mode, permits, of } = write_mode(mode);
        let (name, several) = wire_names(&names);
        let asked = v1::LockRequest {
            name,
            names: several,
            lease_id: lease.get(),
            timeout_ms,
            mode: wire_mode.into(),
            owner: owner.to_string(),
            permits,
            of,
            request: Some(request),
            ..v1::LockRequest::default()
        };
        let op =
            Op::Lock { names: names.clone(), lease, owner: owner.clone(), mode, wait, max_hold_ms: None };
        let wire = if wait == Wait::No { Wire::TryLock(asked) } else { Wire::Lock(asked) };
        let mut call = self.make(op, wire, seq, false);
        let patience = (wait != Wait::No && self.task.rng.percent(20)).then(|| self.task.rng.below(150));
        let early = match patience {
            None => None,
            Some(ms) => tokio::time::timeout(Duration::from_millis(ms), &mut call.outcome).await.ok(),
        };
        let (outcome, stays) = match (patience, early) {
            (_, Some(outcome)) => (outcome.ok().flatten(), true),
            (Some(_), None) => self.cancel(call, seq, &names).await,
            (None, None) => (self.session.outcome(call).await, true),
        };
        if !self.session.is_believed() {
            return;
        }
        self.session.acks.add(seq);
        match outcome {
            Some(Outcome::Granted { token, mode, .. }) if stays => {
                count(&self.recorder().counts.grants);
                self.grants.push(Grant { names, owner, token, mode });
            }
            Some(Outcome::Deadlock) => count(&self.recorder().counts.deadlocks),
            _ => {}
        }
    }

    fn own_owner(&self) -> Owner {
        Owner::new(format!("t{}", self.task.number)).unwrap()
    }

    /// Cancels a wait. Returns the outcome of the wait, and true if a grant stays with the task.
    async fn cancel(&mut self, made: Made, seq: u64, names: &Names) -> (Option<Outcome>, bool) {
        count(&self.recorder().counts.cancels);
        let release_if_granted = self.task.rng.percent(60);
        let asked = v1::CancelWaitRequest {
            lease_id: self.session.lease.get(),
            seq,
            release_if_granted,
            // The name determines the group.
            name: names.as_slice()[0].to_string(),
            ..v1::CancelWaitRequest::default()
        };
        let op = Op::Cancel { of: made.call, release_if_granted };
        let cancel = self.make_without_seq(op, made.group, Wire::CancelWait(asked), Again::NewCall);
        let (waited, cancelled) = tokio::join!(self.session.outcome(made), self.session.outcome(cancel));
        // A cancel without a known result leaves the grant alone.
        let stays = matches!(cancelled, None | Some(Outcome::Granted { .. }));
        (waited, stays)
    }

    async fn unlock(&mut self) {
        let Some(grant) = self.grants.pop() else { return };
        let token = self.task.rng.percent(80).then_some(grant.token);
        let outcome = self.release(&grant, token).await;
        if matches!(outcome, Some(Outcome::Released { .. })) {
            count(&self.recorder().counts.releases);
        }
    }

    async fn release(&mut self, grant: &Grant, token: Option<Token>) -> Option<Outcome> {
        let (lease, owner, names) = (self.session.lease, grant.owner.clone(), grant.names.clone());
        let request = self.session.next_request();
        let (seq, (name, several)) = (request.seq, wire_names(&names));
        let asked = v1::UnlockRequest {
            name,
            names: several,
            lease_id: lease.get(),
            owner: owner.to_string(),
            fencing_token: token.map_or(0, Token::get),
            request: Some(request),
        };
        let made = self.make(Op::Unlock { names, lease, owner, token }, Wire::Unlock(asked), seq, true);
        self.session.outcome(made).await
    }

    /// Releases with an old token, as a program would that mixes up its grants: the call must be refused, and the grant
    /// stays.
    async fn unlock_by_stale_token(&mut self) {
        let Some(grant) = self.grants.last().cloned() else { return };
        let stale = Token::new(grant.token.get().saturating_sub(1 + self.task.rng.below(4)));
        let Ok(stale) = stale else { return };
        let outcome = self.release(&grant, Some(stale)).await;
        assert!(!matches!(outcome, Some(Outcome::Released { .. })), "a stale token freed {grant:?}");
    }

    async fn convert(&mut self) {
        let Some(grant) = self.grants.pop() else { return };
        let mode = self.draw_mode();
        if matches!(grant.mode, Mode::Permit { .. }) || mode == grant.mode {
            self.grants.push(grant);
            return;
        }
        let (wait, timeout_ms) = if self.task.rng.percent(40) {
            (Wait::No, 0)
        } else {
            let ms = 20 + self.task.rng.below(300);
            (Wait::ForMs(ms), i64::try_from(ms).unwrap())
        };
        let (lease, owner, names) = (self.session.lease, grant.owner.clone(), grant.names.clone());
        let request = self.session.next_request();
        let (seq, (name, several)) = (request.seq, wire_names(&names));
        let asked = v1::ConvertRequest {
            name,
            names: several,
            lease_id: lease.get(),
            owner: owner.to_string(),
            mode: write_mode(mode).mode.into(),
            timeout_ms,
            request: Some(request),
            ..v1::ConvertRequest::default()
        };
        let call =
            self.make(Op::Convert { names, lease, owner, mode, wait }, Wire::Convert(asked), seq, true);
        match self.session.outcome(call).await {
            Some(Outcome::Granted { token, mode, .. }) => self.grants.push(Grant { token, mode, ..grant }),
            Some(
                Outcome::Busy { .. }
                | Outcome::Deadlock
                | Outcome::Refused
                | Outcome::Ended { token: None, reason: EndReason::TimedOut | EndReason::Cancelled },
            ) => self.grants.push(grant),
            _ => {}
        }
    }

    async fn put(&mut self) {
        let key = Key::new(format!("register/{}", self.task.rng.below(self.task.ground.registers))).unwrap();
        let request = self.session.next_request();
        let (seq, lease) = (request.seq, self.session.lease);
        let value = Value::new(format!("{lease}-{seq}")).unwrap();
        let asked = v1::PutRequest {
            key: key.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
            request: Some(request),
            ..v1::PutRequest::default()
        };
        let made = self.make(Op::PutRegister { key, value }, Wire::Put(asked), seq, true);
        self.session.outcome(made).await;
    }

    async fn read_register(&mut self) {
        let key = Key::new(format!("register/{}", self.task.rng.below(self.task.ground.registers))).unwrap();
        let asked = v1::GetRequest { key: key.as_bytes().to_vec(), ..v1::GetRequest::default() };
        let op = Op::ReadRegister { key };
        let made = self.make_without_seq(op.clone(), self.group_of(&op), Wire::Get(asked), Again::Same);
        self.session.outcome(made).await;
    }

    async fn read_lock(&mut self) {
        let name = self.hot_lock();
        let asked = v1::GetLockRequest { name: name.to_string(), ..v1::GetLockRequest::default() };
        let op = Op::ReadLock { name };
        let made = self.make_without_seq(op.clone(), self.group_of(&op), Wire::GetLock(asked), Again::Same);
        self.session.outcome(made).await;
    }

    fn write(&mut self) {
        let store = u32::try_from(self.task.rng.below(2)).unwrap();
        let place = usize::try_from(self.task.rng.below(self.grants.len() as u64)).unwrap();
        let grant = &self.grants[place];
        for name in grant.names.as_slice() {
            self.recorder().write(store, name, grant.token, grant.mode);
        }
    }
}

fn wire_names(names: &Names) -> (String, Vec<String>) {
    match names {
        Names::One(name) => (name.to_string(), Vec::new()),
        Names::Many(names) => (String::new(), names.iter().map(ToString::to_string).collect()),
    }
}
