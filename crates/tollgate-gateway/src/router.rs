//! Carries out operations: at the local node if it leads the group, otherwise at the leader.
//!
//! Invariant: an operation is sent again only if that is harmless, with its attempt counted up, so that a caller sees
//! one effect and one answer through changes of leaders. The leader knows the callers that attend a waiting request,
//! and is told when one goes (`attended_call`). Not here: the meaning of an operation (`operation`), the streams of
//! sessions (`session`).

mod completion;
mod entry;
mod freshness;
mod repeats;

pub use completion::is_incomplete;

use crate::admission::{Admission, AdmissionPermit};
use crate::attended_call::AttendedCall;
use crate::deadlocks::Deadlocks;
use crate::discovery::Discovery;
use crate::lease_sessions::LeaseSessions;
use crate::link::{Links, Lost, Purpose};
use crate::operation::{self, Context, ForcedRelease, HeaderInfo, Kind, Prepared, Query};
use crate::queue_notice::{OnQueue, QueueNotice};
use crate::relay::{Relay, nobody};
use crate::request_info::{OperationMeter, RequestInfo};
use crate::routing_table::RoutingTable;
use crate::several::split;
use crate::stub_registration::{STUB_REGISTRATIONS_MAX, StubRegistrations, unknown_lease};
use repeats::{count_attempt, judge, patience_of, settle, wait_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::sync::watch::{self, error::RecvError};
use tollgate_core::CycleStep;
use tollgate_node::planted::{Bug, planted};
use tollgate_node::{Answer, Ask, Called, Consistency, NodeHandle, NodeStatus, NotAnswered, Sight};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_replica::{CallerKey, ProposeError, ReadError};
use tollgate_types::{Address, ClusterId, GroupId, GroupMap, HostPort, LeaseId, NodeId, Revision, escaped};

/// Time for another node to take over from a leader whose disk is full, before callers get an error.
const DISK_FULL_PATIENCE: Duration = Duration::from_secs(2);

/// Time that the answer of a replaced leader may still be on its way. Operations that may be repeated do not wait for
/// it.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Pause between two attempts: doubles from `PAUSE_MIN` to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Number of streams that may break while a long operation is sent alone: the first may break by chance, but retries
/// must end.
const BREAKS_MAX: u32 = 2;

/// Carries out operations. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

struct Shared {
    /// The local node, if there is one.
    node: Option<NodeHandle>,
    /// The gateway's replacements for a local node: the wake-up of its discovery, and the relay for calls that are not
    /// operations.
    gateway: Option<(Arc<Notify>, Relay)>,
    /// Status of the groups.
    status: watch::Receiver<NodeStatus>,
    /// View of the cluster, as far as the status does not have it.
    routing_table: watch::Receiver<Arc<RoutingTable>>,
    admission: Admission,
    links: Links,
    meter: Arc<dyn OperationMeter>,
    deadlocks: Deadlocks,
    stub_registrations: StubRegistrations,
    /// Sessions of this node by the lease that they keep alive: only the last one to go ends the lease.
    kept: LeaseSessions,
}

/// Outcome of one attempt.
enum Attempt {
    Done(OpResult),
    /// Not done, and never will be: try again, preferably at this node.
    Elsewhere(Option<NodeId>),
    /// The attempt may have happened. To retry, preferably ask the leader that the error names.
    Unsure(v1::Error),
    /// The attempt may have happened, and may have broken the stream that all other operations share.
    Suspect,
    /// Not done, because the group did not know the lease; the lease has been introduced since.
    Introduced,
}

/// Origin and purpose of an operation.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) from: &'a Address,
    pub(crate) purpose: Purpose,
    /// The attending caller, if the operation may wait and there is one.
    attended_call: Option<&'a AttendedCall>,
    /// Admission of the operation, which counts as in flight until it waits in a queue.
    permit: Option<&'a Arc<AdmissionPermit>>,
    /// Callback for the moment when the operation joins a queue.
    on_queue: Option<&'a OnQueue>,
}

