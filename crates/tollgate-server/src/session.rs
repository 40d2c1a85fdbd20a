//! A session stream: operations in, results out, many in a frame.
//!
//! The fast path. At the leader an operation goes from its frame straight into the driver's inbox, together with the
//! others of the frame, and the results of a turn leave in one frame. Elsewhere it is forwarded. Invariant: each
//! operation has one final result, unless the stream ends first; its waiters live on, and are asked for again with
//! their seqs. What a session has under way has a limit, and so has what waits for a client that does not
//! read it, here (`unread`) and on its way (`frames`). Leases that shall end with their client's connection end when
//! the last session that kept them alive on this node is gone. Not here: what an operation means (`operation`).

mod frames;
mod unread;

pub(crate) use frames::{FrameSender, FrameStream, frames as frames_queue};
pub(crate) use unread::{OpenAccount, Unread};

use crate::link::{ANSWER_BYTES_MAX, Purpose};
use crate::metrics::Asked;
use crate::operation::{self, Context, Kind, Prepared, Seen};
use crate::router::{Router, is_incomplete, stopped};
use prost::Message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tollgate_core::{OpResult as StepResult, Reply};
use tollgate_node::planted::{Bug, planted};
use tollgate_node::{Answer, Ask, Caller, Consistency, Sight, Sink};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{Address, GroupId, LeaseId, Revision};
use tonic::Streaming;
use unread::{Account, Charge};

/// Operations of one session that have no final result yet, waits in queues included.
const UNDER_WAY_MAX: usize = 100_000;

/// Results that wait for a client that does not read; past that, nothing more is taken from it.
const RESULTS_WAITING_MAX: usize = 10_000;

/// Likewise, about how many bytes of them.
const BYTES_WAITING_MAX: usize = 16 << 20;

/// What of them is worded at once; the rest waits in the shorter form that the driver gave it.
const WORDED_BYTES_MAX: usize = 1 << 20;

/// About what an answer takes that carries no values; such a small one is told even past the limit.
const SMALL_BYTES: usize = 256;

/// Results in one frame at most, and their bytes; a longer one goes alone.
const FRAME_RESULTS_MAX: usize = 4_096;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// The longest result that a client gets: gRPC clients take messages of 4 MiB unless told otherwise, and a longer one
/// would end the stream with all that is under way on it.
const RESULT_BYTES_MAX: usize = 3_584 << 10;

/// What a read sees is not worded if it is far longer than that: about so long, as far as that can be told before.
const SEEN_BYTES_MAX: usize = 8 * RESULT_BYTES_MAX;

/// Leases of one session that are remembered, to end with it; more end by themselves.
const LEASES_MAX: usize = 100_000;

/// Leases that are ended at once when their session is gone.
const REVOKES_AT_ONCE: usize = 64;

/// What a session's client is told next, and what it waits for.
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    filled: Notify,
    emptied: Notify,
    /// Its number on this node: two sessions may number their operations alike.
    stream: u64,
}

#[derive(Default)]
struct Inner {
    /// Answers of the driver, not worded yet.
    answers: VecDeque<(u64, Answer)>,
    /// What reads saw, not worded yet.
    seen: VecDeque<(u64, Result<Seen, ReadError>)>,
    /// Results that are.
    results: Vec<v1::OperationResult>,
    /// About how long all of these are.
    unread: Charge,
    /// Nobody will be told anything any more.
    is_closed: bool,
    under_way: BTreeMap<u64, UnderWay>,
    /// Answers that are worded but for what another read has to tell.
    completing: usize,
    /// Whether a flush is still to come.
    touched: bool,
    /// The client asks for nothing more.
    input_ended: bool,
    /// Leases that this session keeps alive, and whether they are known to end with it. None once it has ended, and for
    /// a stream of another node, whose own sessions have the leases.
    leases: Option<BTreeMap<LeaseId, bool>>,
}

