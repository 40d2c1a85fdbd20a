//! A session stream: operations in, results out, many in a frame.
//!
//! The fast path. At the leader an operation goes from its frame straight into the driver's inbox, together with the
//! other operations of the frame, and the results of a turn leave in one frame. Elsewhere it is forwarded. Invariant:
//! each operation has one final result, unless the stream ends first; its waiters live on, and the client repeats its
//! operations with their seqs. The operations that a session has under way are limited, and so are the results for a
//! client that does not read them, here (`send_backlog`) and on their way (`frames`). Leases that shall end with their
//! client's connection end when the last session that kept them alive on this node is gone. Not here: the meaning of an
//! operation (`operation`).

mod frames;
mod mailbox;
mod response_writer;
mod send_backlog;

pub(crate) use frames::{FrameSender, FrameStream, Gone, frames as frames_queue};
pub(crate) use send_backlog::{Account, Charge, OpenAccount, SendBacklog};

use crate::grpc::{FRAME_LIMIT, undelivered};
use mailbox::{Asking, Awaiting, Input, Mailbox, NotHome};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tollgate_gateway::operation::{self, Kind, Prepared};
use tollgate_gateway::{OnQueue, Purpose, RequestInfo, Router, is_not_home, is_over_groups};
use tollgate_node::planted::{Bug, planted};
use tollgate_node::{Ask, Caller, Consistency, Sight, Sink};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_replica::{CallerKey, ReadError};
use tollgate_types::{Address, GroupId, GroupMap, LeaseId};
use tonic::Streaming;

/// Maximum number of leases that are revoked concurrently when their session is gone.
const REVOKES_AT_ONCE: usize = 64;

/// Returns the error for the session with the most unread bytes when the limit was exceeded.
fn backlog_too_large(bytes_max: usize) -> v1::Error {
    let says = format!(
        "this client does not read its results, and all streams of the node together have more than {bytes_max} bytes \
         unread: open a session anew, read what it answers, and ask again with the same seqs"
    );
    v1::Error { may_have_happened: true, limit_value: bytes_max as u64, ..operation::overloaded(says) }
}

/// Returns the error for an operation longer than the limit for clients. Forwarded it would grow, and end the stream
/// between nodes that the operations of all other clients use.
fn too_long(length: usize, bytes_max: usize) -> v1::Error {
    let says = format!(
        "the operation has {length} bytes, and at most {bytes_max} are taken (server.frame_bytes_max): nothing was \
         done; do it in smaller steps"
    );
    v1::Error::limit_exceeded(FRAME_LIMIT, bytes_max, says)
}

/// Serves a session until either side ends it. `purpose`: set for a stream of another node, which has looked for the
/// leader already. `bytes_max`: maximum length of a client's operation.
pub(crate) async fn serve(
    router: Router,
    from: Address,
    purpose: Option<Purpose>,
    bytes_max: usize,
    incoming: Streaming<v1::SessionRequest>,
    (outgoing, opened): (FrameSender, OpenAccount),
) {
    let forwarded = purpose.is_some();
    let mailbox = Mailbox::new(router.fresh_stream(), forwarded, opened.account().charge(0), from.clone());
    let header = router.header(GroupId::new(0), None);
    let hello = v1::SessionResponse { results: Vec::new(), header: header.at(header.revision) };
    if outgoing.send(hello, Charge::default()).await.is_err() {
        return;
    }
    let (own, seen) = (Arc::clone(&mailbox), from.clone());
    let intake = Intake { router: router.clone(), from: seen, purpose, bytes_max, mailbox: own };
    tokio::select! {
        undelivered = intake.run(incoming) => {
            if let Some(error) = undelivered {
                outgoing.cut(error.into());
            }
        }
        () = response_writer::write(&intake, &outgoing, opened.account()) => {}
        // The clients of a removed node go on at another node, and repeat there the operations that were not answered
        // here.
        () = router.removed() => outgoing.cut(router.closed().unwrap_or_default().into()),
        () = drained(&router, &mailbox) => {}
        () = opened.until_cut() => {
            tracing::warn!(bytes = opened.account().bytes(), "a session whose client does not read was ended");
            outgoing.cut(backlog_too_large(opened.bytes_max()).into());
        }
    }
    let renewing = mailbox.close();
    drop(outgoing);
    // Callers on this stream get no more answers. Callers of another node that stand by may use another stream.
    router.tell(Ask::StreamLost { stream: mailbox.stream });
    disconnected(&router, &mailbox, &renewing).await;
}

/// Lets the session of a stopping gateway end once its operations under way are answered. Its client goes on elsewhere.
async fn drained(router: &Router, mailbox: &Mailbox) {
    router.until_draining().await;
    mailbox.drain();
    std::future::pending::<()>().await;
}

