//! The shared core of a session: its lease, the belief in it, and the numbers of its requests.
//!
//! Invariant: once the session is lost it stays lost, for the reason that came first; from then on nothing is requested
//! under its lease but the end of the lease, and releases under a lease that lives on. Not here: keepalives (`keeper`),
//! held locks (`grant`).

use crate::belief::Belief;
use crate::call::{Answered, Call};
use crate::client::Client;
use crate::convert;
use crate::error::{Error, ErrorKind};
use crate::lost::{Lost, LostReason};
use crate::multiplexer::Urgency;
use crate::owner::Owners;
use crate::seqs::Seqs;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;
use tollgate_proto::v1::{self, ErrorReason, operation::Op, operation_result::Result as OpResult};
use tollgate_types::{LeaseId, Lineage, Revision, Seq};

/// Maximum numbers of requests of a session that may wait in line at once, and of other requests in progress: each
/// below what a cluster allows a lease by default. Releases don't share places with waiting requests, or the waiting
/// requests would keep out the releases that they wait for.
const WAITING_MAX: usize = 8_000;
const PROMPT_MAX: usize = 512;

/// Maximum time to retry the revoke of a lease that nobody keeps alive: the lease ends by itself soon after.
const REVOKE_PATIENCE: Duration = Duration::from_mins(1);

/// Shared state of all parts of a session.
pub(crate) struct Core {
    pub(crate) client: Client,
    pub(crate) lease: LeaseId,
    pub(crate) ttl: Duration,
    /// Time between two keepalives.
    pub(crate) keepalive_interval: Duration,
    /// Revision of the lease's grant.
    pub(crate) incarnation: Revision,
    /// True if another session granted the lease, and ends it.
    pub(crate) joined: bool,
    pub(crate) revoke_on_disconnect: bool,
    /// True if the program chose the lease's id.
    id_given: bool,
    /// Lineage of the cluster, once it has reported one.
    lineage: OnceLock<Lineage>,
    pub(crate) seqs: Seqs,
    pub(crate) owners: Owners,
    belief: Mutex<Belief>,
    /// True while a keepalive is in progress that was sent when it was due: if the belief ends now, the cluster was
    /// silent.
    asked_in_time: AtomicBool,
    lost: OnceLock<Lost>,
    /// Signal that the session is lost.
    was_lost: Notify,
    waiting: Semaphore,
    prompt: Semaphore,
    /// Number of cancels and releases in progress that nobody waits for.
    returning: watch::Sender<usize>,
}

/// Lease of a new session, and the session's settings.
pub(crate) struct Granted {
    pub(crate) lease: LeaseId,
    pub(crate) ttl: Duration,
    pub(crate) keepalive_interval: Duration,
    pub(crate) incarnation: Revision,
    pub(crate) sent: Duration,
    pub(crate) joined: bool,
    pub(crate) revoke_on_disconnect: bool,
    pub(crate) id_given: bool,
    pub(crate) lineage: Option<Lineage>,
    /// First request number of the session.
    pub(crate) first_seq: u64,
}

