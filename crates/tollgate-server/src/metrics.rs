//! The measurements of the server and their export: one registry for one node, no globals.
//!
//! Sources are the node's threads ([`Meter`]), the code that finishes an operation ([`Metrics::operation`]), a sample
//! of the groups every few seconds, and a layer around the gRPC services. Invariant: the number of series is bounded by
//! the program, whatever clients send: no lock name, lease or address is ever a label. Not here: logs, and serving the
//! text (`http`).

mod clocks;
mod exposition;
mod groups;
mod grpc;
mod held;
mod limits;
mod open;
mod process;

pub use exposition::Exposition;
pub use grpc::{GrpcMetricsLayer, GrpcMetricsService, MeasuredBody};
pub use open::Open;

use clocks::Clocks;
use groups::Groups;
use grpc::Calls;
use held::Held;
use limits::LimitsInForce;
use process::Process;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tollgate_core::EndReason;
use tollgate_gateway::{KINDS, OperationMeter, RequestInfo};
use tollgate_node::{Meter, NodeHandle};
use tollgate_proto::v1::{self, ErrorReason, operation_result::Result as OpResult};
use tollgate_replica::HostEvent;

/// Maximum number of grants whose start is remembered, to measure at their release how long they were held.
const GRANTS_REMEMBERED_MAX: usize = 131_072;

/// Interval between samples of the groups, and time limit of one sample.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// All metrics of a server, shared by all parts that measure.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Metrics by kind of operation, in the order of [`KINDS`].
    operations: Vec<OfKind>,
    grants: Counter,
    releases: Counter,
    shed: Vec<Counter>,
    failures: Family<Reason, Counter>,
    wait_seconds: Histogram,
    hold_seconds: Histogram,
    held: Held,
    lease_ends: Family<Reason, Counter>,
    proposals: Counter,
    commit_seconds: Histogram,
    turns: Counter,
    turn_inputs: Histogram,
    fsync_seconds: Histogram,
    inbox: Gauge,
    parked: Gauge,
    watches: Gauge,
    fast_hits: Counter,
    fast_misses: Counter,
    elections_won: Counter,
    leadership_lost: Counter,
    leader_changes: Counter,
    snapshots: Family<Event, Counter>,
    state_hash_mismatches: Counter,
    connections: Family<Door, Gauge>,
    sessions: Gauge,
    groups: Groups,
    clocks: Clocks,
    limits: LimitsInForce,
    calls: Arc<Calls>,
}

