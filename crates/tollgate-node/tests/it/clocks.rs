//! Clocks with rates that differ from those of the peers, and nodes older than the comparison of clocks.

use crate::cluster::{Cluster, PATIENCE, grant, node};
use crate::peers::{disk_of, frame, hello, is_cut};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_core::Reply;
use tollgate_node::{Clock, ClockRates, ClockSampling, ClockVerdict, NodeClock};
use tollgate_replica::MonotonicTime;
use tollgate_types::DiskId;

/// A clock that runs too fast by `by` millionths.
#[derive(Debug)]
struct Fast {
    started: Instant,
    by: u128,
}

impl Clock for Fast {
    fn now(&self) -> MonotonicTime {
        let passed = self.started.elapsed().as_micros();
        MonotonicTime::from_us(u64::try_from(passed + passed * self.by / 1_000_000).unwrap())
    }
}

/// On one machine half a millisecond is a long round trip, so windows may be short.
const SAMPLING: ClockSampling =
    ClockSampling { every: Duration::from_millis(10), window: Duration::from_millis(500) };

fn fast(by: u128) -> NodeClock {
    NodeClock { clock: Arc::new(Fast { started: Instant::now(), by }), sampling: SAMPLING }
}

fn right() -> NodeClock {
    NodeClock { sampling: SAMPLING, ..NodeClock::system() }
}

/// Starts a cluster of `count` nodes, with these clocks instead of correct ones.
fn start(count: u64, clocks: impl IntoIterator<Item = (u64, NodeClock)>) -> Cluster {
    let mut cluster = Cluster::prepare(count);
    for settings in cluster.settings.values_mut() {
        settings.clock = right();
    }
    for (number, clock) in clocks {
        cluster.settings.get_mut(&number).unwrap().clock = clock;
    }
    for number in 1..=count {
        cluster.begin(number);
    }
    cluster
}

/// Waits until a node's rates satisfy a condition.
async fn until(
    cluster: &Cluster,
    number: u64,
    what: &str,
    knows: impl FnMut(&ClockRates) -> bool,
) -> ClockRates {
    let mut rates = cluster.handle(number).clock_rates().clone();
    let waited = tokio::time::timeout(PATIENCE, rates.wait_for(knows)).await;
    let Ok(Ok(seen)) = waited else {
        panic!("node {number} never knew that {what}: {:?}", cluster.handle(number).clock_rates());
    };
    seen.clone()
}

