//! Counts of what happened to clients: a run without violations says little if these are small.

/// Counts over all clients of a world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Calls made, keepalives included.
    pub calls: u64,
    /// Calls answered for good.
    pub answers: u64,
    /// Answers to twins: programs that used a seq again.
    pub twins: u64,
    /// Attempts sent again.
    pub retries: u64,
    /// Answers to a call beyond its first.
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
    /// Leases that the servers said had ended.
    pub expired: u64,
    /// Locks granted.
    pub grants: u64,
    /// Requests that queued at their first attempt.
    pub queued: u64,
    /// Locks released.
    pub releases: u64,
    /// Releases refused because of a stale token.
    pub stale_refused: u64,
    /// Requests that found the lock busy and did not wait.
    pub busy: u64,
    /// Waits that timed out.
    pub timeouts: u64,
    /// Callers that hung up.
    pub hang_ups: u64,
    /// Callers that hung up while another caller of the same request stayed.
    pub moves: u64,
    /// Callers whose connection broke and that stayed away for long.
    pub vanished: u64,
    /// Waits cancelled.
    pub cancels: u64,
    /// Requests refused, or ended in the queue, because of a deadlock.
    pub deadlocks: u64,
    /// Modes changed.
    pub converts: u64,
    /// Forced releases of locks.
    pub forced: u64,
    /// Requests refused for other reasons.
    pub refused: u64,
    /// Requests repeated because the lease's home had not confirmed its stub.
    pub stubs_pending: u64,
    /// Stubs added.
    pub stubs: u64,
    /// Writes with a token that a store accepted.
    pub writes: u64,
    /// Writes of holders that believed in their grant, refused by a store all the same: strict stores refuse some, and
    /// after a forced release other stores do too.
    pub believers_refused: u64,
    /// Writes of clients that had lost their lock, accepted by a store.
    pub zombie_writes_taken: u64,
    /// Writes of clients that had lost their lock, refused by a store.
    pub zombie_writes_refused: u64,
    /// Registers written.
    pub puts: u64,
    /// Linearizable reads answered.
    pub reads: u64,
    /// Changes that watches delivered.
    pub watched: u64,
    /// Watches from now on that were told their first revision.
    pub watches_begun: u64,
    /// Batches of a watch that did not follow the batch before.
    pub watch_gaps: u64,
    /// Watches told that history was gone.
    pub compacted: u64,
}
