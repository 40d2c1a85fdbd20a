//! Starting, calling and stopping a node.
//!
//! Invariant: a data directory is founded only on request, by one process, and never taken over from another node. Not
//! here: the work of the threads (`driver`, `disk`, `peers`).

use crate::ask::{Ask, Consistency, Sight};
use crate::caller::{Answer, Caller, Sink};
use crate::clock_monitor::ClockMonitor;
use crate::clock_verdict::ClockRates;
use crate::disk;
use crate::driver::{Asking, Driver, Ending, Input, PeerWriters};
use crate::fault::Fault;
use crate::inbox::{Inbox, NotTaken};
use crate::lock_log::LockLog;
use crate::meter::Meter;
use crate::peer_registry::PeerRegistry;
use crate::peers::{Acquainted, Peers};
use crate::planted::{Bug, planted};
use crate::settings::{Bootstrap, Join, NodeSettings};
use crate::status::NodeStatus;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tollgate_core::Noting;
use tollgate_replica::{
    DataDir, DataDirError, Engine, Host, InvalidConfig, PeerDisks, Randomness, ReadError, ReplicaKind, Role,
    SeedMembers, Storage, StorageError, WatchNumber,
};
use tollgate_types::{ClusterId, DiskId, GroupId, NodeId, Revision};

