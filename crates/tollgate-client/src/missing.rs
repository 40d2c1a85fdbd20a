//! Parts that an answer lacks, because a group or node could not be asked.

use std::fmt;
use tollgate_types::{GroupId, NodeId};

/// Group or node whose part is missing from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// Group or node that did not answer.
    pub who: Silent,
    /// Reason in words, for people.
    pub message: String,
}

/// Group or node that did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Silent {
    /// Group whose state was needed, besides the state of the group that answered.
    Group(GroupId),
    /// Node.
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
