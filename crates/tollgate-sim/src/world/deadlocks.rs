//! Breaks deadlocks over groups, as the server beside the leader of group 0 does: asks every group for its waits, then
//! asks once more, and ends waits that were found stuck both times.
//!
//! Each group is asked by a linearizable read at its leader, so that the second pass sees nothing from before the end
//! of the first. A pass that is not finished when the next search is due is given up. Not here: the search itself
//! (`tollgate_core::find_deadlocks`), and the check that all deadlocks are found and broken in time (`stuck`).

use super::operator::IDS_FROM;
use super::{Happening, World};
use crate::node::Input;
use crate::types::At;
use std::collections::BTreeMap;
use tollgate_core::{Command, WaitEdges, find_deadlocks};
use tollgate_replica::{ProposalId, ReadId, ReadReply};
use tollgate_types::GroupId;

/// Interval between two searches.
const EVERY_US: At = 1_000_000;
/// Maximum number of waits ended by one search, and of claims that a group looks at for it.
const VICTIMS_MAX: usize = 16;
const VISITS_MAX: u64 = 10_000;
/// First of the ids used here, apart from the ids of the operator and of the last reads.
const OWN_IDS: u64 = IDS_FROM + (1 << 32);

type Pass = BTreeMap<GroupId, WaitEdges>;

/// Progress of a search.
#[derive(Default)]
pub(super) struct DeadlockWatch {
    next_id: u64,
    /// Reads of this pass that are not answered yet, with their groups.
    asked: BTreeMap<ReadId, GroupId>,
    first: Option<Pass>,
    pass: Pass,
}

impl World {
    /// Starts the searches, if there are several groups.
    pub(super) fn begin_deadlock_watch(&mut self) {
        if self.scenario.groups > 1 {
            self.plan(EVERY_US, Happening::WatchDeadlocks);
        }
    }

    pub(super) fn watch_deadlocks(&mut self) {
        self.plan(self.now + EVERY_US, Happening::WatchDeadlocks);
        self.look_for_circles();
        self.deadlocks.first = None;
        self.ask_for_waits();
    }

    fn ask_for_waits(&mut self) {
        self.deadlocks.asked.clear();
        self.deadlocks.pass.clear();
        for group in self.groups() {
            let Some((leader, _)) = self.leader_of(group) else { continue };
            let read = ReadId(self.fresh_deadlock_id());
            self.deadlocks.asked.insert(read, group);
            self.give(leader, Input::Read(group, read));
        }
    }

    fn fresh_deadlock_id(&mut self) -> u64 {
        self.deadlocks.next_id += 1;
        OWN_IDS + self.deadlocks.next_id
    }

    /// Takes in the reads of a node that belong to the search.
    pub(super) fn waits_read(&mut self, number: u64, reads: &[ReadReply]) {
        for reply in reads {
            let Some(group) = self.deadlocks.asked.remove(&reply.read) else { continue };
            let process = self.nodes[&number].process.as_ref();
            let state =
                process.and_then(|process| process.host.state(group)).filter(|_| reply.result.is_ok());
            let Some(edges) = state.map(|state| state.wait_edges(VISITS_MAX)) else { continue };
            self.deadlocks.pass.insert(group, edges);
            self.pass_goes_on();
        }
    }

    /// Once every group has answered, begins the second pass, or compares both passes.
    fn pass_goes_on(&mut self) {
        if self.deadlocks.pass.len() < self.scenario.groups as usize {
            return;
        }
        let pass = std::mem::take(&mut self.deadlocks.pass);
        let Some(first) = self.deadlocks.first.take() else {
            let somebody = pass.values().any(|edges| !edges.waits.is_empty());
            self.deadlocks.first = Some(pass);
            if somebody {
                self.ask_for_waits();
            }
            return;
        };
        for victim in find_deadlocks(&first, &pass, VICTIMS_MAX) {
            let Some((leader, _)) = self.leader_of(victim.group) else { continue };
            self.say(|| format!("deadlock: {victim:?}"));
            self.stats.deadlocks_over_groups += 1;
            let proposal = ProposalId(self.fresh_deadlock_id());
            self.give(leader, Input::Propose(victim.group, proposal, Command::EndDeadlock(victim.end)));
        }
    }
}