impl Inner {
    fn is_full(&self) -> bool {
        let count = self.answers.len() + self.seen.len() + self.results.len();
        count >= RESULTS_WAITING_MAX || self.unread.bytes() >= BYTES_WAITING_MAX
    }

    /// Whether something of this length is too much for a client that does not read. One that does can ask for it.
    fn has_no_room_for(&self, bytes: usize) -> bool {
        bytes > SMALL_BYTES && self.unread.bytes() + bytes > BYTES_WAITING_MAX.max(bytes)
    }

    /// Whether the client will be told nothing more.
    fn is_over(&self) -> bool {
        self.input_ended
            && self.under_way.is_empty()
            && self.completing == 0
            && self.answers.is_empty()
            && self.seen.is_empty()
            && self.results.is_empty()
    }

    fn push(&mut self, id: u64, result: OpResult) {
        if !self.is_closed {
            let result = v1::OperationResult { id, result: Some(result) };
            self.unread.add(result.encoded_len());
            self.results.push(result);
        }
    }

    /// Remembers a lease that the answer says lives on, and forgets one that it says has ended. `ends`: whether a lease
    /// that was granted ends with the session.
    fn note_lease(&mut self, router: &Router, ends: bool, result: &OpResult) {
        let Some(leases) = &mut self.leases else { return };
        let (lease, ends) = match result {
            OpResult::LeaseGrant(granted) if ends => (granted.id, Some(true)),
            OpResult::LeaseKeepAlive(kept) => (kept.id, (kept.ttl_ms > 0).then_some(false)),
            _ => return,
        };
        let Ok(lease) = LeaseId::new(lease) else { return };
        match ends {
            Some(ends) => {
                if let Some(known) = leases.get_mut(&lease) {
                    *known |= ends;
                } else if leases.len() < LEASES_MAX {
                    leases.insert(lease, ends);
                    router.keep(lease);
                }
            }
            None => {
                if leases.remove(&lease).is_some() {
                    router.unkeep(lease);
                }
            }
        }
    }
}

/// An operation that has no final result yet.
struct UnderWay {
    group: GroupId,
    /// None for one that is forwarded: it comes back as a result.
    context: Option<Context>,
    asked: Asked,
    /// Whether it grants a lease that ends with the session.
    ends: bool,
    began: Instant,
    queued: Option<(Revision, u64)>,
}

impl Mailbox {
    fn new(stream: u64, forwarded: bool, unread: Charge) -> Arc<Mailbox> {
        let leases = (!forwarded).then(BTreeMap::new);
        let inner = Mutex::new(Inner { unread, leases, ..Inner::default() });
        Arc::new(Mailbox { inner, filled: Notify::new(), emptied: Notify::new(), stream })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics with it")
    }

    /// Waits while the client does not read what it was told.
    async fn until_read(&self) {
        while self.lock().is_full() {
            self.emptied.notified().await;
        }
    }

    /// The result of an operation that is under way, and did not come from the driver as an answer.
    fn result(&self, router: &Router, id: u64, result: OpResult) {
        let mut inner = self.lock();
        let ends = inner.under_way.remove(&id).is_some_and(|under_way| under_way.ends);
        inner.note_lease(router, ends, &result);
        let length = result.encoded_len();
        let result = if inner.has_no_room_for(length) { OpResult::Error(unread(&result)) } else { result };
        inner.push(id, result);
        drop(inner);
        self.filled.notify_one();
    }

    /// The result of an operation that never was under way: one with the same id may be.
    fn refuse(&self, id: u64, error: v1::Error) {
        self.lock().push(id, OpResult::Error(error));
        self.filled.notify_one();
    }

    /// What a read saw. On the driver's thread: put away, and worded elsewhere.
    fn seen(&self, id: u64, seen: Result<Seen, ReadError>) {
        let mut inner = self.lock();
        let length = length_of_seen(&seen);
        if inner.is_closed {
            return;
        } else if length > SEEN_BYTES_MAX || inner.has_no_room_for(length) {
            inner.under_way.remove(&id);
            let error = if length > SEEN_BYTES_MAX {
                too_long(length, RESULT_BYTES_MAX)
            } else {
                unread_error(false)
            };
            inner.push(id, OpResult::Error(error));
        } else {
            inner.unread.add(length);
            inner.seen.push_back((id, seen));
        }
        drop(inner);
        self.filled.notify_one();
    }

