//! A held lock, as far as this program knows: shared by the guards of one owner and name.
//!
//! Invariant: a lost grant stays lost; the last guard that is dropped has the lock released, until the cluster has done
//! so or the lease is over. Guards are counted by [`Hold`]s, not by references, because others look at a grant for a
//! moment and must not keep its lock. Not here: requesting the lock (`acquire`), the lease (`session`), noticing a
//! forced release (`revocation_watcher`).

use crate::call::Answered;
use crate::convert;
use crate::error::{Error, ErrorKind};
use crate::lost::{Lost, LostReason};
use crate::owner::Turn;
use crate::session::{Core, Failed, Session};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{Mode, Revision, Seq, Token};

/// Kind of a grant, which decides the request that releases it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Election,
}

/// Grant of a lock or of an election.
pub(crate) struct Grant {
    session: Session,
    pub(crate) kind: Kind,
    /// Names of the locks, in order.
    pub(crate) names: Arc<[String]>,
    pub(crate) owner: String,
    pub(crate) waited: Duration,
    /// Revision that identifies the claim, for each name: each group has revisions of its own.
    pub(crate) create_revisions: SmallVec<[u64; 1]>,
    /// True if the grant already existed, made by another process: then it is not released.
    pub(crate) inherited: bool,
    state: Mutex<State>,
    /// Signal for the end of the grant. Made by the first waiter for it, because most grants are released before
    /// anybody waits.
    over: Mutex<Option<watch::Sender<bool>>>,
    /// Lock held while the mode changes. Made when the mode first changes.
    converting: OnceLock<Arc<AsyncMutex<()>>>,
    /// Turn of a named owner, if the owner has a name.
    turn: Mutex<Option<Turn>>,
    /// Number of the grant at the revocation watcher.
    post: AtomicU64,
    /// Revision at which each name was seen to be held, in its group.
    pub(crate) seen_at: SmallVec<[AtomicU64; 1]>,
}

/// Part of a grant that may change while the lock is held.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) mode: Mode,
    pub(crate) token: Token,
    /// Fencing token of each name, if there are several.
    pub(crate) tokens: Vec<(String, Token)>,
    /// Time when the grant may end by its max hold, by the client's clock.
    pub(crate) max_hold_until: Option<Duration>,
    /// Mode that a conversion in progress changes to: until the conversion is settled, the lock may be held in either
    /// mode.
    next: Option<Mode>,
    lost: Option<Lost>,
    released: bool,
    /// Number of guards that share the grant.
    holds: usize,
}

impl State {
    pub(crate) fn new(
        mode: Mode,
        token: Token,
        tokens: Vec<(String, Token)>,
        max_hold_until: Option<Duration>,
    ) -> State {
        State { mode, token, tokens, max_hold_until, next: None, lost: None, released: false, holds: 1 }
    }

    /// True if the lock is held in a mode that covers this one, however a conversion in progress ends.
    pub(crate) fn covers(&self, mode: Mode) -> bool {
        self.mode.covers(mode) && self.next.is_none_or(|next| next.covers(mode))
    }

    /// Returns the token of one of the names.
    pub(crate) fn token_of(&self, name: &str) -> Token {
        self.tokens.iter().find(|(of, _)| of == name).map_or(self.token, |(_, token)| *token)
    }
}

/// Facts about a new grant.
pub(crate) struct About {
    pub(crate) kind: Kind,
    pub(crate) names: Arc<[String]>,
    pub(crate) owner: String,
    pub(crate) waited: Duration,
    /// Revision that identifies the claim, for each name.
    pub(crate) create_revisions: SmallVec<[u64; 1]>,
    pub(crate) inherited: bool,
}

