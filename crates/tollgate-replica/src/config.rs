//! The settings of a host. Plain numbers; `validate` says what is wrong with them, one sentence a rule.

use crate::log_entry::COMMAND_BYTES_MAX;
use tollgate_core::Noting;
use tollgate_types::{ClusterId, NodeId};

/// How a host behaves. All groups of a host share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// The cluster; frames of another are refused.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// Interval of heartbeats, and the unit of the election timeout.
    pub heartbeat_ms: u64,
    /// A follower that hears nothing from a leader for this long, up to twice this long, asks for votes.
    pub election_timeout_ms: u64,
    /// Least time between two campaigns begun because a connection broke; doubles up to the election timeout. At
    /// least four times round trip plus fsync.
    pub failover_ms: u64,
    /// While a deadline is pending, a leader lets no more than this pass without an entry that carries the time.
    pub tick_ms: u64,
    /// Log time advances at most this much in one turn; the rest is dropped for good.
    pub log_time_step_max_ms: u64,
    /// Followers are told what is committed with the entries that follow, or when none have followed for this long.
    pub commit_told_ms: u64,
    /// What is proposed is gathered while less of it has come than is on its way, but for no longer than this: an entry
    /// has its price in messages and fsyncs, whatever is in it. Where nothing is on its way nothing waits.
    pub gather_ms: u64,
    /// Commands that are proposed together are packed into entries of about this size.
    pub entry_bytes_max: usize,
    /// Entries are packed into messages of about this size.
    pub message_bytes_max: u64,
    /// Append messages on their way to one follower.
    pub messages_in_flight_max: usize,
    /// Bytes proposed and not committed; past this, proposals are refused.
    pub uncommitted_bytes_max: u64,
    /// Proposals taken and not answered, per group; past this, proposals are refused.
    pub proposals_max: usize,
    /// Reads taken and not answered, per group; past this, reads are refused.
    pub reads_max: usize,
    /// A read unanswered for this long is asked again.
    pub read_retry_ms: u64,
    /// A read unanswered for this long fails.
    pub read_timeout_ms: u64,
    /// A snapshot is taken when the log since the last one is about this big, or as big as that one was, but at most
    /// twice this (three quarters of it, or more: each replica draws its part)...
    pub snapshot_log_bytes: u64,
    /// ...or has entries this old.
    pub snapshot_age_ms: u64,
    /// After a snapshot, this much of the log before it is kept for followers that are a little behind.
    pub log_kept_bytes: u64,
    /// Size of the pieces in which snapshots travel.
    pub chunk_bytes: u32,
    /// Pieces on their way to one peer.
    pub chunks_in_flight_max: u32,
    /// A snapshot transfer without progress for this long is given up.
    pub transfer_timeout_ms: u64,
    /// How often the replicas of a group compare their states, at most.
    pub compare_ms: u64,
    /// How often a group asks the homes of its stubs whether they live.
    pub audit_ms: u64,
    /// How often a node that leads many groups looks whether another should lead one of them, about; 0 never does.
    pub balance_ms: u64,
    /// A single caller's wait that nobody has stood by for this long ends.
    pub unattended_ms: u64,
    /// A learner at most this many entries behind may be promoted.
    pub promote_behind_max: u64,
    /// The newest apply version that this binary announces. In production always the core's.
    pub apply_version: u32,
    /// What is noted, where this node leads, of what happens to locks.
    pub noting: Noting,
}

impl HostConfig {
    /// The settings of a server in one region.
    pub fn new(cluster: ClusterId, node: NodeId) -> HostConfig {
        HostConfig {
            cluster,
            node,
            heartbeat_ms: 100,
            election_timeout_ms: 1_000,
            failover_ms: 150,
            tick_ms: 250,
            log_time_step_max_ms: 500,
            commit_told_ms: 1,
            gather_ms: 2,
            entry_bytes_max: 64 << 10,
            message_bytes_max: 1 << 20,
            messages_in_flight_max: 64,
            uncommitted_bytes_max: 16 << 20,
            proposals_max: 64 << 10,
            reads_max: 64 << 10,
            read_retry_ms: 200,
            read_timeout_ms: 5_000,
            snapshot_log_bytes: 32 << 20,
            snapshot_age_ms: 10 * 60 * 1_000,
            log_kept_bytes: 8 << 20,
            chunk_bytes: 256 << 10,
            chunks_in_flight_max: 4,
            transfer_timeout_ms: 10_000,
            compare_ms: 60_000,
            audit_ms: 30_000,
            balance_ms: 1_000,
            unattended_ms: 10_000,
            promote_behind_max: 1_000,
            apply_version: tollgate_core::APPLY_VERSION_SUPPORTED,
            noting: Noting::Losses,
        }
    }

    /// The first rule that the settings break.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let rules = [
            (self.heartbeat_ms > 0, "heartbeat_ms must be above 0"),
            (
                self.election_timeout_ms >= 3 * self.heartbeat_ms,
                "election_timeout_ms must be at least 3 heartbeat_ms, or one lost heartbeat unseats a leader",
            ),
            (self.failover_ms > 0, "failover_ms must be above 0"),
            (self.tick_ms > 0, "tick_ms must be above 0"),
            (
                self.tick_ms <= self.log_time_step_max_ms,
                "tick_ms must be at most log_time_step_max_ms, or log time can't keep up",
            ),
            (self.entry_bytes_max > 0, "entry_bytes_max must be above 0"),
            (
                self.message_bytes_max <= COMMAND_BYTES_MAX as u64,
                "message_bytes_max must be at most 16 MiB, or peers cut the connection that it comes on",
            ),
            (
                self.uncommitted_bytes_max >= self.message_bytes_max,
                "uncommitted_bytes_max must be at least message_bytes_max",
            ),
            (self.messages_in_flight_max > 0, "messages_in_flight_max must be above 0"),
            (self.proposals_max > 0, "proposals_max must be above 0"),
            (self.reads_max > 0, "reads_max must be above 0"),
            (self.chunk_bytes > 0 && self.chunk_bytes <= 4 << 20, "chunk_bytes must be from 1 to 4 MiB"),
            (self.chunks_in_flight_max > 0, "chunks_in_flight_max must be above 0"),
            (self.compare_ms > 0, "compare_ms must be above 0"),
            (self.audit_ms > 0, "audit_ms must be above 0"),
            (
                self.unattended_ms >= self.heartbeat_ms,
                "unattended_ms must be at least heartbeat_ms, or callers can't find the way to a new leader",
            ),
            (self.read_retry_ms <= self.read_timeout_ms, "read_retry_ms must be at most read_timeout_ms"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(InvalidConfig(rule)),
            None => Ok(()),
        }
    }
}

/// Settings that can't work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfig(&'static str);
