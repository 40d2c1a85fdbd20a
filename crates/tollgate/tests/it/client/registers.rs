//! Register writes of a session, which are numbered.

use crate::cluster;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tollgate_client::{Client, Compare, Session, TxnOp};

#[derive(Default)]
struct Progress {
    rounds: AtomicU64,
    stop: AtomicBool,
}

/// Writes one register twice a round, as its only writer.
async fn write(session: Session, progress: Arc<Progress>) {
    let registers = session.registers();
    let mut last = registers.put("count", "begun").await.unwrap();
    while !progress.stop.load(Ordering::Relaxed) {
        let put = registers.put("count", "put").await.unwrap();
        assert!(put > last, "a write has a revision of its own");
        // The comparison must hold, also in an answer that is requested again.
        let swap =
            registers.txn().when(Compare::mod_revision("count", put)).then(TxnOp::put("count", "swapped"));
        let swapped = swap.commit().await.unwrap();
        assert!(swapped.succeeded);
        last = swapped.revision;
        progress.rounds.fetch_add(1, Ordering::Relaxed);
    }
    session.close().await.unwrap();
}

/// An answer that a killed leader owes is requested again; the write must not be applied a second time.
#[tokio::test(flavor = "multi_thread")]
async fn p10_every_write_of_a_session_is_made_once_though_leaders_are_killed() {
    let mut cluster = cluster::three().await;
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let session = client.session().ttl(Duration::from_secs(20)).open().await.unwrap();
    let progress = Arc::new(Progress::default());
    let writing = tokio::spawn(write(session, Arc::clone(&progress)));
    let rounds = || progress.rounds.load(Ordering::Relaxed);
    let until = async |count: u64| {
        cluster::until("writes go on", || async { rounds() >= count || writing.is_finished() }).await;
    };
    until(20).await;
    for _ in 0..2 {
        let leader = cluster.leader().await;
        cluster.nodes[leader].kill();
        until(rounds() + 20).await;
        cluster.restart(leader);
        cluster.until_ready().await;
    }
    progress.stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    let register = client.registers().get("count").await.unwrap().unwrap();
    assert_eq!(register.version, 1 + 2 * rounds(), "each write counts once");
}