    /// An answer is complete that was not.
    fn completed(&self, id: u64, result: OpResult) {
        let mut inner = self.lock();
        inner.completing -= 1;
        inner.push(id, result);
        drop(inner);
        self.filled.notify_one();
    }

    /// Nobody will be told anything any more: forgets what waits, and what comes late.
    fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.answers = VecDeque::new();
        inner.seen = VecDeque::new();
        inner.results = Vec::new();
        inner.under_way = BTreeMap::new();
        inner.unread = Charge::default();
    }

    /// The client asks for nothing more.
    fn end_input(&self) {
        self.lock().input_ended = true;
        self.filled.notify_one();
    }

    /// Notes an operation as under way; refuses what is too much, or named twice.
    fn begin(
        &self,
        id: u64,
        group: GroupId,
        (asked, ends): (Asked, bool),
        context: Option<Context>,
    ) -> Result<(), v1::Error> {
        let mut inner = self.lock();
        if inner.under_way.len() >= UNDER_WAY_MAX {
            let says =
                format!("a session has at most {UNDER_WAY_MAX} operations under way: wait for answers");
            return Err(v1::Error { group_id: group.number(), ..operation::overloaded(says) });
        }
        if inner.under_way.contains_key(&id) {
            let says = "an operation with this id is under way: number them without repeats";
            return Err(tollgate_proto::BadField::new("id", says).into());
        }
        let (began, queued) = (Instant::now(), None);
        inner.under_way.insert(id, UnderWay { group, context, asked, ends, began, queued });
        Ok(())
    }
}

impl Sink for Mailbox {
    fn answer(&self, operation: u64, answer: Answer) -> bool {
        let mut inner = self.lock();
        let mixed_up = planted(Bug::AnswersMixedUp).then(|| inner.under_way.keys().max().copied()).flatten();
        let operation = mixed_up.unwrap_or(operation);
        if inner.is_closed {
            return false;
        }
        inner.unread.add(length_of_answer(&answer));
        inner.answers.push_back((operation, answer));
        !std::mem::replace(&mut inner.touched, true)
    }

    fn stream(&self) -> u64 {
        self.stream
    }

    fn flush(&self) {
        self.lock().touched = false;
        self.filled.notify_one();
    }
}

fn length_of_seen(seen: &Result<Seen, ReadError>) -> usize {
    seen.as_ref().map_or(SMALL_BYTES, Seen::length)
}

/// About how much the answer makes a client read.
fn length_of_answer(answer: &Answer) -> usize {
    let Answer::Replied { reply: Reply::TxnDone { results, .. }, .. } = answer else { return SMALL_BYTES };
    let of_step = |step: &StepResult| match step {
        StepResult::Got { registers, .. } => {
            registers.iter().map(|register| register.key.len() + register.value.len() + 64).sum()
        }
        StepResult::Put | StepResult::Deleted(_) => 16,
    };
    SMALL_BYTES + results.iter().map(of_step).sum::<usize>()
}

/// What to tell instead of a result that is too much for a client that does not read.
fn unread(result: &OpResult) -> v1::Error {
    unread_error(!has_only_looked(result))
}

fn unread_error(may_have_happened: bool) -> v1::Error {
    let says = format!("{BYTES_WAITING_MAX} bytes of results are unread: read them before asking for more");
    let error = operation::overloaded(says);
    v1::Error { may_have_happened, limit_value: BYTES_WAITING_MAX as u64, ..error }
}

/// Why a session ended that had more unread than all others when it was too much.
fn too_much_unread(bytes_max: usize) -> v1::Error {
    let says = format!(
        "this client does not read its results, and all sessions of the node together have more than {bytes_max} bytes \
         unread: open a session anew, read what it answers, and ask again with the same seqs"
    );
    v1::Error { may_have_happened: true, limit_value: bytes_max as u64, ..operation::overloaded(says) }
}

