//! Acceptance of peers: only nodes with the disk they always had, and frames only from the sender that they name.

use crate::cluster::{Cluster, GROUP, PATIENCE, acquire, grant, node};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_core::{Reply, Wait, Writer};
use tollgate_node::Fault;
use tollgate_replica::{DataDir, MemberChange};
use tollgate_types::DiskId;

/// Returns the disk of a node that does not run.
pub(crate) fn disk_of(cluster: &Cluster, number: u64) -> DiskId {
    DataDir::open(&cluster.settings_of(number).data_dir, None).unwrap().identity().disk
}

/// Says hello to node `to` as node `from` with this disk; returns the connection and the answer.
pub(crate) async fn hello(cluster: &Cluster, from: u64, to: u64, disk: DiskId) -> (TcpStream, (u8, DiskId)) {
    hello_knowing(cluster, from, to, disk, None).await
}

/// Says hello as [`hello`] does, with the disk by which the other node is known.
async fn hello_knowing(
    cluster: &Cluster,
    from: u64,
    to: u64,
    disk: DiskId,
    known: Option<DiskId>,
) -> (TcpStream, (u8, DiskId)) {
    let mut bytes = b"TOLLGATE\x03\x00".to_vec();
    for number in [7, from, to, disk.number()] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.push(u8::from(known.is_some()));
    bytes.extend(known.map_or(0, DiskId::number).to_le_bytes());
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.peer_port(to))).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = [0; 9];
    // A node that stops may not get to answer.
    if stream.read_exact(&mut answer).await.is_err() {
        return (stream, (u8::MAX, DiskId::new(0)));
    }
    let disk = DiskId::new(u64::from_le_bytes(answer[1..].try_into().unwrap()));
    (stream, (answer[0], disk))
}

