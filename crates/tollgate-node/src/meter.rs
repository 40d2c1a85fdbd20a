//! Measurements of a node. Exporters implement [`Meter`]; with [`NoMeter`] nothing is measured.

use std::time::Duration;
use tollgate_core::EndReason;
use tollgate_replica::HostEvent;

/// Receives measurements on the node's own threads as they happen: count and return.
pub trait Meter: Send + Sync {
    /// A turn was taken, with this number of inputs.
    fn turn(&self, inputs: usize);
    /// A write became durable, `took` after it was begun. Waits for room on a full disk don't count.
    fn fsync(&self, took: Duration);
    /// An entry with this number of commands, which this node proposed, was committed and applied.
    fn committed(&self, commands: usize, took: Duration);
    /// A lease ended; reported only on the leader of its group.
    fn lease_ended(&self, reason: EndReason);
    /// An event of the host.
    fn event(&self, event: &HostEvent);
    /// Requests answered busy without an entry since the last call, and those that went through the log after all.
    fn fast_answers(&self, hits: u64, misses: u64);
    /// Numbers of callers and watches that wait now.
    fn waiting(&self, pending: usize, watches: usize);
}

/// Meter that measures nothing.
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