/// Metrics of one kind of operation.
#[derive(Debug)]
struct OfKind {
    seconds: Histogram,
    done: Counter,
    missed: Counter,
    failed: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindOutcome {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Event {
    event: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Door {
    door: &'static str,
}

/// Outcome of an operation.
enum Outcome {
    /// The operation did what was asked.
    Done,
    /// The operation was answered, but not with what was asked for: another holds the lock, or the lease has ended.
    Missed,
    Failed(ErrorReason),
}

impl Metrics {
    /// Creates metrics that count from zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let calls = Calls::register(&mut registry);
        registry.register_collector(Box::new(Process));
        let ours = registry.sub_registry_with_prefix("tollgate");
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        ours.register("build", "The binary that runs", version);
        let operations = operations(ours);
        let shed = shed(ours);
        let mut counter = |name: &str, help: &str| add(ours, name, help, Counter::default());
        let grants = counter("grants", "Locks granted through this server");
        let releases = counter("releases", "Grants given back or taken away through this server");
        let proposals =
            counter("proposals", "Commands that this node proposed as leader, and that were committed");
        let turns = counter("driver_turns", "Turns taken by the thread that drives all groups");
        let fast_hits =
            counter("fast_answers", "Requests told that a lock is busy without an entry in the log");
        let fast_misses = counter("fast_misses", "Such requests that had to go through the log after all");
        let elections_won = counter("elections_won", "Times that this node became the leader of a group");
        let leadership_lost = counter("leadership_lost", "Times that this node ceased to lead a group");
        let leader_changes =
            counter("leader_changes", "Times that this node learnt of another leader, or none");
        let says = "Replicas found with another state at the same index: a bug, or broken memory";
        let state_hash_mismatches = counter("state_hash_mismatches", says);
        let says = "Operations that failed, by the reason given";
        let reasons = ErrorReason::all().map(|reason| Reason { reason: name_of_failure(reason) });
        let failures = counters(ours, "failures", says, reasons);
        let says = "Leases that ended in groups that this node leads";
        let ends = LEASE_ENDS.map(|end| Reason { reason: name_of_end(end) });
        let lease_ends = counters(ours, "lease_ends", says, ends);
        let says = "What happened to snapshots on this node";
        let snapshots = counters(ours, "snapshots", says, SNAPSHOT_EVENTS.map(|event| Event { event }));
        let mut gauge = |name: &str, help: &str| add(ours, name, help, Gauge::default());
        let inbox = gauge("inbox_depth", "Inputs that wait for the driver's next turn");
        let parked = gauge("parked_callers", "Callers that wait in a queue for a lock");
        let watches = gauge("watches", "Watches that are open");
        let sessions = gauge("sessions", "Session streams that are open");
        let says = "Connections of clients that are open";
        let connections: Family<Door, Gauge> = add(ours, "connections", says, Family::default());
        for door in DOORS {
            drop(connections.get_or_create(&Door { door }));
        }
        let mut histogram = |name: &str, help: &str, buckets: &[f64]| {
            add(ours, name, help, Histogram::new(buckets.iter().copied()))
        };
        let says = "How long granted requests had waited in line";
        let wait_seconds = histogram("wait_seconds", says, &LONG_SECONDS);
        let says = "How long grants were held that were given back by their token through this server";
        let hold_seconds = histogram("hold_seconds", says, &LONG_SECONDS);
        let fsync: Vec<f64> = exponential_buckets(0.000_1, 2.0, 15).collect();
        let says =
            "How long a write to the log took to become durable; waits for room on a full disk don't count";
        let fsync_seconds = histogram("fsync_seconds", says, &fsync);
        let says = "From the proposal of an entry by this node to its application, a quorum's disks included";
        let commit_seconds = histogram("commit_seconds", says, &fsync);
        let inputs: Vec<f64> = exponential_buckets(1.0, 4.0, 9).collect();
        let turn_inputs = histogram("driver_turn_inputs", "Inputs dealt with in one turn", &inputs);
        let groups = Groups::register(ours);
        let clocks = Clocks::register(ours);
        let limits = LimitsInForce::register(ours);
        Metrics {
            registry,
            operations,
            grants,
            releases,
            shed,
            failures,
            wait_seconds,
            hold_seconds,
            held: Held::new(GRANTS_REMEMBERED_MAX),
            lease_ends,
            proposals,
            commit_seconds,
            turns,
            turn_inputs,
            fsync_seconds,
            inbox,
            parked,
            watches,
            fast_hits,
            fast_misses,
            elections_won,
            leadership_lost,
            leader_changes,
            snapshots,
            state_hash_mismatches,
            connections,
            sessions,
            groups,
            clocks,
            limits,
            calls,
        }
    }

    /// Returns all metrics as text.
    pub fn render(&self, exposition: Exposition) -> String {
        let mut text = String::with_capacity(64 * 1024);
        encode(&mut text, &self.registry).expect("a string takes all text");
        match exposition {
            Exposition::OpenMetrics => text,
            Exposition::Text => exposition::plain(&text),
        }
    }

    /// Sets a limit of this process, by the name of the setting; called once, when the limit is known.
    pub fn limit(&self, name: &'static str, max: usize) {
        self.limits.set(name, max as u64);
    }

    /// Records the end of an operation, `took` after its arrival. Results that are not final don't count.
    pub fn operation(&self, asked: impl Into<RequestInfo>, result: &OpResult, took: Duration) {
        let asked = asked.into();
        let kind = &self.operations[asked.kind];
        match outcome_of(result) {
            None => return,
            Some(Outcome::Done) => kind.done.inc(),
            Some(Outcome::Missed) => kind.missed.inc(),
            Some(Outcome::Failed(reason)) => {
                self.failures.get_or_create(&Reason { reason: name_of_failure(reason) }).inc();
                kind.failed.inc()
            }
        };
        kind.seconds.observe(took.as_secs_f64());
        self.grant_or_release(asked, result);
    }

    fn grant_or_release(&self, asked: RequestInfo, result: &OpResult) {
        match result {
            OpResult::Lock(it) if it.acquired => {
                self.granted(it.header.as_ref(), it.fencing_token, it.waited_ms);
            }
            OpResult::Campaign(it) if it.elected => {
                let token = it.leader.as_ref().map_or(0, |leader| leader.fencing_token);
                self.granted(it.header.as_ref(), token, it.waited_ms);
            }
            OpResult::Unlock(it) => self.released(it.header.as_ref(), asked.fencing_token),
            OpResult::Resign(it) => self.released(it.header.as_ref(), asked.fencing_token),
            OpResult::ForceRelease(it) => self.released(it.header.as_ref(), asked.fencing_token),
            OpResult::CancelWait(it) if it.outcome() == v1::CancelOutcome::Released => {
                self.released(it.header.as_ref(), it.fencing_token);
            }
            _ => {}
        }
    }

    fn granted(&self, header: Option<&v1::Header>, token: u64, waited_ms: i64) {
        let group = header.map_or(0, |header| header.group_id);
        // A client that asks again for a lock that it holds gets the token that it has: this is no new grant.
        if self.held.begin(group, token, Instant::now()) {
            self.grants.inc();
            let waited = Duration::from_millis(u64::try_from(waited_ms).unwrap_or(0));
            self.wait_seconds.observe(waited.as_secs_f64());
        }
    }

    fn released(&self, header: Option<&v1::Header>, token: u64) {
        self.releases.inc();
        let group = header.map_or(0, |header| header.group_id);
        if let Some(held) = self.held.end(group, token, Instant::now()) {
            self.hold_seconds.observe(held.as_secs_f64());
        }
    }

    /// Counts a connection of a client at this door as open until the guard is dropped.
    pub fn connection(&self, door: &'static str) -> Open {
        Open::new(self.connections.get_or_create_owned(&Door { door }))
    }

    /// Counts a session as open until the guard is dropped.
    pub fn session(&self) -> Open {
        Open::new(self.sessions.clone())
    }

    /// Waits until no unary gRPC call is under way.
    pub(crate) async fn until_no_calls(&self) {
        self.calls.until_none().await;
    }

    /// Returns a layer that measures the calls of the gRPC services it is wrapped around.
    pub fn grpc_layer(&self) -> GrpcMetricsLayer {
        GrpcMetricsLayer::new(Arc::clone(&self.calls))
    }

    /// Samples a node's groups every few seconds until the node has stopped.
    pub fn sample(self: &Arc<Metrics>, node: NodeHandle) -> JoinHandle<()> {
        let metrics = Arc::clone(self);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(SAMPLE_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut status = node.status().clone();
            loop {
                tokio::select! {
                    _ = ticks.tick() => metrics.sample_once(&node).await,
                    changed = status.changed() => if changed.is_err() { return },
                }
            }
        })
    }

    /// Samples a node's groups and clocks now. If the node does not answer in time, because it is stuck or has stopped,
    /// the values of the last sample stay.
    pub async fn sample_once(&self, node: &NodeHandle) {
        self.inbox.set(i64::try_from(node.waiting()).unwrap_or(i64::MAX));
        self.clocks.set(&node.clock_rates().borrow().differences);
        if let Ok(Ok(seen)) = tokio::time::timeout(SAMPLE_EVERY, node.inspect(groups::look)).await {
            self.groups.set(&seen);
            self.limits.set_lowest(&seen.iter().filter_map(groups::Seen::limits));
        }
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl OperationMeter for Metrics {
    fn operation(&self, asked: RequestInfo, result: &OpResult, took: Duration) {
        Metrics::operation(self, asked, result, took);
    }

    fn shed(&self, asked: RequestInfo) {
        self.shed[asked.kind].inc();
    }
}

impl Meter for Metrics {
    fn turn(&self, inputs: usize) {
        self.turns.inc();
        self.turn_inputs.observe(f64::from(u32::try_from(inputs).unwrap_or(u32::MAX)));
    }

    fn fsync(&self, took: Duration) {
        self.fsync_seconds.observe(took.as_secs_f64());
    }

    fn committed(&self, commands: usize, took: Duration) {
        self.proposals.inc_by(commands as u64);
        self.commit_seconds.observe(took.as_secs_f64());
    }

    fn lease_ended(&self, reason: EndReason) {
        self.lease_ends.get_or_create(&Reason { reason: name_of_end(reason) }).inc();
    }

    fn event(&self, event: &HostEvent) {
        let snapshot = |event| self.snapshots.get_or_create(&Event { event }).inc();
        match event {
            HostEvent::LeadershipGained { .. } => self.elections_won.inc(),
            HostEvent::LeadershipLost { .. } => self.leadership_lost.inc(),
            HostEvent::LeaderChanged { .. } => self.leader_changes.inc(),
            HostEvent::SnapshotSaved { .. } => snapshot(SAVED),
            HostEvent::SnapshotInstalled { .. } => snapshot(INSTALLED),
            HostEvent::SnapshotDamaged { .. } => snapshot(DAMAGED),
            HostEvent::StateDiverged { .. } => self.state_hash_mismatches.inc(),
            HostEvent::StateAgrees { .. }
            | HostEvent::MembersChanged { .. }
            | HostEvent::Removed { .. }
            | HostEvent::OutOfRoom { .. }
            | HostEvent::BlankVoterRefused { .. }
            | HostEvent::DiskLost { .. } => 0,
        };
    }

    fn fast_answers(&self, hits: u64, misses: u64) {
        self.fast_hits.inc_by(hits);
        self.fast_misses.inc_by(misses);
    }

    fn waiting(&self, parked: usize, watches: usize) {
        self.parked.set(i64::try_from(parked).unwrap_or(i64::MAX));
        self.watches.set(i64::try_from(watches).unwrap_or(i64::MAX));
    }
}

/// Events of snapshots.
const SAVED: &str = "saved";
const INSTALLED: &str = "installed";
const DAMAGED: &str = "damaged";
const SNAPSHOT_EVENTS: [&str; 3] = [SAVED, INSTALLED, DAMAGED];

/// Reasons for the end of a lease.
const LEASE_ENDS: [EndReason; 3] =
    [EndReason::LeaseExpired, EndReason::LeaseRevoked, EndReason::Disconnected];

/// Names of the ports for clients.
pub(crate) const GRPC_DOOR: &str = "grpc";
pub(crate) const HTTP_DOOR: &str = "http";
const DOORS: [&str; 2] = [GRPC_DOOR, HTTP_DOOR];

/// Buckets from the times of a busy lock to those of a forgotten one.
const LONG_SECONDS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0];

/// Buckets from an answer out of memory to one that waited for an election; waits in line are longer, and have their
/// own.
const OPERATION_SECONDS: [f64; 13] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Creates counters that all exist before they count: a rate misses the first increment of a series that begins at 1.
fn counters<L>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    members: impl IntoIterator<Item = L>,
) -> Family<L, Counter>
where
    L: EncodeLabelSet + Clone + Eq + Hash + Debug + Send + Sync + 'static,
{
    let family: Family<L, Counter> = add(registry, name, help, Family::default());
    members.into_iter().for_each(|member| drop(family.get_or_create(&member)));
    family
}

fn operations(registry: &mut Registry) -> Vec<OfKind> {
    let new = || Histogram::new(OPERATION_SECONDS);
    let seconds: Family<Kind, Histogram, fn() -> Histogram> = Family::new_with_constructor(new);
    let says = "From the arrival of an operation to its final answer, waits in line included";
    let seconds = add(registry, "operation_seconds", says, seconds);
    let says = "Operations that were answered: done, missed (busy, not elected, lease ended) or failed";
    let counts: Family<KindOutcome, Counter> = add(registry, "operations", says, Family::default());
    let of_kind = |kind: &&'static str| {
        let count = |outcome| counts.get_or_create_owned(&KindOutcome { kind, outcome });
        OfKind {
            seconds: seconds.get_or_create_owned(&Kind { kind }),
            done: count("done"),
            missed: count("missed"),
            failed: count("failed"),
        }
    };
    KINDS.iter().map(of_kind).collect()
}

