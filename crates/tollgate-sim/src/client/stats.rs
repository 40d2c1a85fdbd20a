//! What clients went through: a run without violations says little if these are small.

/// Counts over all clients of a world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Calls made, keepalives included.
    pub calls: u64,
    /// Calls answered for good.
    pub answers: u64,
    /// Answers to programs that used a number again.
    pub twins: u64,
    /// Attempts sent again.
    pub retries: u64,
    /// Answers of a call beyond its first.
    pub answered_again: u64,
    /// Answers treated as lost.
    pub answers_dropped: u64,
    /// Answers that named another leader.
    pub redirected: u64,
    /// Answers that left open whether the request took effect.
    pub indeterminate: u64,
    /// Leases granted.
    pub leases: u64,
    /// Keepalives acknowledged.
    pub renewals: u64,
    /// Leases that a client no longer believed in by its own clock.
    pub lapsed: u64,
    /// Leases of which the servers said that they had ended.
    pub expired: u64,
    /// Locks granted.
    pub grants: u64,
    /// Of those, the ones that queued.
    pub queued: u64,
    /// Locks given back.
    pub releases: u64,
    /// Releases refused because their token was not that of the grant.
    pub stale_refused: u64,
    /// Requests that found the lock busy and would not wait.
    pub busy: u64,
    /// Waits that timed out.
    pub timeouts: u64,
    /// Callers that hung up.
    pub hang_ups: u64,
    /// Callers that hung up while another of the same request stayed.
    pub moves: u64,
    /// Callers whose connection broke, and who did not come back for long.
    pub vanished: u64,
    /// Waits cancelled.
    pub cancels: u64,
    /// Requests refused because of a deadlock.
    pub deadlocks: u64,
    /// Modes changed.
    pub converts: u64,
    /// Locks taken away by force.
    pub forced: u64,
    /// Requests refused for other reasons.
    pub refused: u64,
    /// Requests repeated because the lease's home had not confirmed its stub.
    pub stubs_pending: u64,
    /// Stubs added.
    pub stubs: u64,
    /// Writes with a token that a store took.
    pub writes: u64,
    /// Writes of a holder that believed in its grant, which a store refused all the same: strict stores do, and after
    /// a forced release others.
    pub believers_refused: u64,
    /// Writes of clients that had lost their lock, which a store took.
    pub zombie_writes_taken: u64,
    /// Those that a store refused.
    pub zombie_writes_refused: u64,
    /// Registers written.
    pub puts: u64,
    /// Linearizable reads answered.
    pub reads: u64,
    /// Changes that watches delivered.
    pub watched: u64,
    /// Watches from now on that were told where they begin.
    pub watches_begun: u64,
    /// Batches of a watch that did not follow on the one before.
    pub watch_gaps: u64,
    /// Watches told that history was gone.
    pub compacted: u64,
}