/// Serves a session until either side ends it. `purpose`: of a stream of another node, which has looked for the leader
/// already.
pub(crate) async fn serve(
    router: Router,
    from: Address,
    purpose: Option<Purpose>,
    incoming: Streaming<v1::SessionRequest>,
    (outgoing, opened): (FrameSender, OpenAccount),
) {
    let _open = router.metrics().session();
    let forwarded = purpose.is_some();
    let mailbox = Mailbox::new(router.node().fresh_stream(), forwarded, opened.account().charge(0));
    let header = router.header(GroupId::new(0), None);
    let hello = v1::SessionResponse { results: Vec::new(), header: header.at(header.revision) };
    if outgoing.send(hello, Charge::default()).await.is_err() {
        return;
    }
    let intake = Intake { router: router.clone(), from, purpose, mailbox: Arc::clone(&mailbox) };
    tokio::select! {
        () = intake.run(incoming) => {}
        () = write(&router, &mailbox, forwarded, &outgoing, opened.account()) => {}
        () = opened.until_cut() => {
            tracing::warn!(bytes = opened.account().bytes(), "a session whose client does not read was ended");
            outgoing.cut(too_much_unread(opened.bytes_max()).into());
        }
    }
    mailbox.close();
    drop(outgoing);
    disconnected(&router, &mailbox).await;
}

/// Takes frames in.
struct Intake {
    router: Router,
    from: Address,
    purpose: Option<Purpose>,
    mailbox: Arc<Mailbox>,
}

impl Intake {
    /// Ends when the stream breaks. A client that only asks for nothing more still wants its answers.
    async fn run(&self, mut incoming: Streaming<v1::SessionRequest>) {
        loop {
            self.mailbox.until_read().await;
            let Some(frame) = incoming.next().await else { break };
            match frame {
                Ok(frame) => self.take(frame),
                Err(status) => {
                    tracing::debug!(%status, "a session ended");
                    return;
                }
            }
        }
        self.mailbox.end_input();
        std::future::pending::<()>().await;
    }

    fn take(&self, frame: v1::SessionRequest) {
        let mut asks = Vec::with_capacity(frame.operations.len());
        for v1::Operation { id, op } in frame.operations {
            let Some(op) = op else {
                let bad = tollgate_proto::BadField::new("op", "no operation is set: set one");
                self.mailbox.refuse(id, bad.into());
                continue;
            };
            if let Some(ask) = self.operation(id, op) {
                asks.push((Caller::Of(Arc::clone(&self.mailbox) as Arc<dyn Sink>, id), ask));
            }
        }
        let ids: Vec<u64> = asks.iter().map(|(caller, _)| operation_of(caller)).collect();
        if !asks.is_empty() && self.router.node().ask_all(asks).is_err() {
            let error = if self.router.is_stopping() {
                stopped(GroupId::new(0))
            } else {
                operation::overloaded("the node has too much to do: wait a little and try again")
            };
            for id in ids {
                self.mailbox.result(&self.router, id, OpResult::Error(error.clone()));
            }
        }
    }

