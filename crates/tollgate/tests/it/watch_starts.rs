//! Start positions of watches from now on, at nodes that are behind and at nodes without a majority.

use crate::cluster::{self, Cluster, Making, PATIENCE};
use crate::proxy::Way;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::register_service_client::RegisterServiceClient;
use tollgate_proto::v1::{
    ErrorReason, PutRequest, TransferRequest, WatchRequest, WatchResponse, key_value::Kv,
    watch_request::Target,
};
use tonic::Streaming;

/// Number of keys, enough for every group to have some.
const KEYS: usize = 32;

/// Time in which a watch must stay unanswered; a node with the leader's confirmation answers much sooner.
const HELD_BACK: Duration = Duration::from_millis(300);

struct Watching {
    answers: Streaming<WatchResponse>,
    // The watch lives as long as its stream of requests.
    _requests: mpsc::Sender<WatchRequest>,
}

impl Watching {
    /// Opens a watch of all registers from now on.
    async fn open(cluster: &Cluster, node: usize) -> Watching {
        let (requests, outgoing) = mpsc::channel(1);
        let target = Some(Target::RegisterPrefix(Vec::new()));
        requests.send(WatchRequest { target, watch_id: 1, ..WatchRequest::default() }).await.unwrap();
        let mut service = cluster.nodes[node].locks();
        let answers = service.watch(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        Watching { answers, _requests: requests }
    }

    async fn next(&mut self) -> WatchResponse {
        let next = tokio::time::timeout(PATIENCE, self.answers.message()).await;
        next.expect("the watch is answered").unwrap().expect("a stream does not end")
    }
}

async fn put(cluster: &Cluster, node: usize, prefix: &str) -> Vec<String> {
    let mut registers = RegisterServiceClient::new(cluster.nodes[node].channel(PATIENCE));
    let keys: Vec<String> = (0..KEYS).map(|number| format!("{prefix}/{number:02}")).collect();
    for key in &keys {
        let put = PutRequest { key: key.clone().into_bytes(), value: b"v".to_vec(), ..PutRequest::default() };
        registers.put(put).await.unwrap();
    }
    keys
}

fn keys_of(answer: WatchResponse) -> Vec<String> {
    let key = |event: tollgate_proto::v1::Event| match event.kv.unwrap().kv.unwrap() {
        Kv::Register(register) => String::from_utf8(register.key).unwrap(),
        Kv::Claim(claim) => panic!("{claim:?}"),
    };
    answer.events.into_iter().map(key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_watch_from_now_on_at_a_node_that_is_behind_leaves_out_what_was_acknowledged() {
    let flags = ["--cluster-groups", "4", "--raft-balance-ms", "0"];
    let cluster = Cluster::start(Making::nodes(3).proxied().flags(&flags)).await;
    let links = cluster.links.as_ref().unwrap();
    // A first write to each group, so that all have leaders.
    let leader = cluster.leader().await;
    put(&cluster, leader, "first").await;
    let (behind, other) = ((leader + 1) % 3, (leader + 2) % 3);
    // One group is led by a node that the watching node still hears.
    let mut admin = AdminServiceClient::new(cluster.nodes[leader].channel(PATIENCE));
    let heard = TransferRequest { group_id: 1, node_id: other as u64 + 1, ..TransferRequest::default() };
    admin.transfer(heard).await.unwrap();
    // Messages of the leader do not reach the node; all other nodes have a majority.
    links.set(leader, behind, Way::Silent);
    put(&cluster, other, "before").await;
    let mut watching = Watching::open(&cluster, behind).await;
    let early = tokio::time::timeout(HELD_BACK, watching.answers.message()).await;
    assert!(early.is_err(), "nobody confirmed where it may begin: {early:?}");
    // Seen in the group where the watch has already begun, but not reported before it has begun in all groups.
    put(&cluster, other, "meanwhile").await;
    links.heal();
    let first = watching.next().await;
    assert!(first.created && first.events.is_empty() && !first.cursor.is_empty(), "{first:?}");
    let after = put(&cluster, other, "after").await;
    let mut told = Vec::new();
    while told.iter().filter(|key: &&String| key.starts_with("after")).count() < after.len() {
        let answer = watching.next().await;
        assert!(!answer.created && !answer.canceled, "{answer:?}");
        told.extend(keys_of(answer));
    }
    told.sort_unstable();
    told.retain(|key| !key.starts_with("meanwhile"));
    assert_eq!(told, after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_now_on_at_a_node_without_a_majority_is_refused_with_no_leader() {
    let mut cluster = cluster::three().await;
    let leader = cluster.leader().await;
    let left = (leader + 1) % 3;
    for node in (0..3).filter(|node| *node != left) {
        cluster.nodes[node].kill();
    }
    let answer = Watching::open(&cluster, left).await.next().await;
    let error = answer.error.expect("a refusal says why");
    assert_eq!((answer.created, answer.canceled), (false, true));
    assert_eq!((error.reason(), error.may_have_happened), (ErrorReason::NoLeader, false), "{error:?}");
}
