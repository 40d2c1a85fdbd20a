//! Finds deadlocks over several groups in what each of them tells of its waits (`State::wait_edges`).
//!
//! A pass asks every group, one after the other, so what it gathers never was true at one moment. A second pass that
//! begins after the first has ended makes up for that: a wait is known by its create revision and a grant by its token,
//! neither comes back, and the mode of a grant only weakens under one token. So what both passes saw was true all the
//! time between them, and a cycle of it stood at one moment: a deadlock, which does not go away by waiting.
//!
//! Bounded by what the groups tell; nothing here recurses. Not here: who asks the groups, and the end of the wait,
//! which is again conditional on what was seen (`Command::EndDeadlock`).

mod graph;

use crate::command::EndDeadlock;
use crate::reply::CycleStep;
use graph::Graph;
use std::collections::BTreeMap;
use tollgate_types::{GroupId, LeaseId, Mode, Name, Owner, Revision, Token};

/// A thread of control, the same in every group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// Its lease...
    pub lease: LeaseId,
    /// ...of which there may have been another with the same id: the revision, in its home, at its grant.
    pub incarnation: Revision,
    /// The owner inside the lease.
    pub owner: Owner,
}

/// What one group tells of its waits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitEdges {
    /// In order of create revision.
    pub waits: Vec<BlockedWait>,
    /// There is more than one look may see: some waits, or some of what is in their way, are left out.
    pub truncated: bool,
}

/// A wait, and what is in its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedWait {
    /// Who waits.
    pub who: Who,
    /// For what; of several names, one.
    pub name: Name,
    /// In which mode.
    pub mode: Mode,
    /// By which the wait is known in its group.
    pub create_revision: Revision,
    /// The wait ends only after each of these is gone.
    pub blockers: Vec<Blocker>,
}

/// Something in the way of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Whose.
    pub who: Who,
    /// On which of the names that are waited for.
    pub name: Name,
    /// How.
    pub by: BlockedBy,
}

/// How somebody is in the way of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedBy {
    /// It holds the name, with this token, in a mode that keeps the wait out.
    Grant(Token),
    /// It waits ahead in the queue, and must be granted first.
    Ahead {
        /// By which that wait is known.
        create_revision: Revision,
        /// Whether it will then hold the name in a mode that keeps the wait out.
        excludes: bool,
    },
}

/// A wait whose end breaks a deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// In which group it waits.
    pub group: GroupId,
    /// What ends it, if all is as it was.
    pub end: EndDeadlock,
    /// Who waits for whom, from the victim round to itself, over groups.
    pub cycle: Vec<CycleStep>,
}

/// The deadlocks that both passes saw, at most `victims_max` of them: for each the wait to end. The second pass must
/// have begun after the first had ended.
///
/// Of the waits in a knot of cycles the youngest goes: that with the highest group and, in it, the highest create
/// revision, for those of different groups can't be compared. It is one of a named owner, and a grant is in its way: a
/// cycle of places in queues alone is not broken, because whoever holds those locks may go on, and then there is one.
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