    /// What to ask of this node for an operation; none if it goes another way.
    fn operation(&self, id: u64, op: Op) -> Option<Ask> {
        let measured = (Asked::from(&op), matches!(&op, Op::LeaseGrant(grant) if grant.revoke_on_disconnect));
        // A node that leads all groups has nothing to forward, and keeps no copy.
        let spare = (self.purpose.is_none() && !self.router.leads_all()).then(|| op.clone());
        let mut prepared = match operation::prepare(op, self.router.groups(), &self.from) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.mailbox.refuse(id, error);
                return None;
            }
        };
        self.purpose.iter().for_each(|purpose| purpose.apply(&mut prepared));
        let Prepared { group, kind, context } = prepared;
        let forward = spare.filter(|_| !self.router.serves(group));
        // Another node may have sent an attempt before this one, which a seq would tell.
        let may_be_fast = self.purpose.is_none() || context.seq().is_some();
        let context = forward.is_none().then_some(context);
        if let Err(error) = self.mailbox.begin(id, group, measured, context) {
            self.mailbox.refuse(id, error);
            return None;
        }
        if let Some(op) = forward {
            self.forward(id, op);
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

    /// Has the leader carry it out.
    fn forward(&self, id: u64, op: Op) {
        let (router, from, mailbox) = (self.router.clone(), self.from.clone(), Arc::clone(&self.mailbox));
        tokio::spawn(async move {
            let result = router.execute_for_session(op, &from).await;
            mailbox.result(&router, id, result);
        });
    }
}

/// Ends the leases that their clients wanted to end with the connection, unless another session has them.
async fn disconnected(router: &Router, mailbox: &Mailbox) {
    let leases = mailbox.lock().leases.take().unwrap_or_default();
    let left: Vec<_> = leases.into_iter().filter(|(lease, _)| router.unkeep(*lease)).collect();
    // Clients that a stopping node cuts off are still there, and go on elsewhere.
    if router.is_stopping() {
        return;
    }
    let mut ends = Vec::new();
    let mut unknown: BTreeMap<GroupId, Vec<LeaseId>> = BTreeMap::new();
    for (lease, known) in left {
        if known {
            ends.push(lease);
        } else {
            unknown.entry(operation::group_of(lease.slot(), router.groups())).or_default().push(lease);
        }
    }
    for (group, leases) in unknown {
        let look = move |sight: Sight<'_>| {
            let ends =
                |lease: &LeaseId| sight.state.lease(*lease).is_some_and(|view| view.revoke_on_disconnect);
            leases.into_iter().filter(ends).collect::<Vec<LeaseId>>()
        };
        if let Ok((_, found)) = router.look(group, Consistency::Stale, look).await {
            ends.extend(found);
        }
    }
    let mut revokes = JoinSet::new();
    for lease in ends {
        if revokes.len() >= REVOKES_AT_ONCE {
            revokes.join_next().await;
        }
        let router = router.clone();
        revokes.spawn(async move { router.revoke_disconnected(lease).await });
    }
    // Dropped, the set would take its tasks with it.
    revokes.join_all().await;
}

fn operation_of(caller: &Caller) -> u64 {
    match caller {
        Caller::Of(_, operation) => *operation,
        Caller::Nobody => 0,
    }
}

/// Words answers, and sends frames as long as somebody reads them, until there is nothing more to tell.
async fn write(
    router: &Router,
    mailbox: &Arc<Mailbox>,
    forwarded: bool,
    outgoing: &FrameSender,
    account: &Arc<Account>,
) {
    loop {
        let (results, _gathered) = gather(router, mailbox, forwarded);
        if results.is_empty() {
            if mailbox.lock().is_over() {
                return;
            }
            tokio::select! {
                () = mailbox.filled.notified() => continue,
                () = outgoing.closed() => return,
            }
        }
        let longest = if forwarded { ANSWER_BYTES_MAX - 1_024 } else { RESULT_BYTES_MAX };
        for (bytes, results) in frames(results, longest) {
            let frame = v1::SessionResponse { results, header: None };
            if outgoing.send(frame, account.charge(bytes)).await.is_err() {
                return;
            }
        }
    }
}

/// Results as they go into frames, and how long those are. One that is longer than `longest` is told as an error.
fn frames(
    results: Vec<v1::OperationResult>,
    longest: usize,
) -> impl Iterator<Item = (usize, Vec<v1::OperationResult>)> {
    let mut results = results.into_iter().map(move |result| fit(result, longest)).peekable();
    std::iter::from_fn(move || {
        let (mut frame, mut bytes) = (Vec::new(), 0);
        while let Some((length, result)) = results.next_if(|(length, _)| {
            frame.is_empty() || (frame.len() < FRAME_RESULTS_MAX && bytes + length <= FRAME_BYTES_MAX)
        }) {
            bytes += length;
            frame.push(result);
        }
        (!frame.is_empty()).then_some((bytes, frame))
    })
}

