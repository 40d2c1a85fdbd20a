//! Watches on a lease: they see the events of its locks in every group, wherever the lease lives and whichever nodes
//! die.

use crate::cluster::{BINARY, Cluster, Making, Node, PATIENCE, until};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_client::{Change, Client, EndReason, Watch, WatchItem};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, key_value::Kv, watch_request::Target};
use tollgate_types::{GroupId, GroupMap, LeaseId, Name};
use tonic::{Code, Streaming};

/// Home group of the lease, and the group of its lock.
const HOME: GroupId = GroupId::new(0);
const ELSEWHERE: GroupId = GroupId::new(1);

async fn two_groups() -> Cluster {
    Cluster::start(Making::nodes(3).flags(&["--cluster-groups", "2", "--raft-balance-ms", "0"])).await
}

/// Returns a name of this group.
fn name_in(group: GroupId) -> String {
    let map = GroupMap::even(2).unwrap();
    let mut names = (0..).map(|number| format!("jobs/{number}"));
    names.find(|name| map.group_of(Name::new(name).unwrap().slot()) == group).unwrap()
}

/// Grants a lease that lives in this group.
async fn lease_in(node: &Node, group: GroupId) -> LeaseId {
    let request = v1::LeaseGrantRequest { ttl_ms: 600_000, near: name_in(group), ..Default::default() };
    let lease = LeaseId::new(node.locks().lease_grant(request).await.unwrap().into_inner().id).unwrap();
    assert_eq!(GroupMap::even(2).unwrap().group_of(lease.slot()), group);
    lease
}

async fn lock(node: &Node, name: &str, lease: LeaseId) -> u64 {
    let request = v1::LockRequest { name: name.into(), lease_id: lease.get(), ..Default::default() };
    let answer = node.locks().lock(request).await.unwrap().into_inner();
    assert!(answer.acquired, "{answer:?}");
    answer.fencing_token
}

async fn unlock(node: &Node, name: &str, lease: LeaseId) {
    let request = v1::UnlockRequest { name: name.into(), lease_id: lease.get(), ..Default::default() };
    node.locks().unlock(request).await.unwrap();
}

