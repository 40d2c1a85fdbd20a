//! The client on a healthy cluster: locks, waits, modes, owners, elections.

use crate::cluster::{PATIENCE, three, until};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tollgate_client::{AcquireError, Client, ErrorKind, LostReason, Mode, Session, TxnOp};

/// A check of the client: its name, and the function that runs it.
type Claim = (&'static str, fn(Client) -> Pin<Box<dyn Future<Output = ()> + Send>>);

macro_rules! claims {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), |client| Box::pin($name(client)))),*] };
}

const CLAIMS: [Claim; 24] = claims![
    a_lock_excludes_and_its_release_wakes_the_next_in_line,
    p9_waiters_are_granted_in_the_order_in_which_they_came,
    a_busy_lock_says_who_holds_it_and_why,
    a_wait_that_is_over_says_so_in_time,
    tokens_rise_from_holder_to_holder,
    two_tasks_of_one_session_exclude_each_other,
    guards_of_one_owner_are_counted_and_the_last_one_unlocks,
    an_owner_that_lost_its_lock_may_ask_again,
    p1_an_owner_named_like_a_number_is_nobody_else,
    an_owner_that_takes_a_lock_again_has_the_mode_it_asked_for,
    a_joined_session_leaves_no_lock_and_no_waiter,
    a_joined_session_that_is_closed_has_taken_back_what_was_given_up,
    a_joined_session_that_is_closed_does_not_wait_for_a_release_that_nobody_polls,
    a_write_for_a_lease_that_is_gone_costs_the_session_nothing,
    readers_share_and_a_writer_waits_for_all_of_them,
    an_upgrade_has_a_new_token_and_a_downgrade_keeps_it,
    an_upgrade_that_is_given_up_leaves_the_old_mode,
    several_names_are_taken_together_or_not_at_all,
    permits_are_counted,
    p8_a_deadlock_is_refused_with_its_circle,
    a_dropped_guard_is_released_and_a_dropped_session_revoked,
    a_forced_release_is_noticed_with_its_reason,
    the_longest_hold_ends_a_grant_and_is_noticed,
    leaders_follow_one_another_with_rising_tokens,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_that_is_well() {
    let cluster = three().await;
    // The client has to learn all nodes but one.
    let client = Client::connect([&cluster.nodes[1].endpoint()]).await.unwrap();
    until("all nodes are known", || async { client.endpoints().len() == 3 }).await;
    let mut running = tokio::task::JoinSet::new();
    for (name, claim) in CLAIMS {
        let client = client.clone();
        running.spawn(async move {
            tokio::time::timeout(PATIENCE, claim(client))
                .await
                .unwrap_or_else(|_| panic!("{name} does not end"));
            name
        });
    }
    while let Some(done) = running.join_next().await {
        println!("{}: ok", done.unwrap());
    }
    let locks = client.list_locks("").all().await.unwrap();
    assert!(locks.is_empty(), "something was left behind: {locks:?}");
}

async fn session(client: &Client) -> Session {
    client.session().ttl(Duration::from_secs(5)).open().await.unwrap()
}

/// Waits until a lock has this many holders and waiters.
async fn until_queue(client: &Client, name: &str, holders: u64, waiters: u64) {
    until("the queue is as long as it should be", || async {
        let lock = client.get_lock(name).await.unwrap();
        (lock.holder_count, lock.waiter_count) == (holders, waiters)
    })
    .await;
}

async fn a_lock_excludes_and_its_release_wakes_the_next_in_line(client: Client) {
    let (one, two) = (session(&client).await, session(&client).await);
    let held = one.lock("exclusion").acquire().await.unwrap();
    assert_eq!((held.name(), held.mode(), held.is_lost()), ("exclusion", Mode::Exclusive, false));
    assert!(held.remaining() > Duration::from_secs(3) && held.remaining() < Duration::from_secs(5));
    let waiting = tokio::spawn(async move { two.lock("exclusion").acquire().await });
    until_queue(&client, "exclusion", 1, 1).await;
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.waited() > Duration::ZERO);
    next.release().await.unwrap();
    one.close().await.unwrap();
}

