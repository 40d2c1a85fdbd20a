//! Abandoned acquires: dropped at random points, they leave no lock and no waiter.

use crate::cluster::{PATIENCE, three, until};
use crate::rng::Rng;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tollgate_client::{Client, Session};

const TASKS: u64 = 40;
const ROUNDS: u64 = 250;
const NAMES: u64 = 6;

#[derive(Default)]
struct Counts {
    granted: AtomicU64,
    given_up: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_acquires_given_up_at_random_points_leave_no_lock_and_no_waiter() {
    assert_eq!(TASKS * ROUNDS, 10_000);
    let cluster = three().await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(client.session().ttl(Duration::from_secs(30)).open().await.unwrap());
    }
    let counts = Arc::new(Counts::default());
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let session = sessions[usize::try_from(task).unwrap() % sessions.len()].clone();
        let (counts, rng) = (Arc::clone(&counts), Rng::new(task ^ 0x00ca_11ed));
        tasks.spawn(give_up_again_and_again(session, task, rng, counts));
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    };
    tokio::time::timeout(4 * PATIENCE, all).await.expect("somebody waits for a lock that was left behind");
    let (granted, given_up) =
        (counts.granted.load(Ordering::Relaxed), counts.given_up.load(Ordering::Relaxed));
    println!("{granted} granted, {given_up} given up");
    assert!(granted > 500 && given_up > 500, "{granted} granted, {given_up} given up: neither may be rare");
    until("nothing is held or awaited", || async { client.list_locks("").all().await.unwrap().is_empty() })
        .await;
    for session in &sessions {
        session.check().expect("no lease was lost");
    }
    // A lease may have only so many requests with unacknowledged answers: none is left of all these.
    for _ in 0..600 {
        sessions[0].lock("after").acquire().await.unwrap().release().await.unwrap();
    }
    for session in sessions {
        session.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_waiters_of_one_session_keep_nobody_out_and_go_when_they_are_dropped() {
    let cluster = three().await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let session = client.session().open().await.unwrap();
    let held = session.lock("crowd").acquire().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..2_000 {
        waiting.spawn(session.lock("crowd").acquire());
    }
    let waiters = || async { client.get_lock("crowd").await.unwrap().waiter_count };
    until("all wait", || async { waiters().await == 2_000 }).await;
    session.lock("beside").try_acquire().await.unwrap().release().await.unwrap();
    held.release().await.unwrap();
    waiting.join_next().await.unwrap().unwrap().unwrap().release().await.unwrap();
    drop(waiting);
    until("nobody waits", || async { client.get_lock("crowd").await.unwrap().is_free() }).await;
    session.lock("crowd").try_acquire().await.unwrap().release().await.unwrap();
    session.close().await.unwrap();
}

async fn give_up_again_and_again(session: Session, task: u64, mut rng: Rng, counts: Arc<Counts>) {
    let worker = session.owner(format!("worker-{task}"));
    for _ in 0..ROUNDS {
        let name = format!("cancel/{}", rng.below(NAMES));
        let acquire = match rng.below(10) {
            0 => session.locks([name, format!("cancel/{}", NAMES + rng.below(NAMES))]),
            1 => session.lock(name).wait(Duration::from_millis(1 + rng.below(20))),
            2 | 3 => session.lock(name).shared(),
            4 | 5 => worker.lock(name),
            _ => session.lock(name),
        };
        let acquire = acquire.acquire();
        let taken = if rng.percent(50) {
            polled(acquire, rng.below(12)).await
        } else {
            tokio::time::timeout(Duration::from_micros(rng.below(15_000)), acquire).await.ok()
        };
        let Some(taken) = taken else {
            counts.given_up.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        // A wait may time out, and a worker's own deadlock is detected.
        let Ok(mut guard) = taken else { continue };
        counts.granted.fetch_add(1, Ordering::Relaxed);
        guard.token().unwrap();
        match rng.below(4) {
            0 => drop(guard),
            1 => {
                // A conversion that is dropped, too.
                let change = guard.convert(if rng.percent(50) {
                    tollgate_client::Mode::Exclusive
                } else {
                    tollgate_client::Mode::Shared
                });
                polled(change, rng.below(6)).await;
            }
            2 => {
                polled(guard.release(), rng.below(6)).await;
            }
            _ => guard.release().await.unwrap(),
        }
    }
}

/// Polls a future at most `polls` times and drops it then, so that it ends at each of its awaits in turn.
async fn polled<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