/// Returns the index of the node that leads the group.
async fn leader_of(cluster: &Cluster, group: GroupId) -> usize {
    for node in cluster.nodes.iter().filter(|node| node.runs()).cycle() {
        let mut admin = AdminServiceClient::new(node.channel(PATIENCE));
        let told = admin.groups(v1::GroupsRequest::default()).await.unwrap().into_inner().groups;
        let led = told.iter().find(|led| led.group_id == group.number()).map_or(0, |led| led.leader_id);
        let leader = cluster.nodes.iter().position(|node| node.id == led);
        if let Some(leader) = leader.filter(|leader| cluster.nodes[*leader].runs()) {
            return leader;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    unreachable!("some node runs")
}

/// A watch stream of a program without the client library, and the last cursor that it received.
struct Stream {
    _asks: mpsc::Sender<v1::WatchRequest>,
    answers: Streaming<v1::WatchResponse>,
    cursor: String,
}

/// An event of a claim: its name, and the end's reason and note, or `None` for a grant.
type Told = (String, Option<(v1::EndReason, String)>);

impl Stream {
    /// Begins a watch on a lease, now or at the cursor of another watch.
    async fn open(node: &Node, lease: LeaseId, cursor: &str) -> Stream {
        let (asks, requests) = mpsc::channel(1);
        let target = Some(Target::LeaseId(lease.get()));
        let request = v1::WatchRequest { target, cursor: cursor.into(), watch_id: 1, ..Default::default() };
        asks.send(request).await.unwrap();
        let mut locks = node.locks();
        let answers = locks.watch(ReceiverStream::new(requests)).await.unwrap().into_inner();
        Stream { _asks: asks, answers, cursor: cursor.into() }
    }

    /// Waits until the watch has begun in all groups; returns the events received before that.
    async fn created(&mut self, lease: LeaseId) -> Vec<Told> {
        let mut told = Vec::new();
        loop {
            let answer = self.next().await;
            told.extend(answer.events.iter().map(|event| judge(event, lease)));
            if answer.created {
                return told;
            }
        }
    }

    async fn next(&mut self) -> v1::WatchResponse {
        let answer = tokio::time::timeout(PATIENCE, self.answers.next()).await.expect("nothing came");
        let answer = answer.unwrap().unwrap();
        assert!(!answer.canceled, "{answer:?}");
        if !answer.cursor.is_empty() {
            self.cursor.clone_from(&answer.cursor);
        }
        answer
    }

    /// Collects events until there are `count`.
    async fn fill(&mut self, told: &mut Vec<Told>, count: usize, lease: LeaseId) {
        while told.len() < count {
            told.extend(self.next().await.events.iter().map(|event| judge(event, lease)));
        }
    }
}

/// Converts an event, which must be of this lease.
fn judge(event: &v1::Event, lease: LeaseId) -> Told {
    let kv = event.kv.as_ref().and_then(|kv| kv.kv.as_ref());
    let Some(Kv::Claim(claim)) = kv else { panic!("no claim: {event:?}") };
    assert_eq!(claim.lease_id, lease.get(), "{event:?}");
    let ended = event.r#type() == v1::EventType::Delete;
    (claim.name.clone(), ended.then(|| (event.end_reason(), event.note.clone())))
}

/// Returns the next event of a watch of the client library, which must be of this lease.
async fn next_of(watch: &mut Watch, lease: LeaseId) -> (String, Option<(EndReason, Option<String>)>) {
    let item = tokio::time::timeout(PATIENCE, watch.next()).await.expect("nothing came");
    let WatchItem::Event(event) = item.unwrap().unwrap() else { panic!("compacted") };
    match event.change {
        Change::Claim { claim, .. } => {
            assert_eq!(claim.lease, lease);
            (claim.name, None)
        }
        Change::ClaimEnded { name, lease: of, reason, note, .. } => {
            assert_eq!(of, lease);
            (name, Some((reason, note)))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_lock_taken_away_in_another_group_is_told_once_though_leader_and_node_are_killed() {
    let mut cluster = two_groups().await;
    let (lease, other) = (lease_in(&cluster.nodes[0], HOME).await, lease_in(&cluster.nodes[0], HOME).await);
    let (here, there) = (name_in(HOME), name_in(ELSEWHERE));
    let leader = leader_of(&cluster, ELSEWHERE).await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let mut watch = client.watch().lease(lease).open().await.unwrap();
    let mut stream = Stream::open(&cluster.nodes[leader], lease, "").await;
    assert!(stream.created(lease).await.is_empty());

    let token = lock(&cluster.nodes[0], &there, lease).await;
    // Events of other leases on other locks are not seen.
    lock(&cluster.nodes[0], &here, other).await;
    let mut told = Vec::new();
    stream.fill(&mut told, 1, lease).await;
    let cursor = stream.cursor.clone();
    assert!(!cursor.is_empty());

    cluster.nodes[leader].kill();
    let node = (leader + 1) % 3;
    until("the lock is taken away", || async {
        let reason = "the host burns".to_owned();
        let force = v1::ForceReleaseRequest { name: there.clone(), fencing_token: token, reason };
        // One release is enough: a repeated one finds nothing.
        match cluster.nodes[node].locks().force_release(force).await {
            Ok(_) => true,
            Err(status) => matches!(status.code(), Code::FailedPrecondition | Code::NotFound),
        }
    })
    .await;
    lock(&cluster.nodes[node], &there, other).await;
    unlock(&cluster.nodes[node], &there, other).await;
    lock(&cluster.nodes[node], &there, lease).await;

    let mut resumed = Stream::open(&cluster.nodes[node], lease, &cursor).await;
    told.extend(resumed.created(lease).await);
    resumed.fill(&mut told, 3, lease).await;
    let forced = Some((v1::EndReason::Forced, "the host burns".to_owned()));
    assert_eq!(told, [(there.clone(), None), (there.clone(), forced), (there.clone(), None)]);
    // A third node, resumed after the end, does not repeat the end.
    let mut last = Stream::open(&cluster.nodes[(leader + 2) % 3], lease, &resumed.cursor).await;
    let mut later = last.created(lease).await;
    unlock(&cluster.nodes[node], &there, lease).await;
    last.fill(&mut later, 1, lease).await;
    assert_eq!(later, [(there.clone(), Some((v1::EndReason::Released, String::new())))]);

    let mut by_library = Vec::new();
    while by_library.len() < 4 {
        by_library.push(next_of(&mut watch, lease).await);
    }
    let ends: Vec<_> = by_library.iter().map(|(name, end)| (name == &there, end.clone())).collect();
    let forced = Some((EndReason::Forced, Some("the host burns".to_owned())));
    let expected = [None, forced, None, Some((EndReason::Released, None))];
    assert_eq!(ends, expected.map(|end| (true, end)));
}

/// The lease ends at its home; in the other group its stub ends. The watch outlives the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_on_a_lease_tells_the_end_of_all_its_locks_and_goes_on_if_the_id_is_granted_anew() {
    let cluster = two_groups().await;
    let node = &cluster.nodes[0];
    let lease = lease_in(node, HOME).await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let mut watch = client.watch().lease(lease).without_waiters().open().await.unwrap();
    let mut names = [name_in(HOME), name_in(ELSEWHERE)];
    names.sort();
    let told = async |watch: &mut Watch| {
        let mut told = [next_of(watch, lease).await, next_of(watch, lease).await];
        told.sort_by(|one, other| one.0.cmp(&other.0));
        told
    };
    for life in 0..2 {
        for name in &names {
            lock(node, name, lease).await;
        }
        let granted = told(&mut watch).await;
        assert_eq!(granted, names.clone().map(|name| (name, None)), "life {life}");
        node.locks().lease_revoke(v1::LeaseRevokeRequest { id: lease.get() }).await.unwrap();
        let ended = told(&mut watch).await;
        let revoked = || Some((EndReason::LeaseRevoked, None));
        assert_eq!(ended, names.clone().map(|name| (name, revoked())), "life {life}");
        let anew = v1::LeaseGrantRequest { id: lease.get(), ttl_ms: 600_000, ..Default::default() };
        node.locks().lease_grant(anew).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_follows_a_lease_over_groups() {
    let cluster = two_groups().await;
    let node = &cluster.nodes[0];
    let (lease, other) = (lease_in(node, HOME).await, lease_in(node, HOME).await);
    let mut command = Command::new(BINARY);
    command.args(["watch", "--lease", &lease.to_string(), "-o", "jsonl", "--endpoints"]);
    command.arg(cluster.endpoints().join(",")).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut watching = command.spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let (said, mut heard) = mpsc::channel(64);
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| said.blocking_send(line)));
    // The beginning of the watch is not announced. So locks change until it reports a change.
    let there = name_in(ELSEWHERE);
    let line = tokio::time::timeout(PATIENCE, async {
        loop {
            for lease in [other, lease] {
                lock(node, &there, lease).await;
                unlock(node, &there, lease).await;
            }
            if let Ok(line) = heard.try_recv() {
                return line;
            }
        }
    });
    let line: serde_json::Value = serde_json::from_str(&line.await.unwrap()).unwrap();
    assert_eq!((&line["name"], &line["lease_id"]), (&there.into(), &lease.to_string().into()), "{line}");
    watching.kill().unwrap();
    watching.wait().unwrap();
}
