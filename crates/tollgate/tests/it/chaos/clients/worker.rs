//! One task of a program under its session: it locks, tries, waits, gives up, converts, writes and releases.
//!
//! Invariant: a call that was given up, by dropping it or because the client's own time was over, is never recorded as
//! answered: it may have been granted, and released by the client, at any time. Not here: the session (`keeper`).

use super::Common;
use crate::record::count;
use crate::rng::Rng;
use crate::work::PERMITS;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tollgate_check::{CallId, EndReason, Event, Holder, Op, Outcome, Wait};
use tollgate_client::{Acquire, AcquireError, ErrorKind, Guard, Session};
use tollgate_types::{GroupId, Mode, Name, Names, Owner};

pub(crate) struct Worker {
    pub(super) common: Arc<Common>,
    pub(super) session: Session,
    pub(super) rng: Rng,
}

/// A request for locks.
struct Request {
    names: Names,
    owner: Owner,
    mode: Mode,
    wait: Wait,
}

impl Worker {
    pub(crate) fn new(common: Arc<Common>, session: Session, rng: Rng) -> Worker {
        Worker { common, session, rng }
    }

    /// Works until the session is over or no new session should begin.
    pub(crate) async fn run(mut self, over: watch::Receiver<bool>, ending: watch::Receiver<bool>) {
        while !*over.borrow() && !*ending.borrow() && self.session.check().is_ok() {
            let pace = self.common.ground.pace.clone().expect("chaos has a pace");
            pace.turn().await;
            if self.rng.percent(8) && self.draw_over_groups().await {
                continue;
            }
            let request = self.draw();
            let Some(guard) = self.lock(&request).await else { continue };
            self.hold(&request, guard, &pace).await;
        }
    }

    fn draw(&mut self) -> Request {
        let (names, mode) = if self.rng.percent(15) {
            let n = 1 + u32::try_from(self.rng.below(2)).unwrap();
            let name = self.common.ground.draw_semaphore(&mut self.rng);
            (Names::One(name), Mode::Permit { n, of: PERMITS })
        } else {
            let count = if self.rng.percent(15) { 2 } else { 1 };
            let names = self.common.ground.draw_locks(&mut self.rng, count);
            let mode = if self.rng.percent(30) { Mode::Shared } else { Mode::Exclusive };
            (Names::new(names).unwrap(), mode)
        };
        let wait = match self.rng.below(10) {
            0..3 => Wait::No,
            3..9 => Wait::ForMs(50 + self.rng.below(3_000)),
            _ => Wait::Forever,
        };
        // No other owner of this session has this name, so that an abandoned request is never mistaken for a later one.
        let owner = Owner::new(format!("w{}", self.common.next_call().0)).unwrap();
        Request { names, owner, mode, wait }
    }

    fn group(&self, request: &Request) -> GroupId {
        self.common.recorder.group_of_name(&request.names.as_slice()[0])
    }

    fn acquire(&self, request: &Request) -> Acquire {
        let names = request.names.as_slice().iter().map(ToString::to_string);
        let acquire = self.session.owner(request.owner.to_string()).locks(names);
        let acquire = match request.mode {
            Mode::Permit { n, of } => acquire.permits(n, of),
            mode => acquire.mode(mode),
        };
        match request.wait {
            Wait::No => acquire.wait(Duration::ZERO),
            Wait::ForMs(ms) => acquire.wait(Duration::from_millis(ms)),
            Wait::Forever => acquire.wait_forever(),
        }
    }

    async fn lock(&mut self, request: &Request) -> Option<Guard> {
        let lease = self.session.lease_id();
        let Request { names, owner, mode, wait } = request;
        let (names, owner) = (names.clone(), owner.clone());
        let op = Op::Lock { names, lease, owner, mode: *mode, wait: *wait, max_hold_ms: None };
        let (call, caller) = self.common.invoke(self.group(request), op);
        let acquire = self.acquire(request).acquire();
        let patience = match wait {
            Wait::Forever => Some(1_000 + self.rng.below(4_000)),
            _ if self.rng.percent(15) => Some(self.rng.below(200)),
            _ => None,
        };
        let answer = match patience {
            None => acquire.await,
            Some(ms) => {
                let waited = tokio::time::timeout(Duration::from_millis(ms), acquire).await;
                let Ok(answer) = waited else {
                    count(&self.common.recorder.counts.cancels);
                    self.given_up(call, caller, request);
                    return None;
                };
                answer
            }
        };
        match answer {
            Ok(guard) => self.granted(call, caller, request, guard),
            Err(error) => {
                self.refused(call, caller, request, error);
                None
            }
        }
    }

    fn granted(&self, call: CallId, caller: u32, request: &Request, guard: Guard) -> Option<Guard> {
        let Ok(token) = guard.token() else {
            self.given_up(call, caller, request);
            return None;
        };
        let mode = guard.mode();
        self.common.holdings.enter(request.names.as_slice(), &self.session, token, mode);
        self.common.answer(call, Outcome::Granted { token, create_revision: None, mode });
        count(&self.common.recorder.counts.grants);
        Some(guard)
    }