/// Returns the deviation of the clock of `of`, if it is the only one reported as wrong.
fn wrong_alone(rates: &ClockRates, of: u64) -> Option<f64> {
    match &rates.verdict {
        ClockVerdict::Wrong(wrong) if wrong.len() == 1 => wrong.get(&node(of)).copied(),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_a_node_whose_clock_runs_2_percent_fast_is_named_by_all_and_by_itself() {
    let cluster = start(3, [(2, fast(20_000))]);
    for number in 1..=3 {
        let all_known = |rates: &ClockRates| rates.differences.len() == 2 && wrong_alone(rates, 2).is_some();
        let rates = until(&cluster, number, "node 2's clock is fast", all_known).await;
        let off = wrong_alone(&rates, 2).unwrap();
        assert!((off - 0.02).abs() < 0.003, "node {number} says {off}");
        for (peer, difference) in &rates.differences {
            let expected = match (number, peer.number()) {
                (2, _) => 1.0 / 1.02 - 1.0,
                (_, 2) => 0.02,
                _ => 0.0,
            };
            assert!((difference - expected).abs() < 0.003, "node {number} of {peer}: {difference}");
        }
        let said = rates.verdict.warnings(node(number));
        let whose = if number == 2 { "this node's clock" } else { "node 2's clock" };
        assert!(said.len() == 1 && said[0].starts_with(whose) && said[0].contains("% fast"), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_clocks_that_are_right_differ_by_less_than_what_is_warned_of() {
    let cluster = start(3, []);
    for number in 1..=3 {
        let mut rates = cluster.handle(number).clock_rates().clone();
        let mut seen = 0;
        // Watches for some windows.
        let watched = tokio::time::timeout(PATIENCE, async {
            while seen < 5 {
                rates.changed().await.unwrap();
                let rates = rates.borrow_and_update();
                assert_eq!(rates.verdict, ClockVerdict::Right);
                assert!(rates.differences.values().all(|difference| difference.abs() < 0.005), "{rates:?}");
                seen += usize::from(rates.differences.len() == 2);
            }
        });
        watched.await.expect("all clocks are known in time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_of_two_clocks_that_differ_neither_is_named_until_the_wrong_one_is_right() {
    let mut cluster = start(2, [(2, fast(20_000))]);
    for number in 1..=2 {
        let divided = |rates: &ClockRates| {
            let ClockVerdict::Divided { slowest, fastest, difference } = rates.verdict else { return false };
            (slowest, fastest) == (node(1), node(2)) && (difference - 0.02).abs() < 0.003
        };
        until(&cluster, number, "the clocks differ", divided).await;
    }
    drop(cluster.nodes.remove(&2));
    cluster.settings.get_mut(&2).unwrap().clock = right();
    cluster.restart(2).await;
    // Readings of the old process are not mixed with those of the new one.
    until(&cluster, 1, "nothing is known of the new clock yet", |rates| rates.differences.is_empty()).await;
    let known = |rates: &ClockRates| rates.differences.len() == 1;
    let rates = until(&cluster, 1, "the new clock's rate", known).await;
    assert!(rates.verdict == ClockVerdict::Right && rates.differences[&node(2)].abs() < 0.005, "{rates:?}");
}

/// A node older than the comparison of clocks, as its peers see it: it accepts frames and refuses every hello of a
/// version other than 3.
struct Elder {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

/// Traffic that has arrived at an `Elder`, by its sender.
#[derive(Default)]
struct Seen {
    /// Number of frames on each connection for frames.
    frames: BTreeMap<u64, Vec<u64>>,
    /// Number of hellos of another version.
    refused: u64,
}

impl Elder {
    async fn start(cluster: &Cluster, number: u64, disk: DiskId) -> Elder {
        let listener = cluster.listen_as(number).await;
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let seen = Arc::clone(&shared);
                connections.spawn(async move {
                    // A connection that ends was ended by the node.
                    let _ = Elder::serve(stream, disk, &seen).await;
                });
            }
        });
        Elder { seen, task }
    }

    async fn serve(mut stream: TcpStream, disk: DiskId, seen: &Mutex<Seen>) -> std::io::Result<()> {
        let mut opening = [0; 10];
        stream.read_exact(&mut opening).await?;
        if opening[8..] != [3, 0] {
            seen.lock().refused += 1;
            return stream.write_all(&[4]).await;
        }
        let mut rest = [0; 41];
        stream.read_exact(&mut rest).await?;
        stream.write_all(&[&[0][..], &disk.number().to_le_bytes()].concat()).await?;
        let from = u64::from_le_bytes(rest[8..16].try_into().unwrap());
        let connection = {
            let mut seen = seen.lock();
            let connections = seen.frames.entry(from).or_default();
            connections.push(0);
            connections.len() - 1
        };
        loop {
            let mut frame = vec![0; stream.read_u32_le().await? as usize];
            stream.read_exact(&mut frame).await?;
            seen.lock().frames.get_mut(&from).unwrap()[connection] += 1;
        }
    }

    /// Waits until the traffic satisfies a condition.
    async fn until(&self, what: &str, mut is_so: impl FnMut(&Seen) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !is_so(&self.seen.lock()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("the node of the version before never saw {what}"));
    }

    async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_the_version_before_stays_connected_and_is_asked_once_a_connection() {
    let mut cluster = start(3, []);
    cluster.reply(grant(1, 600_000)).await;
    drop(cluster.nodes.remove(&3));
    let disk = disk_of(&cluster, 3);
    let elder = Elder::start(&cluster, 3, disk).await;
    let asked = |seen: &Seen| seen.frames.len() == 2 && seen.refused >= 2;
    elder.until("both others, and each of their questions", asked).await;
    // The two remaining nodes compare their clocks meanwhile, which takes them seven windows.
    let known = |rates: &ClockRates| rates.differences.contains_key(&node(2));
    let rates = until(&cluster, 1, "its peer's rate", known).await;
    assert!(!rates.differences.contains_key(&node(3)));
    {
        let seen = elder.seen.lock();
        assert_eq!(seen.refused, 2, "asked once each");
        assert!(seen.frames.values().all(|connections| connections.len() == 1), "{:?}", seen.frames);
        assert!(seen.frames.values().flatten().any(|frames| *frames > 5), "{:?}", seen.frames);
    }
    // A restarted node may run another binary: it is asked again.
    elder.stop().await;
    let elder = Elder::start(&cluster, 3, disk).await;
    elder.until("another question from both", asked).await;
    elder.stop().await;
    cluster.restart(3).await;
    let known = |rates: &ClockRates| rates.differences.len() == 2 && rates.verdict == ClockVerdict::Right;
    until(&cluster, 1, "all clocks are right", known).await;
    assert!(matches!(cluster.reply(grant(2, 600_000)).await, Reply::LeaseGranted { .. }));
}

/// Says hello in version 4; returns the connection, and the first byte of the answer.
async fn hello_for(cluster: &Cluster, purpose: u8, from: u64, to: u64, disk: DiskId) -> (TcpStream, u8) {
    let mut bytes = b"TOLLGATE\x04\x00".to_vec();
    for number in [7, from, to, disk.number()] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([0; 9]);
    bytes.push(purpose);
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.peer_port(to))).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let answer = stream.read_u8().await.unwrap();
    if answer != 4 {
        stream.read_u64_le().await.unwrap();
    }
    (stream, answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_alone_are_told_what_the_clock_shows_beside_the_frames_that_they_send() {
    let mut cluster = start(3, []);
    cluster.leader().await;
    drop(cluster.nodes.remove(&3));
    let disk = disk_of(&cluster, 3);
    let (mut frames, answer) = hello(&cluster, 3, 1, disk).await;
    assert_eq!(answer.0, 0);
    let (mut clock, answer) = hello_for(&cluster, 1, 3, 1, disk).await;
    assert_eq!(answer, 0);
    let mut shown = Vec::new();
    for _ in 0..3 {
        clock.write_all(&[1]).await.unwrap();
        shown.push((clock.read_u64_le().await.unwrap(), clock.read_u64_le().await.unwrap()));
    }
    assert!(shown.is_sorted() && shown[0].0 == shown[2].0, "one clock, which goes on: {shown:?}");
    frames.write_all(&frame(3, 1)).await.unwrap();
    assert!(!is_cut(&mut frames).await, "neither connection takes the other's place");
    let (_newer, answer) = hello_for(&cluster, 1, 3, 1, disk).await;
    assert_eq!(answer, 0);
    assert!(is_cut(&mut clock).await, "a newer one for the same purpose does");
    // Connections for frames in the next version are understood, and an unknown purpose is refused.
    assert_eq!(hello_for(&cluster, 0, 3, 1, disk).await.1, 0);
    assert_eq!(hello_for(&cluster, 9, 3, 1, disk).await.1, 4);
    assert_eq!(hello_for(&cluster, 1, 8, 1, disk).await.1, 3, "no member");
    assert_eq!(hello_for(&cluster, 1, 3, 1, DiskId::new(disk.number() ^ 1)).await.1, 6, "another disk");
}
