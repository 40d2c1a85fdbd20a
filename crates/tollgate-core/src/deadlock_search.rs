//! Finds deadlocks over several groups, from the wait edges that each group reports (`State::wait_edges`).
//!
//! A pass asks every group, one after the other, so its result was never true at one moment. A second pass that begins
//! after the first has ended makes up for that: a wait is identified by its create revision and a grant by its token,
//! neither comes back, and the mode of a grant only weakens under one token. So an edge that both passes saw existed
//! all the time between them, and a cycle of such edges existed at one moment: a deadlock, which does not go away by
//! waiting.
//!
//! Invariant: memory is bounded by the groups' reports, and nothing here recurses. Not here: asking the groups, and
//! ending the wait, which is again conditional on the edges that were seen (`Command::EndDeadlock`).

mod graph;

use crate::command::EndDeadlock;
use crate::reply::CycleStep;
use graph::Graph;
use std::collections::BTreeMap;
use tollgate_types::{GroupId, LeaseId, Mode, Name, Owner, Revision, Token};

/// A thread of control, identified alike in every group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// Lease of the owner.
    pub lease: LeaseId,
    /// Revision of the home group at which the lease was granted: tells it from an earlier lease with the same id.
    pub incarnation: Revision,
    /// The owner inside the lease.
    pub owner: Owner,
}

/// The wait edges that one group reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitEdges {
    /// Waits in order of create revision.
    pub waits: Vec<BlockedWait>,
    /// True if the report reached its bound: some waits, or some of their blockers, are left out.
    pub truncated: bool,
}

/// A wait and its blockers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedWait {
    /// Owner of the wait.
    pub who: Who,
    /// Lock that the wait is for; one of them if there are several.
    pub name: Name,
    /// Mode that the wait is for.
    pub mode: Mode,
    /// Revision that identifies the wait in its group.
    pub create_revision: Revision,
    /// The wait ends only after each of these is gone.
    pub blockers: Vec<Blocker>,
}

/// A grant or an earlier wait in the way of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Owner of the grant or of the earlier wait.
    pub who: Who,
    /// Lock on which it is in the way, one of the locks that the wait is for.
    pub name: Name,
    /// The grant or the place in the queue.
    pub by: BlockedBy,
}

/// Way in which an owner blocks a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedBy {
    /// The owner holds the lock, with this token, in a mode that keeps the wait out.
    Grant(Token),
    /// The owner waits ahead in the queue, and must be granted first.
    Ahead {
        /// Revision that identifies the earlier wait.
        create_revision: Revision,
        /// True if the owner will then hold the lock in a mode that keeps the wait out.
        excludes: bool,
    },
}

/// A wait whose end breaks a deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// Group of the wait.
    pub group: GroupId,
    /// Command that ends the wait, if nothing has changed since.
    pub end: EndDeadlock,
    /// The cycle of waits over groups, from the victim round to itself.
    pub cycle: Vec<CycleStep>,
}

/// Returns the deadlocks that both passes saw, at most `victims_max` of them: for each, the wait to end. The second
/// pass must have begun after the first had ended.
///
/// Of the waits in a knot of cycles the youngest ends: the wait with the highest group and, in it, the highest create
/// revision, because create revisions of different groups can't be compared. A victim has a named owner, and a grant is
/// in its way. A cycle of places in queues alone is not broken, because the holders of those locks may go on, and then
/// there is a grant.
pub fn find_deadlocks(
    first: &BTreeMap<GroupId, WaitEdges>,
    second: &BTreeMap<GroupId, WaitEdges>,
    victims_max: usize,
) -> Vec<Victim> {
    let mut graph = Graph::new(first, second);
    let mut victims = Vec::new();
    while victims.len() < victims_max
        && let Some((wait, victim)) = graph.youngest_victim()
    {
        graph.remove(wait);
        victims.push(victim);
    }
    victims
}

#[cfg(test)]
mod tests;