impl Grant {
    /// Creates a grant, and returns the hold of its first guard.
    pub(crate) fn begin(session: Session, about: About, state: State, turn: Option<Turn>) -> Hold {
        let About { kind, names, owner, waited, create_revisions, inherited } = about;
        let seen_at = names.iter().map(|_| AtomicU64::new(0)).collect();
        let grant = Arc::new(Grant {
            session,
            kind,
            names,
            owner,
            waited,
            create_revisions,
            inherited,
            state: Mutex::new(state),
            over: Mutex::default(),
            converting: OnceLock::new(),
            turn: Mutex::new(turn),
            post: AtomicU64::new(0),
            seen_at,
        });
        // Only now, because a waiter that this wakes looks at once, and must find the grant.
        let turn = grant.turn.lock().clone();
        if let Some(turn) = turn {
            turn.held(Arc::downgrade(&grant));
        }
        grant.post.store(grant.core().client.revocation_watcher().add(&grant), Ordering::Relaxed);
        Hold { grant: Some(grant) }
    }

    /// Returns a hold for another guard, unless the grant is lost or being released.
    pub(crate) fn enter(self: &Arc<Grant>) -> Option<Hold> {
        self.state().ok()?;
        let mut state = self.lock();
        if state.lost.is_some() {
            return None;
        }
        state.holds += 1;
        Some(Hold { grant: Some(Arc::clone(self)) })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.session.core()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the present state, unless the grant is lost; checked against the clock at every call.
    pub(crate) fn state(&self) -> Result<State, Lost> {
        let state = self.lock().clone();
        if let Some(lost) = state.lost {
            return Err(lost);
        }
        self.core().check()?;
        if state.max_hold_until.is_some_and(|until| self.core().now() >= until) {
            self.lose(Lost::new(LostReason::MaxHold));
            return Err(self.lock().lost.clone().expect("set just now"));
        }
        Ok(state)
    }

    /// Returns the last known state, lost or not.
    pub(crate) fn last_known(&self) -> State {
        self.lock().clone()
    }

    /// Returns the time for which the grant is believed in if nothing happens.
    pub(crate) fn remaining(&self) -> Duration {
        let Ok(state) = self.state() else { return Duration::ZERO };
        let of_lease = self.core().remaining();
        let now = self.core().now();
        state.max_hold_until.map_or(of_lease, |until| of_lease.min(until.saturating_sub(now)))
    }

    /// Returns the lock that is held while the mode changes.
    pub(crate) fn converting(&self) -> Arc<AsyncMutex<()>> {
        Arc::clone(self.converting.get_or_init(Arc::default))
    }

    /// Records the mode that a conversion is about to change to; none once the conversion is settled.
    pub(crate) fn converts(&self, next: Option<Mode>) {
        self.lock().next = next;
    }

    /// Records a completed conversion.
    pub(crate) fn converted(&self, mode: Mode, token: Token) {
        let mut state = self.lock();
        (state.mode, state.token) = (mode, token);
        state.tokens.iter_mut().for_each(|(_, of_name)| *of_name = token);
    }

    /// Records that the lock is no longer held; the first reason stays.
    pub(crate) fn lose(&self, lost: Lost) {
        let lost = Lost { reason: self.core().cause(lost.reason), ..lost };
        self.lock().lost.get_or_insert(lost);
        self.tell_over();
    }

    /// Wakes those who wait for the end of the grant. Must be called after the state was changed; later waiters read
    /// the state.
    fn tell_over(&self) {
        if let Some(over) = &*self.over.lock() {
            over.send_replace(true);
        }
    }

    /// Completes once the grant is lost, and returns the reason.
    pub(crate) async fn until_lost(&self) -> Lost {
        let mut over = {
            let mut over = self.over.lock();
            over.get_or_insert_with(|| watch::Sender::new(false)).subscribe()
        };
        loop {
            let max_hold_until = match self.state() {
                Ok(state) => state.max_hold_until,
                Err(lost) => return lost,
            };
            let max_hold = async {
                match max_hold_until {
                    Some(until) => self.core().client.clock().sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.core().until_lost() => {}
                _ = over.changed() => {}
                () = max_hold => {}
            }
        }
    }

    /// Starts the release of the grant if `last` returns true: of all of it, or of what remains of a lost grant.
    /// Returns none if there is nothing to release: the grant was released before, belongs to another process, or ends
    /// with its lease.
    fn start_release(&self, last: impl FnOnce(&mut State) -> bool) -> Option<Release> {
        let state = {
            let mut state = self.lock();
            let last = last(&mut state);
            if !last || state.released || self.inherited || !self.core().gives_back() {
                return None;
            }
            if state.lost.as_ref().is_some_and(|lost| !self.leaves_something(lost.reason)) {
                return None;
            }
            let before = state.clone();
            state.released = true;
            state.lost.get_or_insert(Lost::new(LostReason::SessionClosed));
            before
        };
        self.tell_over();
        let turn = self.turn.lock().take();
        turn.iter().for_each(Turn::busy);
        let remains = state.lost.is_some();
        let requests = if remains {
            // Released by its token, because anything that the owner has acquired since belongs to another grant.
            let one = |name: &String| self.request(std::slice::from_ref(name), state.token_of(name).get());
            self.names.iter().map(one).collect()
        } else {
            VecDeque::from([self.request(&self.names, 0)])
        };
        let core = Arc::clone(self.core());
        Some(Release { core, requests, remains, turn, in_background: false })
    }

    /// True if the cluster may still hold some of a lost grant for this program: the other names of a grant that was
    /// taken away by force, or a grant whose max hold is over by the client's clock, which is early.
    fn leaves_something(&self, reason: LostReason) -> bool {
        match reason {
            LostReason::Forced => self.kind == Kind::Lock && self.names.len() > 1,
            LostReason::MaxHold => self.kind == Kind::Lock,
            _ => false,
        }
    }

    /// Releases what remains of the grant before its owner asks again. Returns true if there is anything to release.
    pub(crate) fn clear(&self) -> bool {
        // A release that is dropped unfinished goes on in the background.
        let started = self.start_release(|_| true).is_some();
        started || self.last_known().released
    }

    /// Releases the grant although guards still have it; completes once the cluster has confirmed it. For sessions that
    /// end without the end of their lease.
    pub(crate) fn take_away(&self) -> impl Future<Output = ()> + Send + 'static {
        let release = self.start_release(|_| true);
        async move {
            if let Some(release) = release {
                release.in_background().run_quietly().await;
            }
        }
    }

    fn request(&self, names: &[String], fencing_token: u64) -> (Seq, Op) {
        let seq = self.core().seqs.next();
        let (lease_id, owner, request) =
            (self.core().lease.get(), self.owner.clone(), Some(Core::request(seq)));
        let op = match self.kind {
            Kind::Lock => {
                let (name, names) = wire_names(names);
                Op::Unlock(v1::UnlockRequest { name, names, lease_id, owner, fencing_token, request })
            }
            Kind::Election => {
                let name = names[0].clone();
                Op::Resign(v1::ResignRequest { name, lease_id, owner, fencing_token, request })
            }
        };
        (seq, op)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.core().client.revocation_watcher().remove(self.post.load(Ordering::Relaxed));
    }
}

/// A guard's share in a grant. When the last hold is dropped, the lock is released.
pub(crate) struct Hold {
    /// None once the hold was released.
    grant: Option<Arc<Grant>>,
}

impl Deref for Hold {
    type Target = Arc<Grant>;