    /// Records an abandoned request: the client takes it out of the queue, or releases it, whenever it reaches a node.
    fn given_up(&self, call: CallId, caller: u32, request: &Request) {
        let cancel = Op::Cancel { of: call, release_if_granted: true };
        self.common.invoke_by(caller, self.group(request), cancel);
        self.common.recorder.record(Event::ClientGone { client: caller });
    }

    fn refused(&self, call: CallId, caller: u32, request: &Request, error: AcquireError) {
        match error {
            AcquireError::Busy { holders, .. } if request.wait == Wait::No => {
                self.common.answer(call, Outcome::Busy { holders: checked(&holders) });
            }
            AcquireError::Deadlock { .. } => {
                count(&self.common.recorder.counts.deadlocks);
                self.common.answer(call, Outcome::Deadlock);
            }
            // With a place in the queue, the cluster ended the wait; without one, the client's own time was over.
            AcquireError::TimedOut { position, .. } if position > 0 => {
                let outcome = Outcome::Ended { token: None, reason: EndReason::TimedOut };
                self.common.answer(call, outcome);
            }
            AcquireError::Failed(error) => {
                let bug =
                    matches!(error.kind(), ErrorKind::Internal | ErrorKind::Invalid | ErrorKind::Unsupported);
                assert!(!bug, "{:?} was answered {error:?}", request.names);
                let mut troubles = self.common.recorder.counts.troubles.lock();
                *troubles.entry(format!("client: {:?}", error.kind())).or_default() += 1;
                drop(troubles);
                self.given_up(call, caller, request);
            }
            _ => self.given_up(call, caller, request),
        }
    }

    /// Works under the lock, maybe in another mode in between, and releases it in one of several ways.
    async fn hold(&mut self, request: &Request, mut guard: Guard, pace: &crate::pace::Pace) {
        for _ in 0..self.rng.below(4) {
            tokio::time::sleep(Duration::from_millis(self.rng.below(30))).await;
            pace.turn().await;
            if self.rng.percent(25) && !matches!(guard.mode(), Mode::Permit { .. }) {
                self.convert(request, &mut guard).await;
            } else if let Ok(token) = guard.token() {
                let store = u32::try_from(self.rng.below(2)).unwrap();
                for name in request.names.as_slice() {
                    self.common.recorder.write(store, name, token, guard.mode());
                }
            }
        }
        self.give_back(request, guard).await;
    }

    async fn convert(&mut self, request: &Request, guard: &mut Guard) {
        let Ok(before) = guard.token() else { return };
        let mode = if guard.mode() == Mode::Exclusive { Mode::Shared } else { Mode::Exclusive };
        let wait_ms = if self.rng.percent(25) { 0 } else { 1 + self.rng.below(400) };
        let wait = if wait_ms == 0 { Wait::No } else { Wait::ForMs(wait_ms) };
        let (names, lease, owner) = (request.names.clone(), self.session.lease_id(), request.owner.clone());
        let names_held: Vec<Name> = names.as_slice().to_vec();
        // From here on the lock may be held in the weaker mode.
        if mode == Mode::Shared {
            self.common.holdings.leave(&names_held, before);
        }
        let op = Op::Convert { names, lease, owner, mode, wait };
        let (call, caller) = self.common.invoke(self.group(request), op);
        let converted = guard.convert_within(mode, Duration::from_millis(wait_ms)).await;
        match (converted, guard.token()) {
            (Ok(()), Ok(token)) => {
                self.common.holdings.leave(&names_held, before);
                self.common.holdings.enter(&names_held, &self.session, token, mode);
                self.common.answer(call, Outcome::Granted { token, create_revision: None, mode });
            }
            (Err(AcquireError::Busy { holders, .. }), _) if wait == Wait::No => {
                self.common.answer(call, Outcome::Busy { holders: checked(&holders) });
            }
            (Err(AcquireError::Deadlock { .. }), _) => self.common.answer(call, Outcome::Deadlock),
            _ => {
                self.common.recorder.record(Event::ClientGone { client: caller });
            }
        }
    }

    async fn give_back(&mut self, request: &Request, guard: Guard) {
        let (names, lease, owner) = (request.names.clone(), self.session.lease_id(), request.owner.clone());
        let group = self.group(request);
        if let Ok(token) = guard.token() {
            self.common.holdings.leave(names.as_slice(), token);
        }
        let (call, _) = self.common.invoke(group, Op::Unlock { names, lease, owner, token: None });
        // A dropped guard releases its lock in the background.
        if self.rng.percent(15) {
            return;
        }
        if let Ok(Some(revision)) = guard.release_at().await {
            count(&self.common.recorder.counts.releases);
            self.common.answer(call, Outcome::Released { revision });
        }
    }
}

/// Converts holders for the judge. The list must not be empty, which would say that nobody holds the lock.
fn checked(holders: &[tollgate_client::Holder]) -> Vec<Holder> {
    let one = |holder: &tollgate_client::Holder| Holder {
        lease: holder.lease,
        owner: Owner::new(&holder.owner).unwrap(),
        token: holder.token,
        mode: holder.mode,
    };
    holders.iter().map(one).collect()
}