async fn p9_waiters_are_granted_in_the_order_in_which_they_came(client: Client) {
    let session = session(&client).await;
    let held = session.lock("fair").await.unwrap();
    let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..5_u64 {
        let (session, told) = (session.clone(), told.clone());
        tokio::spawn(async move {
            let guard = session.lock("fair").await.unwrap();
            told.send((number, guard.token().unwrap())).unwrap();
            guard.release().await.unwrap();
        });
        until_queue(&client, "fair", 1, number + 1).await;
    }
    held.release().await.unwrap();
    let mut last = None;
    for expected in 0..5 {
        let (number, token) = order.recv().await.unwrap();
        assert_eq!(number, expected);
        assert!(Some(token) > last);
        last = Some(token);
    }
    session.close().await.unwrap();
}

async fn a_busy_lock_says_who_holds_it_and_why(client: Client) {
    let (one, two) = (session(&client).await, session(&client).await);
    let held = one.lock("busy").why("schema v42").await.unwrap();
    let error = two.lock("busy").try_acquire().await.unwrap_err();
    let AcquireError::Busy { name, holders, .. } = &error else { panic!("{error:?}") };
    assert_eq!((name.as_str(), holders.len()), ("busy", 1));
    assert_eq!((holders[0].lease, holders[0].why.as_str()), (one.lease_id(), "schema v42"));
    assert_eq!(holders[0].token, held.token().unwrap());
    assert!(error.to_string().contains("schema v42"), "{error}");
    drop(held);
    one.close().await.unwrap();
    two.close().await.unwrap();
}

async fn a_wait_that_is_over_says_so_in_time(client: Client) {
    let session = session(&client).await;
    let held = session.lock("patience").await.unwrap();
    let began = std::time::Instant::now();
    let error = session.lock("patience").wait(Duration::from_millis(300)).acquire().await.unwrap_err();
    let took = began.elapsed();
    let AcquireError::TimedOut { holders, position, .. } = &error else { panic!("{error:?}") };
    assert_eq!((holders.len(), *position), (1, 1), "{error:?}");
    assert!(took >= Duration::from_millis(290) && took < Duration::from_secs(3), "{took:?}");
    held.release().await.unwrap();
    session.close().await.unwrap();
}

async fn tokens_rise_from_holder_to_holder(client: Client) {
    let session = session(&client).await;
    let mut last = None;
    for _ in 0..5 {
        let guard = session.lock("tokens").await.unwrap();
        let token = guard.token().unwrap();
        assert!(Some(token) > last);
        last = Some(token);
        guard.release().await.unwrap();
    }
    session.close().await.unwrap();
}

async fn two_tasks_of_one_session_exclude_each_other(client: Client) {
    let session = session(&client).await;
    let held = session.lock("tasks").await.unwrap();
    let other = session.lock("tasks").try_acquire().await;
    assert!(matches!(other, Err(AcquireError::Busy { .. })), "{other:?}");
    held.release().await.unwrap();
    session.close().await.unwrap();
}

async fn guards_of_one_owner_are_counted_and_the_last_one_unlocks(client: Client) {
    let session = session(&client).await;
    let worker = session.owner("worker");
    let outer = worker.lock("counted").await.unwrap();
    let inner = worker.lock("counted").await.unwrap();
    assert_eq!(outer.token(), inner.token());
    outer.release().await.unwrap();
    let other = session.owner("other").lock("counted").try_acquire().await;
    assert!(matches!(other, Err(AcquireError::Busy { .. })), "{other:?}");
    // A stronger mode is an upgrade for both guards.
    let reader = worker.lock("counted/mode").shared().await.unwrap();
    let shared_token = reader.token().unwrap();
    let writer = worker.lock("counted/mode").exclusive().await.unwrap();
    assert_eq!((reader.mode(), reader.token()), (Mode::Exclusive, writer.token()));
    assert!(writer.token().unwrap() > shared_token);
    // The release of the last guard comes before its owner's next request.
    for _ in 0..50 {
        drop(worker.lock("counted/again").await.unwrap());
        worker.lock("counted/again").await.unwrap().token().unwrap();
    }
    inner.release().await.unwrap();
    session.owner("other").lock("counted").try_acquire().await.unwrap().release().await.unwrap();
    session.close().await.unwrap();
}

