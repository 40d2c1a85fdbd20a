//! The header of an answer.

use crate::v1;
use tollgate_types::{ClusterId, GroupId, NodeId, Revision};

/// Where an answer comes from.
pub const fn write_header(
    cluster: ClusterId,
    node: Option<NodeId>,
    group: GroupId,
    revision: Revision,
    raft_term: u64,
) -> v1::Header {
    v1::Header {
        cluster_id: cluster.number(),
        member_id: match node {
            Some(node) => node.number(),
            // A gateway is no member.
            None => 0,
        },
        group_id: group.number(),
        revision: revision.get(),
        raft_term,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_where_the_answer_comes_from() {
        let revision = Revision::new(9).unwrap();
        let node = NodeId::new(2).unwrap();
        let header = write_header(ClusterId::new(7), Some(node), GroupId::new(1), revision, 4);
        let expected = v1::Header { cluster_id: 7, member_id: 2, group_id: 1, revision: 9, raft_term: 4 };
        assert_eq!(header, expected);
    }
}
