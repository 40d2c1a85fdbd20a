//! What a node measures of itself. Whoever exports it implements this; a node without one measures nothing.

use std::time::Duration;
use tollgate_core::EndReason;
use tollgate_replica::HostEvent;

/// Told by the node's own threads as it happens: count it and return.
pub trait Meter: Send + Sync {
    /// A turn was taken, with so many inputs.
    fn turn(&self, inputs: usize);
    /// A write became durable, so long after it was begun. Waits for room on a full disk don't count.
    fn fsync(&self, took: Duration);
    /// An entry of so many commands, which this node proposed, was committed and applied.
    fn committed(&self, commands: usize, took: Duration);
    /// A lease ended; told on the leader of its group only.
    fn lease_ended(&self, reason: EndReason);
    /// Something happened in the host.
    fn event(&self, event: &HostEvent);
    /// Requests answered busy without an entry since the last time, and those that went through the log after all.
    fn fast_answers(&self, hits: u64, misses: u64);
    /// Callers and watches that wait now.
    fn waiting(&self, parked: usize, watches: usize);
}

/// Measures nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoMeter;

impl Meter for NoMeter {
    fn turn(&self, _: usize) {}
    fn fsync(&self, _: Duration) {}
    fn committed(&self, _: usize, _: Duration) {}
    fn lease_ended(&self, _: EndReason) {}
    fn event(&self, _: &HostEvent) {}
    fn fast_answers(&self, _: u64, _: u64) {}
    fn waiting(&self, _: usize, _: usize) {}
}