async fn an_owner_that_lost_its_lock_may_ask_again(client: Client) {
    let session = session(&client).await;
    let worker = session.owner("worker");
    let first = worker.lock("again").await.unwrap();
    client.force_release("again", first.token().unwrap(), "test").await.unwrap();
    assert_eq!(first.lost().await.reason, LostReason::Forced);
    let second = worker.lock("again").await.unwrap();
    assert!(first.token().is_err());
    drop(first);
    second.token().unwrap();
    let third = worker.lock("again").await.unwrap();
    assert_eq!(second.token(), third.token(), "the old guard took nothing along");
    session.close().await.unwrap();
}

async fn p1_an_owner_named_like_a_number_is_nobody_else(client: Client) {
    let session = session(&client).await;
    let held = session.lock("numbers").await.unwrap();
    for number in 1..16_u64 {
        let other = session.owner(format!("{number:x}")).lock("numbers").try_acquire().await;
        assert!(matches!(other, Err(AcquireError::Busy { .. })), "{number}: {other:?}");
    }
    let error = session.owner(held.owner()).lock("numbers").try_acquire().await.unwrap_err();
    let AcquireError::Failed(error) = error else { panic!("{error:?}") };
    assert_eq!((error.kind(), error.field()), (ErrorKind::Invalid, Some("owner")));
    held.release().await.unwrap();
    session.close().await.unwrap();
}

async fn an_owner_that_takes_a_lock_again_has_the_mode_it_asked_for(client: Client) {
    let session = session(&client).await;
    let worker = session.owner("worker");
    for _ in 0..20 {
        let mut first = worker.lock("again/mode").await.unwrap();
        // A downgrade that is under way, or dropped, when the lock is taken again.
        let (_, again) = tokio::join!(
            tokio::time::timeout(Duration::from_micros(200), first.downgrade()),
            worker.lock("again/mode").exclusive().acquire(),
        );
        let again = again.unwrap();
        let other = session.lock("again/mode").shared().try_acquire().await;
        assert_eq!(again.mode(), Mode::Exclusive);
        assert!(matches!(other, Err(AcquireError::Busy { .. })), "{other:?}");
        drop((first, again, other));
    }
    session.close().await.unwrap();
}

async fn a_joined_session_leaves_no_lock_and_no_waiter(client: Client) {
    let parent = session(&client).await;
    let join = || client.session().join(parent.lease_id());
    let child = join().await.unwrap();
    let guard = child.lock("joined").await.unwrap();
    drop(child);
    // This is the last guard of the session.
    drop(guard);
    until_queue(&client, "joined", 0, 0).await;
    // A closed session releases the locks that guards still hold, and ends its waits.
    let (child, held) = (join().await.unwrap(), parent.lock("joined/held").await.unwrap());
    let guard = child.lock("joined").await.unwrap();
    let waiting = tokio::spawn(child.lock("joined/held").acquire());
    until_queue(&client, "joined/held", 1, 1).await;
    child.close().await.unwrap();
    assert!(guard.is_lost());
    assert!(client.get_lock("joined").await.unwrap().is_free());
    assert!(matches!(waiting.await.unwrap(), Err(AcquireError::Lost(_))));
    until_queue(&client, "joined/held", 1, 0).await;
    assert_eq!(parent.check(), Ok(()), "the lease lives");
    held.release().await.unwrap();
    parent.close().await.unwrap();
}

