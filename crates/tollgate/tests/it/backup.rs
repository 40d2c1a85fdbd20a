//! Backup and restore: a cluster is saved, goes on and is lost, and a new one is made from the backup.

use crate::cluster::{self, BINARY, Cluster, Making, Node, PATIENCE};
use crate::membership::{done, grow};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::register_service_client::RegisterServiceClient;
use tollgate_proto::v1::{
    ErrorReason, ExplainRequest, GetRequest, LeaseGrantRequest, LeaseTimeToLiveRequest, LockRequest,
    LockResponse, PutRequest, UnlockRequest,
};
use tonic::{Code, Response, Status};

/// Grace of the restored clusters: long enough to see that nothing is granted, short enough to wait for.
const GRACE: Duration = Duration::from_secs(4);

pub(crate) fn tollgate(endpoints: &[String], arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.env_remove("TOLLGATE_ENDPOINTS").args(arguments).stdin(Stdio::null());
    if !endpoints.is_empty() {
        command.env("TOLLGATE_ENDPOINTS", endpoints.join(","));
    }
    command.output().unwrap()
}

#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn refusal(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Makes a call again while a change of leaders leaves its outcome open. For calls that do no harm when repeated.
async fn repeated<T>(call: impl AsyncFn() -> Result<Response<T>, Status>) -> Result<T, Status> {
    let until = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(response) => return Ok(response.into_inner()),
            Err(status) if reason(&status) == Some(ErrorReason::Indeterminate) && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(status) => return Err(status),
        }
    }
}

fn reason(status: &Status) -> Option<ErrorReason> {
    error_of_status(status).map(|error| error.reason())
}

pub(crate) async fn grant(cluster: &Cluster, id: u64) {
    let client_id = "it".to_owned();
    let request = LeaseGrantRequest { id, ttl_ms: 600_000, client_id, ..Default::default() };
    repeated(async || cluster.nodes[0].locks().lease_grant(request.clone()).await).await.unwrap();
}

pub(crate) async fn lock(cluster: &Cluster, name: &str, lease_id: u64, timeout_ms: i64) -> LockResponse {
    let request = LockRequest { name: name.into(), lease_id, timeout_ms, ..Default::default() };
    repeated(async || cluster.nodes[0].locks().lock(request.clone()).await).await.unwrap()
}

async fn unlock(cluster: &Cluster, name: &str, lease_id: u64) {
    let request = UnlockRequest { name: name.into(), lease_id, ..Default::default() };
    // After a first attempt that did it, there is nothing to unlock.
    match repeated(async || cluster.nodes[0].locks().unlock(request.clone()).await).await {
        Err(status) if reason(&status) == Some(ErrorReason::NotHeld) => {}
        unlocked => drop(unlocked.unwrap()),
    }
}

fn registers(cluster: &Cluster) -> RegisterServiceClient<tonic::transport::Channel> {
    RegisterServiceClient::new(cluster.nodes[0].channel(PATIENCE))
}

pub(crate) async fn put(cluster: &Cluster, key: &str, value: &str, lease_id: u64) {
    let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    let request = PutRequest { key, value, lease_id, ..Default::default() };
    repeated(async || registers(cluster).put(request.clone()).await).await.unwrap();
}

pub(crate) async fn get(cluster: &Cluster, key: &str) -> Option<String> {
    let request = GetRequest { key: key.as_bytes().to_vec(), ..Default::default() };
    let found = registers(cluster).get(request).await.unwrap().into_inner().register;
    found.map(|register| String::from_utf8(register.value).unwrap())
}

/// A cluster that was saved and then went on, and the highest tokens that it gave out.
struct Lost {
    dir: TempDir,
    file: PathBuf,
    old: Cluster,
    token_saved: u64,
    token_after: u64,
}

