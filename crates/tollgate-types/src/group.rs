//! Group ids.

use std::fmt;

/// A Raft group. Group 0 holds the group map; ids are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u32);

impl GroupId {
    /// The group that holds the group map.
    pub const MAP: GroupId = GroupId(0);

    /// A group by number.
    pub const fn new(number: u32) -> GroupId {
        GroupId(number)
    }

    /// The group's number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