async fn a_joined_session_that_is_closed_has_taken_back_what_was_given_up(client: Client) {
    let (parent, other) = (session(&client).await, session(&client).await);
    let held = other.lock("joined/given-up").await.unwrap();
    // The cancel is under way when the session is closed, and may or may not have arrived.
    for _ in 0..20 {
        let child = client.session().join(parent.lease_id()).await.unwrap();
        let mut waiting = Box::pin(child.lock("joined/given-up").acquire());
        tokio::select! {
            _ = &mut waiting => panic!("it is another's"),
            () = until_queue(&client, "joined/given-up", 1, 1) => {}
        }
        drop(waiting);
        child.close().await.unwrap();
        assert_eq!(client.get_lock("joined/given-up").await.unwrap().waiter_count, 0);
    }
    held.release().await.unwrap();
    parent.close().await.unwrap();
    other.close().await.unwrap();
}

async fn a_joined_session_that_is_closed_does_not_wait_for_a_release_that_nobody_polls(client: Client) {
    let parent = session(&client).await;
    let child = client.session().join(parent.lease_id()).await.unwrap();
    let mut releasing = Box::pin(child.lock("joined/unpolled").await.unwrap().release());
    // The release is begun, and not polled again.
    tokio::select! {
        biased;
        _ = &mut releasing => panic!("the cluster has not even been asked"),
        () = std::future::ready(()) => {}
    }
    tokio::time::timeout(PATIENCE, child.close()).await.expect("it does not hang").unwrap();
    drop(releasing);
    until_queue(&client, "joined/unpolled", 0, 0).await;
    parent.close().await.unwrap();
}

async fn a_write_for_a_lease_that_is_gone_costs_the_session_nothing(client: Client) {
    let (session, other) = (session(&client).await, session(&client).await);
    let gone = other.lease_id();
    other.close().await.unwrap();
    let error = session.registers().put("gone", "1").lease(gone).await.unwrap_err();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::NotFound, Some("LEASE_NOT_FOUND")));
    let put = TxnOp::Put { key: b"gone".to_vec(), value: b"1".to_vec(), lease: Some(gone) };
    let error = session.registers().txn().then(put).commit().await.unwrap_err();
    assert_eq!(error.reason(), Some("LEASE_NOT_FOUND"));
    assert_eq!(session.check(), Ok(()));
    session.close().await.unwrap();
}

async fn readers_share_and_a_writer_waits_for_all_of_them(client: Client) {
    let session = session(&client).await;
    let one = session.lock("shared").shared().await.unwrap();
    let two = session.lock("shared").read().try_acquire().await.unwrap();
    let writer = tokio::spawn(session.lock("shared").write().acquire());
    until_queue(&client, "shared", 2, 1).await;
    drop(one);
    until_queue(&client, "shared", 1, 1).await;
    assert!(!writer.is_finished());
    drop(two);
    writer.await.unwrap().unwrap().release().await.unwrap();
    session.close().await.unwrap();
}

async fn an_upgrade_has_a_new_token_and_a_downgrade_keeps_it(client: Client) {
    let session = session(&client).await;
    let mut guard = session.lock("convert").shared().await.unwrap();
    let shared = guard.token().unwrap();
    let other = session.lock("convert").shared().await.unwrap();
    let busy = guard.convert_within(Mode::Exclusive, Duration::ZERO).await;
    assert!(matches!(busy, Err(AcquireError::Busy { .. })), "{busy:?}");
    other.release().await.unwrap();
    guard.upgrade().await.unwrap();
    let exclusive = guard.token().unwrap();
    assert!(exclusive > shared);
    assert_eq!(guard.mode(), Mode::Exclusive);
    guard.downgrade().await.unwrap();
    assert_eq!((guard.token().unwrap(), guard.mode()), (exclusive, Mode::Shared));
    session.lock("convert").shared().try_acquire().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    session.close().await.unwrap();
}

async fn an_upgrade_that_is_given_up_leaves_the_old_mode(client: Client) {
    let session = session(&client).await;
    let mut guard = session.lock("given-up").shared().await.unwrap();
    let token = guard.token().unwrap();
    let other = session.lock("given-up").shared().await.unwrap();
    tokio::select! {
        upgraded = guard.upgrade() => panic!("another reader is in the way: {upgraded:?}"),
        () = until_queue(&client, "given-up", 2, 1) => {}
    }
    // The next conversion waits until the cluster has forgotten the first.
    guard.convert(Mode::IntentShared).await.unwrap();
    assert_eq!((guard.token().unwrap(), guard.mode()), (token, Mode::IntentShared));
    until_queue(&client, "given-up", 2, 0).await;
    drop((guard, other));
    session.close().await.unwrap();
}