    fn deref(&self) -> &Arc<Grant> {
        self.grant.as_ref().expect("it goes only with the hold")
    }
}

impl Hold {
    /// Releases the lock if no other guard has it, and waits until the cluster has done so. Returns the revision of the
    /// release, or none if nothing was released. If this future is dropped, the release goes on in the background.
    pub(crate) async fn release(mut self) -> Result<Option<Revision>, Error> {
        let grant = self.grant.take().expect("it goes only with the hold");
        // Not `state`: a grant that is lost by the clock alone is still released by the end of the lease.
        let lost = if grant.inherited { None } else { grant.lock().lost.clone() };
        let lost = lost.or_else(|| grant.core().check().err().filter(|_| !grant.inherited));
        let release = leave(&grant);
        match (lost, release) {
            // What remains is released in the background.
            (Some(lost), _) => Err(lost_before_release(&lost)),
            (None, Some(release)) => release.run().await,
            (None, None) => Ok(None),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            // A release that is dropped unfinished goes on in the background.
            drop(leave(&grant));
        }
    }
}

/// Removes one guard; returns the release if it was the last.
fn leave(grant: &Grant) -> Option<Release> {
    grant.start_release(|state| {
        state.holds -= 1;
        state.holds == 0
    })
}

fn lost_before_release(lost: &Lost) -> Error {
    Error::new(ErrorKind::Lost, format!("it was lost before it was released: {lost}"), false)
}

/// Returns the fields `name` and `names`: one name goes into the first, several into the second.
pub(crate) fn wire_names(names: &[String]) -> (String, Vec<String>) {
    match names {
        [name] => (name.clone(), Vec::new()),
        names => (String::new(), names.to_vec()),
    }
}

/// Release in progress. If it is dropped before it was answered, it goes on in the background.
struct Release {
    core: Arc<Core>,
    /// Requests that are not answered yet.
    requests: VecDeque<(Seq, Op)>,
    /// True if it releases what may have been lost: then the answer "not held" counts as success.
    remains: bool,
    /// Turn of a named owner; dropped when the lock is free for the next request of the owner.
    turn: Option<Turn>,
    /// True if the release already runs in the background.
    in_background: bool,
}

impl Release {
    /// Runs the release. Returns its revision, if the cluster reported one.
    async fn run(mut self) -> Result<Option<Revision>, Error> {
        let mut last = Ok(None);
        while let Some((seq, op)) = self.requests.front_mut() {
            let seq = *seq;
            let answered = {
                let _place = self.core.place().await;
                self.core.give_back(op).await
            };
            self.requests.pop_front();
            self.core.seqs.answered(seq);
            last = match answered {
                Ok(Answered {
                    result:
                        OpResult::Unlock(v1::UnlockResponse { revision, .. })
                        | OpResult::Resign(v1::ResignResponse { revision, .. }),
                    ..
                }) => convert::revision(revision).map(Some),
                // The end of the lease is the end of the lock.
                Err(Failed::Lost(Lost { reason: LostReason::SessionClosed, .. })) => Ok(None),
                Err(Failed::Error(error)) if self.remains && is_not_held(&error) => Ok(None),
                Ok(_) => Err(Error::unexpected("a release")),
                Err(failed) => Err(Error::from(failed)),
            };
        }
        last
    }

    fn in_background(mut self) -> Release {
        self.in_background = true;
        self
    }

    async fn run_quietly(self) {
        match self.run().await {
            Err(error) if error.cause() != Some(ErrorReason::NotHeld) && error.kind() != ErrorKind::Lost => {
                tracing::warn!(%error, "a lock could not be released");
            }
            _ => {}
        }
    }
}

/// True if an error says that this grant is no longer held.
pub(crate) fn is_not_held(error: &Error) -> bool {
    matches!(error.cause(), Some(ErrorReason::NotHeld | ErrorReason::StaleToken))
}

impl Drop for Release {
    fn drop(&mut self) {
        // A release that is dropped in the background ends with its runtime, and nothing more can be done.
        if self.requests.is_empty() || self.in_background {
            return;
        }
        let again = Release {
            core: Arc::clone(&self.core),
            requests: std::mem::take(&mut self.requests),
            remains: self.remains,
            turn: self.turn.take(),
            in_background: true,
        };
        // Registered with the session, which waits for releases when it is closed. Not registered earlier: the session
        // would wait in vain for a release that its caller holds and does not poll.
        let returning = self.core.returns();
        self.core.client.runtime().spawn(async move {
            again.run_quietly().await;
            drop(returning);
        });
    }
}
