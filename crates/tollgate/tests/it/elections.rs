//! Elections over real nodes: the value of a leader, read and changed at any node, and kept through the loss of the
//! group's leader.

use crate::cluster::{self, Cluster, PATIENCE};
use crate::waits::leases;
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::{
    CampaignRequest, GetLockRequest, Leader, LeaderRequest, ObserveRequest, ObserveResponse, ProclaimRequest,
    Request, ResignRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Streaming};

fn elections(cluster: &Cluster, node: usize) -> ElectionServiceClient<Channel> {
    ElectionServiceClient::new(cluster.nodes[node].channel(PATIENCE))
}

async fn leader(cluster: &Cluster, node: usize) -> Leader {
    let asked = LeaderRequest { name: "boss".into(), ..LeaderRequest::default() };
    elections(cluster, node).leader(asked).await.unwrap().into_inner().leader.unwrap()
}

fn campaign(lease_id: u64, value: &[u8], timeout_ms: i64) -> CampaignRequest {
    let (name, value) = ("boss".into(), value.to_vec());
    CampaignRequest { name, lease_id, value, timeout_ms, ..CampaignRequest::default() }
}

fn proclaim(lease_id: u64, fencing_token: u64, value: &[u8], seq: u64) -> ProclaimRequest {
    let request = Some(Request { seq, ..Request::default() });
    let (name, value) = ("boss".into(), value.to_vec());
    ProclaimRequest { name, lease_id, fencing_token, value, request, ..ProclaimRequest::default() }
}

/// Returns all observed leaders up to the one with this value.
async fn until_says(observed: &mut Streaming<ObserveResponse>, value: &[u8]) -> Vec<Leader> {
    let mut told: Vec<Leader> = Vec::new();
    while told.last().is_none_or(|last| last.value != value) {
        let next = tokio::time::timeout(PATIENCE, observed.message()).await.expect("the next one is told");
        told.extend(next.unwrap().expect("an observation does not end").leader);
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn p10_what_a_leader_says_is_changed_once_anywhere_and_outlives_a_leader_of_its_group() {
    let mut cluster = cluster::three().await;
    leases(&cluster, &[1, 2]).await;
    let first = cluster.leader().await;
    let (near, far) = ((first + 1) % 3, (first + 2) % 3);
    let observe = ObserveRequest { name: "boss".into() };
    let mut observed = elections(&cluster, far).observe(observe).await.unwrap().into_inner();

    let bytes = vec![0xff; 64 * 1024];
    let elected = elections(&cluster, near).campaign(campaign(1, &bytes, 0)).await.unwrap().into_inner();
    let told = elected.leader.unwrap();
    assert!(elected.elected && told.value == bytes && told.value_revision == told.fencing_token);
    assert_eq!(until_says(&mut observed, &bytes).await.len(), 1);

    // At a node that does not lead the group, and repeated at another.
    let token = told.fencing_token;
    let change = proclaim(1, token, b"second", 1);
    let changed = elections(&cluster, near).proclaim(change.clone()).await.unwrap().into_inner();
    let again = elections(&cluster, far).proclaim(change).await.unwrap().into_inner();
    assert!(changed.revision > token && again.revision == changed.revision);
    for node in 0..3 {
        let now = leader(&cluster, node).await;
        assert_eq!((now.value.as_slice(), now.value_revision), (b"second".as_slice(), changed.revision));
        assert_eq!((now.fencing_token, now.lease_id), (token, 1));
    }
    assert_eq!(until_says(&mut observed, b"second").await.len(), 1, "no change is told twice");

    // Refused with another token, and from a candidate that does not lead.
    let stale = elections(&cluster, far).proclaim(proclaim(1, token - 1, b"stale", 2)).await.unwrap_err();
    assert_eq!(stale.code(), Code::FailedPrecondition, "{stale:?}");
    let stranger = elections(&cluster, far).proclaim(proclaim(2, token, b"other", 1)).await.unwrap_err();
    assert_eq!(stranger.code(), Code::NotFound, "{stranger:?}");
    // A candidate that was elected before keeps its present value, whatever value its new campaign carries.
    let standing = elections(&cluster, far).campaign(campaign(1, b"third", 0)).await.unwrap().into_inner();
    assert_eq!(standing.leader.unwrap().value, b"second");
    // And a candidate that is not elected learns who is.
    let waited = elections(&cluster, near).campaign(campaign(2, b"next", 50)).await.unwrap().into_inner();
    assert!(!waited.elected && waited.leader.unwrap().value == b"second");

    cluster.nodes[first].kill();
    cluster.leader_but(Some(first)).await;
    let now = leader(&cluster, near).await;
    assert_eq!((now.value.as_slice(), now.fencing_token), (b"second".as_slice(), token));
    elections(&cluster, near).proclaim(proclaim(1, token, b"third", 3)).await.unwrap();
    assert_eq!(until_says(&mut observed, b"third").await.len(), 1);

    // The value ends with its leader, and the next leader has its own.
    let mut candidate = elections(&cluster, far);
    let waits = tokio::spawn(async move { candidate.campaign(campaign(2, b"next", -1)).await });
    let held = GetLockRequest { name: "boss".into(), ..GetLockRequest::default() };
    cluster::until("a candidate waits, and times are known", || async {
        let lock =
            cluster.nodes[near].locks().get_lock(held.clone()).await.unwrap().into_inner().lock.unwrap();
        lock.waiter_count == 1 && lock.holders[0].held_ms > 0 && lock.waiters[0].waited_ms > 0
    })
    .await;
    let resign =
        ResignRequest { name: "boss".into(), lease_id: 1, fencing_token: token, ..Default::default() };
    elections(&cluster, near).resign(resign).await.unwrap();
    let elected = tokio::time::timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap().into_inner();
    assert!(elected.elected && elected.leader.unwrap().value == b"next");
    until_says(&mut observed, b"next").await;
    let late = elections(&cluster, near).proclaim(proclaim(1, token, b"late", 4)).await.unwrap_err();
    assert_eq!(late.code(), Code::NotFound, "{late:?}");
    assert_eq!(leader(&cluster, near).await.value, b"next");
    let token = leader(&cluster, far).await.fencing_token;
    elections(&cluster, far).proclaim(proclaim(2, token, b"last", 2)).await.unwrap();
    assert_eq!(until_says(&mut observed, b"last").await.len(), 1, "what was refused is not told");
}