async fn several_names_are_taken_together_or_not_at_all(client: Client) {
    let session = session(&client).await;
    let held = session.lock("several/b").await.unwrap();
    let busy = session.locks(["several/a", "several/b", "several/c"]).try_acquire().await;
    assert!(matches!(busy, Err(AcquireError::Busy { .. })), "{busy:?}");
    assert!(client.get_lock("several/a").await.unwrap().is_free());
    held.release().await.unwrap();
    let all = session.locks(["several/c", "several/a", "several/b"]).await.unwrap();
    assert_eq!(all.names(), ["several/a", "several/b", "several/c"]);
    let tokens = all.tokens().unwrap();
    assert_eq!(tokens.len(), 3);
    assert!(tokens.iter().all(|(_, token)| *token == all.token().unwrap()));
    for name in ["several/a", "several/b", "several/c"] {
        assert!(session.lock(name).try_acquire().await.is_err());
    }
    all.release().await.unwrap();
    assert!(client.get_lock("several/c").await.unwrap().is_free());
    let twice = session.locks(["several/a", "several/a"]).acquire().await.unwrap_err();
    let AcquireError::Failed(error) = twice else { panic!("{twice:?}") };
    assert_eq!(
        (error.kind(), error.field(), error.may_have_happened()),
        (ErrorKind::Invalid, Some("name"), false)
    );
    session.close().await.unwrap();
}

async fn permits_are_counted(client: Client) {
    let session = session(&client).await;
    let workers = session.semaphore("permits", 3);
    let two = workers.acquire(2).await.unwrap();
    assert_eq!(two.mode(), Mode::permit(2, 3).unwrap());
    assert!(matches!(workers.acquire(2).try_acquire().await, Err(AcquireError::Busy { .. })));
    let one = workers.acquire(1).try_acquire().await.unwrap();
    two.release().await.unwrap();
    workers.acquire(2).try_acquire().await.unwrap().release().await.unwrap();
    let other_size = session.semaphore("permits", 4).acquire(1).try_acquire().await.unwrap_err();
    let AcquireError::Failed(error) = other_size else { panic!("{other_size:?}") };
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Conflict, Some("OTHER_KIND")));
    one.release().await.unwrap();
    session.close().await.unwrap();
}

async fn p8_a_deadlock_is_refused_with_its_circle(client: Client) {
    let session = session(&client).await;
    let (one, two) = (session.owner("one"), session.owner("two"));
    let a = one.lock("deadlock/a").await.unwrap();
    let b = two.lock("deadlock/b").await.unwrap();
    let waiting = tokio::spawn(one.lock("deadlock/b").acquire());
    until_queue(&client, "deadlock/b", 1, 1).await;
    let error = two.lock("deadlock/a").acquire().await.unwrap_err();
    let AcquireError::Deadlock { cycle } = &error else { panic!("{error:?}") };
    let steps: Vec<(&str, &str)> =
        cycle.iter().map(|step| (step.owner.as_str(), step.name.as_str())).collect();
    assert_eq!(steps, [("two", "deadlock/a"), ("one", "deadlock/b")]);
    assert!(error.to_string().contains("two of"), "{error}");
    drop(b);
    waiting.await.unwrap().unwrap().release().await.unwrap();
    a.release().await.unwrap();
    session.close().await.unwrap();
}

