//! Writer for the header of an answer.

use crate::v1;
use tollgate_types::{ClusterId, GroupId, Lineage, NodeId, Revision};

/// Returns the header of an answer: cluster, node, group and revision.
pub const fn write_header(
    cluster: ClusterId,
    node: Option<NodeId>,
    group: GroupId,
    revision: Revision,
    raft_term: u64,
    lineage: Option<Lineage>,
) -> v1::Header {
    v1::Header {
        cluster_id: cluster.number(),
        member_id: match node {
            Some(node) => node.number(),
            // A gateway is not a member.
            None => 0,
        },
        group_id: group.number(),
        revision: revision.get(),
        raft_term,
        lineage: match lineage {
            Some(lineage) => lineage.number(),
            None => 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_where_the_answer_comes_from() {
        let revision = Revision::new(9).unwrap();
        let node = NodeId::new(2).unwrap();
        let lineage = Lineage::new(6);
        let header = write_header(ClusterId::new(7), Some(node), GroupId::new(1), revision, 4, lineage);
        let expected =
            v1::Header { cluster_id: 7, member_id: 2, group_id: 1, revision: 9, raft_term: 4, lineage: 6 };
        assert_eq!(header, expected);
        let gateway = write_header(ClusterId::new(7), None, GroupId::new(1), revision, 4, None);
        assert_eq!((gateway.member_id, gateway.lineage), (0, 0));
    }
}
