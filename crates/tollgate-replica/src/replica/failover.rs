//! Fast failover: a broken connection tells at once what a timeout can only guess.
//!
//! When the connection from the leader breaks and can't be reopened, a follower forgets its leader, so that it will
//! grant a vote, and asks for votes itself after a little jitter. Raft's pre-vote keeps this harmless: a node that
//! still hears the leader refuses. A witness does not campaign for this reason. The next attempt waits twice as long,
//! up to the election timeout, so that a partitioned cluster is not flooded with campaigns.

use super::Replica;
use crate::monotonic_time::MonotonicTime;
use crate::storage::ReplicaKind;
use crate::turn::Turn;
use raft::StateRole;
use tollgate_types::NodeId;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Failover {
    /// Leader whose connection broke.
    lost: Option<NodeId>,
    /// Time of the next campaign, if there is no leader until then.
    campaign_at: MonotonicTime,
    attempts: u32,
}

impl Default for Failover {
    fn default() -> Failover {
        Failover { lost: None, campaign_at: MonotonicTime::NEVER, attempts: 0 }
    }
}

impl Failover {
    pub(super) fn next_turn(&self) -> MonotonicTime {
        self.campaign_at
    }
}

impl Replica {
    pub(crate) fn connection_lost(&mut self, peer: NodeId, turn: &mut Turn) {
        if self.removed {
            return;
        }
        if self.leads() {
            self.raw.report_unreachable(peer.number());
            // Nothing is proposed during a leadership transfer, and this successor can't take over: Raft would wait for
            // an election timeout, and leases would end late.
            if self.raw.raft.lead_transferee == Some(peer.number()) {
                self.raw.raft.abort_leader_transfer();
            }
            self.observe(turn);
            return;
        }
        let follows = self.raw.raft.state == StateRole::Follower && self.seen.leader == Some(peer);
        if !follows || !self.raw.raft.promotable() {
            return;
        }
        self.raw.raft.leader_id = raft::INVALID_ID;
        self.observe(turn);
        if self.kind == ReplicaKind::Full {
            let jitter_us = turn.randomness.between(0, turn.config.failover_ms * 1_000);
            let at = MonotonicTime::from_us(turn.now.us() + jitter_us);
            self.failover = Failover { lost: Some(peer), campaign_at: at, attempts: 0 };
        }
    }

    /// Cancels a campaign after a false alarm: the leader is reachable, and its next heartbeat makes it known again.
    pub(crate) fn connection_regained(&mut self, peer: NodeId) {
        if self.failover.lost == Some(peer) {
            self.failover = Failover::default();
        }
    }

    pub(super) fn campaign_if_due(&mut self, turn: &mut Turn) {
        if turn.now < self.failover.campaign_at {
            return;
        }
        let raft = &self.raw.raft;
        let waits = raft.state == StateRole::Follower && raft.leader_id == raft::INVALID_ID;
        // Raft reads the entries between applied and committed before it campaigns; there must be none.
        let ready = raft.raft_log.applied == raft.raft_log.committed;
        if waits && ready && raft.promotable() {
            // An error only means that Raft did not campaign; a later attempt will.
            let _ = self.raw.campaign();
            self.observe(turn);
        }
        let config = &turn.config;
        let attempts = self.failover.attempts + 1;
        let wait_ms = (config.failover_ms << attempts.min(16)).min(config.election_timeout_ms);
        let at = turn.now.after_ms(wait_ms);
        let still = self.seen.leader.is_none() && wait_ms < config.election_timeout_ms;
        self.failover.campaign_at = if still { at } else { MonotonicTime::NEVER };
        self.failover.attempts = attempts;
    }
}