/// Reason that a node did not start. A failed start changes nothing that would make a second attempt fail.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory can't be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The contents of the data directory can't be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The settings break a rule.
    #[error("the settings can't work: {0}")]
    Settings(#[from] InvalidConfig),
    /// The operating system refused a resource that a node needs.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A running node. Dropping it stops it, without handing leadership over first.
#[derive(Debug)]
pub struct Node {
    handle: NodeHandle,
    threads: Vec<JoinHandle<()>>,
    ended: watch::Receiver<Option<Ending>>,
    _tasks: JoinSet<()>,
    _data_dir: DataDir,
}

/// Handle for calling a node. Cheap to clone; outlives the node, after which calls fail with "stopped".
#[derive(Debug, Clone)]
pub struct NodeHandle {
    cluster: ClusterId,
    node: NodeId,
    inbox: Arc<Inbox<Input>>,
    status: watch::Receiver<NodeStatus>,
    clock_rates: watch::Receiver<ClockRates>,
    next_number: Arc<AtomicU64>,
}

impl Node {
    /// Starts a node that listens to its peers on `listener`. Its sockets are served by `runtime`.
    pub fn start(
        settings: &NodeSettings,
        listener: std::net::TcpListener,
        meter: Arc<dyn Meter>,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Node, StartError> {
        let (cluster, node) = (settings.host.cluster, settings.host.node);
        let (data_dir, mut engine) = open(settings, &mut SystemRandomness)?;
        let disks = PeerDisks::open(&data_dir)?;
        let groups = engine.load()?;
        let snapshots = engine.take_jobs();
        let clock = Arc::clone(&settings.clock.clock);
        let mut host = Host::open(settings.host.clone(), groups, Box::new(SystemRandomness), clock.now())?;
        if !disks.awaited().is_empty() {
            let nodes = disks.awaited().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            tracing::info!(nodes, "waiting until every first member knows this node's disk");
            host.take_part(planted(Bug::TakesPartAtOnce));
        }
        let inbox = Arc::new(Inbox::new(settings.operations_waiting_max));
        let mut tasks = JoinSet::new();
        let listener = {
            let _inside = runtime.enter();
            let system = |source| StartError::System { what: "listening to peers", source };
            listener.set_nonblocking(true).map_err(system)?;
            tokio::net::TcpListener::from_std(listener).map_err(system)?
        };
        let seed_members = SeedMembers::read(&data_dir)?.map(|SeedMembers(members)| members);
        let mut peer_registry = PeerRegistry::new(settings.peers.clone(), seed_members);
        let roster = peer_registry.renew(&host);
        let monitor = ClockMonitor::new(node, settings.clock.clone(), SystemRandomness.next_u64());
        let monitor = Arc::new(monitor);
        let clock_rates = monitor.rates();
        let acquainted = Acquainted { own: data_dir.identity(), books: disks, roster, monitor };
        let peers = Peers::start(acquainted, listener, &inbox, &mut tasks, runtime);
        let (writes, writes_out) = mpsc::channel();
        let (jobs, jobs_out) = mpsc::channel();
        let (status, status_out) = watch::channel(NodeStatus::of(&host, &peer_registry, false, false));
        let (ended, ended_out) = watch::channel(None);
        let log_inbox = Arc::clone(&inbox);
        let log_meter = Arc::clone(&meter);
        let log = spawn("log", Arc::clone(&inbox), move || {
            disk::run_log(engine, &writes_out, &log_inbox, &log_meter);
        })?;
        let jobs_inbox = Arc::clone(&inbox);
        let snapshots = spawn("snapshot", Arc::clone(&inbox), move || {
            disk::run_jobs(snapshots, &jobs_out, &jobs_inbox);
        })?;
        let mut threads = vec![log, snapshots];
        let lock_log = if settings.host.noting == Noting::Nothing {
            None
        } else {
            let (lock_log, write) = LockLog::new();
            threads.push(spawn("lock-log", Arc::clone(&inbox), write)?);
            Some(lock_log)
        };
        let peer_writers = PeerWriters { peers, writes, jobs, status, meter, lock_log };
        let driver = Driver::new(host, Arc::clone(&inbox), peer_writers, peer_registry, clock);
        let ending = Ended(ended, Arc::clone(&inbox));
        let driver = std::thread::Builder::new().name(format!("driver-{node}")).spawn(move || {
            let result = driver.run();
            ending.0.send_replace(Some(result));
        });
        let driver = driver.map_err(|source| StartError::System { what: "starting a thread", source })?;
        let next_number = Arc::new(AtomicU64::new(1));
        let handle = NodeHandle { cluster, node, inbox, status: status_out, clock_rates, next_number };
        // The driver is joined first: the other threads end when it is gone.
        threads.insert(0, driver);
        Ok(Node { handle, threads, ended: ended_out, _tasks: tasks, _data_dir: data_dir })
    }

    /// Returns the handle for calling the node.
    pub fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    /// Waits until the node stops by itself, and returns the reason.
    pub async fn failed(&self) -> Fault {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Err(fault))) => fault.clone(),
            Ok(Some(Ok(())) | None) => std::future::pending().await,
            Err(_) => Fault::Panicked("driver"),
        }
    }

    /// Stops the node: hands leadership over, for at most `grace`, and makes the writes in progress durable.
    pub async fn stop(self, grace: Duration) {
        self.retire(grace).await;
        self.halt().await;
    }

    /// Takes no more proposals, and hands leadership over, for at most `grace`; returns true if that succeeded. The
    /// node goes on until it is halted: it follows, serves reads and watches, and knows the leaders.
    pub async fn retire(&self, grace: Duration) -> bool {
        self.handle.inbox.put(Input::Retire);
        let own = self.handle.node;
        // A single voter has no other node to hand leadership to.
        if !self.handle.status.borrow().members.voters.iter().any(|voter| *voter != own) {
            return false;
        }
        let mut status = self.handle.status.clone();
        let leads = |status: &NodeStatus| status.groups.values().any(|group| group.role == Role::Leader);
        let handed_on = status.wait_for(|status| status.stopping && !leads(status));
        let handed_on = tokio::time::timeout(grace, handed_on).await;
        if handed_on.is_err() {
            tracing::warn!("nobody took over leadership in time");
        }
        // An inner error means that the node has stopped by itself.
        handed_on.is_ok_and(|status| status.is_ok())
    }

    /// Stops without handing leadership over, and makes the writes in progress durable.
    pub async fn halt(mut self) {
        self.handle.inbox.put(Input::Stop);
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                // A thread that panicked has reported it.
                let _ = thread.join();
            }
        });
        let _ = joined.await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.inbox.put(Input::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Reports the end of the driver's thread, even if it panics.
struct Ended(watch::Sender<Option<Ending>>, Arc<Inbox<Input>>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.1.close();
        if std::thread::panicking() {
            self.0.send_replace(Some(Err(Fault::Panicked("driver"))));
        }
    }
}

/// Starts a thread of the node; if the thread panics, the node stops.
fn spawn(
    name: &'static str,
    inbox: Arc<Inbox<Input>>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    struct Guard(&'static str, Arc<Inbox<Input>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.1.put(Input::Fault(Fault::Panicked(self.0)));
            }
        }
    }
    let run = move || {
        let _guard = Guard(name, inbox);
        run();
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|source| StartError::System { what: "starting a thread", source })
}

