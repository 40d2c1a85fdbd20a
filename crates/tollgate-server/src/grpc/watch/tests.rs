//! Tests of a stream whose node is real, and whose answers the test makes up.

use super::*;
use crate::metrics::Metrics;
use crate::session::SendBacklog;
use std::time::Duration;
use tempfile::TempDir;
use tollgate_core::{Change, LockChange};
use tollgate_node::{Bootstrap, NoMeter, Node, NodeClock, NodeSettings};
use tollgate_proto::v1;
use tollgate_replica::{EngineConfig, HostConfig, Members};
use tollgate_types::{ClusterId, GroupMap, LeaseId, Limits, Metadata, Name, NodeId, Owner, Reason};

const GROUP: GroupId = GroupId::new(0);

fn start(dir: &TempDir) -> Node {
    let own = NodeId::new(1).unwrap();
    let settings = NodeSettings {
        host: HostConfig::new(ClusterId::new(7), own),
        engine: EngineConfig::default(),
        data_dir: dir.path().join("data"),
        peers: BTreeMap::new(),
        bootstrap: Some(Bootstrap {
            map: Arc::new(GroupMap::single()),
            members: Members::first([own], []),
            limits: Limits::DEFAULT,
        }),
        join: None,
        operations_waiting_max: 1_000,
        clock: NodeClock::system(),
    };
    let peers = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    Node::start(&settings, peers, Arc::new(NoMeter), &tokio::runtime::Handle::current()).unwrap()
}

fn events(revisions: std::ops::Range<u64>) -> Answer {
    let revision = |number| Revision::new(number).unwrap();
    let event = |number| {
        let change = LockChange {
            name: Name::new("jobs").unwrap(),
            lease: LeaseId::new(1).unwrap(),
            owner: Owner::LEASE,
            metadata: Metadata::NONE,
            create_revision: revision(1),
            now: None,
            prev: None,
            end: None,
            note: Reason::NONE,
            value: None,
            vacant: true,
        };
        Event { revision: revision(number), change: Change::Lock(change) }
    };
    let (from, next) = (revision(revisions.start), revision(revisions.end));
    Answer::Events { watch: 0, from, events: revisions.map(event).collect(), next }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p11_a_probe_that_is_far_behind_tells_nothing_again() {
    let dir = TempDir::new().unwrap();
    let node = start(&dir);
    let router =
        Router::beside(node.handle().clone(), GroupMap::single(), BTreeMap::new(), Arc::new(Metrics::new()));
    let opened = SendBacklog::new(1 << 20).open();
    let (outgoing, mut answers) = frames_queue();
    let mut stream =
        Stream::new((router, node.handle().clone()), Watchers::new(10), Arc::new(outgoing), opened.account());
    let key = v1::watch_request::Target::Key("elsewhere".into());
    let request = WatchRequest { target: Some(key), watch_id: 7, start_revision: 1, ..Default::default() };
    assert!(stream.request(&request).await.is_ok());
    let old = stream.watches[&7].numbers[&GROUP];
    assert!(stream.mailbox.answer(old, events(1..1)));
    assert!(stream.tell().await.is_ok());
    // A probe is started while a batch of the watch is on its way.
    stream.probe(7);
    let probe = stream.watches[&7].probes[&GROUP];
    for (number, revisions) in [(old, 1..5), (old, 5..9), (probe, 1..5), (probe, 5..9), (probe, 9..12)] {
        stream.mailbox.answer(number, events(revisions));
    }
    assert!(stream.tell().await.is_ok());
    assert_eq!(stream.watches[&7].numbers[&GROUP], probe, "it goes on with the probe");
    drop(stream);
    let mut told = Vec::new();
    while let Some(answer) = answers.next().await {
        told.extend(answer.unwrap().events.into_iter().map(|event| event.revision));
    }
    assert_eq!(told, (1..12).collect::<Vec<u64>>());
    // The node answers the watch as well, and drops the mailbox once it knows that the stream is over.
    node.stop(Duration::ZERO).await;
    assert_eq!(opened.account().bytes(), 0, "all of it was read");
}

#[test]
fn watches_of_all_streams_share_one_limit() {
    let watchers = Watchers::new(1);
    let first = watchers.clone().place();
    assert!(first.is_ok());
    assert_eq!(watchers.place().unwrap_err().reason(), ErrorReason::Overloaded);
    drop(first);
    assert!(watchers.place().is_ok());
}

#[test]
fn p16_a_watch_over_groups_takes_a_place_for_each() {
    let watchers = Watchers::new(5);
    let over_four = watchers.places(4).unwrap();
    assert_eq!(watchers.places(2).unwrap_err().limit_value, 5);
    let one = watchers.place().unwrap();
    assert!(watchers.place().is_err());
    drop(over_four);
    assert!(watchers.places(5).is_err() && watchers.places(4).is_ok());
    drop(one);
    assert!(watchers.places(5).is_ok());
}