/// A result and its length, or the error of one that is too long.
fn fit(result: v1::OperationResult, longest: usize) -> (usize, v1::OperationResult) {
    let length = result.encoded_len();
    if length <= longest {
        return (length, result);
    }
    let may_have_happened = !result.result.as_ref().is_some_and(has_only_looked);
    let error = v1::Error { may_have_happened, ..too_long(length, longest) };
    let result = v1::OperationResult { id: result.id, result: Some(OpResult::Error(error)) };
    (result.encoded_len(), result)
}

fn too_long(length: usize, longest: usize) -> v1::Error {
    let says =
        format!("the answer has {length} bytes, and a session takes at most {longest}: ask for less at once");
    v1::Error { limit_value: longest as u64, ..v1::Error::new(v1::ErrorReason::LimitExceeded, says) }
}

fn has_only_looked(result: &OpResult) -> bool {
    matches!(
        result,
        OpResult::Get(_) | OpResult::Range(_) | OpResult::GetLock(_) | OpResult::LeaseTimeToLive(_)
    )
}

/// What there is to tell, or the first part of it, and what that took while it waited.
fn gather(router: &Router, mailbox: &Arc<Mailbox>, forwarded: bool) -> (Vec<v1::OperationResult>, Charge) {
    let mut inner = mailbox.lock();
    let mut results = std::mem::take(&mut inner.results);
    let mut bytes = results.iter().map(Message::encoded_len).sum();
    mailbox.emptied.notify_one();
    let mut finished = Vec::new();
    while bytes < WORDED_BYTES_MAX
        && let Some((id, answer)) = inner.answers.pop_front()
    {
        bytes += length_of_answer(&answer);
        if let Answer::Queued { create_revision, position } = answer {
            if let Some(under_way) = inner.under_way.get_mut(&id) {
                under_way.queued = Some((create_revision, position));
            }
            let queued = v1::Queued { position, create_revision: create_revision.get() };
            results.push(v1::OperationResult { id, result: Some(OpResult::Queued(queued)) });
        } else if let Some(under_way) = inner.under_way.remove(&id) {
            finished.push((id, Outcome::Answered(answer), under_way));
        }
    }
    while bytes < WORDED_BYTES_MAX
        && let Some((id, seen)) = inner.seen.pop_front()
    {
        bytes += length_of_seen(&seen);
        if let Some(under_way) = inner.under_way.remove(&id) {
            finished.push((id, Outcome::Seen(seen), under_way));
        }
    }
    let gathered = inner.unread.split(bytes);
    drop(inner);
    for (id, outcome, under_way) in finished {
        let held_already = under_way.held_already(&outcome);
        let result = finish(router, outcome, &under_way);
        if !forwarded {
            // The node that forwards an operation counts it.
            router.metrics().operation(under_way.asked, &result, under_way.began.elapsed());
        }
        match (result, under_way.context) {
            (result, Some(context)) if is_incomplete(held_already, &result) => {
                mailbox.lock().completing += 1;
                tokio::spawn(complete(
                    router.clone(),
                    Arc::clone(mailbox),
                    (id, under_way.group, context, held_already),
                    result,
                ));
            }
            (result, _) => {
                if matches!(result, OpResult::LeaseGrant(_) | OpResult::LeaseKeepAlive(_)) {
                    mailbox.lock().note_lease(router, under_way.ends, &result);
                }
                results.push(v1::OperationResult { id, result: Some(result) });
            }
        }
    }
    (results, gathered)
}

/// Tells an answer once it has all that the driver's lacks.
async fn complete(
    router: Router,
    mailbox: Arc<Mailbox>,
    (id, group, context, held_already): (u64, GroupId, Context, bool),
    mut result: OpResult,
) {
    router.complete(group, &context, held_already, &mut result).await;
    mailbox.completed(id, result);
}

