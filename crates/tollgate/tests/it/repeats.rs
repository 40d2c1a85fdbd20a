//! A numbered request that is repeated, at any node.

use crate::cluster;
use tollgate_proto::v1::{LeaseGrantRequest, LockRequest, Request, UnlockRequest};

#[tokio::test(flavor = "multi_thread")]
async fn p10_a_request_repeated_through_any_node_has_one_effect_and_one_answer() {
    let cluster = cluster::three().await;
    let lease = LeaseGrantRequest { id: 7, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    cluster.nodes[0].locks().lease_grant(lease).await.unwrap();
    let numbered = |seq, attempt| Some(Request { seq, attempt, ..Request::default() });
    let lock = |seq, attempt| LockRequest {
        name: "jobs".into(),
        lease_id: 7,
        owner: "o".into(),
        request: numbered(seq, attempt),
        ..LockRequest::default()
    };
    let unlock = |seq, attempt| UnlockRequest {
        name: "jobs".into(),
        lease_id: 7,
        owner: "o".into(),
        request: numbered(seq, attempt),
        ..UnlockRequest::default()
    };
    let leader = cluster.leader().await;
    for (round, node) in [(leader + 1) % 3, (leader + 2) % 3, leader].into_iter().enumerate() {
        let seq = 2 * round as u64 + 1;
        let mut service = cluster.nodes[node].locks();
        let first = service.lock(lock(seq, 0)).await.unwrap().into_inner();
        assert!(first.acquired);
        let released = service.unlock(unlock(seq + 1, 0)).await.unwrap().into_inner();
        let again = service.unlock(unlock(seq + 1, 1)).await.unwrap().into_inner();
        assert_eq!(released.revision, again.revision, "asked at node {node}");
        // The lock is not acquired a second time: the answer is that the grant has ended.
        let again = service.lock(lock(seq, 1)).await.unwrap().into_inner();
        assert_eq!(
            (again.acquired, again.fencing_token),
            (false, first.fencing_token),
            "asked at node {node}"
        );
    }
}
