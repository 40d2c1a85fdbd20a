//! Clients that compete for a few locks while a test disturbs the cluster, and the judgement at the end.
//!
//! Invariant: when the load ends, every call was answered, or the judge is told that it was not. Not here: the work of
//! a client (`work`).

use crate::cluster::{Cluster, PATIENCE};
use crate::connection::Connection;
use crate::doors::Doors;
use crate::record::Recorder;
use crate::rng::Rng;
use crate::session::Session;
use crate::verdict::{lease, revision};
use crate::watching;
use crate::work::{Ground, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tollgate_check::{Event, Filter, FinalLock, Op};
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{GetLockRequest, LeaseListRequest, ListLocksRequest, LockState};
use tollgate_types::{GroupId, LeaseId, Name, Revision, SLOTS, Slot};
use tonic::transport::Channel;

/// Size of the load.
#[derive(Debug, Clone)]
pub(crate) struct Weight {
    /// Seed of the random choices.
    pub(crate) seed: u64,
    pub(crate) clients: u32,
    pub(crate) tasks: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) ground: Ground,
}

impl Weight {
    /// Returns a load with queues on every lock that still fits two cores.
    pub(crate) fn usual() -> Weight {
        let ground = Ground { locks: 3, tags: Arc::new([]), registers: 2, think_ms_max: 20, pace: None };
        Weight { seed: 0, clients: 4, tasks: 2, ttl_ms: 3_000, ground }
    }

    pub(crate) fn ttl_ms(self, ttl_ms: u64) -> Weight {
        Weight { ttl_ms, ..self }
    }
}

/// A client: its connection, the connection's task, and the task that keeps its sessions.
type Client = (Connection, JoinHandle<()>, JoinHandle<Option<Arc<Session>>>);

/// Clients under load.
pub(crate) struct Load {
    pub(crate) recorder: Arc<Recorder>,
    ending: watch::Sender<bool>,
    clients: Vec<Client>,
    tasks: JoinSet<()>,
    watches: JoinSet<()>,
    doors: Vec<Doors>,
}

impl Load {
    /// Starts clients that know all nodes of a cluster.
    #[allow(clippy::needless_pass_by_value, reason = "tests say what they want in place")]
    pub(crate) fn start(cluster: &Cluster, weight: Weight) -> Load {
        Load::on(&[Doors::new(cluster.endpoints())], &Recorder::new(), &weight)
    }

    /// Starts clients that know some nodes of a cluster.
    pub(crate) fn start_on(cluster: &Cluster, weight: &Weight, nodes: &[usize]) -> Load {
        let endpoints = nodes.iter().map(|index| cluster.nodes[*index].endpoint()).collect();
        Load::start_at(endpoints, weight)
    }

    /// Starts clients that know these endpoints.
    pub(crate) fn start_at(endpoints: Vec<String>, weight: &Weight) -> Load {
        Load::on(&[Doors::new(endpoints)], &Recorder::new(), weight)
    }

    /// Starts clients, and records what they see. Clients and watches are spread over the doors.
    pub(crate) fn on(doors: &[Doors], recorder: &Arc<Recorder>, weight: &Weight) -> Load {
        let recorder = Arc::clone(recorder);
        let ending = watch::Sender::new(false);
        let (mut clients, mut tasks, mut watches) = (Vec::new(), JoinSet::new(), JoinSet::new());
        for client in 0..weight.clients {
            let (connection, carrier) =
                Connection::start(client, Arc::clone(&recorder), doors_of(doors, client));
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
            let (recorder, doors) = (&recorder, doors_of(doors, number));
            watches.spawn(watching::watch_from_now(
                number,
                filter.clone(),
                Arc::clone(recorder),
                doors.clone(),
            ));
            watches.spawn(watching::watch(number, filter, Arc::clone(recorder), doors));
        }
        Load { recorder, ending, clients, tasks, watches, doors: doors.to_vec() }
    }

    /// Waits until `grants` more locks have been granted, which shows that the cluster serves.
    pub(crate) async fn progress(&self, grants: u64) {
        self.more_of(&self.recorder.counts.grants, grants, "grants").await;
    }