/// Opens the data directory, or founds it if requested and the directory is empty.
fn open(settings: &NodeSettings, randomness: &mut dyn Randomness) -> Result<(DataDir, Engine), StartError> {
    let (cluster, node) = (settings.host.cluster, settings.host.node);
    let path = &settings.data_dir;
    let data_dir = match (DataDir::open(path, Some((cluster, node))), &settings.bootstrap, &settings.join) {
        (Err(DataDirError::Empty { .. } | DataDirError::Unfinished { .. }), Some(bootstrap), None) => {
            tracing::info!(path = %path.display(), %cluster, %node, "founding a new data directory");
            found_new(settings, bootstrap, DiskId::new(randomness.next_u64()))?
        }
        (Err(DataDirError::Empty { .. } | DataDirError::Unfinished { .. }), None, Some(join)) => {
            tracing::info!(path = %path.display(), %cluster, %node, "founding a data directory to join the cluster");
            found_joined(settings, join, DiskId::new(randomness.next_u64()))?
        }
        (opened, _, _) => opened?,
    };
    let engine = Engine::open(data_dir.path(), settings.engine.clone())?;
    Ok((data_dir, engine))
}

/// Founds the data directory of a node that is to bootstrap, without starting the node. Returns false if it was founded
/// before, whether or not the node runs.
pub fn found(settings: &NodeSettings) -> Result<bool, StartError> {
    if has_data(&settings.data_dir)? {
        let owner = (settings.host.cluster, settings.host.node);
        return match DataDir::open(&settings.data_dir, Some(owner)) {
            Ok(_) | Err(DataDirError::InUse { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        };
    }
    open(settings, &mut SystemRandomness).map(|_| true)
}

fn found_new(settings: &NodeSettings, bootstrap: &Bootstrap, disk: DiskId) -> Result<DataDir, StartError> {
    let (cluster, node) = (settings.host.cluster, settings.host.node);
    let founding = DataDir::create(&settings.data_dir, cluster, node, disk)?;
    let mut engine = Engine::create(founding.path(), settings.engine.clone())?;
    let Bootstrap { map, members, limits } = bootstrap;
    for group in map.groups() {
        tollgate_replica::bootstrap(&mut engine, node, group, map, members, limits.clone())?;
    }
    drop(engine);
    let others = bootstrap.members.voters.iter().copied().filter(|other| *other != node);
    Ok(founding.finish(others.collect())?)
}

/// Founds the data directory of a node that joins. A new member has nothing until the leader of each group sends it a
/// snapshot. No quorum relied on it before, so no member has to know its disk before it takes part: it gets a vote
/// later, when it has everything that was acknowledged.
fn found_joined(settings: &NodeSettings, join: &Join, disk: DiskId) -> Result<DataDir, StartError> {
    let (cluster, node) = (settings.host.cluster, settings.host.node);
    let founding = DataDir::create(&settings.data_dir, cluster, node, disk)?;
    let mut engine = Engine::create(founding.path(), settings.engine.clone())?;
    let witness = join.members.witnesses.contains(&node);
    let kind = if witness { ReplicaKind::Witness } else { ReplicaKind::Full };
    for group in &join.groups {
        tollgate_replica::join(&mut engine, *group, kind)?;
    }
    drop(engine);
    SeedMembers(join.members.clone()).write(&founding)?;
    Ok(founding.finish(BTreeSet::new())?)
}

/// Returns true if there is a complete data directory: then a node starts from it, and ignores other instructions.
pub fn has_data(path: &Path) -> Result<bool, StartError> {
    Ok(DataDir::is_founded(path)?)
}

/// Randomness of the operating system.
struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn next_u64(&mut self) -> u64 {
        getrandom::u64().expect("the system has randomness")
    }
}

/// Reason that a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnswered {
    /// The request was not taken, and never will be.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// The node stopped: the request may have happened, or may still happen.
    #[error("the node stopped before it answered: it may have happened")]
    Stopped,
}

/// Some of the requests were not taken, and had no effect.
#[derive(Debug)]
pub struct NotAllTaken {
    /// Reason for the refusal.
    pub why: NotTaken,
    /// Numbers of the refused operations.
    pub operations: Vec<u64>,
}

/// An answer, and the place in the queue before it.
pub struct Called {
    /// The final answer: never [`Answer::Queued`].
    pub answer: Answer,
    /// Revision and position at which the operation joined the queue, if it did.
    pub queued: Option<(Revision, u64)>,
}

impl NodeHandle {
    /// Returns the id of the node's cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Returns the node's id.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the status of the node's groups, with its changes.
    pub fn status(&self) -> &watch::Receiver<NodeStatus> {
        &self.status
    }

    /// Returns the rates of the peers' clocks against this node's, with their changes.
    pub fn clock_rates(&self) -> &watch::Receiver<ClockRates> {
        &self.clock_rates
    }

