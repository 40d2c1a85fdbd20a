//! The client's watches, which outlive the node that serves them.

use crate::cluster;
use crate::connection::GROUP;
use crate::load::{Load, Weight};
use crate::record::Recorder;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tollgate_check::{Change as Checked, ChangeKind, EndReason as CheckedReason, Event as Recorded, Filter};
use tollgate_client::{Change, Client, Compare, EndReason, Event, Revision, TxnOp, Watch, WatchItem};
use tollgate_types::{Name, Owner, Token};

/// Number of the client's watch in the history; the load has a watch of its own.
const WATCH: u32 = 1;

/// Records the events of a watch, a revision at a time: a revision is complete once the next one begins. Ends when
/// history that the watch has not seen is gone.
pub(crate) async fn record(
    mut watch: Watch,
    number: u32,
    recorder: Arc<Recorder>,
    served_by: watch::Sender<String>,
) {
    let mut changes: Vec<Checked> = Vec::new();
    while let Some(item) = watch.next().await {
        served_by.send_replace(watch.endpoint());
        let event = match item.unwrap() {
            WatchItem::Event(event) => event,
            WatchItem::Compacted { oldest } => {
                recorder.record(Recorded::WatchCompacted { watch: number, min_revision: oldest });
                return;
            }
            other => panic!("{other:?}"),
        };
        if let Some(last) = changes.last().map(|change| change.revision)
            && last != event.revision
        {
            let told = std::mem::take(&mut changes);
            recorder.record(Recorded::WatchEvents { watch: number, changes: told, next: last.next() });
        }
        changes.push(checked(&event));
    }
}

fn checked(event: &Event) -> Checked {
    let (name, lease, owner, kind) = match &event.change {
        Change::Claim { claim, before, .. } => {
            let had = before.as_ref().and_then(|before| before.token);
            let kind = match claim.token {
                None if before.is_none() => ChangeKind::Queued,
                Some(token) if had != Some(token) => ChangeKind::Granted { token, mode: claim.mode },
                _ => ChangeKind::Changed,
            };
            let granted = matches!(kind, ChangeKind::Granted { .. });
            assert_eq!(event.change.granted().is_some(), granted, "{event:?}");
            (&claim.name, claim.lease, &claim.owner, kind)
        }
        Change::ClaimEnded { name, lease, owner, before, reason, .. } => {
            let token = before.as_ref().and_then(|before| before.token);
            (name, *lease, owner, ChangeKind::Ended { token, reason: reason_of(*reason) })
        }
        other => panic!("not of a lock: {other:?}"),
    };
    let (name, owner) = (Name::new(name).unwrap(), Owner::new(owner).unwrap());
    Checked { revision: event.revision, name, lease, owner, kind }
}