/// Data that is the same for all operations of a frame, looked up once.
struct Arrival {
    at: Instant,
    map: Option<Arc<GroupMap>>,
    /// The group that was looked up last, and whether this node serves it.
    served: Option<(GroupId, bool)>,
}

impl Arrival {
    fn now(router: &Router) -> Arrival {
        Arrival { at: Instant::now(), map: router.known_map(), served: None }
    }

    fn is_served(&mut self, router: &Router, group: GroupId) -> bool {
        match self.served {
            Some((of, serves)) if of == group => serves,
            _ => self.served.insert((group, router.serves(group))).1,
        }
    }
}

/// True if an operation is certainly no longer than this; for most operations a quick estimate is enough.
fn is_short(op: &Op, bytes_max: usize) -> bool {
    /// Upper bound for the tags and lengths of all fields, and for the values of the fields that are not counted.
    const REST: usize = 256;
    let request = |request: &Option<v1::Request>| 32 * request.as_ref().map_or(0, |it| it.acked.len());
    let bytes = match op {
        Op::Lock(it) | Op::TryLock(it) if it.names.is_empty() => {
            it.name.len()
                + it.owner.len()
                + it.metadata.len()
                + it.metadata_bytes.len()
                + request(&it.request)
        }
        Op::Unlock(it) if it.names.is_empty() => it.name.len() + it.owner.len() + request(&it.request),
        Op::LeaseKeepAlive(it) => 32 * it.acked.len(),
        _ => return false,
    };
    bytes + REST <= bytes_max
}

/// Accepts the frames of a session.
#[derive(Clone)]
struct Intake {
    router: Router,
    from: Address,
    purpose: Option<Purpose>,
    bytes_max: usize,
    mailbox: Arc<Mailbox>,
}

impl Intake {
    /// Reads frames until the stream breaks; returns an error if the cause is a message of the client. A client that
    /// only closes its sending side still gets its answers.
    async fn run(&self, mut incoming: Streaming<v1::SessionRequest>) -> Option<v1::Error> {
        loop {
            self.mailbox.until_read().await;
            let Some(frame) = incoming.next().await else { break };
            match frame {
                Ok(frame) => self.take(frame),
                Err(status) => {
                    tracing::debug!(%status, "a session ended");
                    return undelivered(&status, self.bytes_max);
                }
            }
        }
        self.mailbox.end_input();
        std::future::pending().await
    }

    fn take(&self, frame: v1::SessionRequest) {
        let mut arrival = Arrival::now(&self.router);
        let mut asks = Vec::with_capacity(frame.operations.len());
        for v1::Operation { id, op, client_address } in frame.operations {
            let Some(op) = op else {
                // Without an operation there is no kind to count it under.
                let bad = tollgate_proto::BadField::new("op", "no operation is set: set one");
                self.mailbox.refuse(id, bad.into());
                continue;
            };
            // Another node sends the address of its client, if that matters.
            let told = self.purpose.map(|_| Address::new(client_address).unwrap_or(Address::NONE));
            if let Some(ask) = self.operation(id, op, told.as_ref().unwrap_or(&self.from), 0, &mut arrival) {
                asks.push((id, ask));
            }
        }
        // A gateway has no node here to ask.
        if let Some(node) = self.router.node().filter(|_| !asks.is_empty())
            && let Err(refused) = node.ask_all(Arc::clone(&self.mailbox) as Arc<dyn Sink>, asks)
        {
            let error = operation::error_of_not_answered(refused.why.into(), GroupId::new(0));
            for id in refused.operations {
                let asked = self.mailbox.lock().under_way.get(&id).map(|under_way| under_way.asked);
                if let Some(asked) = asked {
                    self.count_refusal(asked, &error);
                }
                self.mailbox.result(&self.router, id, OpResult::Error(error.clone()));
            }
        }
        frame.hung_up.into_iter().for_each(|id| self.hung_up(id));
    }

    /// Refuses an operation that is not under way.
    fn refuse(&self, id: u64, asked: RequestInfo, error: v1::Error) {
        self.count_refusal(asked, &error);
        self.mailbox.refuse(id, error);
    }

    /// Counts an operation that was refused before the place where operations are counted. Another node counts its own.
    fn count_refusal(&self, asked: RequestInfo, error: &v1::Error) {
        if self.purpose.is_none() {
            self.router.measure(asked, &OpResult::Error(error.clone()), Duration::ZERO);
        }
    }