/// Makes held locks, a waiter's lease, registers with and without a lease; then a backup; then further changes.
async fn lost() -> Lost {
    let dir = TempDir::with_prefix("tollgate-it-").unwrap();
    let file = dir.path().join("backup.tollgate");
    let old = cluster::three().await;
    grant(&old, 1).await;
    grant(&old, 2).await;
    let token_saved = lock(&old, "jobs", 1, 0).await.fencing_token;
    assert!(lock(&old, "other", 2, 0).await.acquired);
    put(&old, "config", "saved", 0).await;
    put(&old, "alive/1", "on a lease", 1).await;
    let saved =
        json(&tollgate(&old.endpoints(), &["snapshot", "save", file.to_str().unwrap(), "-o", "json"]));
    assert_eq!(saved["groups"][0]["locks"], 2, "{saved}");
    // The backup contains nothing of the changes from here on.
    unlock(&old, "jobs", 1).await;
    grant(&old, 3).await;
    let mut token_after = 0;
    for _ in 0..20 {
        token_after = lock(&old, "jobs", 3, 0).await.fencing_token;
        unlock(&old, "jobs", 3).await;
    }
    assert!(lock(&old, "jobs", 3, 0).await.acquired);
    put(&old, "config", "after", 0).await;
    assert!(token_after > token_saved);
    Lost { dir, file, old, token_saved, token_after }
}

impl Lost {
    fn data_dir(&self, name: &str, node: usize) -> PathBuf {
        data_dir(self.dir.path(), name, node)
    }

    fn status(&self) -> Value {
        json(&tollgate(&[], &["snapshot", "status", self.file.to_str().unwrap(), "-o", "json"]))
    }

    fn restore(&self, name: &str, node: usize, more: &[&str]) -> Output {
        restore(&self.file, self.dir.path(), name, node, more)
    }

    async fn new_cluster(&self, name: &'static str, grace: &str) -> (Cluster, u64) {
        new_cluster(&self.file, self.dir.path(), name, grace).await
    }
}

/// Returns the data directory of a node of a new cluster.
fn data_dir(dir: &Path, name: &str, node: usize) -> PathBuf {
    dir.join(format!("{name}-{node}"))
}

fn restore(file: &Path, dir: &Path, name: &str, node: usize, more: &[&str]) -> Output {
    let (data_dir, node) = (data_dir(dir, name, node), node.to_string());
    let mut arguments = vec!["snapshot", "restore", file.to_str().unwrap(), "-o", "json"];
    arguments.extend(["--cluster-name", name, "--members", "1,2,3", "--node-id", &node]);
    arguments.extend(["--data-dir", data_dir.to_str().unwrap()]);
    arguments.extend(more);
    tollgate(&[], &arguments)
}

