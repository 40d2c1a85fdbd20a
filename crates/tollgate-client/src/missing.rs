//! Who could not be asked for its part of an answer, and why.

use std::fmt;
use tollgate_types::{GroupId, NodeId};

/// A part that an answer lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// Who did not answer.
    pub who: Silent,
    /// Why, for people.
    pub message: String,
}

/// Who did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Silent {
    /// A group, whose state was needed beside that of the one that was asked.
    Group(GroupId),
    /// A node.
    Node(NodeId),
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Silent::Group(group) => write!(f, "group {group}"),
            Silent::Node(node) => write!(f, "node {node}"),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} could not be asked: {}", self.who, self.message)
    }
}