fn reason_of(reason: EndReason) -> CheckedReason {
    match reason {
        EndReason::Released => CheckedReason::Released,
        EndReason::LeaseExpired => CheckedReason::LeaseExpired,
        EndReason::LeaseRevoked => CheckedReason::LeaseRevoked,
        EndReason::Disconnected => CheckedReason::Disconnected,
        EndReason::Forced => CheckedReason::Forced,
        EndReason::MaxHold => CheckedReason::MaxHold,
        EndReason::TimedOut => CheckedReason::TimedOut,
        EndReason::Cancelled => CheckedReason::Cancelled,
        EndReason::Deadlock => CheckedReason::Deadlock,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_watch_whose_node_is_killed_sees_every_event_once() {
    let mut cluster = cluster::three().await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let first = Revision::new(1).unwrap();
    let watch = client.watch().locks().from_revision(first).prev(true).open().await.unwrap();
    let load = Load::start(&cluster, Weight::usual());
    load.recorder.record(Recorded::Watch {
        watch: WATCH,
        group: GROUP,
        from: Some(first),
        filter: Filter::All,
    });
    let served_by = watch::Sender::new(String::new());
    let node = served_by.subscribe();
    let recording = tokio::spawn(record(watch, WATCH, Arc::clone(&load.recorder), served_by));
    load.progress(80).await;
    for stands_still_first in [false, true, false] {
        let serves = |at: &str| cluster.endpoints().iter().position(|endpoint| endpoint == at);
        let node = serves(&node.borrow()).expect("the watch has told something");
        // A paused node keeps its connections for a while, and much happens elsewhere meanwhile.
        if stands_still_first {
            cluster.nodes[node].signal("STOP");
            load.progress(80).await;
        }
        cluster.nodes[node].kill();
        load.progress(80).await;
        cluster.restart(node);
        cluster.until_ready().await;
    }
    load.progress(80).await;
    assert!(!recording.is_finished(), "a watch ended");
    load.finish(&cluster).await;
    recording.abort();
}

/// Puts `count` registers, one after the other.
async fn put(client: &Client, count: u32) {
    for number in 0..count {
        client.registers().put(format!("w/{number}"), "x").await.unwrap();
    }
}

/// Returns the keys of the next `count` events, each with true for a deletion.
async fn keys(watch: &mut Watch, count: usize) -> Vec<(String, bool)> {
    let mut keys = Vec::new();
    while keys.len() < count {
        let item = tokio::time::timeout(cluster::PATIENCE, watch.next()).await.expect("no event came");
        let WatchItem::Event(event) = item.unwrap().unwrap() else { panic!("compacted") };
        keys.push(match event.change {
            Change::Register { register, .. } => (String::from_utf8(register.key).unwrap(), false),
            Change::RegisterDeleted { key, .. } => (String::from_utf8(key).unwrap(), true),
            other => panic!("{other:?}"),
        });
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_begin_where_they_are_told_to_and_end_where_history_does() {
    let mut cluster = cluster::three().await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();

    // From now on: a single name, many names, and previous values.
    put(&client, 1).await;
    let mut all = client.watch().registers().prefix("w/").prev(true).open().await.unwrap();
    let mut one = client.watch().registers().name("w/1").open().await.unwrap();
    put(&client, 3).await;
    assert_eq!(
        keys(&mut all, 3).await,
        [("w/0".into(), false), ("w/1".into(), false), ("w/2".into(), false)]
    );
    assert_eq!(keys(&mut one, 1).await, [("w/1".into(), false)]);

    // From the cursor at which another watch stopped.
    let cursor = all.cursor().to_owned();
    drop(all);
    let deleted = client
        .registers()
        .txn()
        .when(Compare::exists("w/0"))
        .then(TxnOp::delete("w/0"))
        .then(TxnOp::delete("w/1"))
        .commit()
        .await
        .unwrap();
    let mut next = client.watch().registers().prefix("w/").cursor(cursor).open().await.unwrap();
    assert_eq!(keys(&mut next, 2).await, [("w/0".into(), true), ("w/1".into(), true)]);
    assert_eq!(keys(&mut one, 1).await, [("w/1".into(), true)]);

    // From a past revision, on another node, when the first one is killed without the reader noticing.
    let mut past =
        client.watch().registers().prefix("w/").from_revision(deleted.revision).open().await.unwrap();
    assert_eq!(keys(&mut past, 2).await.len(), 2);
    let leader = cluster.leader().await;
    cluster.nodes[leader].kill();
    // Before there is a new leader, a write without a number may end with an unknown result.
    cluster.leader_but(Some(leader)).await;
    put(&client, 2).await;
    for watch in [&mut past, &mut next] {
        assert_eq!(keys(watch, 2).await, [("w/0".into(), false), ("w/1".into(), false)]);
    }
    assert_eq!(keys(&mut one, 1).await, [("w/1".into(), false)]);
    cluster.restart(leader);
    cluster.until_ready().await;

    // All events of locks and registers.
    let mut everything = client.watch().open().await.unwrap();
    let lease = client.leases().grant(Duration::from_mins(1)).await.unwrap().id;
    let lock =
        tollgate_proto::v1::LockRequest { name: "l".into(), lease_id: lease.get(), ..Default::default() };
    let held = cluster.nodes[leader].locks().lock(lock).await.unwrap().into_inner();
    let WatchItem::Event(granted) = everything.next().await.unwrap().unwrap() else { panic!("compacted") };
    assert_eq!(granted.change.granted(), Token::new(held.fencing_token).ok());
    put(&client, 1).await;
    assert_eq!(keys(&mut everything, 1).await, [("w/0".into(), false)]);

    // From a revision that history no longer holds.
    fill_history(&client).await;
    let mut gone =
        client.watch().registers().prefix("w/").from_revision(deleted.revision).open().await.unwrap();
    let WatchItem::Compacted { oldest } = gone.next().await.unwrap().unwrap() else { panic!("still there") };
    assert!(oldest > deleted.revision);
    assert!(gone.next().await.is_none(), "that is the last it has to say");
}

/// Writes until the oldest history is dropped.
async fn fill_history(client: &Client) {
    let group = tollgate_client::GroupId::new(0);
    let limits = client.admin().limits(group).await.unwrap();
    let limit = limits.iter().find(|limit| limit.name == "ring_bytes_max").unwrap();
    client.admin().set_limits(&[("ring_bytes_max", limit.min)], &[group]).await.unwrap();
    let value = vec![7; 60_000];
    for number in 0..limit.min / 60_000 + 2 {
        client.registers().put(format!("fill/{number}"), value.clone()).await.unwrap();
    }
}

/// An idle watch still learns, every few seconds, up to which revision it has seen all events. If history turned over
/// faster than that, the watch would report that its history is gone.
#[tokio::test(flavor = "multi_thread")]
async fn p11_a_watch_of_a_quiet_name_outlives_the_history_of_busy_ones() {
    let mut cluster = cluster::three().await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let limits = [("ring_bytes_max", 64 << 10)];
    client.admin().set_limits(&limits, &[tollgate_client::GroupId::new(0)]).await.unwrap();
    let mut quiet = client.watch().registers().name("quiet").open().await.unwrap();
    let opened = quiet.cursor().to_owned();
    let busy = async |client: &Client| {
        let mut last = Revision::ZERO;
        for _ in 0..5 {
            last = client.registers().put("busy", vec![7; 8_000]).await.unwrap();
        }
        last
    };

    let half = busy(&client).await;
    let end = std::time::Instant::now() + cluster::PATIENCE;
    let next = |cursor: &str| cursor.split_once('.').and_then(|(_, next)| next.parse::<u64>().ok()).unwrap();
    while next(quiet.cursor()) <= half.get() {
        assert!(std::time::Instant::now() < end, "still at {}", quiet.cursor());
        let told = tokio::time::timeout(Duration::from_millis(100), quiet.next()).await;
        assert!(told.is_err(), "{told:?}");
    }
    busy(&client).await;
    // No history is left from which the watch could resume at its beginning.
    let mut gone = client.watch().registers().name("quiet").cursor(opened).open().await.unwrap();
    assert!(matches!(gone.next().await, Some(Ok(WatchItem::Compacted { .. }))));

    let node = cluster.endpoints().iter().position(|endpoint| *endpoint == quiet.endpoint()).unwrap();
    cluster.nodes[node].kill();
    cluster.leader_but(Some(node)).await;
    client.registers().put("quiet", "x").await.unwrap();
    assert_eq!(keys(&mut quiet, 1).await, [("quiet".into(), false)]);
}
