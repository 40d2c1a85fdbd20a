//! A task of a client: one owner at a time, with what it holds and awaits.
//!
//! Invariant: a task has at most one step under way, and counts as held only what it was told is granted and has not
//! asked to release. Not here: choosing and taking the steps (`work`).

use super::plan::Plan;
use tollgate_check::{CallId, Outcome};
use tollgate_types::{GroupId, Mode, Names, Owner, Seq, Token};

/// A task, which does one thing at a time under the client's lease.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) step: Step,
    /// Local time at which to look at the task again.
    pub(super) next_at: u64,
    pub(super) grants: Vec<Grant>,
    /// Owner of the task's requests until it holds nothing again.
    pub(super) owner: Owner,
}

/// Step of a task.
#[derive(Debug)]
pub(super) enum Step {
    /// Rests before the next step.
    Resting,
    /// Requests locks.
    Locking(Box<Locking>),
    /// Requests another mode of the grant at this index.
    Converting { call: CallId, grant: usize },
    /// Releases some names of the last grant.
    Unlocking { call: CallId, names: Names },
    /// Reads, writes a register, or releases with a stale token.
    Asking { call: CallId },
}

/// A request for locks under way.
#[derive(Debug)]
pub(super) struct Locking {
    pub(super) call: CallId,
    pub(super) seq: Seq,
    pub(super) plan: Plan,
    pub(super) cancel: Cancel,
    /// True if the task hung up and was told that others want the claim.
    pub(super) left: bool,
    /// Number of attempts by the first connection, before the task moved to another.
    pub(super) attempts_before: u32,
    /// The answer, kept while that of the cancel is still to come, and the local time at which the call was first sent.
    pub(super) answer: Option<(Option<Outcome>, u64)>,
}

/// Cancel of a wait, as far as it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cancel {
    /// The task has not asked for a cancel.
    No,
    /// The cancel is sent.
    Asked,
    /// The cancel was answered; the outcome is none if it can't be known.
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
    /// Local time at which the max hold ends the grant, if it has one.
    pub(super) until: Option<u64>,
}

/// A writer that goes on although the lock is lost.
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

    /// Starts the task anew: its session is over, and with it everything that the task held and awaited.
    pub(super) fn restart(&mut self, now: u64) {
        *self = Task::new(now);
    }

    /// Returns true if the task holds nothing and awaits nothing.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.step, Step::Resting) && self.grants.is_empty()
    }

    /// Takes a step. A step under way ends with an answer, not with time; the task is looked at again at `next_at`.
    pub(super) fn take_step(&mut self, step: Step, next_at: u64) {
        (self.step, self.next_at) = (step, next_at);
    }
}

impl Cancel {
    /// Returns true if a grant stays with its holder. A cancel without a known outcome leaves the grant alone.
    pub(super) fn leaves_grant(&self) -> bool {
        match self {
            Cancel::No | Cancel::Answered(None | Some(Outcome::Granted { .. })) => true,
            Cancel::Asked | Cancel::Answered(Some(_)) => false,
        }
    }
}