/// Returns the counters of shed operations by kind, in the order of [`KINDS`].
fn shed(registry: &mut Registry) -> Vec<Counter> {
    let says = "Operations refused because more were under way than server.operations_admitted_max";
    let counts: Family<Kind, Counter> = add(registry, "shed_operations", says, Family::default());
    KINDS.iter().map(|kind| counts.get_or_create_owned(&Kind { kind })).collect()
}

/// Returns the outcome of a result; none if the result is not final.
fn outcome_of(result: &OpResult) -> Option<Outcome> {
    match result {
        OpResult::Queued(_) => None,
        OpResult::Error(error) => Some(Outcome::Failed(error.cause())),
        result if is_missed(result) => Some(Outcome::Missed),
        _ => Some(Outcome::Done),
    }
}

/// True for an answer that is not what was asked for: another holds the lock, or the lease has ended. A transaction
/// whose compares do not hold has done what was asked for that case.
pub(crate) fn is_missed(result: &OpResult) -> bool {
    match result {
        OpResult::Lock(it) => !it.acquired,
        OpResult::Campaign(it) => !it.elected,
        OpResult::LeaseKeepAlive(it) => it.ttl_ms == 0,
        _ => false,
    }
}

fn name_of_failure(reason: ErrorReason) -> &'static str {
    reason.as_str_name().trim_start_matches("ERROR_REASON_")
}

const fn name_of_end(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Released => "RELEASED",
        EndReason::LeaseExpired => "LEASE_EXPIRED",
        EndReason::LeaseRevoked => "LEASE_REVOKED",
        EndReason::Disconnected => "DISCONNECTED",
        EndReason::Forced => "FORCED",
        EndReason::MaxHold => "MAX_HOLD",
        EndReason::TimedOut => "TIMED_OUT",
        EndReason::Cancelled => "CANCELLED",
        EndReason::Deadlock => "DEADLOCK",
    }
}

#[cfg(test)]
mod tests;
