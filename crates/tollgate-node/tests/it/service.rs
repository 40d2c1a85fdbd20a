//! Commands, reads and watches on a cluster of nodes.

use crate::cluster::{Cluster, GROUP, PATIENCE, acquire, grant, lease, node};
use parking_lot::Mutex;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tollgate_core::{
    Command, Op, Rejection, ReleaseBy, ReleaseLock, Reply, Request, RevokeLease, Scope, Txn, Wait,
    WaitOutcome, Watch,
};
use tollgate_node::{Answer, Ask, Caller, Consistency, NotAnswered, NotTaken, Sink};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{GroupId, GroupMap, Key, Name, Names, Owner, Seq, SeqRanges, Value};

fn release(name: &str, of: u64) -> Command {
    let by = ReleaseBy::Holder { lease: lease(of), owner: Owner::LEASE, token: None, request: None };
    Command::ReleaseLock(ReleaseLock { names: Names::One(Name::new(name).unwrap()), by })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_elect_a_leader_grant_a_lock_and_hand_it_on() {
    let cluster = Cluster::start(3);
    assert!(matches!(cluster.reply(grant(1, 60_000)).await, Reply::LeaseGranted { .. }));
    assert!(matches!(cluster.reply(grant(2, 60_000)).await, Reply::LeaseGranted { .. }));
    assert!(matches!(cluster.reply(acquire("job", 1, Wait::No)).await, Reply::Acquired { .. }));
    assert!(matches!(cluster.reply(acquire("job", 2, Wait::No)).await, Reply::Busy { .. }));
    let waits = cluster.command(acquire("job", 2, Wait::Forever));
    let (called, ()) = tokio::join!(waits, async {
        let leader = cluster.leader().await;
        loop {
            let look = |sight: tollgate_node::Sight<'_>| sight.state.lock(&Name::new("job").unwrap());
            let view = cluster.handle(leader).read(GROUP, Consistency::Linearizable, look).await.unwrap();
            if view.is_some_and(|view| view.waiters.len() == 1) {
                break;
            }
        }
        assert!(matches!(cluster.reply(release("job", 1)).await, Reply::Released { .. }));
    });
    assert!(matches!(called.answer, Answer::Resolved { outcome: WaitOutcome::Granted { .. }, .. }));
    assert_eq!(called.queued.map(|(_, position)| position), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_a_node_says_which_group_serves_what_and_a_group_refuses_the_rest() {
    let mut cluster = Cluster::prepare(1);
    let map = Arc::new(GroupMap::even(2).unwrap());
    let settings = cluster.settings.get_mut(&1).unwrap();
    settings.bootstrap.as_mut().unwrap().map = Arc::clone(&map);
    cluster.begin(1);
    cluster.reply(grant(1, 60_000)).await;
    let status = cluster.handle(1).status().borrow().clone();
    assert_eq!((status.map, status.groups.len()), (Some(map), 2));
    // One of the two names belongs to the other group.
    assert!(matches!(cluster.reply(acquire("jobs", 1, Wait::No)).await, Reply::Acquired { .. }));
    let (epoch, group) = (1, GroupId::new(1));
    let refused = cluster.reply(acquire("orders", 1, Wait::No)).await;
    assert_eq!(refused, Reply::Rejected(Rejection::WrongGroup { epoch, group }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p4_what_was_granted_survives_the_leader_and_a_restart_of_all() {
    let mut cluster = Cluster::start(3);
    cluster.reply(grant(1, 600_000)).await;
    let Reply::Acquired { token, .. } = cluster.reply(acquire("job", 1, Wait::No)).await else {
        panic!("nobody else wants it")
    };
    let leader = cluster.leader().await;
    drop(cluster.nodes.remove(&leader));
    let Reply::Acquired { token: again, .. } = cluster.reply(acquire("job", 1, Wait::No)).await else {
        panic!("it holds it still")
    };
    assert_eq!(again, token);
    cluster.nodes.clear();
    for number in 1..=3 {
        cluster.restart(number).await;
    }
    let Reply::Acquired { token: again, .. } = cluster.reply(acquire("job", 1, Wait::No)).await else {
        panic!("it holds it still")
    };
    assert_eq!(again, token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_refuses_proposals_and_says_who_leads_but_answers_reads() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    cluster.reply(grant(1, 60_000)).await;
    cluster.reply(acquire("job", 1, Wait::No)).await;
    let follower = (1..=3).find(|number| *number != leader).unwrap();
    let ask = Ask::Command { group: GROUP, command: Box::new(grant(2, 60_000)), fast: true };
    let called = cluster.handle(follower).call(ask).await.unwrap();
    let Answer::NotDone(ProposeError::NotLeader { leader: known, .. }) = called.answer else {
        panic!("a follower takes no proposals")
    };
    assert_eq!(known, Some(node(leader)));
    let look = |sight: tollgate_node::Sight<'_>| sight.state.lock(&Name::new("job").unwrap()).is_some();
    let read = cluster.handle(follower).read(GROUP, Consistency::Linearizable, look).await;
    assert_eq!(read.ok(), Some(true));
    let read = cluster.handle(follower).read(GROUP, Consistency::Leader, |_| ()).await;
    assert!(read.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_hands_leadership_on_first() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|number| *number != leader).collect();
    let stopped = cluster.nodes.remove(&leader).unwrap();
    stopped.stop(PATIENCE).await;
    let leads = |number: &u64| cluster.handle(*number).status().borrow().serves(GROUP);
    // Another node took over before the old leader was gone, or does so soon.
    assert!(others.iter().any(leads) || others.contains(&cluster.leader().await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_restarted_alone_is_heard_again() {
    let mut cluster = Cluster::start(3);
    cluster.reply(grant(1, 600_000)).await;
    let leader = cluster.leader().await;
    let follower = (1..=3).find(|number| *number != leader).unwrap();
    drop(cluster.nodes.remove(&follower));
    cluster.reply(acquire("job", 1, Wait::No)).await;
    cluster.restart(follower).await;
    let other = (1..=3).find(|number| *number != leader && *number != follower).unwrap();
    // Without the third node, the two remaining ones need each other.
    drop(cluster.nodes.remove(&other));
    assert!(matches!(cluster.reply(acquire("job2", 1, Wait::No)).await, Reply::Acquired { .. }));
    let look = |sight: tollgate_node::Sight<'_>| sight.state.lock_count();
    let read = cluster.handle(follower).read(GROUP, Consistency::Linearizable, look).await;
    assert_eq!(read.ok(), Some(2));
}

/// Gives a command a seq in its lease.
fn numbered(mut command: Command, seq: u64) -> Command {
    let given =
        Some(Request { seq: Seq::new(seq).unwrap(), acked: SeqRanges::default(), scope: Scope::Whole });
    match &mut command {
        Command::AcquireLock(acquire) => acquire.request = given,
        Command::ReleaseLock(ReleaseLock { by: ReleaseBy::Holder { request, .. }, .. }) => *request = given,
        _ => panic!("{command:?} takes none"),
    }
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_used_for_a_lock_that_waits_and_for_a_release_stops_nobody() {
    let cluster = Cluster::start(1);
    for number in [1, 2] {
        cluster.reply(grant(number, 60_000)).await;
    }
    cluster.reply(acquire("job", 1, Wait::No)).await;
    let leader = cluster.handle(cluster.leader().await);
    let ask = |command| Ask::Command { group: GROUP, command: Box::new(command), fast: false };
    leader.ask(Caller::Nobody, ask(numbered(acquire("job", 2, Wait::Forever), 1))).unwrap();
    leader.ask(Caller::Nobody, ask(numbered(release("job", 2), 1))).unwrap();
    assert!(matches!(cluster.reply(release("job", 1)).await, Reply::Released { .. }));
    let look = |sight: tollgate_node::Sight<'_>| {
        sight.state.lock(&Name::new("job").unwrap()).unwrap().holders[0].lease
    };
    assert_eq!(leader.read(GROUP, Consistency::Linearizable, look).await.ok(), Some(lease(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_lock_does_not_overtake_the_release_that_was_asked_for_before_it() {
    let cluster = Cluster::start(3);
    for number in [1, 2] {
        cluster.reply(grant(number, 60_000)).await;
    }
    let leader = cluster.leader().await;
    for _ in 0..50 {
        cluster.reply(acquire("job", 1, Wait::No)).await;
        let kept = Arc::new(Kept::default());
        let ask = |command, fast| Ask::Command { group: GROUP, command: Box::new(command), fast };
        let asks = vec![(1, ask(release("job", 1), false)), (2, ask(acquire("job", 2, Wait::No), true))];
        cluster.handle(leader).ask_all(Arc::clone(&kept) as Arc<dyn Sink>, asks).unwrap();
        let both = async {
            while kept.answers.lock().len() < 2 {
                kept.flushed.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, both).await.expect("they are answered");
        let answer = kept.answers.lock().pop().unwrap();
        assert!(matches!(answer, Answer::Replied { reply: Reply::Acquired { .. }, .. }));
        cluster.reply(release("job", 2)).await;
    }
}

/// Keeps the answers to a watch.
#[derive(Default)]
struct Kept {
    answers: Mutex<Vec<Answer>>,
    flushed: Notify,
}

impl Sink for Kept {
    fn answer(&self, _: u64, answer: Answer) -> bool {
        self.answers.lock().push(answer);
        true
    }

    fn flush(&self) {
        self.flushed.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_a_watch_on_a_follower_sees_every_change_once() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader().await;
    let follower = cluster.handle((1..=3).find(|number| *number != leader).unwrap());
    let kept = Arc::new(Kept::default());
    let (watch, filter) = (follower.fresh_watch(), Watch::LockPrefix(b"job".to_vec()));
    let begin = Ask::Watch { watch, group: GROUP, from: None, filter: Box::new(filter), credit: 1_000 };
    follower.ask(Caller::Of(Arc::clone(&kept) as Arc<dyn Sink>, 0), begin).unwrap();
    tokio::time::timeout(PATIENCE, kept.flushed.notified()).await.expect("a watch is confirmed");
    cluster.reply(grant(1, 60_000)).await;
    for round in 0..10 {
        cluster.reply(acquire(&format!("job{round}"), 1, Wait::No)).await;
    }
    cluster.reply(Command::RevokeLease(RevokeLease { lease: lease(1), disconnected: None })).await;
    let mut seen = 0;
    let mut next = None;
    while seen < 20 {
        for answer in std::mem::take(&mut *kept.answers.lock()) {
            let Answer::Events { from, events, next: then, .. } = answer else { panic!("only events") };
            assert!(next.is_none_or(|next| next == from), "{next:?} {from:?}");
            seen += events.len();
            next = Some(then);
        }
        if seen < 20 {
            tokio::time::timeout(PATIENCE, kept.flushed.notified()).await.expect("more events come");
        }
    }
    assert_eq!(seen, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_the_peer_port_is_cut_off_and_changes_nothing() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = Cluster::start(1);
    cluster.reply(grant(1, 60_000)).await;
    let port = cluster.peer_port(1);
    for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n....................."[..], &[0xff; 4_096]] {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
        // Either a refusal, or a reset because the node did not read on.
        assert!(read.expect("it is cut off").is_err() || answer == [5], "{answer:?}");
    }
    assert!(matches!(cluster.reply(acquire("job", 1, Wait::No)).await, Reply::Acquired { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_directory_is_refused_without_bootstrap() {
    let mut settings = Cluster::start(1).settings_of(1);
    settings.bootstrap = None;
    settings.data_dir = settings.data_dir.join("elsewhere");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let runtime = tokio::runtime::Handle::current();
    let refused = tollgate_node::Node::start(&settings, listener, Arc::new(tollgate_node::NoMeter), &runtime);
    let says = refused.unwrap_err().to_string();
    assert!(says.contains("bootstrap a new cluster or join one"), "{says}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_too_much_to_do_and_one_that_has_stopped_say_which_it_is() {
    let cluster = Cluster::prepare(1);
    let settings = tollgate_node::NodeSettings { operations_waiting_max: 0, ..cluster.settings_of(1) };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let runtime = tokio::runtime::Handle::current();
    let meter = Arc::new(tollgate_node::NoMeter);
    let node = tollgate_node::Node::start(&settings, listener, meter, &runtime).unwrap();
    let handle = node.handle().clone();
    let read = async || handle.read(GROUP, Consistency::Stale, |_| ()).await.unwrap_err();
    let inspect = async || handle.inspect(|_| ()).await.unwrap_err();
    assert_eq!(read().await, ReadError::Overloaded { group: GROUP });
    assert_eq!(inspect().await, NotAnswered::NotTaken(NotTaken::Full));
    node.stop(Duration::ZERO).await;
    assert_eq!(read().await, ReadError::Stopped { group: GROUP });
    assert_eq!(inspect().await, NotAnswered::NotTaken(NotTaken::Stopped));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_no_frame_carries_is_refused_and_the_longest_that_one_does_reaches_all() {
    let cluster = Cluster::start(3);
    cluster.leader().await;
    let put = |number: usize| {
        let key = Key::new(format!("k{number}")).unwrap();
        Op::Put { key, value: Value::new(vec![7; 65_536]).unwrap(), lease: None }
    };
    let txn = |puts: usize| {
        let then = (0..puts).map(put).collect();
        Command::Txn(Txn { request: None, compares: Vec::new(), then, otherwise: Vec::new() })
    };
    let too_long = cluster.command(txn(300)).await.answer;
    let Answer::NotDone(ProposeError::TooLong { bytes, bytes_max }) = too_long else { panic!("20 MB") };
    assert!(bytes > bytes_max);
    // The transaction exceeds the limits, which the state machine reports once all nodes have it.
    assert!(matches!(cluster.reply(txn(250)).await, Reply::Rejected(_)));
    for number in 1..=3 {
        let read = cluster.handle(number).read(GROUP, Consistency::Linearizable, |_| ()).await;
        assert_eq!(read, Ok(()));
    }
}
