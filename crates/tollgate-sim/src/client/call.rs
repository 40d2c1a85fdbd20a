//! Calls: one logical request each, with all its attempts.
//!
//! Invariant: a request with a seq is one call, repeated with that seq until it is answered for good. A request without
//! a seq is another call at each attempt, since the servers can't recognize a repeat. Not here: the meaning of answers
//! (`verdict`), and the makers of the calls (`session`, `work`).

use crate::front::{Ask, Lane};
use crate::rng::Rng;
use std::collections::BTreeMap;
use tollgate_check::{CallId, Op};
use tollgate_core::{Command, ReleaseBy};
use tollgate_types::{GroupId, SEQ_RANGES_MAX, Seq, SeqRanges};

/// Action of a client when no answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Sends the same call again: it has a seq, or is a read.
    Same,
    /// Makes another call of the same request.
    NewCall,
    /// Does nothing: the maker of the call sees to it.
    Never,
}

/// Purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Grants a lease.
    Grant,
    /// Keeps a lease alive.
    KeepAlive,
    /// Ends a lease.
    Revoke,
    /// Adds a stub, to use the lease in another group.
    Stub,
    /// Carries out a task's present step.
    Task(usize),
    /// Ends the wait of a task's call.
    Cancel {
        /// Index of the task.
        task: usize,
        /// Call to cancel.
        of: CallId,
    },
    /// Made by a twin: a program that took the lease over, and knows nothing of the earlier requests under it.
    Twin,
    /// Made for somebody who no longer waits, but must be answered.
    Nobody,
}

/// A call of a client.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) group: GroupId,
    pub(super) ask: Ask,
    /// Operation in the history; none for a call that the history does not know.
    pub(super) op: Option<Op>,
    pub(super) seq: Option<Seq>,
    pub(super) why: Why,
    pub(super) again: Again,
    /// Number of the client's session that the call belongs to.
    pub(super) epoch: u32,
    /// Connection by which the call is sent.
    pub(super) lane: Lane,
    /// True if the client has asked for the end of the call, or hung up.
    pub(super) cancelled: bool,
    pub(super) attempts: u32,
    /// Local time of the first attempt.
    pub(super) first_sent: u64,
    /// Local time at which to send the call, or to send it again.
    pub(super) next_try: u64,
    pause_us: u64,
    /// True if the last attempt had no answer of any kind.
    pub(super) unheard: bool,
    pub(super) done: bool,
}

/// Parts of a new call.
pub(super) struct NewCall {
    pub(super) group: GroupId,
    pub(super) ask: Ask,
    pub(super) op: Option<Op>,
    pub(super) seq: Option<Seq>,
    pub(super) why: Why,
    pub(super) again: Again,
    pub(super) epoch: u32,
}

/// Shortest and longest pause before an unanswered call is sent again: the pause grows with each attempt.
const PAUSE_US_MIN: u64 = 200_000;
const PAUSE_US_MAX: u64 = 2_000_000;
/// Pause before a call that waits in the queue is sent again: the leader may be gone without a word.
const QUEUED_PAUSE_US: u64 = 3_000_000;

impl Call {
    /// Returns true if the call still needs an answer. Keepalives and grants do not: others are made in their place.
    pub(super) fn is_open(&self) -> bool {
        !self.done && self.next_try != u64::MAX
    }

    /// Notes that the call was sent at `now`.
    pub(super) fn sent(&mut self, now: u64, rng: &mut Rng) {
        if self.attempts == 0 {
            self.first_sent = now;
        }
        self.attempts += 1;
        self.unheard = true;
        self.next_try = match self.again {
            Again::Never => u64::MAX,
            _ => now + self.pause_us + rng.below(self.pause_us / 2),
        };
        self.pause_us = (self.pause_us * 2).min(PAUSE_US_MAX);
    }

    /// Plans another attempt after about `pause_us`, because the answer says to ask again.
    pub(super) fn ask_again(&mut self, now: u64, pause_us: u64, rng: &mut Rng) {
        self.unheard = false;
        if self.is_open() {
            self.next_try = now + pause_us / 2 + rng.below(pause_us);
        }
    }

    /// Plans another attempt, much later, because the answer says that the call waits in the queue.
    pub(super) fn is_queued(&mut self, now: u64, rng: &mut Rng) {
        if self.is_open() {
            self.next_try = now + QUEUED_PAUSE_US + rng.below(QUEUED_PAUSE_US / 2);
        }
    }
}

/// All calls of a client for which an answer may still come.
#[derive(Debug)]
pub(super) struct Calls {
    next: u64,
    calls: BTreeMap<CallId, Call>,
}

/// Number of finished or abandoned calls that are remembered, for late answers.
const REMEMBERED_MAX: usize = 400;

impl Calls {
    /// Creates the calls of the client with this number: no other client uses the same ids.
    pub(super) fn new(client: u32) -> Calls {
        Calls { next: u64::from(client) << 32, calls: BTreeMap::new() }
    }

    /// Returns an id that no call has.
    pub(super) fn fresh_id(&mut self) -> CallId {
        self.next += 1;
        CallId(self.next)
    }