impl<'a> CallContext<'a> {
    pub(crate) fn new(from: &'a Address, purpose: Purpose) -> CallContext<'a> {
        CallContext { from, purpose, attended_call: None, permit: None, on_queue: None }
    }

    fn queue_notice(&self) -> QueueNotice {
        QueueNotice { permit: self.permit.cloned(), on_queue: self.on_queue.cloned() }
    }
}

impl Router {
    /// Returns the router of a local node. Nodes serve clients at the given addresses, or at those that the cluster
    /// has.
    pub fn beside(
        node: NodeHandle,
        first_map: GroupMap,
        clients: BTreeMap<NodeId, String>,
        meter: Arc<dyn OperationMeter>,
    ) -> Router {
        let routing_table = RoutingTable::new(node.cluster(), Some(Arc::new(first_map)), clients);
        // The view never changes, so its sender is dropped.
        let (_, routing_table) = watch::channel(Arc::new(routing_table));
        let status = node.status().clone();
        Router::new(Some(node), None, status, routing_table, meter)
    }

    /// Returns a router without a node: everything is sent to the leaders that a discovery knows.
    pub fn alone(discovery: &Discovery, meter: Arc<dyn OperationMeter>) -> Router {
        let gateway = Some((discovery.hurry(), Relay::new(discovery)));
        Router::new(None, gateway, discovery.status(), discovery.routing_table(), meter)
    }

    fn new(
        node: Option<NodeHandle>,
        gateway: Option<(Arc<Notify>, Relay)>,
        status: watch::Receiver<NodeStatus>,
        routing_table: watch::Receiver<Arc<RoutingTable>>,
        meter: Arc<dyn OperationMeter>,
    ) -> Router {
        let shared = Shared {
            node,
            gateway,
            status,
            routing_table,
            admission: Admission::new(usize::MAX),
            links: Links::default(),
            meter,
            deadlocks: Deadlocks::default(),
            stub_registrations: StubRegistrations::default(),
            kept: LeaseSessions::default(),
        };
        Router { shared: Arc::new(shared) }
    }

    /// Sets the number of operations in flight at which requests for locks are refused; other operations are refused
    /// somewhat above that number.
    #[must_use]
    pub fn admitting(mut self, operations_max: usize) -> Router {
        let shared = Arc::get_mut(&mut self.shared).expect("it is told before anybody else has it");
        shared.admission = Admission::new(operations_max);
        self
    }

    /// Admits one more operation to those in flight.
    pub fn admit(&self, asked: RequestInfo) -> Result<AdmissionPermit, v1::Error> {
        self.shared.admission.admit(asked).inspect_err(|_| self.shared.meter.shed(asked))
    }

    /// Returns the relay for calls that are not operations; none beside a node, which answers them itself.
    pub fn relay(&self) -> Option<&Relay> {
        self.shared.gateway.as_ref().map(|(_, relay)| relay)
    }

    /// Records an operation that was not carried out by [`Router::execute`].
    pub fn measure(&self, asked: RequestInfo, result: &OpResult, took: Duration) {
        self.shared.meter.operation(asked, result, took);
    }

    /// Returns the id of the cluster.
    pub fn cluster(&self) -> ClusterId {
        self.shared.routing_table.borrow().cluster
    }

    /// Returns the local node, if there is one.
    pub fn node(&self) -> Option<&NodeHandle> {
        self.shared.node.as_ref()
    }

    /// Returns the local node, in code that runs only where there is one.
    pub(crate) fn here(&self) -> &NodeHandle {
        self.shared.node.as_ref().expect("only what a node serves is asked of it")
    }

    fn own_id(&self) -> Option<NodeId> {
        self.shared.node.as_ref().map(NodeHandle::node)
    }

    /// Returns the status of the groups, with its changes.
    pub fn status(&self) -> &watch::Receiver<NodeStatus> {
        &self.shared.status
    }

    /// Returns a stream number that no other stream of callers of the local node has.
    pub fn fresh_stream(&self) -> u64 {
        self.node().map_or(0, NodeHandle::fresh_stream)
    }

    /// Sends the local node, if there is one, a request that must not be lost.
    pub fn tell(&self, ask: Ask) {
        if let Some(node) = self.node() {
            node.tell(ask);
        }
    }

    /// Returns the stub registrations of leases to other groups that are in progress.
    pub(crate) fn stub_registrations(&self) -> &StubRegistrations {
        &self.shared.stub_registrations
    }

    /// Returns the group map. A gateway that has not seen the cluster yet assumes a single group: where that matters,
    /// use [`Router::known_map`].
    pub fn map(&self) -> Arc<GroupMap> {
        self.known_map().unwrap_or_else(|| Arc::new(GroupMap::single()))
    }

