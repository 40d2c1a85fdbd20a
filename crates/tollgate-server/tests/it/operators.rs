//! What operators and those who observe ask a node.

use crate::sessions::{Cluster, PATIENCE};
use tollgate_proto::error_of_status;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::election_service_client::ElectionServiceClient;
use tollgate_proto::v1::{self, ErrorReason};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_are_changed_at_once_are_all_changed() {
    let cluster = Cluster::start_with(&[false; 3], &[]).await;
    let channel = cluster.channel(cluster.leader().await).await;
    let names = ["locks_max", "leases_max", "registers_max", "txn_ops_max"];
    for round in 0..5 {
        let value = 200 + round;
        let changes = names.map(|name| {
            let mut admin = AdminServiceClient::new(channel.clone());
            let limits = vec![v1::Limit { name: name.to_owned(), value, ..Default::default() }];
            let request = v1::SetLimitsRequest { limits, ..Default::default() };
            tokio::spawn(async move { admin.set_limits(request).await.map(drop) })
        });
        for change in changes {
            change.await.unwrap().unwrap();
        }
        let mut admin = AdminServiceClient::new(channel.clone());
        let now = admin.get_limits(v1::GetLimitsRequest::default()).await.unwrap().into_inner().limits;
        let ours = now.iter().filter(|limit| names.contains(&limit.name.as_str()));
        assert!(ours.clone().all(|limit| limit.value == value), "{:?}", ours.collect::<Vec<_>>());
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_observes_where_there_is_nothing_to_see_is_told_why() {
    let cluster = Cluster::start_with(&[false, false, true], &[]).await;
    let mut elections = ElectionServiceClient::new(cluster.channel(2).await);
    let request = v1::ObserveRequest { name: "boss".into() };
    let mut leaders = elections.observe(request).await.unwrap().into_inner();
    let ended = tokio::time::timeout(PATIENCE, leaders.message()).await.unwrap();
    let status = ended.expect_err("a witness keeps no locks, and says so");
    assert_eq!(error_of_status(&status).unwrap().reason(), ErrorReason::NoSuchGroup, "{status:?}");
    cluster.stop().await;
}
