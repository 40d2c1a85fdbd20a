//! The faults of a world, and their times. Every fault is in a list made beforehand, so that a failing run can be tried
//! again with fewer of them.
//!
//! Not here: drawing the list (`schedule`), and the effect of each fault (`world/faults`).

use crate::network::{Links, Weather};
use crate::stats::seconds;
use crate::types::At;
use std::fmt;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Time at which the fault begins.
    pub at: At,
    /// Time at which the fault is over; the same as `at` for a fault that takes no time.
    pub until: At,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// Node that a fault hits, determined when the fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The node at this place among those present then, modulo their number.
    Place(u64),
    /// The leader of this group; if there is none, the node at the place of the group's number.
    Leader(u32),
}

/// Kind of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// Messages are lost, repeated, late or out of order.
    Weather(Links, Weather),
    /// Nothing passes between two parts of the world, or from one of them to the other.
    Cut {
        /// Nodes on the far side, by place, as bits.
        nodes: u64,
        /// Clients on the far side, as bits: the lowest for clients with an even number, the next for odd ones.
        clients: u8,
        /// True if messages from the far side still come through.
        one_way: bool,
        /// True if connections break at once, instead of hanging.
        breaks: bool,
    },
    /// The leader of a group is cut off from all others, and gets its leadership back soon after.
    IsolatedLeader(u32),
    /// The leader of a group is cut off. When another leader is elected, its voters crash and start again, and then the
    /// new leader is cut off instead: the old one asks the voters for the votes that they have just given.
    StolenVotes(u32),
    /// A node is killed, mostly a leader; for a while other nodes crash after they have voted, and start again at once.
    ElectionCrashes(Target),
    /// The connections of a node break, and come back a little later.
    Reset(Target),
    /// A process is killed, and starts again later.
    Crash(Target),
    /// This many processes are killed at once.
    CrashSome(u64),
    /// All processes are killed at once.
    CrashAll,
    /// One process after the other is stopped gracefully, and started again.
    RollingRestart,
    /// A process is paused.
    Pause(Target),
    /// An fsync fails: the process stops.
    FsyncError(Target),
    /// No fsync ends for a while.
    FsyncStall(Target),
    /// A disk is full.
    DiskFull(Target),
    /// A bit flips on a disk.
    BitRot(Target),
    /// A disk is lost. If true, somebody starts the node again with an empty disk before it is replaced, and at the
    /// worst moment: when only nodes that are down have what the disk had.
    DiskLoss(Target, bool),
    /// A clock runs at another rate, within what is trusted.
    ClockRate(Target, i64),
    /// A clock stands still, and then goes on from its reading.
    ClockStill(Target),
    /// A clock is set back by this many microseconds.
    ClockBack(Target, u64),
    /// The clock of a node that does not lead is set ahead by this many microseconds.
    ClockAhead(Target, u64),
    /// A node takes snapshots of all its groups.
    Snapshot(Target),
    /// Leaders hand their leadership on.
    Transfer,
    /// A node is added to all groups.
    AddNode,
    /// A node is removed from all groups.
    RemoveNode(Target),
    /// A node is removed, and another takes its place.
    ReplaceNode(Target),
    /// A learner joins, and leaves again.
    PassingLearner,
    /// Some nodes announce a newer apply version, and an operator asks to raise it.
    ApplyVersion,
    /// A client is gone for ever; another takes its place.
    ClientCrash(u64),
    /// A client is paused.
    ClientPause(u64),
}

impl FaultKind {
    /// The names of all kinds, for counting.
    pub const LABELS: [&'static str; 29] = [
        "weather",
        "cut",
        "one-way cut",
        "reset",
        "crash",
        "crash some",
        "crash all",
        "rolling restart",
        "pause",
        "fsync error",
        "fsync stall",
        "disk full",
        "bit-rot",
        "disk loss",
        "clock rate",
        "clock still",
        "clock back",
        "clock ahead",
        "snapshot",
        "transfer",
        "membership",
        "passing learner",
        "apply version",
        "client crash",
        "client pause",
        "blank restart",
        "isolated leader",
        "election crashes",
        "stolen votes",
    ];

    /// Returns the name of the kind, one of [`FaultKind::LABELS`].
    pub fn label(&self) -> &'static str {
        match self {
            FaultKind::Weather(..) => "weather",
            FaultKind::Cut { one_way: false, .. } => "cut",
            FaultKind::Cut { one_way: true, .. } => "one-way cut",
            FaultKind::IsolatedLeader(_) => "isolated leader",
            FaultKind::StolenVotes(_) => "stolen votes",
            FaultKind::ElectionCrashes(_) => "election crashes",
            FaultKind::Reset(_) => "reset",
            FaultKind::Crash(_) => "crash",
            FaultKind::CrashSome(_) => "crash some",
            FaultKind::CrashAll => "crash all",
            FaultKind::RollingRestart => "rolling restart",
            FaultKind::Pause(_) => "pause",
            FaultKind::FsyncError(_) => "fsync error",
            FaultKind::FsyncStall(_) => "fsync stall",
            FaultKind::DiskFull(_) => "disk full",
            FaultKind::BitRot(_) => "bit-rot",
            FaultKind::DiskLoss(_, false) => "disk loss",
            FaultKind::DiskLoss(_, true) => "blank restart",
            FaultKind::ClockRate(..) => "clock rate",
            FaultKind::ClockStill(_) => "clock still",
            FaultKind::ClockBack(..) => "clock back",
            FaultKind::ClockAhead(..) => "clock ahead",
            FaultKind::Snapshot(_) => "snapshot",
            FaultKind::Transfer => "transfer",
            FaultKind::AddNode | FaultKind::RemoveNode(_) | FaultKind::ReplaceNode(_) => "membership",
            FaultKind::PassingLearner => "passing learner",
            FaultKind::ApplyVersion => "apply version",
            FaultKind::ClientCrash(_) => "client crash",
            FaultKind::ClientPause(_) => "client pause",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8.3} s", seconds(self.at))?;
        if self.until > self.at {
            write!(f, " to {:8.3} s", seconds(self.until))?;
        }
        write!(f, "  {:?}", self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_listed_once() {
        let mut labels = FaultKind::LABELS.to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), FaultKind::LABELS.len());
        assert!(FaultKind::LABELS.contains(&FaultKind::CrashAll.label()));
    }
}