impl Core {
    pub(crate) fn new(client: Client, granted: &Granted) -> Arc<Core> {
        let &Granted { lease, ttl, incarnation, sent, joined, revoke_on_disconnect, .. } = granted;
        let &Granted { keepalive_interval, id_given, lineage, first_seq, .. } = granted;
        Arc::new(Core {
            lineage: lineage.map_or_else(OnceLock::new, OnceLock::from),
            client,
            lease,
            ttl,
            keepalive_interval,
            incarnation,
            joined,
            revoke_on_disconnect,
            id_given,
            seqs: Seqs::from(first_seq),
            owners: Owners::default(),
            belief: Mutex::new(Belief::new(sent, ttl)),
            asked_in_time: AtomicBool::new(false),
            lost: OnceLock::new(),
            was_lost: Notify::new(),
            waiting: Semaphore::new(WAITING_MAX),
            prompt: Semaphore::new(PROMPT_MAX),
            returning: watch::Sender::new(0),
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.client.clock().now()
    }

    /// Returns the cluster's lineage, if it has one and has reported it.
    pub(crate) fn lineage(&self) -> Option<Lineage> {
        self.lineage.get().copied()
    }

    /// Records the lineage in a header; it never changes.
    pub(crate) fn told(&self, header: Option<&v1::Header>) {
        if let Some(lineage) = convert::lineage(header) {
            let _ = self.lineage.set(lineage);
        }
    }

    fn belief(&self) -> Belief {
        *self.belief.lock()
    }

    /// Returns the time when the client stops believing in the lease, unless a keepalive is acknowledged before.
    pub(crate) fn believed_until(&self) -> Duration {
        self.belief().until()
    }

    /// Records that a keepalive sent at `sent` was acknowledged.
    pub(crate) fn renewed(&self, sent: Duration, ttl: Duration) {
        let now = self.now();
        self.belief.lock().acknowledged(sent, ttl, now);
    }

    /// Returns an error if the session is lost; checked against the clock at every call.
    pub(crate) fn check(&self) -> Result<(), Lost> {
        self.checked().map(drop)
    }

    /// Same as `check`, and returns the reading of the clock.
    fn checked(&self) -> Result<Duration, Lost> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        let now = self.now();
        if !self.belief().holds(now) {
            self.lose(self.disbelieved());
            return Err(self.why());
        }
        Ok(now)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Marks the session as lost.
    pub(crate) fn lose(&self, reason: LostReason) {
        if self.lost.set(Lost::new(self.cause(reason))).is_ok() {
            self.was_lost.notify_waiters();
        }
    }

    fn why(&self) -> Lost {
        self.lost.get().cloned().unwrap_or(Lost::new(self.disbelieved()))
    }

    /// Returns the reason for an end of the belief by the clock: a keepalive was not answered, or this program sent
    /// none in time.
    pub(crate) fn disbelieved(&self) -> LostReason {
        let asked = self.asked_in_time.load(Ordering::Relaxed);
        if asked { LostReason::Unreachable } else { LostReason::Paused }
    }

    /// Returns the cause of a loss that the cluster reported. News of an expiry may come before this program has read
    /// its clock, as after a pause; then the clock tells the true cause.
    pub(crate) fn cause(&self, told: LostReason) -> LostReason {
        let late = told == LostReason::Expired && !self.belief().holds(self.now());
        if late { self.disbelieved() } else { told }
    }

    /// Records that a keepalive that was due at `due` is in progress, or that none is.
    pub(crate) fn asks(&self, due: Option<Duration>) {
        let in_time = due.is_some_and(|due| self.now() < due + self.ttl / 3);
        self.asked_in_time.store(in_time, Ordering::Relaxed);
    }

    /// Completes once the session is lost.
    pub(crate) async fn until_lost(&self) -> Lost {
        // Created before the check, so that no notification is missed in between.
        let was_lost = self.was_lost.notified();
        if !self.is_lost() {
            was_lost.await;
        }
        self.why()
    }

    /// Returns the time for which the client still believes in the lease.
    pub(crate) fn remaining(&self) -> Duration {
        if self.is_lost() { Duration::ZERO } else { self.believed_until().saturating_sub(self.now()) }
    }

    /// Returns a place for a request that may wait in line.
    pub(crate) async fn place_to_wait(&self) -> SemaphorePermit<'_> {
        self.waiting.acquire().await.expect("never closed")
    }

    /// Returns a place for a request that is answered soon.
    pub(crate) async fn place(&self) -> SemaphorePermit<'_> {
        self.prompt.acquire().await.expect("never closed")
    }

    /// Carries out an operation under this lease. Fails once the session is lost.
    pub(crate) async fn ask(&self, op: &mut Op, until: Option<Instant>) -> Result<Answered, Failed> {
        let begun = Some(self.checked()?);
        let about_another = names_another_lease(op, self.lease);
        let call = Call { op, until, urgency: Urgency::Ordinary, seqs: Some(&self.seqs), begun };
        let answered = tokio::select! {
            biased;
            answered = self.client.carry_out(call) => answered,
            lost = self.until_lost() => return Err(Failed::Lost(lost)),
        };
        self.noted(answered, about_another)
    }

    /// Carries out a release or a cancel. This also works after the close of a session whose lease lives on, because
    /// that lease would keep the lock.
    pub(crate) async fn give_back(&self, op: &mut Op) -> Result<Answered, Failed> {
        let begun = if self.is_lost() && self.gives_back() { None } else { Some(self.checked()?) };
        let call = Call { op, until: None, urgency: Urgency::Ordinary, seqs: Some(&self.seqs), begun };
        let answered = tokio::select! {
            biased;
            answered = self.client.carry_out(call) => answered,
            lost = self.until_over() => return Err(Failed::Lost(lost)),
        };
        self.noted(answered, false)
    }

