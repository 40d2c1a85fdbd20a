//! Clients that fight for a few locks while a test does its worst, and the judgement when it is over.
//!
//! Invariant: when the load ends, every call was answered or the judge is told that it was not. Not here: what a
//! client does (`work`).

use crate::cluster::{Cluster, PATIENCE};
use crate::connection::{Connection, GROUP};
use crate::record::Recorder;
use crate::rng::Rng;
use crate::session::Session;
use crate::verdict::{lease, revision};
use crate::watching;
use crate::work::{Ground, Task};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tollgate_check::{Event, Filter, FinalLock};
use tollgate_proto::v1::{LeaseListRequest, ListLocksRequest};
use tollgate_types::{LeaseId, Name, SLOTS, Slot};

/// How much of it.
#[derive(Debug, Clone)]
pub(crate) struct Weight {
    /// Of what chance brings.
    pub(crate) seed: u64,
    pub(crate) clients: u32,
    pub(crate) tasks: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) ground: Ground,
}

impl Weight {
    /// Enough to have queues on every lock, and little enough for two cores.
    pub(crate) fn usual() -> Weight {
        let ground = Ground { locks: 3, tags: Arc::new([]), registers: 2, think_ms_max: 20, pace: None };
        Weight { seed: 0, clients: 4, tasks: 2, ttl_ms: 3_000, ground }
    }

    pub(crate) fn ttl_ms(self, ttl_ms: u64) -> Weight {
        Weight { ttl_ms, ..self }
    }
}

/// A client: its connection, the task that carries it, and the one that keeps its sessions.
type Client = (Connection, JoinHandle<()>, JoinHandle<Option<Arc<Session>>>);

/// Clients at work.
pub(crate) struct Load {
    pub(crate) recorder: Arc<Recorder>,
    ending: watch::Sender<bool>,
    clients: Vec<Client>,
    tasks: JoinSet<()>,
    watches: JoinSet<()>,
    endpoints: Vec<String>,
}

impl Load {
    /// Sets clients to work on the nodes of a cluster.
    #[allow(clippy::needless_pass_by_value, reason = "tests say what they want in place")]
    pub(crate) fn start(cluster: &Cluster, weight: Weight) -> Load {
        Load::on(cluster.endpoints(), &Recorder::new(), &weight)
    }

    /// Likewise, on some of them.
    pub(crate) fn start_on(cluster: &Cluster, weight: &Weight, nodes: &[usize]) -> Load {
        let endpoints = nodes.iter().map(|index| cluster.nodes[*index].endpoint()).collect();
        Load::on(endpoints, &Recorder::new(), weight)
    }

    /// Sets clients to work that know of these endpoints.
    pub(crate) fn start_at(endpoints: Vec<String>, weight: &Weight) -> Load {
        Load::on(endpoints, &Recorder::new(), weight)
    }

    /// Sets clients to work on nodes, and writes down what they see.
    pub(crate) fn on(endpoints: Vec<String>, recorder: &Arc<Recorder>, weight: &Weight) -> Load {
        let recorder = Arc::clone(recorder);
        let ending = watch::Sender::new(false);
        let (mut clients, mut tasks, mut watches) = (Vec::new(), JoinSet::new(), JoinSet::new());
        for client in 0..weight.clients {
            let (connection, carrier) = Connection::start(client, Arc::clone(&recorder), endpoints.clone());
            let sessions = watch::Sender::new(None);
            for number in 0..weight.tasks {
                let rng = Rng::new((weight.seed << 20) + u64::from(client) * 100 + number);
                let (sessions, ending) = (sessions.subscribe(), ending.subscribe());
                tasks.spawn(Task { number, ground: weight.ground.clone(), rng, sessions, ending }.run());
            }
            let keeper = keep_sessions(connection.clone(), weight.ttl_ms, sessions, ending.subscribe());
            clients.push((connection, carrier, tokio::spawn(keeper)));
        }
        for (number, filter) in (0..).zip(filters(&weight.ground.tags)) {
            watches.spawn(watching::watch(number, filter, Arc::clone(&recorder), endpoints.clone()));
        }
        Load { recorder, ending, clients, tasks, watches, endpoints }
    }

    /// Waits until so many more locks have been granted: the cluster serves.
    pub(crate) async fn progress(&self, grants: u64) {
        self.more_of(&self.recorder.counts.grants, grants, "grants").await;
    }

