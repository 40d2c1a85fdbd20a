//! Comparison of the replicas' states: the same entries must have made the same state (P12).
//!
//! A leader names an index that the log has not reached yet. Every replica that receives the name in time takes a
//! snapshot, which is a few pointers, when it has applied that entry, and has the snapshot hashed outside of the turns.
//! The leader sends its hash to the others and each of them sends its own to the leader, so that both know if they
//! differ. Invariant: at most one hash is under way on a replica, and a leader starts a comparison at most every
//! `compare_ms`. Lost messages are not repeated: the next comparison follows. Not here: the reaction to a difference
//! (`tollgate-node`; docs/decisions/0013).

use super::Replica;
use crate::frame::Part;
use crate::monotonic_time::MonotonicTime;
use crate::output::HostEvent;
use crate::planted::Bug;
use crate::storage::Job;
use crate::turn::Turn;
use std::collections::BTreeMap;
use tollgate_types::NodeId;

/// A replica's hashes of its own state and of its peers' states.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Time at which this replica, as the leader, last started a comparison.
    asked: Option<MonotonicTime>,
    /// Index of the entry after which the state is to be hashed.
    at: Option<u64>,
    hashing: bool,
    /// The newest hash of the own state, after the index of its last entry.
    own: Option<(u64, u64)>,
    /// The newest hashes from peers, with indexes: from the leader if this replica follows, from the followers if it
    /// leads.
    told: BTreeMap<NodeId, (u64, u64)>,
}

impl Replica {
    /// Starts a comparison, as the leader, at the next entry. The message is sent before that entry: messages to a peer
    /// don't overtake each other.
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

    /// Handles a leader's request to hash the state after an entry.
    pub(crate) fn compare_at(&mut self, leader: NodeId, index: u64) {
        if self.seen.leader == Some(leader) && index > self.applied {
            self.comparison.at = Some(index);
        }
    }

    /// Starts the hash of the state if it was requested after the entry just applied.
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

    /// Handles the hash of the state after an entry.
    pub(super) fn hashed(&mut self, index: u64, hash: u64, turn: &mut Turn) {
        self.comparison.hashing = false;
        self.comparison.own = Some((index, hash));
        let part = Part::StateHash { group: self.group, index, hash };
        if turn.planted.is(Bug::HashKeptBack) {
            // Nothing is sent, as if no comparison had been requested.
        } else if self.leads() {
            self.tell_others(&part, turn);
        } else if let Some(leader) = self.seen.leader {
            turn.send(leader, &part);
        }
        for (peer, (theirs_at, theirs)) in std::mem::take(&mut self.comparison.told) {
            self.peer_hashed(peer, theirs_at, theirs, turn);
        }
    }

    /// Handles the hash of a peer's state; one of the two replicas leads, as far as this one knows.
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
            // The own hash is under way, or was never requested.
            own if own.is_none_or(|(own_at, _)| own_at < index) => {
                self.comparison.told.insert(peer, (index, theirs));
            }
            _ => {}
        }
    }
}