/// Answers every dialler in the place of a node that does not run, and keeps the answered hellos, by the id of the
/// dialler.
struct Impostor {
    answered: Arc<Mutex<BTreeMap<u64, Vec<Vec<u8>>>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Impostor {
    async fn start(cluster: &Cluster, number: u64, answer: u8, disk: DiskId) -> Impostor {
        let listener = cluster.listen_as(number).await;
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let answered: Arc<Mutex<BTreeMap<u64, Vec<Vec<u8>>>>> = Arc::default();
        let heard = Arc::clone(&answered);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut hello = vec![0; 100];
                let Ok(read) = stream.read(&mut hello).await else { continue };
                hello.truncate(read);
                let bytes = [&[answer][..], &disk.number().to_le_bytes()].concat();
                if read >= 26 && stream.write_all(&bytes).await.is_ok() {
                    let from = u64::from_le_bytes(hello[18..26].try_into().unwrap());
                    heard.lock().entry(from).or_default().push(hello);
                }
            }
        });
        Impostor { answered, task }
    }

    /// Waits until it has answered a node `times` times; returns the last of these hellos.
    async fn until_answered(&self, number: u64, times: usize) -> Vec<u8> {
        let heard = tokio::time::timeout(PATIENCE, async {
            loop {
                let last = self.answered.lock().get(&number).cloned().unwrap_or_default();
                if last.len() >= times {
                    return last[times - 1].clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        heard.await.expect("it is dialled")
    }

    async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Returns an empty frame, preceded by its length.
pub(crate) fn frame(from: u64, to: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.u8(2);
    for number in [7, from, to, 1] {
        writer.varint(number);
    }
    writer.bool(true);
    let mut sent = u32::try_from(bytes.len()).unwrap().to_le_bytes().to_vec();
    sent.extend(bytes);
    sent
}

/// Returns true if the other side closes the connection within a moment.
pub(crate) async fn is_cut(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(Duration::from_millis(500), stream.read_u8()).await;
    read.is_ok_and(|read| read.is_err())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_from_another_than_who_said_hello_cuts_the_connection() {
    let mut cluster = Cluster::start(3);
    cluster.leader().await;
    drop(cluster.nodes.remove(&3));
    let disk = disk_of(&cluster, 3);
    let (mut stream, answer) = hello(&cluster, 3, 1, disk).await;
    assert_eq!(answer.0, 0);
    stream.write_all(&frame(3, 1)).await.unwrap();
    assert!(!is_cut(&mut stream).await, "its own frames are read");
    stream.write_all(&frame(2, 1)).await.unwrap();
    assert!(is_cut(&mut stream).await, "a frame in another's name is not");
    let (mut stream, _) = hello(&cluster, 3, 1, disk).await;
    stream.write_all(&[3, 0, 0, 0, 9, 9, 9]).await.unwrap();
    assert!(is_cut(&mut stream).await, "nor is one in nobody's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_a_node_with_another_disk_than_it_had_is_refused() {
    let mut cluster = Cluster::start(3);
    cluster.leader().await;
    drop(cluster.nodes.remove(&3));
    let disk = disk_of(&cluster, 3);
    for _ in 0..2 {
        assert_eq!(hello(&cluster, 3, 1, DiskId::new(disk.number() ^ 1)).await.1.0, 6);
        assert_eq!(hello(&cluster, 3, 1, disk).await.1.0, 0);
        // The node remembers the disk over a restart.
        drop(cluster.nodes.remove(&1));
        cluster.restart(1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_a_voter_founded_anew_stops_and_never_makes_a_majority() {
    let mut cluster = Cluster::start(3);
    cluster.reply(grant(1, 600_000)).await;
    let Reply::Acquired { token, .. } = cluster.reply(acquire("job", 1, Wait::No)).await else {
        panic!("nobody else wants it")
    };
    // Two of three nodes are gone, and one of them comes back on an empty disk: with the third it would be a majority
    // that may know nothing of the lock.
    let leader = cluster.leader().await;
    let wiped = (1..=3).find(|number| *number != leader).unwrap();
    drop(cluster.nodes.remove(&leader));
    drop(cluster.nodes.remove(&wiped));
    std::fs::remove_dir_all(&cluster.settings_of(wiped).data_dir).unwrap();
    cluster.restart(wiped).await;
    let fault = tokio::time::timeout(PATIENCE, cluster.nodes[&wiped].failed()).await.unwrap();
    let third = (1..=3).find(|number| *number != leader && *number != wiped).unwrap();
    assert_eq!(fault, Fault::FoundedAnew { known_by: node(third) });
    assert!(fault.to_string().contains("join under a new id"), "{fault}");
    assert_eq!(cluster.handle(third).status().borrow().groups[&GROUP].leader, None);
    // With its own disk back, the old leader and the third node go on.
    drop(cluster.nodes.remove(&wiped));
    cluster.restart(leader).await;
    let Reply::Acquired { token: again, .. } = cluster.reply(acquire("job", 1, Wait::No)).await else {
        panic!("it holds it still")
    };
    assert_eq!(again, token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_that_a_node_was_removed_is_believed_only_of_the_disk_that_a_peer_is_known_by() {
    const REMOVED: u8 = 7;
    let mut cluster = Cluster::start(3);
    cluster.reply(grant(1, 600_000)).await;
    drop(cluster.nodes.remove(&3));
    let disk = disk_of(&cluster, 3);
    // The impostor was founded anew, alone: no other node was ever a member of its cluster.
    let impostor = Impostor::start(&cluster, 3, REMOVED, DiskId::new(disk.number() ^ 1)).await;
    for number in [1, 2] {
        let said = impostor.until_answered(number, 3).await;
        assert_eq!(said[42..], [&[1][..], &disk.number().to_le_bytes()].concat(), "which disk it knows");
    }
    assert!(matches!(cluster.reply(acquire("job", 1, Wait::No)).await, Reply::Acquired { .. }));
    for number in [1, 2] {
        assert!(!cluster.handle(number).status().borrow().removed, "node {number} believed it");
    }
    impostor.stop().await;
    // The node itself is believed.
    let itself = Impostor::start(&cluster, 3, REMOVED, disk).await;
    for number in [1, 2] {
        cluster.until(number, "it was removed", |status| status.removed).await;
    }
    itself.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_a_cluster_of_one_that_grew_is_not_founded_a_second_time() {
    let mut cluster = Cluster::start(1);
    cluster.reply(grant(1, 600_000)).await;
    let node_addresses = cluster.prepare_newcomer(2);
    cluster.change(MemberChange::AddLearner { node: node(2), witness: false, node_addresses }).await;
    cluster.begin_newcomer(2, 1);
    cluster.change(MemberChange::Promote { node: node(2) }).await;
    drop(cluster.nodes.remove(&1));
    std::fs::remove_dir_all(&cluster.settings_of(1).data_dir).unwrap();
    // The node waits for no peer and knows none, but is dialled.
    cluster.restart(1).await;
    let fault = tokio::time::timeout(PATIENCE, cluster.nodes[&1].failed()).await.unwrap();
    assert_eq!(fault, Fault::FoundedAnew { known_by: node(2) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_a_node_is_told_by_which_disk_it_is_known_and_believes_whom_it_may() {
    let mut cluster = Cluster::start(3);
    cluster.leader().await;
    drop(cluster.nodes.remove(&3));
    drop(cluster.nodes.remove(&1));
    let (third, disk) = (disk_of(&cluster, 3), disk_of(&cluster, 1));
    cluster.restart(1).await;
    let other = |disk: DiskId| DiskId::new(disk.number() ^ 1);
    // A peer that knows no disk, or the right one, is accepted.
    assert_eq!(hello(&cluster, 3, 1, third).await.1, (0, disk));
    assert_eq!(hello_knowing(&cluster, 3, 1, third, Some(disk)).await.1, (0, disk));
    // A peer that itself comes with another disk is not believed.
    assert_eq!(hello_knowing(&cluster, 3, 1, other(third), Some(other(disk))).await.1, (6, disk));
    assert!(matches!(cluster.reply(grant(1, 600_000)).await, Reply::LeaseGranted { .. }));
    // A peer that this node has never heard of: this node may be the one that forgot.
    let _ = hello_knowing(&cluster, 9, 1, third, Some(other(disk))).await;
    let fault = tokio::time::timeout(PATIENCE, cluster.nodes[&1].failed()).await.unwrap();
    assert_eq!(fault, Fault::FoundedAnew { known_by: node(9) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_first_members_take_part_when_all_of_them_have_met_and_then_for_good() {
    let mut cluster = Cluster::prepare(3);
    cluster.begin(1);
    cluster.begin(2);
    // Longer than two nodes need for an election: they would be a majority, but the third may know of commits that they
    // forgot.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for number in [1, 2] {
        assert_eq!(cluster.handle(number).status().borrow().groups[&GROUP].term, 1, "node {number}");
    }
    cluster.begin(3);
    cluster.reply(grant(1, 600_000)).await;
    // Once all have met, a majority is enough, over restarts too.
    cluster.nodes.clear();
    cluster.restart(1).await;
    cluster.restart(3).await;
    assert!(matches!(cluster.reply(acquire("job", 1, Wait::No)).await, Reply::Acquired { .. }));
}
