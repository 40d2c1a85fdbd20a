//! The settings of a host, as plain numbers; `validate` names the first rule that they break.

use crate::log_entry::COMMAND_BYTES_MAX;
use tollgate_core::Noting;
use tollgate_types::{ClusterId, NodeId};

/// Settings of a host, shared by all of its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    /// The cluster; frames of other clusters are refused.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// Interval of heartbeats, and the unit of the election timeout.
    pub heartbeat_ms: u64,
    /// A follower that hears nothing from a leader for this long, or up to twice this long, asks for votes.
    pub election_timeout_ms: u64,
    /// Least time between two campaigns that begin because a connection broke; doubles up to the election timeout. At
    /// least four times the sum of round trip and fsync.
    pub failover_ms: u64,
    /// While a deadline is pending, a leader lets no more than this pass without an entry that carries the time.
    pub tick_ms: u64,
    /// Log time advances at most this much in one turn; the rest is dropped for good.
    pub log_time_step_max_ms: u64,
    /// Followers learn the commit index with the entries that follow, or once none have followed for this long.
    pub commit_told_ms: u64,
    /// Proposals are gathered while fewer of them are gathered than are in flight, but for no longer than this: an
    /// entry has its cost in messages and fsyncs, whatever its size. Proposals don't wait while nothing is in flight.
    pub gather_ms: u64,
    /// Commands that are proposed together are packed into entries of about this size.
    pub entry_bytes_max: usize,
    /// Entries are packed into messages of about this size.
    pub message_bytes_max: u64,
    /// Append messages in flight to one follower.
    pub messages_in_flight_max: usize,
    /// Bytes proposed but not committed; beyond this, proposals are refused.
    pub uncommitted_bytes_max: u64,
    /// Proposals accepted but not answered, per group; beyond this, proposals are refused.
    pub proposals_max: usize,
    /// Reads accepted but not answered, per group; beyond this, reads are refused.
    pub reads_max: usize,
    /// A read that is unanswered for this long is sent again.
    pub read_retry_ms: u64,
    /// A read that is unanswered for this long fails.
    pub read_timeout_ms: u64,
    /// A snapshot is taken when the log since the last one is about as big as this or as the last snapshot, whichever
    /// is more, but at most twice this (each replica draws its own share, from three quarters upwards)...
    pub snapshot_log_bytes: u64,
    /// ...or has entries this old.
    pub snapshot_age_ms: u64,
    /// After a snapshot, this much of the log before it is kept, for followers that are slightly behind.
    pub log_kept_bytes: u64,
    /// Size of the chunks in which snapshots are sent.
    pub chunk_bytes: u32,
    /// Snapshot chunks in flight to one peer.
    pub chunks_in_flight_max: u32,
    /// A snapshot transfer that makes no progress for this long is aborted.
    pub transfer_timeout_ms: u64,
    /// Least interval between two comparisons of the states of a group's replicas.
    pub compare_ms: u64,
    /// Interval at which a group asks the homes of its stubs whether their leases are alive.
    pub audit_ms: u64,
    /// Approximate interval at which a node that leads many groups checks whether to hand one over; 0 turns balancing
    /// off.
    pub balance_ms: u64,
    /// A wait that only single callers asked for ends once no caller has attended it for this long.
    pub unattended_ms: u64,
    /// A learner at most this many entries behind may be promoted.
    pub promote_behind_max: u64,
    /// The newest apply version that this binary announces. In production always the core's.
    pub apply_version: u32,
    /// Events of locks that are recorded while this node leads.
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

    /// Returns the first rule that the settings break.
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