    /// Called when nobody wants the result of an operation any more.
    fn hung_up(&self, id: u64) {
        let mut inner = self.mailbox.lock();
        let Some(under_way) = inner.under_way.get_mut(&id) else { return };
        if std::mem::replace(&mut under_way.hung_up, true) {
            return;
        }
        if under_way.is_forwarded() {
            inner.under_way.remove(&id);
        } else if !planted(Bug::HangUpUnnoticed) {
            // The operation is still answered, and the answer says how it went to anyone who still listens.
            self.router.tell(Ask::HangUp(CallerKey { stream: self.mailbox.stream, call: id }));
        }
    }

    /// Returns the request to this node for an operation; none if the operation goes another way. `introduced`: number
    /// of times that the lease was introduced to the group for this operation.
    fn operation(
        &self,
        id: u64,
        op: Op,
        from: &Address,
        introduced: u32,
        arrival: &mut Arrival,
    ) -> Option<Ask> {
        let measured = Asking::new(&op, arrival.at);
        if self.router.node().is_none() && self.mailbox.lock().input == Input::Refused {
            self.refuse(id, measured.asked, draining());
            return None;
        }
        if self.purpose.is_none() && !is_short(&op, self.bytes_max) {
            let length = op.encoded_len();
            if length > self.bytes_max {
                self.refuse(id, measured.asked, too_long(length, self.bytes_max));
                return None;
            }
        }
        // A gateway that has not seen the cluster yet does not know the operation's group.
        let Some(map) = arrival.map.clone() else { return self.hand_over(id, op, measured) };
        if self.purpose.is_none() && is_over_groups(&op, &map) {
            return self.hand_over(id, op, measured);
        }
        let mut prepared = match operation::prepare(&op, &map, from) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.refuse(id, measured.asked, error);
                return None;
            }
        };
        self.purpose.iter().for_each(|purpose| purpose.apply(&mut prepared, from));
        if self.purpose.is_none() && !arrival.is_served(&self.router, prepared.group) {
            return self.forward_prepared(id, op, prepared, measured);
        }
        let Prepared { group, kind, context, .. } = prepared;
        let not_home =
            is_not_home(&context, &map).then(|| Box::new(NotHome { op, from: from.clone(), introduced }));
        // Another node may have sent an earlier attempt, which only a seq would reveal.
        let may_be_fast = self.purpose.is_none() || context.seq().is_some();
        let begun = self.router.admit(measured.asked).and_then(|permit| {
            self.mailbox.begin(id, group, measured, Some(context), not_home, Some(permit))
        });
        if let Err(error) = begun {
            self.refuse(id, measured.asked, error);
            return None;
        }
        Some(match kind {
            Kind::Command { command, fast } => {
                Ask::Command { group, command: Box::new(command), fast: fast && may_be_fast }
            }
            Kind::KeepAlive(renewal) => Ask::KeepAlive { group, renewal },
            Kind::Read { consistency, query } => {
                let mailbox = Arc::clone(&self.mailbox);
                let look = move |sight: Result<Sight<'_>, ReadError>| {
                    mailbox.seen(id, sight.map(|sight| query.look(sight)));
                };
                Ask::Read { group, consistency, look: Box::new(look) }
            }
        })
    }

    /// Hands over an operation whose group is unknown, or that concerns several groups. Nothing is left to ask of this
    /// node.
    fn hand_over(&self, id: u64, op: Op, measured: Asking) -> Option<Ask> {
        let waits = matches!(op, Op::Lock(_) | Op::TryLock(_) | Op::Convert(_) | Op::Campaign(_));
        // Without its session, a range over groups would gather data that nobody reads.
        let goes_with_session = waits || measured.renews.is_some() || matches!(op, Op::Range(_));
        match self.mailbox.begin(id, GroupId::MAP, measured, None, None, None) {
            Ok(()) => {
                let (router, from, on_queue) = (self.router.clone(), self.from.clone(), self.on_queue(id));
                let carried_out = async move { router.execute_for_session(op, &from, on_queue).await };
                self.forward(id, carried_out, goes_with_session);
            }
            Err(error) => self.refuse(id, measured.asked, error),
        }
        None
    }

    /// Has an operation executed by the leader of its group, where it is admitted. Nothing is left to ask of this node.
    fn forward_prepared(&self, id: u64, op: Op, prepared: Prepared, measured: Asking) -> Option<Ask> {
        let goes_with_session = prepared.context.may_wait() || measured.renews.is_some();
        match self.mailbox.begin(id, prepared.group, measured, None, None, None) {
            Ok(()) => {
                let (router, from, on_queue) = (self.router.clone(), self.from.clone(), self.on_queue(id));
                let carried_out =
                    async move { router.execute_prepared_for_session(op, prepared, &from, on_queue).await };
                self.forward(id, carried_out, goes_with_session);
            }
            Err(error) => self.refuse(id, measured.asked, error),
        }
        None
    }

    /// Sends the client its position when a forwarded operation joins a queue at another node.
    fn on_queue(&self, id: u64) -> OnQueue {
        // An operation may outlive its session.
        let mailbox = Arc::downgrade(&self.mailbox);
        OnQueue::new(move |queued| {
            if let Some(mailbox) = mailbox.upgrade() {
                mailbox.queued(id, queued);
            }
        })
    }

    /// Introduces the lease of an operation to the operation's group, and repeats the operation.
    async fn introduce(self, id: u64, lease: LeaseId, group: GroupId) {
        let introduced = self.router.introduce(lease, group).await;
        let taken = self.mailbox.lock().under_way.remove(&id);
        // The session may be over, or nobody wants the result any more.
        let Some((not_home, hung_up)) = taken.and_then(|it| Some((it.not_home?, it.hung_up))) else { return };
        let NotHome { op, from, introduced: times } = *not_home;
        let error = match introduced {
            Ok(()) if hung_up => operation::hung_up(group),
            Ok(()) => {
                let mut arrival = Arrival::now(&self.router);
                let Some(ask) = self.operation(id, op, &from, times + 1, &mut arrival) else { return };
                let caller = Caller::Of(Arc::clone(&self.mailbox) as Arc<dyn Sink>, id);
                match self.router.node().map_or(Ok(()), |node| node.ask(caller, ask)) {
                    Ok(()) => return,
                    Err(error) => operation::error_of_not_answered(error.into(), group),
                }
            }
            Err(error) => error,
        };
        self.mailbox.result(&self.router, id, OpResult::Error(error));
    }

    /// Has an operation executed elsewhere, and completes it even if its client goes, unless it has no purpose without
    /// its client (`goes_with_session`).
    fn forward(
        &self,
        id: u64,
        carried_out: impl Future<Output = OpResult> + Send + 'static,
        goes_with_session: bool,
    ) {
        let (router, mailbox) = (self.router.clone(), Arc::clone(&self.mailbox));
        let task = tokio::spawn(async move { mailbox.result(&router, id, carried_out.await) });
        let mut inner = self.mailbox.lock();
        if let Some(under_way) = inner.under_way.get_mut(&id).filter(|_| goes_with_session) {
            under_way.awaiting = Some(Awaiting(task.abort_handle()));
            if inner.input == Input::Refused {
                self.mailbox.filled.notify_one();
            }
        }
    }
}