    /// Makes a call, to be sent at `next_try`.
    pub(super) fn make(&mut self, new: NewCall, next_try: u64) -> CallId {
        let id = self.fresh_id();
        let NewCall { group, ask, op, seq, why, again, epoch } = new;
        let (attempts, first_sent, pause_us) = (0, 0, PAUSE_US_MIN);
        let (unheard, done) = (false, false);
        let (lane, cancelled) = (Lane::Session, false);
        self.calls.insert(
            id,
            Call {
                id,
                group,
                ask,
                op,
                seq,
                why,
                again,
                epoch,
                lane,
                cancelled,
                attempts,
                first_sent,
                next_try,
                pause_us,
                unheard,
                done,
            },
        );
        self.forget();
        id
    }

    /// Makes another call of the same request. The first call is not sent again, but may still be answered.
    pub(super) fn make_again(&mut self, id: CallId) -> CallId {
        let again = self.fresh_id();
        let old = self.calls.get_mut(&id).expect("the caller has just looked at it");
        let new = Call { id: again, attempts: 0, ..old.clone() };
        old.next_try = u64::MAX;
        self.calls.insert(again, new);
        again
    }

    pub(super) fn get(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.calls.get_mut(&id)
    }

    /// Returns a call that must be sent by `now`, if there is one.
    pub(super) fn due(&self, now: u64) -> Option<CallId> {
        self.calls.values().find(|call| call.is_open() && call.next_try <= now).map(|call| call.id)
    }

    /// Returns the local time at which the next call must be sent.
    pub(super) fn next_try(&self) -> u64 {
        self.calls.values().filter(|call| call.is_open()).map(|call| call.next_try).min().unwrap_or(u64::MAX)
    }

    /// Handles a broken connection: all calls that wait there ask again.
    pub(super) fn ask_again_on(&mut self, lane: Lane, now: u64, rng: &mut Rng) {
        for call in self.calls.values_mut().filter(|call| call.lane == lane && call.attempts > 0) {
            call.ask_again(now, 100_000, rng);
        }
    }

    /// Makes the calls of vanished callers ask again now.
    pub(super) fn come_back(&mut self) {
        let away = |call: &&mut Call| call.lane != Lane::Session && call.attempts > 0 && call.is_open();
        self.calls.values_mut().filter(away).for_each(|call| call.next_try = 0);
    }

    /// Returns true if any call must still be answered.
    pub(super) fn any_open(&self) -> bool {
        self.calls.values().any(Call::is_open)
    }

    /// Forgets a call that was never sent.
    pub(super) fn drop_unsent(&mut self, id: CallId) {
        self.calls.retain(|_, call| call.id != id || call.attempts > 0);
    }

    /// Handles the end of the client's session: unsent calls are never sent, and nobody waits for the others any more.
    pub(super) fn orphan(&mut self, epoch: u32) {
        self.calls.retain(|_, call| call.epoch != epoch || call.attempts > 0 || call.why == Why::Revoke);
        for call in self.calls.values_mut().filter(|call| call.epoch == epoch) {
            match call.why {
                Why::Task(_) | Why::Cancel { .. } => call.why = Why::Nobody,
                Why::Stub | Why::Twin => call.next_try = u64::MAX,
                Why::Grant | Why::KeepAlive | Why::Revoke | Why::Nobody => {}
            }
        }
    }

    fn forget(&mut self) {
        let over = self.calls.values().filter(|call| !call.is_open()).count();
        if over > 2 * REMEMBERED_MAX {
            let ids = self.calls.values().filter(|call| !call.is_open()).map(|call| call.id);
            let oldest: Vec<CallId> = ids.take(over - REMEMBERED_MAX).collect();
            for id in oldest {
                self.calls.remove(&id);
            }
        }
    }
}

/// Sets the seqs whose answers the client acknowledges to the servers.
pub(super) fn set_acked(ask: &mut Ask, acked: &SeqRanges) {
    let first = acked.ranges().iter().copied().take(SEQ_RANGES_MAX).collect();
    let first = SeqRanges::new(first).expect("a beginning of good ranges is good");
    match ask {
        Ask::KeepAlive(renewal) => renewal.acked = first,
        Ask::Command(command) => {
            let request = match &mut **command {
                Command::AcquireLock(acquire) => acquire.request.as_mut(),
                Command::ConvertLock(convert) => convert.request.as_mut(),
                Command::Proclaim(proclaim) => proclaim.request.as_mut(),
                Command::ReleaseLock(release) => match &mut release.by {
                    ReleaseBy::Holder { request, .. } => request.as_mut(),
                    ReleaseBy::Token(_) => None,
                },
                Command::Txn(txn) => txn.request.as_mut().map(|(_, request)| request),
                Command::CancelWait(cancel) => {
                    cancel.acked = first;
                    return;
                }
                _ => None,
            };
            if let Some(request) = request {
                request.acked = first;
            }
        }
        Ask::ReadLock(_)
        | Ask::ReadRegister(_)
        | Ask::Watch { .. }
        | Ask::HangUp { .. }
        | Ask::StreamLost => {}
    }
}