    /// Registers a release or cancel in progress, until the result is dropped.
    pub(crate) fn returns(self: &Arc<Core>) -> Returning {
        self.returning.send_modify(|under_way| *under_way += 1);
        Returning { core: Arc::clone(self) }
    }

    /// Completes once no release or cancel is in progress, or none can succeed any more.
    pub(crate) async fn until_returned(&self) {
        let mut returning = self.returning.subscribe();
        tokio::select! {
            biased;
            // Never an error: the sender lives as long as `self`.
            _ = returning.wait_for(|under_way| *under_way == 0) => {}
            _ = self.until_over() => {}
        }
    }

    /// True if held locks have to be released, instead of ending with the lease.
    pub(crate) fn gives_back(&self) -> bool {
        match self.lost.get() {
            None => true,
            Some(lost) => self.is_left(lost) && self.belief().holds(self.now()),
        }
    }

    /// True if the lease lives on, as far as this session knows, although the session is over.
    fn is_left(&self, lost: &Lost) -> bool {
        self.joined && lost.reason == LostReason::SessionClosed
    }

    /// Completes once no release is possible any more.
    async fn until_over(&self) -> Lost {
        let lost = self.until_lost().await;
        if self.is_left(&lost) {
            self.client.clock().sleep_until(self.believed_until()).await;
        }
        lost
    }

    /// Marks the session as lost if the answer says that its lease is gone.
    fn noted(&self, answered: Result<Answered, Error>, about_another: bool) -> Result<Answered, Failed> {
        match answered {
            Err(error) if error.cause() == Some(ErrorReason::LeaseNotFound) && !about_another => {
                // The cluster never ends a lease in which its client still believes (P5, P7): somebody revoked it.
                self.lose(self.ended_early());
                Err(Failed::Lost(self.why()))
            }
            Err(error) => Err(Failed::Error(error)),
            Ok(answered) => Ok(answered),
        }
    }

    /// Returns the reason for the end of a lease in which the client still believes.
    pub(crate) fn ended_early(&self) -> LostReason {
        if self.revoke_on_disconnect { LostReason::Disconnected } else { LostReason::Revoked }
    }

    /// Returns the field `request` of an operation.
    pub(crate) fn request(seq: Seq) -> v1::Request {
        v1::Request { seq: seq.get(), ..v1::Request::default() }
    }

    /// Ends the lease. Succeeds also if the lease had ended before.
    pub(crate) async fn revoke(&self) -> Result<(), Error> {
        // A lease with an id of the program's choice may have been granted again by the time that this arrives.
        let patience = if self.id_given { Duration::ZERO } else { REVOKE_PATIENCE };
        let until = Instant::now() + self.client.call_timeout().max(patience);
        let mut op = Op::LeaseRevoke(v1::LeaseRevokeRequest { id: self.lease.get() });
        let call =
            Call { op: &mut op, until: Some(until), urgency: Urgency::Ordinary, seqs: None, begun: None };
        match self.client.carry_out(call).await {
            Ok(Answered { result: OpResult::LeaseRevoke(_), .. }) => Ok(()),
            Ok(_) => Err(Error::unexpected("a revoke")),
            Err(error) if error.cause() == Some(ErrorReason::LeaseNotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.revoke_on_disconnect {
            self.client.connections().let_streams_go();
        }
    }
}

/// Release or cancel in progress, until this is dropped.
pub(crate) struct Returning {
    core: Arc<Core>,
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.core.returning.send_modify(|under_way| *under_way -= 1);
    }
}

/// True if an operation names a lease other than the one under which it is made: then that lease may be the one not
/// found.
fn names_another_lease(op: &Op, lease: LeaseId) -> bool {
    let other = |put: &v1::PutRequest| put.lease_id != 0 && put.lease_id != lease.get();
    match op {
        Op::Put(put) => other(put),
        Op::Txn(txn) => txn.then_ops.iter().chain(&txn.else_ops).any(|step| match &step.op {
            Some(v1::txn_op::Op::Put(put)) => other(put),
            _ => false,
        }),
        _ => false,
    }
}

/// Reason why an operation under a lease has no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The session was lost first.
    Lost(Lost),
    Error(Error),
}

impl From<Lost> for Failed {
    fn from(lost: Lost) -> Failed {
        Failed::Lost(lost)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Error(error)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        match failed {
            Failed::Lost(lost) => Error::new(ErrorKind::Lost, format!("the lease is lost: {lost}"), true),
            Failed::Error(error) => error,
        }
    }
}