/// What the driver had to say to an operation.
enum Outcome {
    Answered(Answer),
    Seen(Result<Seen, ReadError>),
}

impl UnderWay {
    fn held_already(&self, outcome: &Outcome) -> bool {
        match (outcome, &self.context) {
            (Outcome::Answered(answer), Some(context)) => context.held_already(answer),
            _ => false,
        }
    }
}

fn finish(router: &Router, outcome: Outcome, under_way: &UnderWay) -> OpResult {
    let UnderWay { group, began, queued, .. } = under_way;
    let Some(context) = &under_way.context else {
        return OpResult::Error(operation::unexpected("to a forwarded operation"));
    };
    let answer = match outcome {
        Outcome::Answered(answer) => answer,
        Outcome::Seen(Ok(seen)) => {
            let header = router.header(*group, Some(seen.revision()));
            return seen.result(context, &header);
        }
        Outcome::Seen(Err(error)) => return OpResult::Error(operation::error_of_read(&error)),
    };
    if let Answer::NotDone(ProposeError::NotLeader { leader, .. }) = &answer {
        return OpResult::Error(router.not_leader(*group, *leader));
    }
    let waited_ms = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
    let waited_ms = if queued.is_some() { waited_ms } else { 0 };
    let header = router.header(*group, crate::router::revision_of(&answer));
    let result = match context.finish(answer, &header, *queued, waited_ms) {
        OpResult::Error(error) if error.leader_id != 0 => OpResult::Error(router.with_address(error)),
        result => result,
    };
    router.note(context, &result);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: u64, bytes: usize) -> v1::OperationResult {
        let register = Some(v1::Register { value: vec![7; bytes], ..Default::default() });
        let result = Some(OpResult::Get(v1::GetResponse { header: None, register }));
        v1::OperationResult { id, result }
    }

    #[test]
    fn frames_are_cut_by_bytes_and_a_result_that_is_too_long_is_an_error() {
        let lengths = [10, FRAME_BYTES_MAX, RESULT_BYTES_MAX, 10];
        let results = (1_u64..).zip(lengths).map(|(id, bytes)| result(id, bytes)).collect();
        let frames: Vec<_> = frames(results, RESULT_BYTES_MAX).collect();
        let ids: Vec<Vec<u64>> =
            frames.iter().map(|(_, frame)| frame.iter().map(|told| told.id).collect()).collect();
        assert_eq!(ids, [vec![1], vec![2], vec![3, 4]]);
        let Some(OpResult::Error(error)) = &frames[2].1[0].result else { panic!("{:?}", frames[2]) };
        assert_eq!((error.reason(), error.may_have_happened), (v1::ErrorReason::LimitExceeded, false));
    }

    #[test]
    fn a_refusal_leaves_the_operation_alone_that_has_its_id() {
        let mailbox = Mailbox::new(0, false, Charge::default());
        let measured = (Asked::from(&Op::Get(v1::GetRequest::default())), false);
        assert!(mailbox.begin(1, GroupId::new(0), measured, None).is_ok());
        let again = mailbox.begin(1, GroupId::new(0), measured, None);
        mailbox.refuse(1, again.unwrap_err());
        assert!(mailbox.lock().under_way.contains_key(&1));
        mailbox.end_input();
        assert!(!mailbox.lock().is_over(), "its client waits for an answer");
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_from_by_count_or_bytes() {
        let mailbox = Mailbox::new(0, false, Charge::default());
        mailbox.lock().push(1, result(1, BYTES_WAITING_MAX).result.unwrap());
        assert!(mailbox.lock().is_full());
        let answers = (0..).map(|id| (id, Answer::Queued { create_revision: Revision::ZERO, position: 1 }));
        *mailbox.lock() = Inner { answers: answers.take(RESULTS_WAITING_MAX).collect(), ..Inner::default() };
        assert!(mailbox.lock().is_full());
    }
}