    /// Returns a number that no other watch on this node has.
    pub fn fresh_watch(&self) -> WatchNumber {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a number that no other stream of callers on this node has.
    pub fn fresh_stream(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of inputs that wait for the next turn.
    pub fn waiting(&self) -> usize {
        self.inbox.len()
    }

    /// Makes many requests of a sink at once. If there is not room for all, keepalives and releases may be taken and
    /// others not.
    pub fn ask_all(&self, sink: Arc<dyn Sink>, asks: Vec<(u64, Ask)>) -> Result<(), NotAllTaken> {
        let together = |asks| Input::AskedAll(Asking(sink), asks);
        self.inbox.offer(asks, |(_, ask)| ask.is_duty(), together).map_err(|(why, refused)| {
            let operations = refused.into_iter().map(|(operation, _)| operation);
            NotAllTaken { why, operations: operations.collect() }
        })
    }

    /// Makes one request.
    pub fn ask(&self, caller: Caller, ask: Ask) -> Result<(), NotTaken> {
        let alone = |mut asks: Vec<Ask>| Input::Asked(caller, asks.pop().expect("it was given one"));
        self.inbox.offer(vec![ask], Ask::is_duty, alone).map_err(|(why, _)| why)
    }

    /// Makes a request that must not be lost for lack of room, and that is rare: the end of a wait or of a watch whose
    /// caller is gone. It has no answer.
    pub fn tell(&self, ask: Ask) {
        self.inbox.put(Input::Asked(Caller::Nobody, ask));
    }

    /// Makes a request and waits for the final answer. If the future is dropped before, the answer is discarded.
    pub async fn call(&self, ask: Ask) -> Result<Called, NotAnswered> {
        self.call_by(self.fresh_stream(), ask, |_, _| ()).await
    }

    /// Makes a request as the only caller of a stream, so that it can hang up: [`Ask::HangUp`] with call 0 of the
    /// stream. `on_queue` is called when the request joins a queue, with its revision and position; it must be quick.
    pub async fn call_by(
        &self,
        stream: u64,
        ask: Ask,
        on_queue: impl Fn(Revision, u64) + Send + Sync + 'static,
    ) -> Result<Called, NotAnswered> {
        let (sender, receiver) = oneshot::channel();
        let (sender, queued) = (Mutex::new(Some(sender)), Mutex::new(None));
        let once = Arc::new(Once { stream, on_queue, sender, queued });
        self.ask(Caller::Of(once, 0), ask)?;
        let (answer, queued) = receiver.await.map_err(|_| NotAnswered::Stopped)?;
        Ok(Called { answer, queued })
    }

    /// Reads a group's state.
    pub async fn read<T: Send + 'static>(
        &self,
        group: GroupId,
        consistency: Consistency,
        look: impl FnOnce(Sight<'_>) -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        let (sender, receiver) = oneshot::channel();
        let look = Box::new(move |sight: Result<Sight<'_>, ReadError>| {
            // Fails if nobody waits any more.
            let _ = sender.send(sight.map(look));
        });
        let asked = self.ask(Caller::Nobody, Ask::Read { group, consistency, look });
        asked.map_err(|error| match error {
            NotTaken::Full => ReadError::Overloaded { group },
            NotTaken::Stopped => ReadError::Stopped { group },
        })?;
        receiver.await.unwrap_or(Err(ReadError::Stopped { group }))
    }

    /// Reads the host.
    pub async fn inspect<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Host) -> T + Send + 'static,
    ) -> Result<T, NotAnswered> {
        let (sender, receiver) = oneshot::channel();
        let look = Box::new(move |host: &Host| {
            let _ = sender.send(look(host));
        });
        self.ask(Caller::Nobody, Ask::Inspect(look))?;
        receiver.await.map_err(|_| NotAnswered::Stopped)
    }
}

type OnceAnswer = (Answer, Option<(Revision, u64)>);

/// Sink that takes one final answer.
struct Once<F> {
    stream: u64,
    on_queue: F,
    sender: Mutex<Option<oneshot::Sender<OnceAnswer>>>,
    queued: Mutex<Option<(Revision, u64)>>,
}

impl<F: Fn(Revision, u64) + Send + Sync> Sink for Once<F> {
    fn answer(&self, _: u64, answer: Answer) -> bool {
        let mut queued = self.queued.lock();
        if let Answer::Queued { create_revision, position } = answer {
            *queued = Some((create_revision, position));
            (self.on_queue)(create_revision, position);
        } else if let Some(sender) = self.sender.lock().take() {
            let _ = sender.send((answer, queued.take()));
        }
        false
    }

    fn stream(&self) -> u64 {
        self.stream
    }

    fn flush(&self) {}
}
