//! Changes of members while clients work, made on the command line as operators make them.

use crate::cluster::{self, BINARY, Cluster, Making, PATIENCE, until};
use crate::load::{Load, Weight};
use crate::record::Recorder;
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio_stream::StreamExt;
use tollgate_client::{Client, Token, Watch, WatchItem};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{
    AddMemberRequest, GetLockRequest, GroupsRequest, LeaseGrantRequest, MembersRequest, PromoteMemberRequest,
    StatusRequest, TransferRequest,
};

/// Result of a command that has ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs `tollgate` with the endpoints of the running nodes.
async fn tollgate(cluster: &Cluster, arguments: &[&str]) -> Ended {
    let running = cluster.nodes.iter().filter(|node| node.runs());
    let endpoints: Vec<String> = running.map(cluster::Node::endpoint).collect();
    let mut command = Command::new(BINARY);
    command.args(arguments).env("TOLLGATE_ENDPOINTS", endpoints.join(","));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

pub(crate) async fn done(cluster: &Cluster, arguments: &[&str]) -> String {
    let ended = tollgate(cluster, arguments).await;
    println!("$ tollgate {}\n{}{}", arguments.join(" "), ended.stderr, ended.stdout);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    ended.stdout
}

/// Checks that a command is refused in these words.
async fn refused(cluster: &Cluster, arguments: &[&str], words: &[&str]) {
    let ended = tollgate(cluster, arguments).await;
    println!("$ tollgate {}\n{}{}", arguments.join(" "), ended.stderr, ended.stdout);
    assert_eq!(ended.code, Some(1), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{arguments:?} does not say {word:?}: {}", ended.stderr);
    }
}

/// Adds a node that was prepared, and starts it.
async fn add(cluster: &mut Cluster, index: usize, more: &[&str]) -> String {
    let local = |port: u16| format!("127.0.0.1:{port}");
    let (peer, client) = (local(cluster.nodes[index].ports.peer), local(cluster.nodes[index].ports.client));
    let fixed = ["member", "add", "--peer", &peer, "--client", &client, "-o", "json"];
    let said = done(cluster, &[&fixed, more].concat()).await;
    let added: Value = serde_json::from_str(&said).unwrap();
    let id = added["node_id"].as_str().unwrap().to_owned();
    assert_eq!(id, (index + 1).to_string(), "ids are given in order");
    let command = added["command"].as_str().unwrap();
    assert!(command.contains(&format!("--node-id {id} ")) && command.contains("--cluster-join"), "{command}");
    cluster.restart(index);
    id
}

/// Adds a node, starts it, and gives it a vote.
pub(crate) async fn grow(cluster: &mut Cluster, index: usize, more: &[&str]) {
    let id = add(cluster, index, more).await;
    done(cluster, &["member", "promote", &id, "--wait=30s"]).await;
}

/// Returns the voters, as a node knows them.
async fn voters(cluster: &Cluster, of: usize) -> Vec<u64> {
    let mut admin = AdminServiceClient::new(cluster.nodes[of].channel(PATIENCE));
    let members = admin.members(MembersRequest::default()).await.unwrap().into_inner().members;
    members.iter().filter(|member| member.votes).map(|member| member.node_id).collect()
}

/// A program that takes a lock repeatedly, and initially knows one node's address only. Any error ends it.
struct Program {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Program {
    fn start(endpoint: String) -> Program {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&rounds));
        let task = tokio::spawn(async move {
            let client = Client::connect([endpoint]).await.unwrap();
            let session = client.session().ttl(Duration::from_secs(10)).open().await.unwrap();
            let held = session.lock("held/throughout").acquire().await.unwrap();
            while !stopped.load(Ordering::Relaxed) {
                let guard = session.lock("again/and/again").acquire().await.unwrap();
                guard.release().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(held.token().is_ok(), "its first lock was never lost");
            held.release().await.unwrap();
        });
        Program { stop, rounds, task }
    }

    async fn progress(&self) {
        let goal = self.rounds.load(Ordering::Relaxed) + 20;
        until("the program goes on", || async {
            assert!(!self.task.is_finished(), "it has ended");
            self.rounds.load(Ordering::Relaxed) >= goal
        })
        .await;
    }

    async fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_grows_from_one_to_five_and_shrinks_to_three_others_under_load() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    for _ in 1..5 {
        cluster.newcomer();
    }
    let load = Load::start(&cluster, Weight::usual());
    load.progress(20).await;
    for index in 1..5 {
        grow(&mut cluster, index, &["--zone", ["west", "east"][index % 2]]).await;
        load.progress(20).await;
    }
    println!("{}", done(&cluster, &["member", "ls"]).await);
    assert_eq!(voters(&cluster, 4).await, [1, 2, 3, 4, 5]);
    // The first node, which all clients began with and which may lead, is removed first.
    for index in [0, 1] {
        let id = (index + 1).to_string();
        done(&cluster, &["member", "remove", &id]).await;
        until("the removed node says so", || async {
            cluster.nodes[index].log().contains("this node was removed from the cluster")
        })
        .await;
        load.progress(20).await;
        cluster.nodes[index].kill();
        load.progress(20).await;
    }
    assert_eq!(voters(&cluster, 2).await, [3, 4, 5]);
    // The remaining nodes know each other without the configuration that they were started with.
    let follower = cluster.follower().await;
    cluster.nodes[follower].kill();
    cluster.restart(follower);
    cluster.until_ready().await;
    load.finish(&cluster).await;
    println!("{}", done(&cluster, &["status"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_given_one_node_follows_the_cluster_away_from_it() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    let program = Program::start(cluster.nodes[0].endpoint());
    program.progress().await;
    for _ in 0..2 {
        let index = cluster.newcomer();
        grow(&mut cluster, index, &[]).await;
        program.progress().await;
    }
    done(&cluster, &["member", "remove", "1"]).await;
    program.progress().await;
    cluster.nodes[0].kill();
    program.progress().await;
    program.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_watch_goes_on_elsewhere_when_its_node_is_removed_from_its_group() {
    let cluster = Cluster::start(Making::nodes(3).flags(&["--cluster-groups", "4"])).await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let session = client.session().open().await.unwrap();
    let groups = Recorder::of_groups(4);
    let names: Vec<String> =
        groups.groups().map(|group| groups.name_in(group, "watched").to_string()).collect();
    let mut watches = Vec::new();
    for name in &names {
        watches.push(client.watch().locks().name(name.as_str()).open().await.unwrap());
    }
    for _ in 0..2 {
        for (name, watch) in names.iter().zip(&mut watches) {
            let guard = session.lock(name.as_str()).acquire().await.unwrap();
            let token = guard.token().unwrap();
            guard.release().await.unwrap();
            tokio::time::timeout(PATIENCE, until_granted(watch, token)).await.expect("the watch goes on");
        }
        // The node stops being a member of the last group first, and of group 0 a while later.
        let served_by = watches[3].endpoint();
        let serves = cluster.nodes.iter().position(|node| node.endpoint() == served_by).unwrap();
        if voters(&cluster, serves).await.len() == 3 {
            done(&cluster, &["member", "remove", &(serves + 1).to_string()]).await;
        }
    }
}

async fn until_granted(watch: &mut Watch, token: Token) {
    loop {
        match watch.next().await.unwrap().unwrap() {
            WatchItem::Event(event) if event.change.granted() == Some(token) => return,
            WatchItem::Event(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_replaced_under_load() {
    let mut cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual());
    load.progress(20).await;
    let dead = cluster.follower().await;
    let dead_id = (dead + 1).to_string();
    cluster.nodes[dead].kill();
    std::fs::remove_dir_all(&cluster.nodes[dead].data_dir).unwrap();
    let by = cluster.newcomer();
    let id = add(&mut cluster, by, &[]).await;
    let said = done(&cluster, &["member", "replace", &dead_id, "--by", &id, "--wait=30s"]).await;
    assert!(said.contains(&format!("in the place of node {dead_id}")), "{said}");
    load.progress(20).await;
    let expected: Vec<u64> = (1..=4).filter(|id| id.to_string() != dead_id).collect();
    assert_eq!(voters(&cluster, by).await, expected);
    // The repeated command has nothing left to do.
    done(&cluster, &["member", "replace", &dead_id, "--by", &id]).await;
    // The new node counts: with another one gone, it is needed for the majority.
    let follower = (0..3).find(|index| *index != dead).unwrap();
    cluster.nodes[follower].kill();
    load.progress(20).await;
    cluster.restart(follower);
    cluster.until_ready().await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_keeps_a_cluster_alive_and_refuses_clients() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    let (full, witness) = (cluster.newcomer(), cluster.newcomer());
    grow(&mut cluster, full, &[]).await;
    grow(&mut cluster, witness, &["--witness"]).await;
    let load = Load::start_on(&cluster, &Weight::usual(), &[0, full]);
    load.progress(20).await;
    let mut door = cluster.nodes[witness].locks();
    let says = door.lease_grant(LeaseGrantRequest { ttl: 10, ..Default::default() }).await.unwrap_err();
    assert!(says.message().contains("witness") && says.message().contains("full member"), "{says}");
    let says = door.get_lock(GetLockRequest { name: "a".into(), ..Default::default() }).await.unwrap_err();
    assert!(says.message().contains("witness"), "{says}");
    assert!(cluster.nodes[witness].is_ready().await, "it does what it is for");
    let (status, why) = cluster.nodes[witness].http("GET", "/readyz", "").await.unwrap();
    assert!(status == 503 && why.contains("a witness serves no clients"), "{status} {why}");
    // The leader, one of the two nodes with the locks, is killed: the other goes on with the witness's vote.
    let dead = cluster.leader().await;
    let left = full - dead;
    let (dead_id, left_id) = ((dead + 1).to_string(), (left + 1).to_string());
    cluster.nodes[dead].kill();
    load.progress(20).await;
    refused(
        &cluster,
        &["member", "remove", &left_id],
        &["only 1 of the 2 voters", "bring more of them back"],
    )
    .await;
    done(&cluster, &["member", "remove", &dead_id]).await;
    refused(&cluster, &["member", "remove", &left_id], &["no voter that keeps locks", "add a full member"])
        .await;
    load.progress(20).await;
    load.finish(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_is_refused_with_what_to_do_instead() {
    let mut cluster = cluster::three().await;
    let local = |port: u16| format!("127.0.0.1:{port}");
    let (peer, client) = (local(crate::ports::take()), local(crate::ports::take()));
    let add = ["member", "add", "--peer", &peer, "--client", &client];
    refused(&cluster, &["member", "remove", "9"], &["node 9 is not a member", "member ls"]).await;
    refused(&cluster, &["member", "promote", "9"], &["node 9 is not a member"]).await;
    // There is nothing to wait for: the command fails at once.
    refused(&cluster, &["member", "promote", "9", "--wait=20s"], &["node 9 is not a member"]).await;
    refused(&cluster, &["member", "replace", "3", "--by", "9", "--wait=20s"], &["node 9 is not a member"])
        .await;
    refused(&cluster, &["member", "replace", "9", "--by", "1"], &["node 9 is not a member"]).await;
    refused(&cluster, &[&add[..], &["--id", "2"]].concat(), &["node id 2 was used before", "from 4 on"])
        .await;
    let taken = local(cluster.nodes[0].ports.peer);
    let twice = ["member", "add", "--peer", &taken, "--client", &client];
    refused(&cluster, &twice, &["node 1 is at one of these addresses"]).await;
    let wrong = tollgate(&cluster, &["member", "add", "--peer", "nowhere", "--client", &client]).await;
    assert!(wrong.code == Some(64) && wrong.stderr.contains("peer_address"), "{}", wrong.stderr);
    // A node that was not started can't have caught up.
    done(&cluster, &add).await;
    refused(
        &cluster,
        &["member", "promote", "4"],
        &["node 4 is", "entries behind", "wait until it has caught up"],
    )
    .await;
    let late = tollgate(&cluster, &["member", "promote", "4", "--wait=1s"]).await;
    assert!(late.code == Some(75) && late.stderr.contains("not heard from yet"), "{}", late.stderr);
    done(&cluster, &["member", "remove", "4"]).await;
    // Nodes that may not join say so and stop.
    let newcomer = cluster.newcomer();
    let own = cluster.nodes[newcomer].arguments().to_vec();
    let dir = cluster.dir.path().join("empty").display().to_string();
    let joins = |id: &str, name: &str| {
        with(&own, &[("--node-id", id), ("--cluster-name", name), ("--node-data-dir", &dir)])
    };
    for (arguments, words) in [
        (joins("5", "it"), ["the cluster has no node 5", "tollgate member add"]),
        (joins("4", "it"), ["was removed from the cluster", "never used again"]),
        (joins("2", "it"), ["node 2 votes in the cluster already", "is empty: its disk is gone"]),
        (joins("5", "other"), ["is a node of cluster", "check cluster.name"]),
    ] {
        let says = not_started(&arguments).await;
        assert!(words.iter().all(|word| says.contains(word)), "{words:?}: {says}");
        assert!(!std::path::Path::new(&dir).exists(), "nothing was founded");
    }
    // With one of three nodes gone, another one can't be removed.
    let follower = cluster.follower().await;
    cluster.nodes[follower].kill();
    let leader = cluster.leader().await;
    let other = (0..3).find(|index| ![leader, follower].contains(index)).unwrap();
    let (gone, other_id) = (follower as u64 + 1, (other + 1).to_string());
    until("the leader has noticed", || async {
        let mut admin = AdminServiceClient::new(cluster.nodes[leader].channel(PATIENCE));
        let groups = admin.groups(GroupsRequest::default()).await.unwrap().into_inner().groups;
        groups[0].progress.iter().any(|progress| progress.node_id == gone && !progress.active)
    })
    .await;
    let words = ["only 1 of the 2 voters that would remain answer", "bring more of them back first"];
    refused(&cluster, &["member", "remove", &other_id], &words).await;
}

/// Returns the row of a node in `member ls`, with single spaces.
async fn row(cluster: &Cluster, id: &str) -> String {
    let listed = done(cluster, &["member", "ls"]).await;
    let of = |row: &&str| row.split_whitespace().next() == Some(id);
    let row = listed.lines().find(of).unwrap_or_else(|| panic!("no node {id}: {listed}"));
    row.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_interrupted_is_seen_in_the_list_and_goes_on() {
    let mut cluster = Cluster::start(Making::nodes(1).flags(&["--cluster-groups", "2"])).await;
    let newcomer = cluster.newcomer();
    let ports = cluster.nodes[newcomer].ports;
    let mut admin = AdminServiceClient::new(cluster.nodes[0].channel(PATIENCE));
    let local = |port: u16| format!("127.0.0.1:{port}");
    let (peer_address, client_address) = (local(ports.peer), local(ports.client));
    let mut new = AddMemberRequest { peer_address, client_address, group_ids: vec![0], ..Default::default() };
    admin.add_member(new.clone()).await.unwrap();
    let seen = row(&cluster, "2").await;
    assert!(seen.contains("learner (in 1 of 2 groups) no"), "{seen}");
    new.group_ids.clear();
    assert_eq!(admin.add_member(new).await.unwrap().into_inner().node_id, 2);
    cluster.restart(newcomer);
    let half = PromoteMemberRequest { node_id: 2, group_ids: vec![1], ..Default::default() };
    until("it votes in one group", || async { admin.clone().promote_member(half.clone()).await.is_ok() })
        .await;
    let seen = row(&cluster, "2").await;
    assert!(seen.contains("learner partly (1 of 2 groups)"), "{seen}");
    done(&cluster, &["member", "promote", "2", "--wait=30s"]).await;
    let seen = row(&cluster, "2").await;
    assert!(seen.contains("voter yes"), "{seen}");
}

/// Transfers the leadership of a group to a node.
async fn led_by(cluster: &Cluster, group_id: u32, node: usize) {
    let request = TransferRequest { group_id, node_id: node as u64 + 1, passed_on: false };
    until("it leads the group", || async {
        for asked in &cluster.nodes {
            // Nodes that do not lead refuse.
            let _ = AdminServiceClient::new(asked.channel(PATIENCE)).transfer(request).await;
        }
        let replicas = cluster.nodes[node].ports.replicas().await;
        replicas.iter().any(|replica| replica.group_id == group_id && replica.serves)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_nobody_waits_for_any_more_is_made_in_every_group() {
    let making = Making::nodes(3).flags(&["--cluster-groups", "2", "--raft-balance-ms", "0"]);
    let mut cluster = Cluster::start(making).await;
    led_by(&cluster, 0, 0).await;
    led_by(&cluster, 1, 1).await;
    let newcomer = cluster.newcomer();
    let ports = cluster.nodes[newcomer].ports;
    let local = |port: u16| format!("127.0.0.1:{port}");
    let (peer_address, client_address) = (local(ports.peer), local(ports.client));
    let new = AddMemberRequest { peer_address, client_address, ..Default::default() };
    // The leader of the second group is paused: before another node leads it, the caller has hung up.
    cluster.nodes[1].signal("STOP");
    let mut hasty = AdminServiceClient::new(cluster.nodes[0].channel(Duration::from_millis(200)));
    hasty.add_member(new).await.unwrap_err();
    let mut admin = AdminServiceClient::new(cluster.nodes[0].channel(PATIENCE));
    let mut learners = async || {
        let groups = admin.groups(GroupsRequest::default()).await.unwrap().into_inner().groups;
        groups.into_iter().map(|group| group.learners).collect::<Vec<_>>()
    };
    let begun = std::time::Instant::now();
    while learners().await != [[4], [4]] {
        assert!(begun.elapsed() < Duration::from_secs(15), "it was left half done");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.nodes[1].signal("CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_outlasts_a_cluster_that_finds_no_leader_for_a_while() {
    let mut cluster = cluster::three().await;
    let newcomer = cluster.newcomer();
    let ports = cluster.nodes[newcomer].ports;
    let leader = cluster.leader().await;
    let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    for other in &others {
        cluster.nodes[*other].signal("STOP");
    }
    let local = |port: u16| format!("127.0.0.1:{port}");
    let mut command = Command::new(BINARY);
    command.args(["member", "add", "--peer", &local(ports.peer), "--client", &local(ports.client)]);
    command.env("TOLLGATE_ENDPOINTS", cluster.nodes[leader].endpoint());
    let added = tokio::task::spawn_blocking(move || command.output().unwrap());
    // Longer than a call to a single leader is retried.
    tokio::time::sleep(Duration::from_secs(17)).await;
    for other in &others {
        cluster.nodes[*other].signal("CONT");
    }
    let added = added.await.unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    assert!(String::from_utf8_lossy(&added.stdout).contains("node 4 is added"));
}

/// Returns the arguments with other values for some flags.
fn with(arguments: &[String], others: &[(&str, &str)]) -> Vec<String> {
    let mut changed = arguments.to_vec();
    for (flag, value) in others {
        let place = changed.iter().position(|argument| argument == flag).unwrap();
        (*value).clone_into(&mut changed[place + 1]);
    }
    changed
}

/// Starts a node that must refuse to start; returns its message.
async fn not_started(arguments: &[String]) -> String {
    let mut command = Command::new("timeout");
    command.args(["20", BINARY, "server"]).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{says}");
    says
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_that_comes_back_disturbs_nobody() {
    let mut cluster = cluster::three().await;
    let load = Load::start(&cluster, Weight::usual());
    load.progress(20).await;
    let gone = cluster.follower().await;
    done(&cluster, &["member", "remove", &(gone + 1).to_string()]).await;
    let leader = cluster.leader_but(Some(gone)).await;
    let term = cluster.nodes[leader].replica().await.unwrap().raft_term;
    let says = "and takes no part any more";
    for round in 1..=2 {
        until("it says that it was removed", || async {
            cluster.nodes[gone].log().matches(says).count() == round
        })
        .await;
        let mut admin = AdminServiceClient::new(cluster.nodes[gone].channel(PATIENCE));
        let warnings = admin.status(StatusRequest::default()).await.unwrap().into_inner().warnings;
        assert!(warnings.iter().any(|warning| warning.contains("was removed")), "{warnings:?}");
        assert!(!cluster.nodes[gone].is_ready().await);
        // Longer than any election that the removed node could have caused.
        load.progress(100).await;
        let replica = cluster.nodes[leader].replica().await.unwrap();
        assert_eq!((replica.raft_term, replica.serves), (term, true), "the same leader, in the same term");
        if round == 1 {
            cluster.nodes[gone].kill();
            cluster.restart(gone);
        }
    }
    cluster.nodes[gone].kill();
    load.finish(&cluster).await;
}

/// A process that is killed with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The printed command can be pasted as it is.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_that_is_printed_starts_the_node() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let data_dir = cluster.dir.path().join("a newcomer").display().to_string();
    // The HTTP port is the client port plus two: no other test gets it, nor does the peer port.
    let client = loop {
        let (client, between, http) = (crate::ports::take(), crate::ports::take(), crate::ports::take());
        if (between, http) == (client + 1, client + 2) {
            break client;
        }
    };
    let local = |port: u16| format!("127.0.0.1:{port}");
    let (peer, client) = (local(crate::ports::take()), local(client));
    let add = ["member", "add", "--peer", &peer, "--client", &client, "--data-dir", &data_dir, "-o", "json"];
    let added: Value = serde_json::from_str(&done(&cluster, &add).await).unwrap();
    let command = added["command"].as_str().unwrap().strip_prefix("tollgate").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {BINARY}{command}")]);
    let _node = Killed(shell.stderr(Stdio::null()).spawn().unwrap());
    done(&cluster, &["member", "promote", "2", "--wait", "30s"]).await;
    let versions = done(&cluster, &["member", "ls"]).await;
    assert!(versions.contains("VERSION") && versions.contains(env!("CARGO_PKG_VERSION")), "{versions}");
}
