//! A task of a client: one owner at a time, and what it holds and awaits.
//!
//! Invariant: a task has at most one step under way, and counts as held only what it was told is granted and has not
//! asked to give back. Not here: choosing and taking the steps (`work`).

use super::plan::Plan;
use tollgate_check::{CallId, Outcome};
use tollgate_types::{GroupId, Mode, Names, Owner, Seq, Token};

/// One thing at a time, under the client's lease.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) step: Step,
    /// When to look at it again.
    pub(super) next_at: u64,
    pub(super) grants: Vec<Grant>,
    /// As whom it asks until it holds nothing again.
    pub(super) owner: Owner,
}

/// What a task is about.
#[derive(Debug)]
pub(super) enum Step {
    /// Thinks about what to do next.
    Resting,
    /// Asks for locks.
    Locking(Box<Locking>),
    /// Asks for another mode of the grant in this place.
    Converting { call: CallId, grant: usize },
    /// Gives back some names of its last grant.
    Unlocking { call: CallId, names: Names },
    /// Reads, or writes a register.
    Asking { call: CallId },
}

/// A request for locks under way.
#[derive(Debug)]
pub(super) struct Locking {
    pub(super) call: CallId,
    pub(super) seq: Seq,
    pub(super) plan: Plan,
    pub(super) cancel: Cancel,
    /// Whether it hung up and was told that others want it.
    pub(super) left: bool,
    /// How often it was sent by the connection that it came by first.
    pub(super) attempts_before: u32,
    /// The answer, if the cancel's is still to come, and when the call was first sent.
    pub(super) answer: Option<(Option<Outcome>, u64)>,
}

/// Whether the task wants its wait to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cancel {
    /// No.
    No,
    /// It has said so.
    Asked,
    /// And was told what became of it; nothing if that was not to be learned.
    Answered(Option<Outcome>),
}

/// Locks that a task holds, as far as it knows.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) names: Names,
    pub(super) group: GroupId,
    pub(super) owner: Owner,
    pub(super) token: Token,
    pub(super) mode: Mode,
    /// When its max hold ends it, on the client's own clock, if it has one.
    pub(super) until: Option<u64>,
}

/// Somebody who goes on writing though the lock is lost.
#[derive(Debug)]
pub(super) struct Zombie {
    pub(super) grant: Grant,
    pub(super) writes_left: u32,
    pub(super) next_at: u64,
}

impl Task {
    pub(super) fn new(next_at: u64) -> Task {
        Task { step: Step::Resting, next_at, grants: Vec::new(), owner: Owner::LEASE }
    }

    /// Its session is over, and with it all that it holds and awaits.
    pub(super) fn restart(&mut self, now: u64) {
        *self = Task::new(now);
    }

    /// Whether it holds nothing and awaits nothing.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.step, Step::Resting) && self.grants.is_empty()
    }

    /// Steps under way end with an answer, not with time: look again at `next_at`.
    pub(super) fn take_step(&mut self, step: Step, next_at: u64) {
        (self.step, self.next_at) = (step, next_at);
    }
}

impl Cancel {
    /// Whether a grant stays with its holder. A cancel that could not be told of its target leaves the grant alone.
    pub(super) fn leaves_grant(&self) -> bool {
        match self {
            Cancel::No | Cancel::Answered(None | Some(Outcome::Granted { .. })) => true,
            Cancel::Asked | Cancel::Answered(Some(_)) => false,
        }
    }
}
