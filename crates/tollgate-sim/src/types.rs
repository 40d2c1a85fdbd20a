//! The few types that all parts of the world share.
//!
//! Clients and fronts write into the history what they ask, are told, receive, believe and write (`Invoke`, `Return`,
//! `AnsweredAgain`, `Received`, `Believes`, `FencedWrite`, and the watches); the world writes what only it can see
//! (`LeaseEnded`, `Leaderless`, `Led`, `LeaderPaused`, `LeaderResumed`, `LeadersCut`, `LeadersLinked`, `Applied`,
//! `FinalState`, `ClientGone`, `Healed`, `End`).

use tollgate_types::{GroupId, GroupMap, Slot};

/// True time, in microseconds since the world began. Nobody inside the world knows it.
pub type At = u64;

/// Number of a client, which has its own session with a lease, clock and workload. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNo(pub u32);

impl std::fmt::Display for ClientNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// Returns the group that a slot belongs to, with this many groups: the world's map never changes.
pub fn group_of(slot: Slot, groups: u32) -> GroupId {
    GroupMap::even(groups).expect("a scenario has few groups").group_of(slot)
}
