//! Calls: one logical request each, with all its attempts.
//!
//! Invariant: a request with a seq is one call, repeated with that seq until it is answered for good. One without is
//! another call at each attempt, since the servers can't tell a repeat. Not here: what the answers mean (`verdict`) and
//! who makes the calls (`session`, `work`).

use crate::front::{Ask, Lane};
use crate::rng::Rng;
use std::collections::BTreeMap;
use tollgate_check::{CallId, Op};
use tollgate_core::{Command, ReleaseBy};
use tollgate_types::{GroupId, SEQ_RANGES_MAX, Seq, SeqRanges};

/// What a client does when no answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Sends it again: with its seq, or a read.
    Same,
    /// Makes another call of it.
    NewCall,
    /// Nothing: who made the call sees to it.
    Never,
}

/// For whom a call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// To have a lease.
    Grant,
    /// To keep it.
    KeepAlive,
    /// To end one.
    Revoke,
    /// To use the lease in another group.
    Stub,
    /// For a task's present step.
    Task(usize),
    /// To end the wait of a task's call.
    Cancel {
        /// Which task.
        task: usize,
        /// Which call.
        of: CallId,
    },
    /// Of a program that took the lease over, and knows nothing of what was done under it.
    Twin,
    /// Nobody waits for it any more, but it must be answered.
    Nobody,
}

/// A call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) group: GroupId,
    pub(super) ask: Ask,
    /// What the history calls it; none for what it does not know.
    pub(super) op: Option<Op>,
    pub(super) seq: Option<Seq>,
    pub(super) why: Why,
    pub(super) again: Again,
    /// Which of the client's sessions it belongs to.
    pub(super) epoch: u32,
    /// By which connection it is sent.
    pub(super) lane: Lane,
    /// Whether its client has asked for its end.
    pub(super) cancelled: bool,
    pub(super) attempts: u32,
    /// The client's clock at the first attempt.
    pub(super) first_sent: u64,
    /// When to send it, or send it again.
    pub(super) next_try: u64,
    pause_us: u64,
    /// Whether the last attempt had no answer of any kind.
    pub(super) unheard: bool,
    pub(super) done: bool,
}

/// What a new call is made of.
pub(super) struct NewCall {
    pub(super) group: GroupId,
    pub(super) ask: Ask,
    pub(super) op: Option<Op>,
    pub(super) seq: Option<Seq>,
    pub(super) why: Why,
    pub(super) again: Again,
    pub(super) epoch: u32,
}

/// No answer within this: ask again, and each time later.
const PAUSE_US_MIN: u64 = 200_000;
const PAUSE_US_MAX: u64 = 2_000_000;
/// One that waits in the queue asks again after this: the leader may be gone without a word.
const QUEUED_PAUSE_US: u64 = 3_000_000;

impl Call {
    /// Whether it still needs an answer: keepalives and grants do not, others are made in their place.
    pub(super) fn is_open(&self) -> bool {
        !self.done && self.next_try != u64::MAX
    }

    /// It was sent at `now`.
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

    /// The answer says to ask again after about `pause_us`.
    pub(super) fn ask_again(&mut self, now: u64, pause_us: u64, rng: &mut Rng) {
        self.unheard = false;
        if self.is_open() {
            self.next_try = now + pause_us / 2 + rng.below(pause_us);
        }
    }

    /// The answer says that it waits in the queue.
    pub(super) fn is_queued(&mut self, now: u64, rng: &mut Rng) {
        if self.is_open() {
            self.next_try = now + QUEUED_PAUSE_US + rng.below(QUEUED_PAUSE_US / 2);
        }
    }
}

/// All calls of a client that an answer may still come for.
#[derive(Debug)]
pub(super) struct Calls {
    next: u64,
    calls: BTreeMap<CallId, Call>,
}

/// How many calls that are done or given up are remembered, for answers that come late.
const REMEMBERED_MAX: usize = 400;

impl Calls {
    /// Calls of the client with this number: no other uses the same ids.
    pub(super) fn new(client: u32) -> Calls {
        Calls { next: u64::from(client) << 32, calls: BTreeMap::new() }
    }

    /// A number that no call has.
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

    /// Another call of the same request. The first is not sent again, but may be answered yet.
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

    /// The next one to be sent by `now`.
    pub(super) fn due(&self, now: u64) -> Option<CallId> {
        self.calls.values().find(|call| call.is_open() && call.next_try <= now).map(|call| call.id)
    }

    /// When the next one must be sent.
    pub(super) fn next_try(&self) -> u64 {
        self.calls.values().filter(|call| call.is_open()).map(|call| call.next_try).min().unwrap_or(u64::MAX)
    }

    /// A connection broke: whoever waits there asks again.
    pub(super) fn ask_again_on(&mut self, lane: Lane, now: u64, rng: &mut Rng) {
        for call in self.calls.values_mut().filter(|call| call.lane == lane && call.attempts > 0) {
            call.ask_again(now, 100_000, rng);
        }
    }

    /// Whoever vanished asks again now.
    pub(super) fn come_back(&mut self) {
        let away = |call: &&mut Call| call.lane != Lane::Session && call.attempts > 0 && call.is_open();
        self.calls.values_mut().filter(away).for_each(|call| call.next_try = 0);
    }

    /// Whether any must still be answered.
    pub(super) fn any_open(&self) -> bool {
        self.calls.values().any(Call::is_open)
    }

    /// Forgets a call that was never sent.
    pub(super) fn drop_unsent(&mut self, id: CallId) {
        self.calls.retain(|_, call| call.id != id || call.attempts > 0);
    }

    /// The client's session is over: what was not sent is never sent, the rest is asked for by nobody.
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

/// Tells the servers which answers the client has.
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