    /// Returns the group map; none on a gateway that has not seen the cluster yet.
    pub fn known_map(&self) -> Option<Arc<GroupMap>> {
        let known = self.shared.status.borrow().map.clone();
        known.or_else(|| self.shared.routing_table.borrow().map.clone())
    }

    /// Returns true if this node leads the group and serves clients.
    pub fn serves(&self, group: GroupId) -> bool {
        self.shared.status.borrow().serves(group)
    }

    /// Returns true if this node leads the group, even if it can't write.
    pub fn leads(&self, group: GroupId) -> bool {
        self.own_id().is_some_and(|own| self.shared.status.borrow().leader(group) == Some(own))
    }

    /// Returns true if this node is stopping, has stopped, or was removed from the cluster.
    pub fn is_stopping(&self) -> bool {
        let status = &self.shared.status;
        let known = status.borrow();
        known.stopping || known.removed || status.has_changed().is_err()
    }

    /// Returns the address at which a node serves clients, if known.
    pub fn client_address(&self, node: NodeId) -> Option<String> {
        self.shared.routing_table.borrow().clients.get(&node).cloned().or_else(|| {
            let members = Arc::clone(&self.shared.status.borrow().members);
            let replicated = &members.addresses_of(node).client;
            (*replicated != HostPort::NONE).then(|| replicated.to_string())
        })
    }

    /// Returns the error for clients if this node serves none: because it is a witness, or was removed from the
    /// cluster.
    pub fn closed(&self) -> Option<v1::Error> {
        // Called for every operation, and nearly always ends here.
        let status =
            Some(self.shared.status.borrow()).filter(|status| status.removed || status.witness)?.clone();
        let (reason, says) = if status.removed {
            let says = "this node was removed from the cluster, and nothing was done: ask another node";
            (v1::ErrorReason::ShuttingDown, says)
        } else {
            let says = "this node is a witness, which votes and keeps no locks: ask a full member (`tollgate member \
                        ls` lists them)";
            (v1::ErrorReason::NoSuchGroup, says)
        };
        // A client that was given only this node's address needs another one.
        let own = self.own_id();
        let full = status.members.voters.iter().filter(|voter| !status.members.witnesses.contains(voter));
        let other = full.filter(|voter| Some(**voter) != own).find_map(|voter| self.client_address(*voter));
        let leader_address = other.map_or_else(String::new, |address| format!("http://{address}"));
        Some(v1::Error { leader_address, ..v1::Error::new(reason, says) })
    }

