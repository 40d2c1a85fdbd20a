//! Has operations carried out: here if this node leads the group, at the leader otherwise.
//!
//! Invariant: an operation is sent again only if that is harmless, with its attempt counted up, so that a caller sees
//! one effect and one answer through changes of leaders. The leader knows who stands by while a request waits, and is
//! told when one goes (`standing`). Not here: what an operation means (`operation`), the streams of sessions
//! (`session`).

mod completion;
mod repeats;

pub(crate) use completion::is_incomplete;

use crate::deadlocks::Deadlocks;
use crate::introduction::{INTRODUCTIONS_MAX, Introductions, unknown_lease};
use crate::keepers::Keepers;
use crate::link::{Links, Lost, Purpose};
use crate::metrics::{Asked, Metrics};
use crate::operation::{self, Context, ForcedRelease, HeaderInfo, Kind, Prepared, Query};
use crate::standing::{Standing, stand_by};
use repeats::{count_attempt, judge, patience_of, settle, wait_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch::error::RecvError;
use tollgate_node::{Answer, Ask, Called, Consistency, NodeHandle, NodeStatus, NotAnswered, Sight};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_replica::{CallerKey, ProposeError, ReadError};
use tollgate_types::{Address, GroupId, LeaseId, NodeId};

/// How long another node has to take over from a leader whose disk is full, before callers are told that it is.
const DISK_FULL_PATIENCE: Duration = Duration::from_secs(2);

/// Between two attempts: doubles from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Has operations carried out. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

struct Shared {
    node: NodeHandle,
    groups: u32,
    /// Where each node serves clients.
    clients: BTreeMap<NodeId, String>,
    links: Links,
    metrics: Arc<Metrics>,
    deadlocks: Deadlocks,
    introductions: Introductions,
    /// How many of this node's sessions keep a lease alive: only the last one that goes ends it.
    kept: Keepers,
}

/// What became of one attempt.
enum Attempt {
    Done(OpResult),
    /// Not done, and never will be: ask again, best this node.
    Elsewhere(Option<NodeId>),
    /// It may have happened. To ask again, best ask the leader that the error names.
    Unsure(v1::Error),
    /// Not done: its lease was not known in its group, and is now.
    Introduced,
}

/// For whom an operation is carried out.
#[derive(Clone, Copy)]
struct Errand<'a> {
    from: &'a Address,
    purpose: Purpose,
    /// Who stands by, if what is asked for may wait and somebody does.
    standing: Option<&'a Standing>,
}

impl<'a> Errand<'a> {
    fn new(from: &'a Address, purpose: Purpose) -> Errand<'a> {
        Errand { from, purpose, standing: None }
    }
}

impl Router {
    /// A router around a node of a cluster with so many groups, whose nodes serve clients at these addresses.
    pub fn new(
        node: NodeHandle,
        groups: u32,
        clients: BTreeMap<NodeId, String>,
        metrics: Arc<Metrics>,
    ) -> Router {
        let (links, deadlocks) = (Links::default(), Deadlocks::default());
        let (introductions, kept) = (Introductions::default(), Keepers::default());
        let shared = Shared { node, groups, clients, links, metrics, deadlocks, introductions, kept };
        Router { shared: Arc::new(shared) }
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// The node.
    pub fn node(&self) -> &NodeHandle {
        &self.shared.node
    }

    /// Leases that are being made known in other groups.
    pub(crate) fn introductions(&self) -> &Introductions {
        &self.shared.introductions
    }

    /// How many groups there are.
    pub fn groups(&self) -> u32 {
        self.shared.groups
    }

    /// Whether this node leads the group and serves clients.
    pub fn serves(&self, group: GroupId) -> bool {
        self.shared.node.status().borrow().serves(group)
    }

    /// Whether this node leads the group, though it may not be able to write.
    pub(crate) fn leads(&self, group: GroupId) -> bool {
        self.shared.node.status().borrow().leader(group) == Some(self.shared.node.node())
    }

    /// Whether it leads all groups and serves clients.
    pub fn leads_all(&self) -> bool {
        let status = self.shared.node.status().borrow();
        status.groups.values().all(|group| group.serves)
    }

    /// Whether this node stops, or has stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        let status = self.shared.node.status();
        status.borrow().stopping || status.has_changed().is_err()
    }

    /// Where a node serves clients.
    pub fn client_address(&self, node: NodeId) -> Option<&str> {
        self.shared.clients.get(&node).map(String::as_str)
    }

