//! The blocking client, used from threads.

use crate::cluster::{self, Cluster};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tollgate_client::blocking::{Client, Session};
use tollgate_client::{AcquireError, Change, LostReason, WatchItem};
use tollgate_fence::{Fence, FencedToken};

const TTL: Duration = Duration::from_secs(20);

#[test]
fn threads_use_a_cluster_without_a_runtime_of_their_own() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(cluster::three());
    p1_threads_exclude_each_other_and_their_tokens_grow(&cluster);
    a_dropped_client_has_given_everything_back(&cluster);
    a_lock_taken_away_is_noticed(&cluster);
    a_busy_lock_is_told_with_its_holder(&cluster);
    leaders_follow_each_other(&cluster);
    a_watch_is_an_iterator(&cluster);
    drop(cluster);
}

fn open(cluster: &Cluster) -> (Client, Session) {
    let client = Client::connect(cluster.endpoints()).unwrap();
    let session = client.session().ttl(TTL).open().unwrap();
    (client, session)
}

fn p1_threads_exclude_each_other_and_their_tokens_grow(cluster: &Cluster) {
    let (_one, first) = open(cluster);
    let (_two, second) = open(cluster);
    let (inside, turns, store) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(Fence::strict()));
    let work = |session: &Session| {
        for _ in 0..10 {
            let guard = session.lock("blocking/counter").wait(cluster::PATIENCE).acquire().unwrap();
            assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
            store.lock().accept(FencedToken::exclusive(guard.token().unwrap())).unwrap();
            turns.fetch_add(1, Ordering::SeqCst);
            std::thread::yield_now();
            inside.store(false, Ordering::SeqCst);
            // Every other guard is only dropped.
            if turns.load(Ordering::SeqCst) % 2 == 0 {
                guard.release().unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        for session in [&first, &first, &second, &second] {
            scope.spawn(move || work(session));
        }
    });
    assert_eq!(turns.into_inner(), 40);
}

fn a_dropped_client_has_given_everything_back(cluster: &Cluster) {
    let looker = Client::connect(cluster.endpoints()).unwrap();
    let (client, session) = open(cluster);
    let guard = session.lock("blocking/dropped").acquire().unwrap();
    assert_eq!(looker.get_lock("blocking/dropped").unwrap().holder_count, 1);
    let lease = session.lease_id();
    let began = Instant::now();
    drop(client);
    drop(guard);
    drop(session);
    assert!(looker.get_lock("blocking/dropped").unwrap().is_free(), "after {:?}", began.elapsed());
    assert!(looker.wait(looker.inner().leases().time_to_live(lease)).is_err(), "the lease is gone too");
}

fn a_lock_taken_away_is_noticed(cluster: &Cluster) {
    let (client, session) = open(cluster);
    let guard = session.lock("blocking/forced").why("to be taken").acquire().unwrap();
    assert_eq!((guard.is_lost(), guard.lost_within(Duration::from_millis(1))), (false, None));
    assert!(client.explain("blocking/forced").unwrap().to_string().contains("to be taken"));
    client.force_release("blocking/forced", guard.token().unwrap(), "it is noon").unwrap();
    let lost = guard.lost_within(cluster::PATIENCE).expect("it is told");
    assert_eq!(lost.reason, LostReason::Forced);
    assert!(guard.is_lost() && guard.token().is_err());
    session.close().unwrap();
}

fn a_busy_lock_is_told_with_its_holder(cluster: &Cluster) {
    let (_client, session) = open(cluster);
    let guard = session.lock("blocking/busy").why("busy").acquire().unwrap();
    let refused = session.lock("blocking/busy").try_acquire();
    let Err(AcquireError::Busy { holders, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(holders[0].token, guard.token().unwrap());

    // Two of three permits, and then the third.
    let semaphore = session.semaphore("blocking/permits", 3);
    let (two, one) = (semaphore.acquire(2).acquire().unwrap(), semaphore.acquire(1).acquire().unwrap());
    assert!(semaphore.acquire(1).try_acquire().is_err());
    two.release().unwrap();
    semaphore.acquire(2).try_acquire().unwrap().release().unwrap();
    drop(one);

    // A reader becomes the writer; an owner takes a lock again that it holds.
    let owner = session.owner("thread");
    let mut read = owner.lock("blocking/read").shared().acquire().unwrap();
    let before = read.token().unwrap();
    read.upgrade().unwrap();
    assert!(read.token().unwrap() > before);
    let again = owner.lock("blocking/read").acquire().unwrap();
    assert_eq!(again.token(), read.token());
}

fn leaders_follow_each_other(cluster: &Cluster) {
    let (client, session) = open(cluster);
    let first = session.campaign("blocking/election").value("first").stand().unwrap();
    let waiting = std::thread::spawn(move || {
        let second = session.campaign("blocking/election").value("second").stand().unwrap();
        (second.token().unwrap(), second, session)
    });
    let token = first.token().unwrap();
    let began = Instant::now();
    while client.get_lock("blocking/election").unwrap().waiter_count == 0 {
        assert!(began.elapsed() < cluster::PATIENCE, "the second stands");
        std::thread::yield_now();
    }
    first.resign().unwrap();
    let (next, second, _session) = waiting.join().unwrap();
    assert!(next > token);
    let leader = client.wait(client.inner().election("blocking/election").leader()).unwrap().unwrap();
    assert_eq!((leader.value.as_slice(), leader.token), (&b"second"[..], next));
    drop(second);
}

fn a_watch_is_an_iterator(cluster: &Cluster) {
    let (client, session) = open(cluster);
    let mut watch = client.watch(client.inner().watch().name("blocking/watched")).unwrap();
    assert!(watch.next_within(Duration::from_millis(1)).is_none());
    let token = session.lock("blocking/watched").acquire().unwrap().token().unwrap();
    let changes: Vec<Change> = watch
        .by_ref()
        .take(2)
        .map(|item| match item.unwrap() {
            WatchItem::Event(event) => event.change,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(changes[0].granted(), Some(token));
    assert!(matches!(&changes[1], Change::ClaimEnded { vacant: true, .. }), "{:?}", changes[1]);
}
