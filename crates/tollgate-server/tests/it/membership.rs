//! Changes of members in several groups, whose leaders are on different nodes.

use crate::sessions::{Cluster, PATIENCE};
use std::time::Duration;
use tempfile::TempDir;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, ErrorReason};
use tollgate_server::config::{Config, ListenConfig, Sources};
use tollgate_server::{Addresses, Listeners, Server};
use tollgate_types::GroupId;
use tonic::Status;
use tonic::transport::Channel;

const GROUPS: u32 = 4;

type Admin = AdminServiceClient<Channel>;

/// Starts three nodes, and has node (k mod 3) + 1 lead group k.
async fn spread() -> Cluster {
    let cluster = Cluster::start_with(&[false; 3], &[("cluster.groups", "4")]).await;
    for group in 0..GROUPS {
        let wanted = usize::try_from(group).unwrap() % 3;
        let led = async {
            while !cluster.servers[wanted].router().serves(GroupId::new(group)) {
                for server in 0..3 {
                    let request =
                        v1::TransferRequest { group_id: group, node_id: wanted as u64 + 1, passed_on: false };
                    // A node that does not lead refuses.
                    let _ = admin(&cluster, server).await.transfer(request).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, led).await.expect("it is led where it should be");
    }
    cluster
}

async fn admin(cluster: &Cluster, server: usize) -> Admin {
    AdminServiceClient::new(cluster.channel(server).await)
}

/// Starts a node that was added to the cluster, on these ports.
async fn joined(id: u64, listeners: Listeners, dir: &TempDir, asks: Addresses) -> Server {
    let own = listeners.addresses().unwrap();
    let flags = [
        ("node.id", id.to_string()),
        ("node.data_dir", dir.path().join(format!("node-{id}")).display().to_string()),
        ("cluster.name", "test".to_owned()),
        ("cluster.join", asks.client.to_string()),
        ("server.shutdown_grace_ms", "100".to_owned()),
        ("listen.client", own.client.to_string()),
        ("listen.peer", own.peer.to_string()),
        ("listen.http", own.http.to_string()),
    ];
    let flags = flags.map(|(key, value)| (key.to_owned(), value)).to_vec();
    let loaded = Config::load(&Sources { file: None, env: Vec::new(), flags }).unwrap();
    let join = tollgate_server::join(&loaded.config).await.unwrap().expect("there is no data yet");
    assert_eq!(join.groups.len(), GROUPS as usize);
    Server::start_joining(&loaded.config, loaded.settings, listeners, Some(join)).unwrap()
}

/// Returns the voters and learners of each group, as this node knows them.
async fn members(admin: &mut Admin) -> Vec<(Vec<u64>, Vec<u64>)> {
    let groups = admin.groups(v1::GroupsRequest::default()).await.unwrap().into_inner().groups;
    groups.into_iter().map(|group| (group.voters, group.learners)).collect()
}

/// Waits until a node knows these voters and learners in every group.
async fn until(admin: &mut Admin, voters: &[u64], learners: &[u64]) {
    let wanted = vec![(voters.to_vec(), learners.to_vec()); GROUPS as usize];
    let mut known = members(admin).await;
    let begun = tokio::time::Instant::now();
    while known != wanted {
        assert!(begun.elapsed() < PATIENCE, "{known:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        known = members(admin).await;
    }
}

async fn promoted(admin: &mut Admin, node_id: u64) {
    let begun = tokio::time::Instant::now();
    loop {
        let request = v1::PromoteMemberRequest { node_id, ..Default::default() };
        let Err(status) = admin.promote_member(request).await else { return };
        let error = error_of_status(&status).unwrap();
        assert_eq!(error.reason(), ErrorReason::MemberRefused, "{error:?}");
        assert!(error.message.contains("behind") && error.message.contains("group "), "{error:?}");
        assert!(begun.elapsed() < PATIENCE, "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn new_member(id: u64, addresses: Addresses, group_ids: Vec<u32>) -> v1::AddMemberRequest {
    let (peer_address, client_address) = (addresses.peer.to_string(), addresses.client.to_string());
    v1::AddMemberRequest { node_id: id, peer_address, client_address, group_ids, ..Default::default() }
}

fn reason(refused: Result<impl std::fmt::Debug, Status>) -> ErrorReason {
    error_of_status(&refused.unwrap_err()).unwrap().reason()
}

fn bind() -> Listeners {
    let any = || ([127, 0, 0, 1], 0).into();
    Listeners::bind(&ListenConfig { client: any(), peer: any(), http: any(), insecure: false }).unwrap()
}

/// Adds a node in some of the groups only, as if the rest had been interrupted.
async fn add_in(cluster: &Cluster, id: u64, addresses: Addresses, groups: &[u32]) {
    for group in groups {
        add_in_one(cluster, id, addresses, *group).await;
    }
}

/// Adds a node in one group, at whichever node leads it, which may change on a busy machine; the others refuse.
async fn add_in_one(cluster: &Cluster, id: u64, addresses: Addresses, group: u32) {
    let begun = tokio::time::Instant::now();
    loop {
        for server in 0..3 {
            let asked = new_member(id, addresses, vec![group]);
            if admin(cluster, server).await.add_member(asked).await.is_ok() {
                return;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "nobody adds node {id} in group {group}");
    }
}

/// Waits until a node has caught up in some groups.
async fn until_caught_up(cluster: &Cluster, id: u64, groups: &[u32]) {
    let begun = tokio::time::Instant::now();
    for group in groups {
        while !has_caught_up(cluster, id, *group).await {
            assert!(begun.elapsed() < PATIENCE, "group {group}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// True if the leader of a group reports it; nobody else knows. On a busy machine the leader may have changed by now.
async fn has_caught_up(cluster: &Cluster, id: u64, group: u32) -> bool {
    for server in 0..3 {
        let mut asked = admin(cluster, server).await;
        let told = asked.groups(v1::GroupsRequest::default()).await.unwrap().into_inner().groups;
        let mut told = told[usize::try_from(group).unwrap()].progress.iter();
        if told.any(|told| told.node_id == id && told.caught_up) {
            return true;
        }
    }
    false
}

fn refusal(refused: Result<impl std::fmt::Debug, Status>) -> v1::Error {
    let error = error_of_status(&refused.unwrap_err()).unwrap();
    assert_eq!(error.reason(), ErrorReason::MemberRefused, "{error:?}");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_names_a_stranger_is_refused_before_any_group_changes() {
    let mut cluster = spread().await;
    let dir = TempDir::new().unwrap();
    let listeners = bind();
    let own = listeners.addresses().unwrap();
    let mut asked = admin(&cluster, 2).await;
    asked.add_member(new_member(0, own, Vec::new())).await.unwrap();
    let server = joined(4, listeners, &dir, cluster.servers[1].addresses()).await;
    cluster.servers.push(server);
    until_caught_up(&cluster, 4, &[0, 1, 2, 3]).await;
    let replace = |out_id, by_id| v1::ReplaceMemberRequest { out_id, by_id, ..Default::default() };
    // A typing mistake for 3, and one for 4.
    for (out, by, stranger) in [(33, 4, 33), (3, 44, 44)] {
        let error = refusal(asked.replace_member(replace(out, by)).await);
        assert!(error.message.contains(&format!("node {stranger} is not a member")), "{error:?}");
        assert!(!error.message.contains("again"), "it would be refused again: {error:?}");
    }
    let promote = v1::PromoteMemberRequest { node_id: 44, ..Default::default() };
    assert!(refusal(asked.promote_member(promote).await).message.contains("node 44 is not a member"));
    until(&mut asked, &[1, 2, 3], &[4]).await;
    cluster.stop().await;
}

/// As in a change of leaders: the old leader has its successor go on, and so does the node that asked the old leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_several_carry_out_at_once_is_done_for_each_of_them() {
    let cluster = Cluster::start_with(&[false], &[]).await;
    let leader = admin(&cluster, 0).await;
    for id in 2..12 {
        let asked = new_member(id, bind().addresses().unwrap(), Vec::new());
        leader.clone().add_member(asked).await.unwrap();
        let mut removals = tokio::task::JoinSet::new();
        for nth in 0..32 {
            let mut leader = leader.clone();
            removals.spawn(async move {
                // One removal after another, until the first is done and beyond.
                tokio::time::sleep(Duration::from_micros(200 * nth)).await;
                let request = v1::RemoveMemberRequest { node_id: id, group_ids: vec![0], passed_on: false };
                leader.remove_member(request).await
            });
        }
        for removed in removals.join_all().await {
            assert!(removed.is_ok(), "{}", refusal(removed).message);
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_votes_in_group_0_votes_in_all() {
    let mut cluster = spread().await;
    let dir = TempDir::new().unwrap();
    let listeners = bind();
    let own = listeners.addresses().unwrap();
    // The addition of the node was interrupted before the last group.
    add_in(&cluster, 4, own, &[0, 1, 2]).await;
    let server = joined(4, listeners, &dir, cluster.servers[1].addresses()).await;
    cluster.servers.push(server);
    until_caught_up(&cluster, 4, &[0, 1, 2]).await;
    let mut first = admin(&cluster, 0).await;
    let promote = v1::PromoteMemberRequest { node_id: 4, ..Default::default() };
    let error = refusal(first.promote_member(promote).await);
    assert!(error.message.contains("group 3") && error.message.contains("not a member"), "{error:?}");
    let known = members(&mut first).await;
    assert!(
        known[..3].iter().all(|(voters, learners)| (voters.len(), learners.len()) == (3, 1)),
        "{known:?}"
    );
    first.add_member(new_member(0, own, Vec::new())).await.unwrap();
    promoted(&mut first, 4).await;
    until(&mut first, &[1, 2, 3, 4], &[]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_addition_that_another_one_overtakes_is_finished_all_the_same() {
    let cluster = spread().await;
    let places: Vec<Listeners> = (0..4).map(|_| bind()).collect();
    let new = |place: usize| new_member(0, places[place].addresses().unwrap(), Vec::new());
    // The first addition was interrupted after group 0, and the second comes before the first is run again.
    add_in(&cluster, 4, places[0].addresses().unwrap(), &[0]).await;
    let mut asked = admin(&cluster, 1).await;
    for (place, id) in [(1, 5), (0, 4)] {
        assert_eq!(asked.add_member(new(place)).await.unwrap().into_inner().node_id, id);
    }
    until(&mut asked, &[1, 2, 3], &[4, 5]).await;
    // Two additions at the same time, by way of different nodes.
    let mut others = (admin(&cluster, 0).await, admin(&cluster, 2).await);
    let (one, other) = tokio::join!(others.0.add_member(new(2)), others.1.add_member(new(3)));
    let mut ids = [one, other].map(|added| added.unwrap().into_inner().node_id);
    ids.sort_unstable();
    assert_eq!(ids, [6, 7]);
    until(&mut asked, &[1, 2, 3], &[4, 5, 6, 7]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_change_in_every_group_whoever_leads_it_and_whoever_is_asked() {
    let mut cluster = spread().await;
    let dir = TempDir::new().unwrap();
    let mut asked = admin(&cluster, 2).await;
    let listeners = bind();
    let own = listeners.addresses().unwrap();
    // A node that is asked by another node leads the group or refuses; it asks no other node.
    match asked.add_member(new_member(4, own, vec![0])).await {
        Ok(_) => {
            assert!(cluster.servers[2].router().status().borrow().groups[&GroupId::MAP].serves, "it leads");
        }
        refused => assert_eq!(reason(refused), ErrorReason::NotLeader),
    }
    // An addition that was interrupted after the first group goes on; repeated once more, it changes nothing.
    add_in_one(&cluster, 0, own, 0).await;
    for _ in 0..2 {
        let added = asked.add_member(new_member(0, own, Vec::new())).await.unwrap().into_inner();
        assert_eq!((added.node_id, added.cluster_name.as_str()), (4, "test"));
    }
    until(&mut asked, &[1, 2, 3], &[4]).await;
    let server = joined(4, listeners, &dir, cluster.servers[1].addresses()).await;
    cluster.servers.push(server);
    promoted(&mut asked, 4).await;
    let mut fourth = admin(&cluster, 3).await;
    until(&mut fourth, &[1, 2, 3, 4], &[]).await;
    // The first node leads two groups, and hands both on before it goes.
    let remove = |node_id| v1::RemoveMemberRequest { node_id, ..Default::default() };
    for _ in 0..2 {
        fourth.remove_member(remove(1)).await.unwrap();
    }
    until(&mut fourth, &[2, 3, 4], &[]).await;
    assert_eq!(reason(fourth.remove_member(remove(9)).await), ErrorReason::MemberRefused);
    let mut first = cluster.servers[0].router().status().clone();
    let removed = tokio::time::timeout(PATIENCE, first.wait_for(|status| status.removed)).await;
    assert!(removed.is_ok_and(|removed| removed.is_ok()), "it is told");
    cluster.stop().await;
}