    /// Has an operation carried out, wherever its leader is, and waits for the final answer.
    ///
    /// Dropped before that, a request that waits in line leaves it, unless somebody else stands by for the same.
    pub async fn execute(&self, op: Op, from: &Address) -> OpResult {
        self.carry_out(op, Errand::new(from, Purpose::Attended)).await
    }

    /// Likewise, for a session: what waits in line stays there, for its client asks for it again, maybe elsewhere.
    pub(crate) async fn execute_for_session(&self, op: Op, from: &Address) -> OpResult {
        self.carry_out(op, Errand::new(from, Purpose::Session)).await
    }

    async fn carry_out(&self, op: Op, errand: Errand<'_>) -> OpResult {
        let (asked, began) = (Asked::from(&op), Instant::now());
        let result = match self.prepare(op.clone(), errand) {
            Ok(prepared) if errand.purpose == Purpose::Attended && prepared.context.may_wait() => {
                stand_by(self, op, prepared, errand.from).await
            }
            Ok(prepared) => self.until_done(op, prepared, errand).await,
            Err(error) => OpResult::Error(error),
        };
        self.shared.metrics.operation(asked, &result, began.elapsed());
        result
    }

    /// Has something carried out for a caller that stands by, or until it has gone and the leader has heard of it.
    pub(crate) async fn carry_out_standing(
        &self,
        op: Op,
        prepared: Prepared,
        from: &Address,
        standing: &Standing,
    ) -> OpResult {
        let errand = Errand { standing: Some(standing), ..Errand::new(from, Purpose::Attended) };
        self.until_done(op, prepared, errand).await
    }

    /// Has a grant given back that nobody heard of.
    pub(crate) async fn take_back(&self, cancel: v1::CancelWaitRequest, from: &Address) {
        let (op, errand) = (Op::CancelWait(cancel), Errand::new(from, Purpose::Session));
        if let Ok(prepared) = self.prepare(op.clone(), errand) {
            self.until_done(op, prepared, errand).await;
        }
    }

    fn prepare(&self, op: Op, errand: Errand<'_>) -> Result<Prepared, v1::Error> {
        let mut prepared = operation::prepare(op, self.shared.groups, errand.from)?;
        errand.purpose.apply(&mut prepared, errand.from);
        Ok(prepared)
    }

    async fn until_done(&self, op: Op, prepared: Prepared, errand: Errand<'_>) -> OpResult {
        let began = Instant::now();
        let until = began + patience_of(&op) + wait_of(&op);
        let (group, may_repeat) = (prepared.group, prepared.context.may_repeat());
        let (mut op, mut next, mut hint) = (op, Some(prepared), None);
        let (mut pause, mut unsure, mut introduced) = (PAUSE_MIN, None, 0);
        loop {
            let prepared = match next.take().map_or_else(|| self.prepare_again(&mut op, errand), Ok) {
                Ok(prepared) => prepared,
                Err(error) => return OpResult::Error(unsure.unwrap_or(error)),
            };
            match self.attempt(&op, prepared, hint, errand).await {
                Attempt::Done(result) => return settle(&op, result, unsure),
                Attempt::Unsure(error) if !may_repeat => return OpResult::Error(error),
                Attempt::Unsure(error) => {
                    hint = NodeId::new(error.leader_id);
                    unsure = Some(error);
                }
                Attempt::Elsewhere(leader) => hint = leader.filter(|leader| Some(*leader) != hint),
                Attempt::Introduced if introduced < INTRODUCTIONS_MAX => {
                    introduced += 1;
                    continue;
                }
                Attempt::Introduced => hint = None,
            }
            if errand.standing.is_some_and(Standing::is_gone) {
                // What may stand in line ends there a while later, because nobody comes back for it.
                return OpResult::Error(unsure.unwrap_or_else(|| self.no_leader(group)));
            }
            let over = Instant::now() >= until;
            if (over || began.elapsed() >= DISK_FULL_PATIENCE) && self.leads_with_full_disk(group) {
                let full = operation::error_of_propose(&ProposeError::DiskFull, may_repeat);
                return OpResult::Error(unsure.unwrap_or(full));
            }
            if over {
                return OpResult::Error(unsure.unwrap_or_else(|| self.no_leader(group)));
            }
            if self.pause(group, &mut pause).await.is_err() {
                return OpResult::Error(unsure.unwrap_or_else(|| stopped(group)));
            }
            if errand.standing.is_some_and(Standing::is_gone) {
                return OpResult::Error(unsure.unwrap_or_else(|| self.no_leader(group)));
            }
        }
    }

