//! What goes wrong in a world, and when. Every fault stands in a list made beforehand, so that a failing run can be
//! tried again with fewer of them.
//!
//! Not here: how the list is drawn (`schedule`), and what each fault does (`world/faults`).

use crate::network::{Links, Weather};
use crate::stats::seconds;
use crate::types::At;
use std::fmt;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When it begins.
    pub at: At,
    /// When it is over; the same for what takes no time.
    pub until: At,
    /// What it is.
    pub kind: FaultKind,
}

/// Which node a fault hits; known only when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The one at this place among those that are there then, counted round.
    Place(u64),
    /// Whoever leads this group; a node at that place if nobody does.
    Leader(u32),
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// Messages are lost, repeated, late, out of order.
    Weather(Links, Weather),
    /// Nothing goes between two parts of the world, or from one of them to the other.
    Cut {
        /// Who is on the far side: nodes by place, as bits.
        nodes: u64,
        /// Which clients are: those whose number is even, odd, both or none, as bits.
        clients: u8,
        /// Whether messages from the far side still come through.
        one_way: bool,
        /// Whether connections break at once, instead of hanging.
        breaks: bool,
    },
    /// The leader of a group is cut off from all others, and gets its leadership back soon after.
    IsolatedLeader(u32),
    /// The leader of a group is cut off. When another is elected, its voters crash and start again, and now the new one
    /// is cut off: the old one asks them for the votes that they have just given.
    StolenVotes(u32),
    /// A node is killed, mostly a leader; for a while others crash when they have voted, and start again at once.
    ElectionCrashes(Target),
    /// The connections of a node break, and come back after a little.
    Reset(Target),
    /// A process is killed, and starts again later.
    Crash(Target),
    /// So many processes are killed at once.
    CrashSome(u64),
    /// All are.
    CrashAll,
    /// One process after the other is stopped the polite way, and started again.
    RollingRestart,
    /// A process stands still.
    Pause(Target),
    /// An fsync fails: the process stops.
    FsyncError(Target),
    /// No fsync ends for a while.
    FsyncStall(Target),
    /// There is no room on a disk.
    DiskFull(Target),
    /// A bit flips on a disk.
    BitRot(Target),
    /// A disk is gone. Whether somebody starts the node again with an empty one, before it is replaced; then at the
    /// worst moment, when only those that are down have what it had.
    DiskLoss(Target, bool),
    /// A clock runs at another rate, within what is trusted.
    ClockRate(Target, i64),
    /// A clock stands still, and goes on from there.
    ClockStill(Target),
    /// A clock goes back by so many microseconds.
    ClockBack(Target, u64),
    /// A clock of a node that does not lead goes ahead by so many microseconds.
    ClockAhead(Target, u64),
    /// A node takes snapshots of all its groups.
    Snapshot(Target),
    /// Leaders hand on their groups.
    Transfer,
    /// A node is added to all groups.
    AddNode,
    /// A node is removed from all groups.
    RemoveNode(Target),
    /// A node is removed and another takes its place.
    ReplaceNode(Target),
    /// A learner comes, and leaves again.
    PassingLearner,
    /// Some nodes announce a newer apply version, and an operator asks to raise it.
    ApplyVersion,
    /// A client is gone for ever; another comes in its place.
    ClientCrash(u64),
    /// A client stands still.
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

    /// Its name among [`FaultKind::LABELS`].
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
