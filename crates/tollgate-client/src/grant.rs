//! A lock that this program holds, as far as it knows: shared by the guards of one owner and name.
//!
//! Invariant: what was lost stays lost; the last guard that goes has the lock released, until the cluster has done so
//! or the lease is over. Not here: asking for it (`acquire`), the lease (`session`), noticing a forced release
//! (`sentry`).

use crate::call::Answered;
use crate::convert;
use crate::error::{Error, ErrorKind};
use crate::lost::{Lost, LostReason};
use crate::owner::Turn;
use crate::session::{Core, Failed, Session};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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
    pub(crate) names: Vec<String>,
    pub(crate) owner: String,
    pub(crate) waited: Duration,
    /// The revision by which the claim is known.
    pub(crate) create_revision: u64,
    /// Whether somebody else's grant was found: it is left alone.
    pub(crate) inherited: bool,
    state: Mutex<State>,
    over: watch::Sender<bool>,
    /// Held while its mode changes.
    pub(crate) converting: Arc<AsyncMutex<()>>,
    /// With a named owner: its place among those.
    turn: Mutex<Option<Turn>>,
    /// Its number with the sentry.
    post: AtomicU64,
    /// A revision at which it was seen to be held.
    pub(crate) seen_at: AtomicU64,
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
    lost: Option<Lost>,
    released: bool,
}

impl State {
    pub(crate) fn new(
        mode: Mode,
        token: Token,
        tokens: Vec<(String, Token)>,
        max_hold_until: Option<Duration>,
    ) -> State {
        State { mode, token, tokens, max_hold_until, lost: None, released: false }
    }
}

/// What a new grant is about.
pub(crate) struct About {
    pub(crate) kind: Kind,
    pub(crate) names: Vec<String>,
    pub(crate) owner: String,
    pub(crate) waited: Duration,
    pub(crate) create_revision: u64,
    pub(crate) inherited: bool,
}

impl Grant {
    pub(crate) fn new(session: Session, about: About, state: State, turn: Option<Turn>) -> Arc<Grant> {
        let About { kind, names, owner, waited, create_revision, inherited } = about;
        let grant = Arc::new_cyclic(|weak| Grant {
            session,
            kind,
            names,
            owner,
            waited,
            create_revision,
            inherited,
            state: Mutex::new(state),
            over: watch::Sender::new(false),
            converting: Arc::default(),
            turn: Mutex::new(turn.inspect(|turn| turn.held(weak.clone()))),
            post: AtomicU64::new(0),
            seen_at: AtomicU64::new(0),
        });
        if !grant.inherited {
            grant.post.store(grant.core().client.sentry().add(&grant), Ordering::Relaxed);
        }
        grant
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

    /// It was converted.
    pub(crate) fn converted(&self, mode: Mode, token: Token) {
        let mut state = self.lock();
        (state.mode, state.token) = (mode, token);
        state.tokens.iter_mut().for_each(|(_, of_name)| *of_name = token);
    }

    /// It is no longer held; the first reason stays.
    pub(crate) fn lose(&self, lost: Lost) {
        self.lock().lost.get_or_insert(lost);
        self.over.send_replace(true);
    }

    /// Completes once it is lost, and says why.
    pub(crate) async fn until_lost(&self) -> Lost {
        let mut over = self.over.subscribe();
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

    /// Whether there is something to give back: not what is lost, was given back or is another's.
    fn to_release(&self) -> bool {
        let state = self.lock();
        let held = !state.released && state.lost.is_none();
        held && !self.inherited && !self.core().is_lost()
    }

    /// Gives it back, and waits until the cluster has taken it; at which revision, unless it is another's. Dropped, it
    /// goes on in the background.
    pub(crate) async fn release(&self) -> Result<Option<Revision>, Error> {
        if self.inherited {
            return Ok(None);
        }
        // Not `state`: what is lost by the clock alone is still given back by the end of the lease.
        if let Some(lost) = self.lock().lost.clone() {
            return Err(lost_before_release(&lost));
        }
        self.core().check().map_err(|lost| lost_before_release(&lost))?;
        let release = self.start_release();
        release.run().await
    }

    fn start_release(&self) -> Release {
        {
            let mut state = self.lock();
            state.released = true;
            state.lost.get_or_insert(Lost::new(LostReason::SessionClosed));
        }
        self.over.send_replace(true);
        let seq = self.core().seqs.next();
        let turn = self.turn.lock().expect("nobody panics with it").take();
        turn.iter().for_each(Turn::busy);
        Release {
            core: Arc::clone(self.core()),
            seq,
            op: Some(self.release_op(seq)),
            turn,
            in_background: false,
        }
    }

    fn release_op(&self, seq: Seq) -> Op {
        let (lease_id, owner, request) =
            (self.core().lease.get(), self.owner.clone(), Some(Core::request(seq)));
        match self.kind {
            Kind::Lock => {
                let (name, names) = wire_names(&self.names);
                Op::Unlock(v1::UnlockRequest { name, names, lease_id, owner, fencing_token: 0, request })
            }
            Kind::Election => {
                let name = self.names[0].clone();
                Op::Resign(v1::ResignRequest { name, lease_id, owner, fencing_token: 0, request })
            }
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.core().client.sentry().remove(self.post.load(Ordering::Relaxed));
        if self.to_release() {
            // Dropped unfinished, it goes on in the background.
            drop(self.start_release());
        }
    }
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
    seq: Seq,
    /// None once it was answered.
    op: Option<Op>,
    /// Goes when the lock is free for the next of its owner.
    turn: Option<Turn>,
    /// Whether it has gone there already.
    in_background: bool,
}

impl Release {
    /// The revision of the release, if the cluster told it.
    async fn run(mut self) -> Result<Option<Revision>, Error> {
        let Some(op) = self.op.clone() else { return Ok(None) };
        let answered = {
            let _place = self.core.place().await;
            self.core.ask(op, None).await
        };
        self.op = None;
        self.core.seqs.answered(self.seq);
        match answered {
            Ok(Answered {
                result:
                    OpResult::Unlock(v1::UnlockResponse { revision, .. })
                    | OpResult::Resign(v1::ResignResponse { revision, .. }),
                ..
            }) => convert::revision(revision).map(Some),
            // The end of the lease is the end of the lock.
            Err(Failed::Lost(Lost { reason: LostReason::SessionClosed, .. })) => Ok(None),
            Ok(_) => Err(Error::unexpected("a release")),
            Err(failed) => Err(Error::from(failed)),
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        // Dropped there it is with its runtime, and nothing more can be done.
        let Some(op) = self.op.take().filter(|_| !self.in_background) else { return };
        let (core, seq) = (Arc::clone(&self.core), self.seq);
        let again = Release { core, seq, op: Some(op), turn: self.turn.take(), in_background: true };
        let runtime = self.core.client.runtime().clone();
        runtime.spawn(async move {
            match again.run().await {
                Err(error)
                    if error.cause() != Some(ErrorReason::NotHeld) && error.kind() != ErrorKind::Lost =>
                {
                    tracing::warn!(%error, "a lock could not be released");
                }
                _ => {}
            }
        });
    }
}