    /// Waits a little, or until this node knows of another leader. An error once the node has stopped: it will know of
    /// nothing more.
    async fn pause(&self, group: GroupId, pause: &mut Duration) -> Result<(), RecvError> {
        let mut status = self.shared.node.status().clone();
        let known = status.borrow_and_update().leader(group);
        let changed =
            status.wait_for(|status| status.leader(group).is_some() && status.leader(group) != known);
        if let Ok(changed) = tokio::time::timeout(*pause, changed).await {
            changed?;
        }
        *pause = (*pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    fn prepare_again(&self, op: &mut Op, errand: Errand<'_>) -> Result<Prepared, v1::Error> {
        count_attempt(op);
        let mut prepared = self.prepare(op.clone(), errand)?;
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
        errand: Errand<'_>,
    ) -> Attempt {
        let group = prepared.group;
        let (serves, leads) = (self.serves(group), self.leads(group));
        let leader = hint.or(self.shared.node.status().borrow().leader(group));
        let can_read = match &prepared.kind {
            // A leader that can't write can read.
            Kind::Read { consistency: Consistency::Leader, .. } => leads,
            Kind::Read { consistency: Consistency::Linearizable | Consistency::Stale, .. } => true,
            Kind::Command { .. } | Kind::KeepAlive(_) => false,
        };
        if serves || can_read {
            return self.here(prepared, errand.standing).await;
        }
        let elsewhere = leader.filter(|leader| *leader != self.shared.node.node());
        let Some((leader, address)) = elsewhere.and_then(|leader| {
            let address = self.shared.clients.get(&leader)?;
            Some((leader, address))
        }) else {
            return Attempt::Elsewhere(None);
        };
        let may_repeat = prepared.context.may_repeat();
        let sent = tokio::select! {
            biased;
            sent = self.shared.links.call((leader, errand.purpose), address, op.clone(), errand.from) => sent.ok(),
            () = self.replaced(group, leader), if may_repeat => None,
        };
        // Nothing happened, which must not hide that an earlier attempt may have.
        let Some(mut call) = sent else { return Attempt::Elsewhere(None) };
        let mut told = false;
        let called = loop {
            tokio::select! {
                biased;
                called = call.answer() => break called,
                // One that stands still does not answer, and its connection may look well for seconds.
                () = self.replaced(group, leader), if may_repeat => break Err(Lost::SENT),
                () = gone(errand.standing), if !told => {
                    call.hang_up();
                    told = true;
                }
            }
        };
        match called {
            Ok(OpResult::Error(error)) => judge(error),
            Ok(result) => Attempt::Done(result),
            Err(lost) if lost.was_sent() => Attempt::Unsure(Lost::unsure(group)),
            Err(_) => Attempt::Elsewhere(None),
        }
    }

    /// Waits until this node follows another leader than `leader`, of a later term than now.
    async fn replaced(&self, group: GroupId, leader: NodeId) {
        let mut status = self.shared.node.status().clone();
        let term = status.borrow().groups.get(&group).map_or(0, |known| known.term);
        let other = |status: &NodeStatus| {
            let known = status.groups.get(&group);
            known.is_some_and(|known| known.term > term && known.leader.is_some_and(|led| led != leader))
        };
        if status.wait_for(other).await.is_err() {
            // The node has stopped, and who waits is told so.
            std::future::pending::<()>().await;
        }
    }

    async fn here(&self, prepared: Prepared, standing: Option<&Standing>) -> Attempt {
        let Prepared { group, kind, context } = prepared;
        let began = Instant::now();
        let called = match kind {
            Kind::Read { consistency, query } => return self.read(group, consistency, query, &context).await,
            Kind::KeepAlive(renewal) => self.shared.node.call(Ask::KeepAlive { group, renewal }).await,
            Kind::Command { command, fast } => {
                let ask = Ask::Command { group, command: Box::new(command), fast };
                self.call_here(ask, standing).await
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

    /// Asks this node. When the caller goes before the answer, the desk is told, and answers at once.
    async fn call_here(&self, ask: Ask, standing: Option<&Standing>) -> Result<Called, NotAnswered> {
        let node = &self.shared.node;
        let Some(standing) = standing else { return node.call(ask).await };
        let mut call = std::pin::pin!(node.call_by(standing.stream, ask));
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                called = &mut call => return called,
                () = standing.gone(), if !told => {
                    node.tell(Ask::HangUp(CallerKey { stream: standing.stream, call: 0 }));
                    told = true;
                }
            }
        }
    }

    async fn answered(&self, group: GroupId, context: &Context, called: Called, began: Instant) -> Attempt {
        let Called { answer, queued } = called;
        match &answer {
            Answer::NotDone(ProposeError::NotLeader { leader, .. }) => return Attempt::Elsewhere(*leader),
            // As far as is known it stands in line still: it is not undone, and its repeat finds it there.
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
        if let Some(lease) = unknown_lease(context, &result, self.shared.groups) {
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
            Ok((header, seen)) => Attempt::Done(seen.result(context, &header)),
            Err(ReadError::TimedOut { .. }) => Attempt::Elsewhere(None),
            Err(error) => Attempt::Done(OpResult::Error(operation::error_of_read(&error))),
        }
    }

    /// Looks at a group's state on this node.
    pub async fn look<T: Send + 'static>(
        &self,
        group: GroupId,
        consistency: Consistency,
        look: impl FnOnce(Sight<'_>) -> T + Send + 'static,
    ) -> Result<(HeaderInfo, T), ReadError> {
        let both = move |sight: Sight<'_>| (sight.state.revision(), look(sight));
        let (revision, seen) = self.shared.node.read(group, consistency, both).await?;
        Ok((self.header(group, Some(revision)), seen))
    }

    /// Where an answer comes from.
    pub fn header(&self, group: GroupId, revision: Option<tollgate_types::Revision>) -> HeaderInfo {
        let node = &self.shared.node;
        let term = node.status().borrow().groups.get(&group).map_or(0, |status| status.term);
        let revision = revision.unwrap_or(tollgate_types::Revision::ZERO);
        HeaderInfo { cluster: node.cluster(), node: node.node(), group, revision, term }
    }

    /// Notes what operators ask about later, at the leader.
    pub(crate) fn note(&self, context: &Context, result: &OpResult) {
        match (result, context.forced_release()) {
            (OpResult::Error(error), _) => self.shared.deadlocks.note(error),
            (OpResult::ForceRelease(done), Some(forced)) => {
                let ForcedRelease { name, token, reason, from } = forced;
                let (group, revision) = (context.group(), done.revision);
                tracing::warn!(%group, %name, %token, %reason, %from, revision, "a lock was released by force");
            }
            _ => {}
        }
    }

    /// How many deadlocks this node refused since it started, and the last of them, newest first.
    pub fn deadlocks(&self, limit: usize) -> (u64, Vec<v1::Deadlock>) {
        self.shared.deadlocks.list(limit)
    }

    /// The error of one who asked a node that does not lead.
    pub fn not_leader(&self, group: GroupId, leader: Option<NodeId>) -> v1::Error {
        self.with_address(operation::error_of_propose(&ProposeError::NotLeader { group, leader }, true))
    }

    /// The error, with the address of the leader that it names.
    pub(crate) fn with_address(&self, mut error: v1::Error) -> v1::Error {
        let address = NodeId::new(error.leader_id).and_then(|leader| self.client_address(leader));
        error.leader_address = address.map_or_else(String::new, |address| format!("http://{address}"));
        error
    }

    /// Whether nobody can take over from this node, which can't write.
    fn leads_with_full_disk(&self, group: GroupId) -> bool {
        self.leads(group) && self.shared.node.status().borrow().disk_full
    }

    fn no_leader(&self, group: GroupId) -> v1::Error {
        self.not_leader(group, None)
    }

    /// The leases that sessions of this node keep alive.
    pub(crate) fn keepers(&self) -> &Keepers {
        &self.shared.kept
    }

    /// Ends a lease whose client wanted it to end with its connection, unless a session has come to keep it alive.
    pub(crate) async fn revoke_disconnected(&self, lease: LeaseId, from: &Address) {
        let op = Op::LeaseRevoke(v1::LeaseRevokeRequest { id: lease.get() });
        let errand = Errand::new(from, Purpose::Disconnected);
        let Ok(prepared) = self.prepare(op.clone(), errand) else { return };
        if self.shared.kept.any(lease) {
            return;
        }
        // It ends by itself if this fails.
        self.until_done(op, prepared, errand).await;
    }
}

/// Waits until a caller that stands by has gone.
async fn gone(standing: Option<&Standing>) {
    match standing {
        Some(standing) => standing.gone().await,
        None => std::future::pending().await,
    }
}

/// This node has stopped before it found a leader.
pub(crate) fn stopped(group: GroupId) -> v1::Error {
    let says = "the node has stopped, and nothing was done: ask another node";
    v1::Error { group_id: group.number(), ..v1::Error::new(v1::ErrorReason::ShuttingDown, says) }
}

pub(crate) fn revision_of(answer: &Answer) -> Option<tollgate_types::Revision> {
    match answer {
        Answer::Replied { revision, .. }
        | Answer::Resolved { revision, .. }
        | Answer::Busy { revision, .. }
        | Answer::Renewed { revision, .. } => Some(*revision),
        _ => None,
    }
}
