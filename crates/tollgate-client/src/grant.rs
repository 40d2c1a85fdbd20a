//! A lock that this program holds, as far as it knows: shared by the guards of one owner and name.
//!
//! Invariant: what was lost stays lost; the last guard that goes has the lock released, until the cluster has done so
//! or the lease is over. Guards are counted by [`Hold`]s, not by references: others look at a grant for a moment, and
//! must not keep its lock. Not here: asking for it (`acquire`), the lease (`session`), noticing a forced release
//! (`sentry`).

use crate::call::Answered;
use crate::convert;
use crate::error::{Error, ErrorKind};
use crate::lost::{Lost, LostReason};
use crate::owner::Turn;
use crate::session::{Core, Failed, Session};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{Mode, Revision, Seq, Token};

/// How it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Lock,
    Election,
}

/// One grant.
pub(crate) struct Grant {
    session: Session,
    pub(crate) kind: Kind,
    /// In order.
    pub(crate) names: Arc<[String]>,
    pub(crate) owner: String,
    pub(crate) waited: Duration,
    /// The revision by which the claim is known, for each name: groups count for themselves.
    pub(crate) create_revisions: SmallVec<[u64; 1]>,
    /// Whether somebody else's grant was found: it is left alone.
    pub(crate) inherited: bool,
    state: Mutex<State>,
    /// Made by the first who wants to be told that it is over: most grants are given back before anybody does.
    over: Mutex<Option<watch::Sender<bool>>>,
    /// Held while its mode changes. Made when it first is.
    converting: OnceLock<Arc<AsyncMutex<()>>>,
    /// With a named owner: its place among those.
    turn: Mutex<Option<Turn>>,
    /// Its number with the sentry.
    post: AtomicU64,
    /// A revision at which each name was seen to be held, in its group.
    pub(crate) seen_at: SmallVec<[AtomicU64; 1]>,
}

/// What may change while it is held.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) mode: Mode,
    pub(crate) token: Token,
    /// The token of each name, if there are several.
    pub(crate) tokens: Vec<(String, Token)>,
    /// When it may end by its own rule, by the client's clock.
    pub(crate) max_hold_until: Option<Duration>,
    /// What its mode is being changed to: until that is settled it may be either.
    next: Option<Mode>,
    lost: Option<Lost>,
    released: bool,
    /// How many guards share it.
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

    /// Whether it is held in a mode that covers this one, however a change that is under way ends.
    pub(crate) fn covers(&self, mode: Mode) -> bool {
        self.mode.covers(mode) && self.next.is_none_or(|next| next.covers(mode))
    }

    /// The token of one of its names.
    pub(crate) fn token_of(&self, name: &str) -> Token {
        self.tokens.iter().find(|(of, _)| of == name).map_or(self.token, |(_, token)| *token)
    }
}

/// What a new grant is about.
pub(crate) struct About {
    pub(crate) kind: Kind,
    pub(crate) names: Arc<[String]>,
    pub(crate) owner: String,
    pub(crate) waited: Duration,
    /// For each name.
    pub(crate) create_revisions: SmallVec<[u64; 1]>,
    pub(crate) inherited: bool,
}