    async fn more_of(&self, counter: &AtomicU64, more: u64, what: &str) {
        let (goal, until) = (counter.load(Ordering::Relaxed) + more, Instant::now() + PATIENCE);
        while counter.load(Ordering::Relaxed) < goal {
            assert!(Instant::now() < until, "not {more} more {what} within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// All faults are over: has everything answered, reads the state once more, and judges. Fails on any violation.
    pub(crate) async fn finish(self, cluster: &Cluster) {
        self.recorder.record(Event::Healed);
        let recorder = Arc::clone(&self.recorder);
        let watches = self.end().await;
        read_all(&recorder, cluster).await;
        recorder.record(Event::End);
        drop(watches);
        recorder.judge();
    }

    /// Has everything answered, and all clients leave; what still watches.
    pub(crate) async fn end(mut self) -> JoinSet<()> {
        self.ending.send_replace(true);
        let until = tokio::time::Instant::now() + PATIENCE;
        let ended = async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
        };
        if tokio::time::timeout_at(until, ended).await.is_err() {
            let held = still_held(&self.recorder, &self.endpoints).await;
            panic!("a task still waits for an answer; what is held and awaited:\n{held}");
        }
        for (connection, carrier, keeper) in self.clients {
            let session =
                tokio::time::timeout_at(until, keeper).await.expect("a session does not end").unwrap();
            if let Some(session) = session {
                session.revoke();
            }
            connection.drain();
            tokio::time::timeout_at(until, carrier).await.expect("a call is not answered").unwrap();
        }
        self.watches
    }
}

/// Every lock that is held or awaited, and the last that was recorded of whoever holds it.
async fn still_held(recorder: &Recorder, endpoints: &[String]) -> String {
    for endpoint in endpoints {
        let Ok(client) = tollgate_client::Client::connect([endpoint]).await else { continue };
        let Ok(locks) = client.list_locks("").all().await else { continue };
        let mut says = String::new();
        for lock in locks {
            let _ = writeln!(says, "{lock:?}");
            for holder in &lock.holders {
                let (lease, owner) = (format!("{:?}", holder.lease), format!("{:?}", holder.owner));
                let history = recorder.history();
                let told = history.events().iter().map(|(at, event)| format!("    {at} {event:?}\n"));
                let of: Vec<String> =
                    told.filter(|line| line.contains(&lease) && line.contains(&owner)).collect();
                says += &of[of.len().saturating_sub(8)..].concat();
            }
        }
        return says;
    }
    "nobody answers".to_owned()
}

/// What is watched: everything, or where locks live in several groups, what each tag stands for.
fn filters(tags: &[String]) -> Vec<Filter> {
    if tags.is_empty() {
        return vec![Filter::All];
    }
    tags.iter().map(|tag| Filter::Prefix(format!("{{{tag}}}/"))).collect()
}

/// One session after the other, until nothing new is to be begun; the last one, if it lives.
async fn keep_sessions(
    connection: Connection,
    ttl_ms: u64,
    sessions: watch::Sender<Option<Arc<Session>>>,
    mut ending: watch::Receiver<bool>,
) -> Option<Arc<Session>> {
    for number in 1.. {
        if *ending.borrow() {
            return None;
        }
        let client = connection.client();
        // Leases of different clients live in different groups, if there are several.
        let slot = Slot::new(u16::try_from(client * 4_099 % u32::from(SLOTS)).unwrap()).unwrap();
        let id = LeaseId::assigned(slot, (1 << 48) | (u64::from(client) << 20) | number);
        let Some(session) = Session::open(&connection, id, ttl_ms).await else { continue };
        sessions.send_replace(Some(Arc::clone(&session)));
        let keeper = tokio::spawn(Arc::clone(&session).keep());
        let is_ending = tokio::select! {
            () = session.ended() => false,
            _ = ending.changed() => true,
        };
        if is_ending {
            // The lease is kept while tasks give back what they hold; the caller ends it.
            sessions.closed().await;
            return Some(session);
        }
        keeper.await.unwrap();
    }
    unreachable!("there are more numbers than sessions")
}

/// What a linearizable read of everything sees, for the judge: at one revision, which two lists must agree on.
pub(crate) async fn read_all(recorder: &Recorder, cluster: &Cluster) {
    let until = Instant::now() + PATIENCE;
    loop {
        let leader = cluster.leader().await;
        let mut service = cluster.nodes[leader].locks();
        let asked = recorder.now();
        let leases = service.lease_list(LeaseListRequest::default()).await;
        let locks = service.list_locks(ListLocksRequest::default()).await;
        let after = service.lease_list(LeaseListRequest::default()).await;
        if let (Ok(leases), Ok(locks), Ok(after)) = (leases, locks, after) {
            let (leases, locks, after) = (leases.into_inner(), locks.into_inner(), after.into_inner());
            let at = leases.header.unwrap().revision;
            let waiting = locks.locks.iter().any(|lock| lock.waiter_count > 0 || lock.holder_count > 0);
            if locks.header.unwrap().revision == at && after.header.unwrap().revision == at && !waiting {
                let locks = locks.locks.iter().map(|lock| FinalLock {
                    name: Name::new(&lock.name).unwrap(),
                    holders: Vec::new(),
                    waiters: Vec::new(),
                });
                let leases = leases.leases.iter();
                let event = Event::FinalState {
                    group: GROUP,
                    asked,
                    revision: revision(at),
                    locks: locks.collect(),
                    leases: leases.map(|each| (lease(each.id), revision(each.incarnation))).collect(),
                };
                recorder.record(event);
                return;
            }
        }
        assert!(Instant::now() < until, "locks are still held {PATIENCE:?} after all clients have left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