/// Ends the leases that are to end with their client's connection, unless another session keeps them. A keepalive that
/// was under way may have arrived late, and makes a lease look as if it had been kept alive from here last: leases in
/// `renewing` expire by themselves.
async fn disconnected(router: &Router, mailbox: &Mailbox, renewing: &BTreeSet<LeaseId>) {
    let leases = mailbox.lock().leases.take().unwrap_or_default();
    let left = leases.into_iter().filter_map(|(lease, known)| {
        let from = router.lease_sessions().remove(lease)?;
        (!renewing.contains(&lease)).then_some((lease, known, from))
    });
    let left: Vec<(LeaseId, bool, Address)> = left.collect();
    // Clients that a stopping node cuts off are still there, and go on elsewhere.
    if router.is_stopping() {
        return;
    }
    let mut ends = Vec::new();
    let mut unknown: BTreeMap<GroupId, Vec<(LeaseId, Address)>> = BTreeMap::new();
    for (lease, known, from) in left {
        if known {
            ends.push((lease, from));
        } else {
            unknown.entry(router.map().group_of(lease.slot())).or_default().push((lease, from));
        }
    }
    for (group, leases) in unknown {
        if router.node().is_none() {
            // To ask which leases end would take a call for each as well; the leader leaves alone those that do not
            // end.
            ends.extend(leases);
            continue;
        }
        let look = move |sight: Sight<'_>| {
            let ends =
                |lease: LeaseId| sight.state.lease(lease).is_some_and(|view| view.revoke_on_disconnect);
            leases.into_iter().filter(|(lease, _)| ends(*lease)).collect::<Vec<_>>()
        };
        if let Ok((_, found)) = router.look(group, Consistency::Stale, look).await {
            ends.extend(found);
        }
    }
    let mut revokes = JoinSet::new();
    for (lease, from) in ends {
        if revokes.len() >= REVOKES_AT_ONCE {
            revokes.join_next().await;
        }
        let router = router.clone();
        revokes.spawn(async move { router.revoke_disconnected(lease, &from).await });
    }
    // Dropping the set would abort its tasks.
    revokes.join_all().await;
}

/// Returns the error for an operation that arrives while its gateway stops.
pub(crate) fn draining() -> v1::Error {
    let says = "this gateway is stopping, and nothing was done: ask another";
    v1::Error::new(v1::ErrorReason::ShuttingDown, says)
}