async fn a_dropped_guard_is_released_and_a_dropped_session_revoked(client: Client) {
    let keeps = session(&client).await;
    drop(keeps.lock("dropped").await.unwrap());
    until_queue(&client, "dropped", 0, 0).await;
    let guard = session(&client).await.lock("dropped").await.unwrap();
    // The guard keeps its session alive; with the last of them the lease ends.
    guard.token().unwrap();
    let lease = guard.lease_id();
    drop(guard);
    until("the lease is gone", || async {
        matches!(client.leases().time_to_live(lease).await, Err(error) if error.kind() == ErrorKind::NotFound)
    })
    .await;
    let closed = session(&client).await;
    let guard = closed.lock("dropped").await.unwrap();
    closed.clone().close().await.unwrap();
    assert_eq!(guard.token().unwrap_err().reason, LostReason::SessionClosed);
    let refused = closed.lock("dropped").acquire().await;
    assert!(matches!(refused, Err(AcquireError::Lost(_))), "{refused:?}");
    assert!(client.get_lock("dropped").await.unwrap().is_free());
    keeps.close().await.unwrap();
}

async fn a_forced_release_is_noticed_with_its_reason(client: Client) {
    let session = session(&client).await;
    let guard = session.lock("forced").await.unwrap();
    let others: Vec<_> = {
        let mut guards = Vec::new();
        for number in 0..20 {
            guards.push(session.lock(format!("forced/{number}")).await.unwrap());
        }
        guards
    };
    let token = guard.token().unwrap();
    client.force_release("forced", token, "stuck since noon").await.unwrap();
    let lost = guard.lost().await;
    assert_eq!((lost.reason, lost.note.as_deref()), (LostReason::Forced, Some("stuck since noon")));
    assert_eq!(guard.run(std::future::pending::<()>()).await, Err(lost.clone()));
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    // One of several locks that were taken together, and one that has been held for a long time.
    let several = session.locks(["forced/x", "forced/y"]).await.unwrap();
    client.force_release("forced/y", several.token().unwrap(), "test").await.unwrap();
    assert_eq!(several.lost().await.reason, LostReason::Forced);
    // The other name is released with the guard.
    assert_eq!(client.get_lock("forced/x").await.unwrap().holder_count, 1);
    drop(several);
    until_queue(&client, "forced/x", 0, 0).await;
    client.force_release("forced/7", others[7].token().unwrap(), "test").await.unwrap();
    assert_eq!(others[7].lost().await.reason, LostReason::Forced);
    for (number, guard) in others.iter().enumerate().filter(|(number, _)| *number != 7) {
        assert!(!guard.is_lost(), "{number}");
    }
    assert_eq!(session.check(), Ok(()), "the lease lives");
    drop(others);
    session.close().await.unwrap();
}

async fn the_longest_hold_ends_a_grant_and_is_noticed(client: Client) {
    let session = session(&client).await;
    let began = std::time::Instant::now();
    let guard = session.lock("max-hold").max_hold(Duration::from_millis(400)).await.unwrap();
    assert!(guard.remaining() <= Duration::from_millis(400));
    let ran = guard.run(std::future::pending::<()>()).await;
    assert_eq!(ran.unwrap_err().reason, LostReason::MaxHold);
    assert!(began.elapsed() >= Duration::from_millis(380) && began.elapsed() < Duration::from_secs(2));
    assert!(guard.token().is_err());
    session.lock("max-hold").wait(Duration::from_secs(2)).await.unwrap().release().await.unwrap();
    session.close().await.unwrap();
}

async fn leaders_follow_one_another_with_rising_tokens(client: Client) {
    let session = session(&client).await;
    let first = session.campaign("election").value("one").stand().await.unwrap();
    let token = first.token().unwrap();
    let refused = session.campaign("election").wait(Duration::from_millis(100)).stand().await;
    assert!(matches!(refused, Err(AcquireError::TimedOut { .. })), "{refused:?}");
    let second = tokio::spawn(session.campaign("election").value("two").stand());
    until_queue(&client, "election", 1, 1).await;
    first.resign().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.token().unwrap() > token);
    let leader = client.election("election").leader().await.unwrap().unwrap();
    assert_eq!(leader.value, b"two");
    client.force_release("election", second.token().unwrap(), "test").await.unwrap();
    assert_eq!(second.lost().await.reason, LostReason::Forced);
    session.close().await.unwrap();
}