    async fn more_of(&self, counter: &AtomicU64, more: u64, what: &str) {
        let (goal, until) = (counter.load(Ordering::Relaxed) + more, Instant::now() + PATIENCE);
        while counter.load(Ordering::Relaxed) < goal {
            if Instant::now() >= until {
                let stuck = stuck(&self.recorder, &self.doors).await;
                panic!("not {more} more {what} within {PATIENCE:?}; {stuck}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the load once all faults are over: waits for all answers, reads the state once more, and judges. Fails on
    /// any violation.
    pub(crate) async fn finish(self, cluster: &Cluster) {
        self.recorder.record(Event::Healed);
        let recorder = Arc::clone(&self.recorder);
        let watches = self.end().await;
        read_all(&recorder, cluster).await;
        recorder.record(Event::End);
        drop(watches);
        recorder.judge();
    }

    /// Waits for all answers, and ends all clients. Returns the watches, which go on.
    pub(crate) async fn end(mut self) -> JoinSet<()> {
        self.ending.send_replace(true);
        let until = tokio::time::Instant::now() + PATIENCE;
        let ended = async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
        };
        if tokio::time::timeout_at(until, ended).await.is_err() {
            let stuck = stuck(&self.recorder, &self.doors).await;
            panic!("a task still waits for an answer; {stuck}");
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
        while let Some(ended) = self.watches.try_join_next() {
            ended.expect("a watch is told nothing that must not be");
        }
        self.watches
    }
}

/// Returns the doors of a client or watch, by its number.
fn doors_of(doors: &[Doors], number: u32) -> Doors {
    doors[number as usize % doors.len()].clone()
}

/// Describes why there is no progress: the locks that are held and awaited, and the calls that were never answered.
async fn stuck(recorder: &Recorder, doors: &[Doors]) -> String {
    let (now, counts) = (recorder.now(), &recorder.counts);
    let held = still_held(recorder, doors).await;
    let unanswered = unanswered(recorder);
    format!("at {now}, {counts:?}\nwhat is held and awaited:\n{held}\nwhat has no answer:\n{unanswered}")
}

/// Lists the calls that were made and not answered, the newest last.
fn unanswered(recorder: &Recorder) -> String {
    let history = recorder.history();
    let mut open = BTreeMap::new();
    for (at, event) in history.events() {
        match event {
            Event::Invoke { call, client, op, .. } => drop(open.insert(*call, (*at, *client, op))),
            Event::Return { call, .. } => drop(open.remove(call)),
            _ => {}
        }
    }
    let mut open: Vec<_> = open.into_iter().collect();
    open.sort_by_key(|(_, (at, ..))| *at);
    let last = &open[open.len().saturating_sub(40)..];
    let mut says = String::new();
    for (call, (at, client, op)) in last {
        let _ = writeln!(says, "    {at} client {client} {call:?} {op:?}");
    }
    says
}

/// Lists every lock that is held or awaited, with the calls of its holders and their answers.
async fn still_held(recorder: &Recorder, doors: &[Doors]) -> String {
    for endpoint in doors.iter().flat_map(Doors::all) {
        let Ok(client) = tollgate_client::Client::connect([endpoint]).await else { continue };
        let Ok(locks) = client.list_locks("").all().await else { continue };
        let mut says = String::new();
        for lock in locks {
            let _ = writeln!(says, "{lock:?}");
            for holder in &lock.holders {
                says += &calls_of(recorder, &[format!("{:?}", holder.lease), format!("{:?}", holder.owner)]);
            }
        }
        return says;
    }
    "nobody answers".to_owned()
}

/// Lists the calls that mention all of these texts, including their cancels, with the outcomes.
fn calls_of(recorder: &Recorder, mentioned: &[String]) -> String {
    let history = recorder.history();
    let mut calls = BTreeSet::new();
    let mut says = String::new();
    for (at, event) in history.events() {
        let concerns = match event {
            Event::Invoke { call, op, .. } => {
                let shown = format!("{op:?}");
                let cancels = matches!(op, Op::Cancel { of, .. } if calls.contains(of));
                let asks = mentioned.iter().all(|mentioned| shown.contains(mentioned));
                (cancels || asks) && calls.insert(*call)
            }
            Event::Return { call, .. } | Event::AnsweredAgain { call, .. } => calls.contains(call),
            _ => false,
        };
        if concerns {
            let _ = writeln!(says, "    {at} {event:?}");
        }
    }
    says
}

/// Returns the filters of the watches: everything, or one prefix per tag if locks live in several groups.
fn filters(tags: &[String]) -> Vec<Filter> {
    if tags.is_empty() {
        return vec![Filter::All];
    }
    tags.iter().map(|tag| Filter::Prefix(format!("{{{tag}}}/"))).collect()
}

/// Opens one session after the other, until no new one should begin. Returns the last one, if it is alive.
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
            // The lease is renewed while tasks release their locks; the caller ends the lease.
            sessions.closed().await;
            return Some(session);
        }
        keeper.await.unwrap();
    }
    unreachable!("there are more numbers than sessions")
}

/// Records a linearizable read of everything for the judge: each group at one revision, which is the same before and
/// after its locks and leases were listed.
pub(crate) async fn read_all(recorder: &Recorder, cluster: &Cluster) {
    let until = Instant::now() + PATIENCE;
    loop {
        let leader = cluster.leader().await;
        let read = read_once(recorder, cluster.nodes[leader].locks()).await;
        let why = match read {
            Ok(states) => {
                for state in states {
                    recorder.record(state);
                }
                return;
            }
            Err(why) => why,
        };
        assert!(Instant::now() < until, "{PATIENCE:?} after all clients have left: {why}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the final state of every group, if nothing changed and there were no holders or waiters; otherwise the
/// reason.
async fn read_once(
    recorder: &Recorder,
    mut service: LockServiceClient<Channel>,
) -> Result<Vec<Event>, String> {
    let told = |status: tonic::Status| status.to_string();
    let asked = recorder.now();
    let before = revisions(recorder, &mut service).await?;
    let leases = service.lease_list(LeaseListRequest::default()).await.map_err(told)?.into_inner();
    let locks = service.list_locks(ListLocksRequest::default()).await.map_err(told)?.into_inner();
    assert!(leases.cursor.is_empty() && locks.cursor.is_empty(), "few leases and locks are left");
    let in_use = |lock: &&LockState| lock.waiter_count > 0 || lock.holder_count > 0;
    if let Some(lock) = locks.locks.iter().find(in_use) {
        return Err(format!("a lock is still held or awaited: {lock:?}"));
    }
    if revisions(recorder, &mut service).await? != before {
        return Err("something changes".to_owned());
    }
    let states = before.into_iter().map(|(group, revision)| {
        let names = locks.locks.iter().map(|lock| Name::new(&lock.name).unwrap());
        let names = names.filter(|name| recorder.group_of_name(name) == group);
        let leases = leases.leases.iter().map(|each| (lease(each.id), self::revision(each.incarnation)));
        Event::FinalState {
            group,
            asked,
            revision,
            locks: names.map(|name| FinalLock { name, holders: Vec::new(), waiters: Vec::new() }).collect(),
            leases: leases.filter(|(lease, _)| recorder.group_of_lease(*lease) == group).collect(),
        }
    });
    Ok(states.collect())
}

/// Returns the revision of each group, by a read of a lock that nobody holds.
async fn revisions(
    recorder: &Recorder,
    service: &mut LockServiceClient<Channel>,
) -> Result<BTreeMap<GroupId, Revision>, String> {
    let mut found = BTreeMap::new();
    for group in recorder.groups() {
        let request =
            GetLockRequest { name: recorder.name_in(group, "nobody").to_string(), ..Default::default() };
        let answer = service.get_lock(request).await.map_err(|status| status.to_string())?.into_inner();
        found.insert(group, revision(answer.header.unwrap().revision));
    }
    Ok(found)
}