/// Restores all three nodes of a new cluster, with the token from the first one's answer, and starts them. Also returns
/// the token that all new tokens must exceed.
pub(crate) async fn new_cluster(file: &Path, dir: &Path, name: &'static str, grace: &str) -> (Cluster, u64) {
    let first = json(&restore(file, dir, name, 1, &["--grace", grace]));
    let above = first["above_token"].as_str().unwrap().to_owned();
    for node in [2, 3] {
        let other = json(&restore(file, dir, name, node, &["--grace", grace, "--above-token", &above]));
        assert_eq!(other["cluster_id"], first["cluster_id"]);
    }
    let (id, groups) = (first["cluster_id"].as_str().unwrap(), first["groups"].to_string());
    let data_dirs = (0..3).map(|index| (index, data_dir(dir, name, index + 1))).collect();
    let flags = ["--cluster-groups", &groups, "--cluster-id", id];
    let making = Making { name, data_dirs, ..Making::nodes(3).flags(&flags) };
    let mut cluster = Cluster::prepare(&making).await;
    for node in 0..3 {
        cluster.restart(node);
    }
    cluster.until_ready().await;
    (cluster, above.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn p2_a_restored_cluster_grants_after_its_grace_and_above_every_token_of_the_old_one() {
    let lost = lost().await;
    drop_all(&lost.old);
    let began = Instant::now();
    let (new, above) = lost.new_cluster("it-2", "4s").await;
    assert!(above > lost.token_after + (1 << 32) - 100, "{above} is not far above {}", lost.token_after);
    assert_eq!(get(&new, "config").await.as_deref(), Some("saved"));
    assert_eq!(get(&new, "alive/1").await, None, "what was on a lease ended with it");
    let ended = LeaseTimeToLiveRequest { id: 1, ..Default::default() };
    assert_eq!(new.nodes[1].locks().lease_time_to_live(ended).await.unwrap_err().code(), Code::NotFound);

    // A holder may still believe in the lock that lease 3 got after the backup.
    grant(&new, 7).await;
    let tried = lock(&new, "jobs", 7, 0).await;
    assert!(!tried.acquired && tried.restored && tried.closed_ms > 0, "{tried:?}");
    assert!(tried.closed_ms <= i64::try_from(GRACE.as_millis()).unwrap(), "{tried:?}");
    let lines = new.nodes[2].locks().explain(ExplainRequest { name: "jobs".into() }).await.unwrap();
    let lines = lines.into_inner().lines.join("\n");
    assert!(lines.contains("restored from a backup"), "{lines}");
    let busy = tollgate(&new.endpoints(), &["run", "jobs", "--try", "--", "true"]);
    assert_eq!(busy.status.code(), Some(75));
    assert!(refusal(&busy).contains("restored from a backup and grants nothing for"), "{busy:?}");
    let waited = lock(&new, "jobs", 7, 60_000).await;
    assert!(waited.acquired, "{waited:?}");
    // Log time begins with the first leader, after the restore.
    assert!(began.elapsed() >= GRACE, "granted after {:?}", began.elapsed());
    let (before, after) = (lost.token_after, waited.fencing_token);
    println!(
        "tokens: saved {}, last of the old cluster {before}, first of the new one {after}",
        lost.token_saved
    );
    assert!(after > above && above > before && after < 1 << 53);
    assert!(lock(&new, "never-seen", 7, 0).await.acquired);
    states_agree(&new).await;
}

/// Only the operators' files say where the first members of a restored cluster are.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_cluster_grows_like_any_other() {
    let lost = lost().await;
    drop_all(&lost.old);
    let (mut new, _) = lost.new_cluster("it-7", "none").await;
    let id = new.nodes[0].arguments().last().unwrap().clone();
    let fourth = new.newcomer();
    new.nodes[fourth].add_flags(&["--cluster-id", &id]);
    grow(&mut new, fourth, &[]).await;
    // With one of the first members gone, the other two are no majority of four: the fourth counts, also after a
    // restart.
    new.nodes[2].kill();
    new.nodes[fourth].kill();
    new.restart(fourth);
    new.until_ready().await;
    grant(&new, 7).await;
    assert!(lock(&new, "jobs", 7, 10_000).await.acquired);
    // Requests to the fourth node are passed on to the leader.
    if new.leader().await == fourth {
        done(&new, &["group", "transfer", "0", "--to", "1"]).await;
        new.leader_but(Some(fourth)).await;
    }
    let request = LockRequest { name: "jobs-2".into(), lease_id: 7, timeout_ms: 0, ..Default::default() };
    let locked = new.nodes[fourth].locks().lock(request).await.unwrap().into_inner();
    assert!(locked.acquired, "{locked:?}");
    let listed = done(&new, &["member", "ls", "-o", "json"]).await;
    assert!(!listed.contains("\"client_address\":\"\""), "{listed}");
}

/// A bootstrapped node would have empty states, and the members of another cluster.
#[tokio::test(flavor = "multi_thread")]
async fn p2_a_node_of_a_restored_cluster_is_not_bootstrapped() {
    let id = "00000000000000ff";
    let mut cluster = Cluster::prepare(&Making::nodes(1).flags(&["--cluster-id", id])).await;
    cluster.bootstrap(0);
    let status = cluster.nodes[0].until_exited().await;
    let says = cluster.nodes[0].log();
    assert_eq!(status.code(), Some(78), "{says}");
    assert!(says.contains("restored cluster") && says.contains("tollgate snapshot restore"), "{says}");
    assert!(!cluster.nodes[0].data_dir.exists());
}

/// P12: the replicas of the new cluster have applied the same entries, from the same beginning.
async fn states_agree(cluster: &Cluster) {
    cluster::until("all replicas are at one revision", || async {
        let mut revisions = Vec::new();
        for node in &cluster.nodes {
            revisions.push(node.replica().await.map(|replica| (replica.revision, replica.locks)));
        }
        revisions.iter().all(|revision| revision.is_some() && *revision == revisions[0])
    })
    .await;
}

fn drop_all(cluster: &Cluster) {
    for node in &cluster.nodes {
        node.signal("KILL");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_grace_locks_are_granted_at_once_and_nodes_of_the_old_cluster_are_refused() {
    let mut lost = lost().await;
    let (mut new, above) = lost.new_cluster("it-3", "none").await;
    grant(&new, 7).await;
    let locked = lock(&new, "jobs", 7, 10_000).await;
    assert!(locked.acquired && locked.fencing_token > above, "{locked:?}");

    // A forgotten node of the old cluster: once with the new cluster's flags, and once with its own.
    new.nodes[2].kill();
    lost.old.nodes[2].kill();
    let old_dir = lost.old.nodes[2].data_dir.display().to_string();
    let mut told = Stray::start(&new.nodes[2], &[("--node-data-dir", &old_dir)]);
    assert_eq!(told.until_exited().await, Some(1));
    assert!(told.log().contains("belongs to cluster"), "{}", told.log());
    let old_id = lost.status()["cluster_id"].as_str().unwrap().to_owned();
    let itself = [("--node-data-dir", &*old_dir), ("--cluster-name", "it"), ("--cluster-id", &*old_id)];
    let stray = Stray::start(&new.nodes[2], &itself);
    cluster::until("the new cluster refuses it", || async {
        new.nodes[..2].iter().any(|node| node.log().contains("a connection to the peer port was refused"))
    })
    .await;
    assert!(lock(&new, "jobs-2", 7, 10_000).await.acquired);
    drop(stray);
    new.restart(2);
    new.until_ready().await;
}

/// A process beside the cluster, which ends with the test.
pub(crate) struct Stray {
    pub(crate) child: std::process::Child,
    log: tempfile::NamedTempFile,
}

impl Stray {
    /// Starts a server with the flags of a node, some of them changed.
    fn start(node: &Node, changed: &[(&str, &str)]) -> Stray {
        let mut arguments = node.arguments().to_vec();
        for (flag, value) in changed {
            let at = arguments.iter().position(|argument| argument == flag).unwrap();
            (*value).clone_into(&mut arguments[at + 1]);
        }
        let mut command = Command::new(BINARY);
        command.arg("server").args(arguments);
        Stray::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Stray {
        let log = tempfile::NamedTempFile::new().unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.reopen().unwrap());
        Stray { child: command.spawn().unwrap(), log }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    pub(crate) async fn until_exited(&mut self) -> Option<i32> {
        let mut status = None;
        cluster::until("it ends by itself", || {
            status = self.child.try_wait().unwrap();
            let ended = status.is_some();
            async move { ended }
        })
        .await;
        status.and_then(|status| status.code())
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_restore_is_said_and_leaves_nothing() {
    let lost = lost().await;
    let same = refusal(&lost.restore("it", 1, &[]));
    assert!(same.contains("another name"), "{same}");
    let low = refusal(&lost.restore("it-4", 1, &["--above-token", "1"]));
    assert!(low.contains("in the backup itself"), "{low}");
    let high = refusal(&lost.restore("it-4", 1, &["--above-token", "9007199254740992"]));
    assert!(high.contains("2^53"), "{high}");
    let stranger = refusal(&lost.restore("it-4", 4, &[]));
    assert!(stranger.contains("--members"), "{stranger}");
    assert!(!lost.data_dir("it-4", 1).exists());

    // Restored with another token, the node belongs to another cluster, and is refused.
    let one = json(&lost.restore("it-5", 1, &["--above-token", "5000000000"]));
    let other = json(&lost.restore("it-5", 2, &["--above-token", "5000000001"]));
    assert_ne!(one["cluster_id"], other["cluster_id"]);
    let again = refusal(&lost.restore("it-5", 1, &[]));
    assert!(again.contains("is not empty"), "{again}");

    let good = std::fs::read(&lost.file).unwrap();
    for at in (0..good.len()).step_by(97).chain([good.len() - 1]) {
        let mut damaged = good.clone();
        damaged[at] ^= 4;
        std::fs::write(&lost.file, &damaged).unwrap();
        let status = refusal(&tollgate(&[], &["snapshot", "status", lost.file.to_str().unwrap()]));
        let says = ["damaged at byte", "not a backup", "format"].iter().any(|part| status.contains(part));
        assert!(says, "byte {at}: {status}");
    }
    let refused = refusal(&lost.restore("it-6", 1, &[]));
    assert!(refused.contains("backup"), "{refused}");
    assert!(!lost.data_dir("it-6", 1).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_is_there_whole_or_not_at_all() {
    let cluster = cluster::three().await;
    put(&cluster, "k", "v", 0).await;
    let dir = TempDir::with_prefix("tollgate-it-").unwrap();
    let file = dir.path().join("b");
    let path = file.to_str().unwrap();
    let save = |more: &[&str]| tollgate(&cluster.endpoints(), &[&["snapshot", "save", path], more].concat());
    assert!(save(&[]).status.success());
    let first = std::fs::read(&file).unwrap();
    let refused = save(&[]);
    assert_eq!(refused.status.code(), Some(64));
    assert!(refusal(&refused).contains("--force"));
    assert_eq!(std::fs::read(&file).unwrap(), first);
    put(&cluster, "k2", "v", 0).await;
    assert!(save(&["--force"]).status.success());
    let status = json(&tollgate(&[], &["snapshot", "status", path, "-o", "json"]));
    assert_eq!(
        (status["cluster_name"].as_str(), status["groups"][0]["registers"].as_u64()),
        (Some("it"), Some(2))
    );

    // There is no cluster to save: nothing is left of the attempt.
    let nowhere = tollgate(&["http://127.0.0.1:9".into()], &["snapshot", "save", &format!("{path}-2")]);
    assert_eq!(nowhere.status.code(), Some(69));
    assert_eq!(names(dir.path()), ["b"]);
}

/// This holds however early or late the signal comes.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_save_leaves_nothing_or_all_of_it() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    for number in 0..200 {
        put(&cluster, &format!("k/{number}"), &"v".repeat(60_000), 0).await;
    }
    for (round, signal) in ["INT", "TERM", "INT", "TERM"].into_iter().enumerate() {
        let dir = TempDir::with_prefix("tollgate-it-").unwrap();
        let mut command = Command::new(BINARY);
        command.env("TOLLGATE_ENDPOINTS", cluster.endpoints().join(","));
        command.args(["snapshot", "save"]).arg(dir.path().join("b"));
        let mut save = Stray::spawn(command);
        let mut begun = || !names(dir.path()).is_empty() || save.child.try_wait().unwrap().is_some();
        cluster::until("it has begun", || {
            let begun = begun();
            async move { begun }
        })
        .await;
        let pid = save.child.id().to_string();
        let _ = Command::new("kill").args([&format!("-{signal}"), &pid]).stderr(Stdio::null()).status();
        let code = save.until_exited().await;
        let expected: &[&str] = if code == Some(0) { &["b"] } else { &[] };
        assert_eq!(names(dir.path()), expected, "round {round}: ended with {code:?}: {}", save.log());
    }
}

/// The save is made to wait in the middle, so that its node can go away.
#[tokio::test(flavor = "multi_thread")]
async fn a_save_whose_node_dies_begins_anew_at_another() {
    let mut cluster = Cluster::start(Making::nodes(3)).await;
    for number in 0..300 {
        put(&cluster, &format!("k/{number}"), &"v".repeat(60_000), 0).await;
    }
    let dir = TempDir::with_prefix("tollgate-it-").unwrap();
    let mut command = Command::new(BINARY);
    command.env("TOLLGATE_ENDPOINTS", cluster.endpoints().join(","));
    command.args(["snapshot", "save"]).arg(dir.path().join("b"));
    let mut save = Stray::spawn(command);
    let mut begun = || !names(dir.path()).is_empty() || save.child.try_wait().unwrap().is_some();
    while !begun() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let pid = save.child.id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &pid]).stderr(Stdio::null()).status();
    signal("-STOP").unwrap();
    let leader = cluster.leader().await;
    cluster.nodes[leader].kill();
    signal("-CONT").unwrap();
    let code = save.until_exited().await;
    assert_eq!((code, names(dir.path())), (Some(0), vec!["b".to_owned()]), "{}", save.log());
    println!("{}", save.log());
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}
