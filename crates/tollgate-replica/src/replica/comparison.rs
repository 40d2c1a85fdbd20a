//! Replicas compare their states now and then: the same entries must have made the same state (P12).
//!
//! A leader names an index that the log has not reached yet. Every replica that hears of it in time takes a snapshot,
//! which is a few pointers, when it has applied that entry, and has it hashed beside the turns. The leader tells the
//! others its hash and each of them tells the leader its own, so that both know if they differ. Invariant: at most one
//! hash is under way on a replica, and a leader asks for one at most every `compare_ms`. What is lost on the way is not
//! asked for again: the next comparison comes. Not here: what is done about a difference (`tollgate-node`;
//! docs/decisions/0013).

use super::Replica;
use crate::frame::Part;
use crate::moment::Moment;
use crate::output::HostEvent;
use crate::planted::Bug;
use crate::storage::Job;
use crate::turn::Turn;
use std::collections::BTreeMap;
use tollgate_types::NodeId;

/// What a replica knows of its own state's hash and the leader's.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// When this replica last asked for one, as the leader.
    asked: Option<Moment>,
    /// The state is hashed behind this entry.
    at: Option<u64>,
    hashing: bool,
    /// The newest hash here, and the entry behind which it was taken.
    own: Option<(u64, u64)>,
    /// The newest that peers have told: the leader if this replica follows, the followers if it leads.
    told: BTreeMap<NodeId, (u64, u64)>,
}

impl Replica {
    /// The leader names the next entry as the one to compare behind. Before that entry is sent: on the way to a peer
    /// nothing overtakes.
    pub(super) fn ask_comparison(&mut self, turn: &mut Turn) {
        let due =
            self.comparison.asked.is_none_or(|asked| turn.now >= asked.after_ms(turn.config.compare_ms));
        if !due || !self.serves() {
            return;
        }
        self.comparison.asked = Some(turn.now);
        let index = self.raw.raft.raft_log.last_index() + 1;
        self.comparison.at = Some(index);
        self.tell_others(&Part::CompareAt { group: self.group, index }, turn);
    }

    fn tell_others(&self, part: &Part, turn: &mut Turn) {
        for peer in self.members.all() {
            if peer != self.node && !self.members.witnesses.contains(&peer) {
                turn.send(peer, part);
            }
        }
    }

    /// A leader names an entry.
    pub(crate) fn compare_at(&mut self, leader: NodeId, index: u64) {
        if self.seen.leader == Some(leader) && index > self.applied {
            self.comparison.at = Some(index);
        }
    }

    /// An entry was applied.
    pub(super) fn hash_if_asked(&mut self, turn: &mut Turn) {
        if self.comparison.at != Some(self.applied) {
            return;
        }
        self.comparison.at = None;
        if let Some(state) = self.state.as_ref().filter(|_| !self.comparison.hashing) {
            self.comparison.hashing = true;
            let (index, snapshot) = (self.applied, Box::new(state.snapshot()));
            turn.out.jobs.push(Job::Hash { group: self.group, index, snapshot });
        }
    }

    /// The state behind an entry was hashed.
    pub(super) fn hashed(&mut self, index: u64, hash: u64, turn: &mut Turn) {
        self.comparison.hashing = false;
        self.comparison.own = Some((index, hash));
        let part = Part::StateHash { group: self.group, index, hash };
        if turn.planted.is(Bug::HashKeptBack) {
            // As if nobody had asked.
        } else if self.leads() {
            self.tell_others(&part, turn);
        } else if let Some(leader) = self.seen.leader {
            turn.send(leader, &part);
        }
        for (peer, (theirs_at, theirs)) in std::mem::take(&mut self.comparison.told) {
            self.peer_hashed(peer, theirs_at, theirs, turn);
        }
    }

    /// A peer tells the hash of its state; one of the two leads, as far as this replica knows.
    pub(crate) fn peer_hashed(&mut self, peer: NodeId, index: u64, theirs: u64, turn: &mut Turn) {
        let leads = self.leads();
        if !self.members.contains(peer) || !(leads || self.seen.leader == Some(peer)) {
            return;
        }
        match self.comparison.own {
            Some((own_at, ours)) if own_at == index => turn.event(if ours == theirs {
                HostEvent::StateAgrees { group: self.group, index, peer }
            } else {
                HostEvent::StateDiverged { group: self.group, index, leads, ours, peer, theirs }
            }),
            // Its own is on the way, or was never asked for.
            own if own.is_none_or(|(own_at, _)| own_at < index) => {
                self.comparison.told.insert(peer, (index, theirs));
            }
            _ => {}
        }
    }
}
