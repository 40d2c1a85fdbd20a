//! A leader that the other nodes no longer hear, or that no longer hears them.
//!
//! Clients still reach every node: clients of the isolated node must be told to go elsewhere, and never something
//! wrong.

use crate::cluster::{Cluster, Making, PATIENCE};
use crate::load::{Load, Weight};
use crate::proxy::{Links, Way};
use crate::waits::{jobs, leases, look};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::operation_result::Result as OpResult;
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{LockRequest, Operation, Request, SessionRequest, operation::Op};

type Cut = fn(&Links, usize, usize);

/// Closes all connections between the leader and the others.
fn closed(links: &Links, leader: usize, _: usize) {
    links.isolate(leader, Way::Closed);
}

/// Drops all bytes in both directions, without closing a connection.
fn silent(links: &Links, leader: usize, _: usize) {
    links.isolate(leader, Way::Silent);
}

/// Makes the leader deaf: others hear it, and it hears nobody.
fn deaf(links: &Links, leader: usize, nodes: usize) {
    (0..nodes).filter(|other| *other != leader).for_each(|other| links.set(other, leader, Way::Silent));
}

/// Makes the leader mute: it hears others, and nobody hears it.
fn mute(links: &Links, leader: usize, nodes: usize) {
    (0..nodes).filter(|other| *other != leader).for_each(|other| links.set(leader, other, Way::Silent));
}

/// Cuts the leader off, once with each kind of cut.
async fn cut_off(cuts: &[Cut]) {
    let cluster = Cluster::start(Making::nodes(3).proxied()).await;
    let load = Load::start(&cluster, Weight::usual());
    load.progress(60).await;
    for cut in cuts {
        let leader = cluster.leader().await;
        let links = cluster.links.as_ref().unwrap();
        cut(links, leader, 3);
        cluster.leader_but(Some(leader)).await;
        load.progress(60).await;
        links.heal();
        cluster.until_ready().await;
        load.progress(60).await;
    }
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_cut_off_by_closed_connections_breaks_no_promise() {
    cut_off(&[closed]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_cut_off_in_silence_breaks_no_promise() {
    cut_off(&[silent]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_deaf_is_replaced_and_breaks_no_promise() {
    cut_off(&[deaf]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_mute_is_replaced_and_breaks_no_promise() {
    cut_off(&[mute]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: make test-slow runs it"]
async fn leaders_cut_off_in_every_way_and_again_break_no_promise() {
    cut_off(&[closed, silent, deaf, mute, silent, mute, deaf, closed]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 15 seconds: make test-slow runs it"]
async fn a_session_keeps_what_it_was_granted_elsewhere_when_its_first_node_comes_back() {
    let cluster = Cluster::start(Making::nodes(3).proxied()).await;
    let links = cluster.links.as_ref().unwrap();
    leases(&cluster, &[2]).await;
    let leader = cluster.leader().await;
    let lonely = (leader + 1) % 3;
    let numbered = |attempt| {
        let request = Some(Request { seq: 1, attempt, ..Request::default() });
        LockRequest { request, ..jobs(2, 500) }
    };
    // The node must have forwarded the request, so that it can't know the result.
    let mut sessions = SessionServiceClient::new(cluster.nodes[lonely].channel(Duration::from_mins(1)));
    let (requests, outgoing) = mpsc::channel(4);
    let mut answers = sessions.session(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
    let send = |id, op| SessionRequest {
        operations: vec![Operation { id, op: Some(op), ..Default::default() }],
        ..SessionRequest::default()
    };
    let warm = LockRequest { name: "warm".into(), ..jobs(2, 0) };
    requests.send(send(1, Op::Lock(warm))).await.unwrap();
    while answers.message().await.unwrap().unwrap().results.is_empty() {}
    links.isolate(lonely, Way::Silent);
    requests.send(send(2, Op::Lock(numbered(0)))).await.unwrap();
    let granted = cluster.nodes[leader].locks().lock(numbered(1)).await.unwrap().into_inner();
    assert!(granted.acquired);
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(result) = answers.message().await.unwrap().unwrap().results.pop() {
                return result.result.unwrap();
            }
        }
    });
    let OpResult::Error(error) = told.await.unwrap() else { panic!("a lonely node granted a lock") };
    assert!(error.may_have_happened, "{error:?}");
    links.heal();
    cluster.until_ready().await;
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let lock = look(&cluster, lonely).await.unwrap();
        let tokens: Vec<u64> = lock.holders.iter().map(|holder| holder.fencing_token).collect();
        assert_eq!(tokens, [granted.fencing_token], "the lock was taken from its holder");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