    /// Waits until this node was removed from the cluster.
    pub async fn removed(&self) {
        let mut status = self.shared.status.clone();
        if status.wait_for(|status| status.removed).await.is_err() {
            // The node has stopped, which its callers learn by other means.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the node reports no more changes, because it was removed or has stopped; returns the reason.
    pub async fn until_over(&self) -> v1::Error {
        let mut status = self.shared.status.clone();
        if status.wait_for(|status| status.removed).await.is_ok() {
            return self.closed().unwrap_or_default();
        }
        let says = "this node has stopped: go on at another, where the last cursor says";
        v1::Error::new(v1::ErrorReason::ShuttingDown, says)
    }

    /// Waits until a gateway is stopping. Never returns beside a node, which answers operations in flight in another
    /// way.
    pub async fn until_draining(&self) {
        let mut status = self.shared.status.clone();
        if self.node().is_some() || status.wait_for(|status| status.stopping).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn prepare(&self, op: &Op, call_context: CallContext<'_>) -> Result<Prepared, v1::Error> {
        let mut prepared = operation::prepare(op, &self.map(), call_context.from)?;
        call_context.purpose.apply(&mut prepared, call_context.from);
        Ok(prepared)
    }

    async fn until_done(&self, op: &mut Op, prepared: Prepared, call_context: CallContext<'_>) -> OpResult {
        let began = Instant::now();
        let until = began + patience_of(op, call_context.purpose) + wait_of(op);
        let (group, may_repeat) = (prepared.group, prepared.context.may_repeat());
        let (epoch, mut next, mut hint) = (prepared.map_epoch(), Some(prepared), None);
        let (mut pause, mut unsure, mut introduced, mut breaks) = (PAUSE_MIN, None, 0, 0);
        loop {
            let prepared = match next.take().map_or_else(|| self.prepare_again(op, epoch, call_context), Ok) {
                Ok(prepared) => prepared,
                Err(error) if error.reason() == v1::ErrorReason::WrongGroup => {
                    return OpResult::Error(v1::Error { may_have_happened: unsure.is_some(), ..error });
                }
                Err(error) => return OpResult::Error(unsure.unwrap_or(error)),
            };
            match self.attempt(op, prepared, hint, call_context).await {
                Attempt::Done(result) => return settle(op, result, unsure),
                Attempt::Unsure(error) if !may_repeat => return OpResult::Error(error),
                Attempt::Unsure(error) => {
                    hint = NodeId::new(error.leader_id);
                    unsure = Some(error);
                }
                Attempt::Suspect => {
                    breaks += 1;
                    if breaks >= BREAKS_MAX || !may_repeat {
                        return OpResult::Error(Lost::breaks_streams(group));
                    }
                    (hint, unsure) = (None, Some(Lost::unsure(group)));
                }
                Attempt::Elsewhere(leader) => hint = leader.filter(|leader| Some(*leader) != hint),
                Attempt::Introduced if introduced < STUB_REGISTRATIONS_MAX => {
                    introduced += 1;
                    continue;
                }
                Attempt::Introduced => hint = None,
            }
            if call_context.attended_call.is_some_and(AttendedCall::is_gone) {
                // A request that may be waiting in a queue is ended there a while later, because no caller comes back
                // for it.
                return OpResult::Error(unsure.unwrap_or_else(|| self.no_leader(group)));
            }
            let over = Instant::now() >= until;
            let in_vain = over || began.elapsed() >= DISK_FULL_PATIENCE;
            if let Some(full) = self.disk_full(group, in_vain, may_repeat) {
                return OpResult::Error(unsure.unwrap_or(full));
            }
            if over {
                return OpResult::Error(unsure.unwrap_or_else(|| self.no_leader(group)));
            }
            self.look_again();
            if self.pause(group, &mut pause).await.is_err() {
                return OpResult::Error(unsure.unwrap_or_else(|| stopped(group)));
            }
            if call_context.attended_call.is_some_and(AttendedCall::is_gone) {
                return OpResult::Error(unsure.unwrap_or_else(|| self.no_leader(group)));
            }
        }
    }

    /// Has a gateway's discovery poll at once, because the leaders it knows were no help.
    fn look_again(&self) {
        if let Some((hurry, _)) = &self.shared.gateway {
            hurry.notify_one();
        }
    }

    /// Waits a little, or until this node learns of another leader. Fails once the node has stopped and will learn
    /// nothing more.
    async fn pause(&self, group: GroupId, pause: &mut Duration) -> Result<(), RecvError> {
        let mut status = self.shared.status.clone();
        let known = status.borrow_and_update().leader(group);
        let changed =
            status.wait_for(|status| status.leader(group).is_some() && status.leader(group) != known);
        if let Ok(changed) = tokio::time::timeout(*pause, changed).await {
            changed?;
        }
        *pause = (*pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    fn prepare_again(
        &self,
        op: &mut Op,
        epoch: u64,
        call_context: CallContext<'_>,
    ) -> Result<Prepared, v1::Error> {
        count_attempt(op);
        let map = self.map();
        if map.epoch() != epoch && split(op, &map).is_some() {
            let says = "its names came to live in several groups while it was tried: ask again";
            return Err(v1::Error::new(v1::ErrorReason::WrongGroup, says));
        }
        let mut prepared = self.prepare(op, call_context)?;
        if let Kind::Command { fast, .. } = &mut prepared.kind {
            // An earlier attempt may have been granted.
            *fast = false;
        }
        Ok(prepared)
    }

    async fn attempt(
        &self,
        op: &Op,
        prepared: Prepared,
        hint: Option<NodeId>,
        call_context: CallContext<'_>,
    ) -> Attempt {
        let group = prepared.group;
        let serves = self.serves(group);
        // Leader and term are read together: if the leader is replaced from now on, even before it is asked, that is
        // noticed.
        let (leader, term) = self.shared.status.borrow().leadership(group);
        let leader = hint.or(leader);
        let can_read = match &prepared.kind {
            Kind::Read { consistency, .. } => self.reads_here(group, *consistency, leader),
            Kind::Command { .. } | Kind::KeepAlive(_) => false,
        };
        if serves || can_read {
            return self.ask_here(prepared, call_context).await;
        }
        let elsewhere = leader.filter(|leader| Some(*leader) != self.own_id());
        let Some((leader, address)) = elsewhere.and_then(|leader| {
            let address = self.client_address(leader)?;
            Some((leader, address))
        }) else {
            return Attempt::Elsewhere(None);
        };
        let may_repeat = prepared.context.may_repeat();
        let whom = (leader, call_context.purpose);
        let op = if self.node().is_some() { op.clone() } else { passed_on(op) };
        let notice = call_context.queue_notice();
        let sent = tokio::select! {
            biased;
            sent = self.shared.links.call(whom, &address, op, call_context.from, notice) => sent.ok(),
            () = self.replaced(group, leader, term) => None,
        };
        // This attempt did nothing; that must not hide that an earlier attempt may have happened.
        let Some(mut call) = sent else { return Attempt::Elsewhere(None) };
        let mut told = false;
        // A leader that hangs does not answer, while its connection may look healthy for seconds. A leader that handed
        // over in good order has answered earlier requests by then.
        let mut silent = std::pin::pin!(async {
            self.replaced(group, leader, term).await;
            if !may_repeat {
                tokio::time::sleep(LAST_WORDS).await;
            }
        });
        let called = loop {
            tokio::select! {
                biased;
                called = call.answer() => break called,
                () = &mut silent => break Err(Lost::SENT),
                () = gone(call_context.attended_call), if !told => {
                    call.hang_up();
                    told = true;
                }
            }
        };
        match called {
            Ok(OpResult::Error(error)) => judge(error),
            Ok(result) => Attempt::Done(result),
            Err(lost) if lost.is_suspect() => Attempt::Suspect,
            Err(lost) if lost.was_sent() => Attempt::Unsure(Lost::unsure(group)),
            Err(_) => Attempt::Elsewhere(None),
        }
    }

    /// Waits until this node follows a leader other than `leader`, of a term later than `term`.
    async fn replaced(&self, group: GroupId, leader: NodeId, term: u64) {
        let mut status = self.shared.status.clone();
        let other = |status: &NodeStatus| {
            let known = status.groups.get(&group);
            known.is_some_and(|known| known.term > term && known.leader.is_some_and(|led| led != leader))
        };
        if status.wait_for(other).await.is_err() {
            // The node has stopped, which its callers learn by other means.
            std::future::pending::<()>().await;
        }
    }

    async fn ask_here(&self, prepared: Prepared, call_context: CallContext<'_>) -> Attempt {
        let Prepared { group, kind, context, .. } = prepared;
        let began = Instant::now();
        let called = match kind {
            Kind::Read { consistency, query } => return self.read(group, consistency, query, &context).await,
            Kind::KeepAlive(renewal) => self.here().call(Ask::KeepAlive { group, renewal }).await,
            Kind::Command { command, fast } => {
                let ask = Ask::Command { group, command: Box::new(command), fast };
                self.call_here(ask, call_context).await
            }
        };
        match called {
            Ok(called) => self.answered(group, &context, called, began).await,
            Err(error @ NotAnswered::NotTaken(_)) => {
                Attempt::Done(OpResult::Error(operation::error_of_not_answered(error, group)))
            }
            Err(error @ NotAnswered::Stopped) => {
                Attempt::Unsure(operation::error_of_not_answered(error, group))
            }
        }
    }

    /// Asks this node. If the caller goes before the answer, the `Dispatcher` is told, and answers at once.
    async fn call_here(&self, ask: Ask, call_context: CallContext<'_>) -> Result<Called, NotAnswered> {
        let node = self.here();
        let notice = call_context.queue_notice();
        let queued = move |create_revision: Revision, position| {
            notice.joined(v1::Queued { position, create_revision: create_revision.get() });
        };
        let Some(attended_call) = call_context.attended_call else {
            return node.call_by(node.fresh_stream(), ask, queued).await;
        };
        let mut call = std::pin::pin!(node.call_by(attended_call.stream, ask, queued));
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                called = &mut call => return called,
                () = attended_call.gone(), if !told => {
                    node.tell(Ask::HangUp(CallerKey { stream: attended_call.stream, call: 0 }));
                    told = true;
                }
            }
        }
    }

    async fn answered(&self, group: GroupId, context: &Context, called: Called, began: Instant) -> Attempt {
        let Called { answer, queued } = called;
        match &answer {
            Answer::NotDone(ProposeError::NotLeader { leader, .. }) => return Attempt::Elsewhere(*leader),
            // As far as is known the request still waits in the queue: it is not undone, and its repeat finds it there.
            Answer::AskAgain { group, leader } => {
                return Attempt::Unsure(self.with_address(operation::left_waiting(*group, *leader)));
            }
            Answer::NotDone(error @ ProposeError::Indeterminate { .. }) => {
                return Attempt::Unsure(operation::error_of_propose(error, context.may_repeat()));
            }
            _ => {}
        }
        let held_already = context.held_already(&answer);
        let waited_ms = queued.map_or(0, |_| i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX));
        let header = self.header(group, revision_of(&answer));
        let mut result = context.finish(answer, &header, queued, waited_ms);
        if let Some(lease) = unknown_lease(context, &result, &self.map()) {
            return match self.introduce(lease, group).await {
                Ok(()) => Attempt::Introduced,
                Err(error) => judge(error),
            };
        }
        self.note(context, &result);
        if is_incomplete(held_already, &result) {
            self.complete(group, context, held_already, &mut result).await;
        }
        Attempt::Done(result)
    }

    async fn read(
        &self,
        group: GroupId,
        consistency: Consistency,
        query: Query,
        context: &Context,
    ) -> Attempt {
        match self.look(group, consistency, move |sight| query.look(sight)).await {
            Ok((header, seen)) => {
                let mut result = seen.result(context, &header);
                if is_incomplete(false, &result) {
                    self.complete(group, context, false, &mut result).await;
                }
                Attempt::Done(result)
            }
            Err(ReadError::TimedOut { .. }) => Attempt::Elsewhere(None),
            Err(error) => Attempt::Done(OpResult::Error(operation::error_of_read(&error))),
        }
    }

    /// Reads a group's state on this node.
    pub async fn look<T: Send + 'static>(
        &self,
        group: GroupId,
        consistency: Consistency,
        look: impl FnOnce(Sight<'_>) -> T + Send + 'static,
    ) -> Result<(HeaderInfo, T), ReadError> {
        let both = move |sight: Sight<'_>| (sight.state.revision(), look(sight));
        let node = self.node().ok_or(ReadError::NoState { group })?;
        let (revision, seen) = node.read(group, consistency, both).await?;
        Ok((self.header(group, Some(revision)), seen))
    }

    /// Returns the header of an answer.
    pub fn header(&self, group: GroupId, revision: Option<Revision>) -> HeaderInfo {
        let (term, lineage) = {
            let status = self.shared.status.borrow();
            status.groups.get(&group).map_or((0, None), |status| (status.term, status.lineage))
        };
        let (cluster, node) = (self.shared.routing_table.borrow().cluster, self.own_id());
        HeaderInfo { cluster, node, group, revision: revision.unwrap_or(Revision::ZERO), term, lineage }
    }

    /// Records what operators ask about later; called at the leader.
    pub fn note(&self, context: &Context, result: &OpResult) {
        match (result, context.forced_release()) {
            (OpResult::Error(error), _) => self.shared.deadlocks.note(error),
            (OpResult::ForceRelease(done), Some(forced)) => {
                let ForcedRelease { name, token, reason, from } = forced;
                let (group, revision) = (context.group(), done.revision);
                let (name, reason) = (escaped(name.as_bytes()), escaped(reason.as_bytes()));
                tracing::warn!(%group, %name, %token, %reason, %from, revision, "a lock was released by force");
            }
            _ => {}
        }
    }

    /// Remembers a deadlock for operators.
    pub(crate) fn note_deadlock(&self, error: &v1::Error) {
        self.shared.deadlocks.note(error);
    }

    /// Returns the number of deadlocks that this node found since it started, and the latest of them, newest first.
    pub(crate) fn found_deadlocks(&self, limit: usize) -> (u64, Vec<v1::Deadlock>) {
        self.shared.deadlocks.list(limit)
    }

    /// Keeps a circle across several groups for the caller whose wait is about to be ended.
    pub(crate) fn keep_circle(&self, circle: Vec<CycleStep>) {
        self.shared.deadlocks.keep_circle(circle);
    }

    /// Returns the error for a request to a node that does not lead the group.
    pub fn not_leader(&self, group: GroupId, leader: Option<NodeId>) -> v1::Error {
        self.with_address(operation::error_of_propose(&ProposeError::NotLeader { group, leader }, true))
    }

    /// Adds to an error the address of the leader that it names.
    pub fn with_address(&self, mut error: v1::Error) -> v1::Error {
        let leader = NodeId::new(error.leader_id).filter(|_| self.node().is_some());
        let address = leader.and_then(|leader| self.client_address(leader));
        error.leader_address = address.map_or_else(String::new, |address| format!("http://{address}"));
        error
    }

    /// Returns the refusal of a change by a node that leads with a full disk: at once if no other node could do better,
    /// otherwise only if `in_vain`, that is, after waiting without success for another node to take over.
    pub fn disk_full(&self, group: GroupId, in_vain: bool, may_repeat: bool) -> Option<v1::Error> {
        let stuck = self.is_stuck(group);
        let refuses = (stuck || in_vain) && self.leads_with_full_disk(group);
        let full = if stuck { ProposeError::NoRoom { group } } else { ProposeError::DiskFull };
        refuses.then(|| operation::error_of_propose(&full, may_repeat))
    }

    /// Returns true if this node leads, nothing can be written, and no other node could do better.
    fn is_stuck(&self, group: GroupId) -> bool {
        self.shared.status.borrow().groups.get(&group).is_some_and(|known| known.stuck)
    }

    /// Returns true if this node leads and can't write, and no other node has taken over.
    fn leads_with_full_disk(&self, group: GroupId) -> bool {
        self.leads(group) && self.shared.status.borrow().disk_full
    }

    fn no_leader(&self, group: GroupId) -> v1::Error {
        if self.node().is_none() {
            return v1::Error { group_id: group.number(), ..nobody(&self.shared.routing_table.borrow()) };
        }
        self.not_leader(group, None)
    }

    /// Returns the leases that sessions of this node keep alive.
    pub fn lease_sessions(&self) -> &LeaseSessions {
        &self.shared.kept
    }

    /// Ends a lease whose client wanted it to end with its connection, unless a session keeps it alive again.
    pub async fn revoke_disconnected(&self, lease: LeaseId, from: &Address) {
        let mut op = Op::LeaseRevoke(v1::LeaseRevokeRequest { id: lease.get() });
        let call_context = CallContext::new(from, Purpose::Disconnected);
        // If this fails, the lease expires by itself.
        let until = Instant::now() + patience_of(&op, call_context.purpose);
        if self.seen_map(until).await.is_err() || self.shared.kept.any(lease) {
            return;
        }
        if let Ok(prepared) = self.prepare(&op, call_context) {
            self.until_done(&mut op, prepared, call_context).await;
        }
    }
}

/// Returns an operation in the form in which a gateway passes it on: unchanged, unless a bug is planted.
fn passed_on(op: &Op) -> Op {
    let mut op = op.clone();
    if planted(Bug::GatewayDropsSeq)
        && let Op::Unlock(v1::UnlockRequest { request, .. }) | Op::Lock(v1::LockRequest { request, .. }) =
            &mut op
    {
        *request = None;
    }
    op
}

/// Waits until the attending caller has gone; for ever if there is none.
async fn gone(attended_call: Option<&AttendedCall>) {
    match attended_call {
        Some(attended_call) => attended_call.gone().await,
        None => std::future::pending().await,
    }
}

/// Returns the error for a node that stopped before it found a leader.
pub(crate) fn stopped(group: GroupId) -> v1::Error {
    let says = "the node has stopped, and nothing was done: ask another node";
    v1::Error { group_id: group.number(), ..v1::Error::new(v1::ErrorReason::ShuttingDown, says) }
}

/// Returns the revision of an answer.
pub fn revision_of(answer: &Answer) -> Option<Revision> {
    match answer {
        Answer::Replied { revision, .. }
        | Answer::Resolved { revision, .. }
        | Answer::Busy { revision, .. }
        | Answer::Renewed { revision, .. } => Some(*revision),
        _ => None,
    }
}