impl Grant {
    /// The first guard's part in a new one.
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
        // Only now: who is woken by it looks at once, and must find the grant.
        let turn = grant.turn.lock().expect("nobody panics with it").clone();
        if let Some(turn) = turn {
            turn.held(Arc::downgrade(&grant));
        }
        grant.post.store(grant.core().client.sentry().add(&grant), Ordering::Relaxed);
        Hold { grant: Some(grant) }
    }

    /// One guard more, unless it is lost or being given back.
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
        self.state.lock().expect("nobody panics with it")
    }

    /// What it is now, unless it is lost; checked against the clock at every call.
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

    /// As it was last known, lost or not.
    pub(crate) fn last_known(&self) -> State {
        self.lock().clone()
    }

    /// How long it is believed in if nothing happens.
    pub(crate) fn remaining(&self) -> Duration {
        let Ok(state) = self.state() else { return Duration::ZERO };
        let of_lease = self.core().remaining();
        let now = self.core().now();
        state.max_hold_until.map_or(of_lease, |until| of_lease.min(until.saturating_sub(now)))
    }

    /// Held while its mode changes.
    pub(crate) fn converting(&self) -> Arc<AsyncMutex<()>> {
        Arc::clone(self.converting.get_or_init(Arc::default))
    }

    /// Its mode is about to be changed.
    pub(crate) fn converts(&self, next: Option<Mode>) {
        self.lock().next = next;
    }

    /// It was converted.
    pub(crate) fn converted(&self, mode: Mode, token: Token) {
        let mut state = self.lock();
        (state.mode, state.token) = (mode, token);
        state.tokens.iter_mut().for_each(|(_, of_name)| *of_name = token);
    }

    /// It is no longer held; the first reason stays.
    pub(crate) fn lose(&self, lost: Lost) {
        let lost = Lost { reason: self.core().cause(lost.reason), ..lost };
        self.lock().lost.get_or_insert(lost);
        self.tell_over();
    }

    /// Wakes those who want to be told; to be called once the state says so. Who comes later looks at the state.
    fn tell_over(&self) {
        if let Some(over) = &*self.over.lock().expect("nobody panics with it") {
            over.send_replace(true);
        }
    }

    /// Completes once it is lost, and says why.
    pub(crate) async fn until_lost(&self) -> Lost {
        let mut over = {
            let mut over = self.over.lock().expect("nobody panics with it");
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

    /// Gives back what is left of it if `last` says that it is over: all of it, or what remains of one that was lost.
    /// None if nothing is: it was given back, is another's, or ends with its lease.
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
        let turn = self.turn.lock().expect("nobody panics with it").take();
        turn.iter().for_each(Turn::busy);
        let remains = state.lost.is_some();
        let requests = if remains {
            // By its token: what its owner has taken since is another's.
            let one = |name: &String| self.request(std::slice::from_ref(name), state.token_of(name).get());
            self.names.iter().map(one).collect()
        } else {
            VecDeque::from([self.request(&self.names, 0)])
        };
        let core = Arc::clone(self.core());
        Some(Release { core, requests, remains, turn, in_background: false })
    }

    /// Whether the cluster may hold some of it for this program although it was lost: the other names of one that was
    /// taken away by force, and one whose time is over by the client's clock, which is early.
    fn leaves_something(&self, reason: LostReason) -> bool {
        match reason {
            LostReason::Forced => self.kind == Kind::Lock && self.names.len() > 1,
            LostReason::MaxHold => self.kind == Kind::Lock,
            _ => false,
        }
    }

    /// Has what remains of it given back before its owner asks again. Whether there is something.
    pub(crate) fn clear(&self) -> bool {
        // Dropped unfinished, it goes on in the background.
        let started = self.start_release(|_| true).is_some();
        started || self.last_known().released
    }

    /// Gives it back although guards still have it; once the cluster has taken it. For sessions that end without the
    /// end of their lease.
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
        self.core().client.sentry().remove(self.post.load(Ordering::Relaxed));
    }
}

/// A guard's part in a grant. When the last one goes, the lock is released.
pub(crate) struct Hold {
    /// None once it has gone.
    grant: Option<Arc<Grant>>,
}

impl Deref for Hold {
    type Target = Arc<Grant>;

    fn deref(&self) -> &Arc<Grant> {
        self.grant.as_ref().expect("it goes only with the hold")
    }
}

impl Hold {
    /// Gives the lock back if no other guard has it, and waits until the cluster has taken it; at which revision,
    /// unless it is another's. Dropped, it goes on in the background.
    pub(crate) async fn release(mut self) -> Result<Option<Revision>, Error> {
        let grant = self.grant.take().expect("it goes only with the hold");
        // Not `state`: what is lost by the clock alone is still given back by the end of the lease.
        let lost = if grant.inherited { None } else { grant.lock().lost.clone() };
        let lost = lost.or_else(|| grant.core().check().err().filter(|_| !grant.inherited));
        let release = leave(&grant);
        match (lost, release) {
            // What remains is given back in the background.
            (Some(lost), _) => Err(lost_before_release(&lost)),
            (None, Some(release)) => release.run().await,
            (None, None) => Ok(None),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            // Dropped unfinished, it goes on in the background.
            drop(leave(&grant));
        }
    }
}

/// One guard less; what is to be given back if it was the last.
fn leave(grant: &Grant) -> Option<Release> {
    grant.start_release(|state| {
        state.holds -= 1;
        state.holds == 0
    })
}

fn lost_before_release(lost: &Lost) -> Error {
    Error::new(ErrorKind::Lost, format!("it was lost before it was released: {lost}"), false)
}

/// One name as such, several as a list.
pub(crate) fn wire_names(names: &[String]) -> (String, Vec<String>) {
    match names {
        [name] => (name.clone(), Vec::new()),
        names => (String::new(), names.to_vec()),
    }
}

/// A release under way. Dropped before it was answered, it goes on in the background.
struct Release {
    core: Arc<Core>,
    /// What is not answered yet.
    requests: VecDeque<(Seq, Op)>,
    /// Whether it is of what may have been lost: that it is not held any more is as good.
    remains: bool,
    /// Goes when the lock is free for the next of its owner.
    turn: Option<Turn>,
    /// Whether it has gone there already.
    in_background: bool,
}

impl Release {
    /// The revision of the release, if the cluster told it.
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

/// Whether an error says that this grant is not held any more.
pub(crate) fn is_not_held(error: &Error) -> bool {
    matches!(error.cause(), Some(ErrorReason::NotHeld | ErrorReason::StaleToken))
}

impl Drop for Release {
    fn drop(&mut self) {
        // Dropped there it is with its runtime, and nothing more can be done.
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
        // Told to the session, which waits for it when it is closed. Not before: one that its caller has and does not
        // poll would be waited for in vain.
        let returning = self.core.returns();
        self.core.client.runtime().spawn(async move {
            again.run_quietly().await;
            drop(returning);
        });
    }
}
