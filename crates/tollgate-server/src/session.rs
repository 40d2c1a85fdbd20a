//! A session stream: operations in, results out, many in a frame.
//!
//! The fast path. At the leader an operation goes from its frame straight into the driver's inbox, together with the
//! others of the frame, and the results of a turn leave in one frame. Elsewhere it is forwarded. Invariant: each
//! operation has one final result, unless the stream ends first; its waiters live on, and are asked for again with
//! their seqs. What a session has under way has a limit. Not here: what an operation means (`operation`).

use crate::link::FORWARDED;
use crate::metrics::Asked;
use crate::operation::{self, Context, Kind, Prepared};
use crate::router::{Router, is_incomplete};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::{Notify, mpsc};
use tokio_stream::StreamExt;
use tollgate_core::{Command, RevokeLease, State};
use tollgate_node::{Answer, Ask, Caller, Consistency, Sink};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{Address, GroupId, LeaseId, Revision};
use tonic::{Status, Streaming};

/// Operations of one session that have no final result yet, waits in queues included.
const UNDER_WAY_MAX: usize = 100_000;

/// Results that wait for a client that does not read; past that, nothing more is taken from it.
const RESULTS_WAITING_MAX: usize = 10_000;

/// Results in one frame at most.
const FRAME_RESULTS_MAX: usize = 4_096;

/// Frames that wait for a client that does not read.
const FRAMES_MAX: usize = 8;

/// What is sent to a client at once.
pub(crate) type Frame = Result<v1::SessionResponse, Status>;

/// What a session's client is told next, and what it waits for.
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct Inner {
    /// Answers of the driver, not worded yet.
    answers: Vec<(u64, Answer)>,
    /// Results that are.
    results: Vec<v1::OperationResult>,
    under_way: BTreeMap<u64, UnderWay>,
    /// Whether a flush is still to come.
    touched: bool,
}

/// An operation that has no final result yet.
struct UnderWay {
    group: GroupId,
    /// None for one that is forwarded: it comes back as a result.
    context: Option<Context>,
    asked: Asked,
    began: Instant,
    queued: Option<(Revision, u64)>,
}

impl Mailbox {
    fn new() -> Arc<Mailbox> {
        Arc::new(Mailbox { inner: Mutex::default(), filled: Notify::new(), emptied: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics with it")
    }

    /// Waits while the client does not read what it was told.
    async fn until_read(&self) {
        while self.lock().results.len() >= RESULTS_WAITING_MAX {
            self.emptied.notified().await;
        }
    }

    /// A result that did not come from the driver as an answer.
    fn result(&self, id: u64, result: OpResult) {
        let mut inner = self.lock();
        inner.under_way.remove(&id);
        inner.results.push(v1::OperationResult { id, result: Some(result) });
        drop(inner);
        self.filled.notify_one();
    }

    /// Notes an operation as under way; refuses what is too much, or named twice.
    fn begin(
        &self,
        id: u64,
        group: GroupId,
        asked: Asked,
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
        inner.under_way.insert(id, UnderWay { group, context, asked, began, queued });
        Ok(())
    }
}

impl Sink for Mailbox {
    fn answer(&self, operation: u64, answer: Answer) -> bool {
        let mut inner = self.lock();
        inner.answers.push((operation, answer));
        !std::mem::replace(&mut inner.touched, true)
    }

    fn flush(&self) {
        self.lock().touched = false;
        self.filled.notify_one();
    }
}

/// Serves a session until either side ends it.
pub(crate) async fn serve(
    router: Router,
    from: Address,
    forwarded: bool,
    incoming: Streaming<v1::SessionRequest>,
    outgoing: mpsc::Sender<Frame>,
) {
    let _open = router.metrics().session();
    let mailbox = Mailbox::new();
    let header = router.header(GroupId::new(0), None);
    let hello = v1::SessionResponse { results: Vec::new(), header: header.at(header.revision) };
    if outgoing.send(Ok(hello)).await.is_err() {
        return;
    }
    let intake = Intake {
        router: router.clone(),
        from,
        forwarded,
        mailbox: Arc::clone(&mailbox),
        leases: BTreeSet::new(),
    };
    let writes = write(router, mailbox, outgoing);
    tokio::select! {
        () = intake.run(incoming) => {}
        () = writes => {}
    }
}

/// Whether a stream comes from another node, which has looked for the leader already.
pub(crate) fn is_forwarded<T>(request: &tonic::Request<T>) -> bool {
    request.metadata().contains_key(FORWARDED)
}

/// Takes frames in.
struct Intake {
    router: Router,
    from: Address,
    forwarded: bool,
    mailbox: Arc<Mailbox>,
    /// Leases that this session granted or kept alive.
    leases: BTreeSet<LeaseId>,
}

impl Intake {
    async fn run(mut self, mut incoming: Streaming<v1::SessionRequest>) {
        loop {
            self.mailbox.until_read().await;
            let Some(frame) = incoming.next().await else { break };
            match frame {
                Ok(frame) => self.take(frame),
                Err(status) => {
                    tracing::debug!(%status, "a session ended");
                    break;
                }
            }
        }
        self.disconnected().await;
    }

    fn take(&mut self, frame: v1::SessionRequest) {
        let mut asks = Vec::with_capacity(frame.operations.len());
        for v1::Operation { id, op } in frame.operations {
            let Some(op) = op else {
                let bad = tollgate_proto::BadField::new("op", "no operation is set: set one");
                self.mailbox.result(id, OpResult::Error(bad.into()));
                continue;
            };
            if let Some(ask) = self.operation(id, op) {
                asks.push((Caller::Of(Arc::clone(&self.mailbox) as Arc<dyn Sink>, id), ask));
            }
        }
        let ids: Vec<u64> = asks.iter().map(|(caller, _)| operation_of(caller)).collect();
        if !asks.is_empty() && self.router.node().ask_all(asks).is_err() {
            for id in ids {
                let error = operation::overloaded("the node has too much to do: wait a little and try again");
                self.mailbox.result(id, OpResult::Error(error));
            }
        }
    }

    /// What to ask of this node for an operation; none if it goes another way.
    fn operation(&mut self, id: u64, op: Op) -> Option<Ask> {
        let asked = Asked::from(&op);
        // A node that leads all groups has nothing to forward, and keeps no copy.
        let spare = (!self.forwarded && !self.router.leads_all()).then(|| op.clone());
        let Prepared { group, kind, context } = match operation::prepare(op, self.router.groups(), &self.from)
        {
            Ok(prepared) => prepared,
            Err(error) => {
                self.mailbox.result(id, OpResult::Error(error));
                return None;
            }
        };
        if let Some(op) = spare.filter(|_| !self.router.serves(group)) {
            self.forward(id, group, op);
            return None;
        }
        if let Kind::KeepAlive(renewal) = &kind {
            self.leases.insert(renewal.lease);
        }
        let read = matches!(kind, Kind::Read { .. });
        let context_kept = if read { None } else { Some(context.clone()) };
        if let Err(error) = self.mailbox.begin(id, group, asked, context_kept) {
            self.mailbox
                .lock()
                .results
                .push(v1::OperationResult { id, result: Some(OpResult::Error(error)) });
            self.mailbox.filled.notify_one();
            return None;
        }
        Some(match kind {
            Kind::Command { command, fast } => {
                if let Command::GrantLease(grant) = &command
                    && let tollgate_core::LeaseChoice::Chosen(lease) = grant.id
                {
                    self.leases.insert(lease);
                }
                Ask::Command { group, command: Box::new(command), fast }
            }
            Kind::KeepAlive(renewal) => Ask::KeepAlive { group, renewal },
            Kind::Read { consistency, query } => self.read(id, group, consistency, query, context),
        })
    }

    fn read(
        &self,
        id: u64,
        group: GroupId,
        consistency: Consistency,
        query: operation::Query,
        context: Context,
    ) -> Ask {
        let (router, mailbox) = (self.router.clone(), Arc::clone(&self.mailbox));
        let look = move |state: Result<&State, ReadError>| {
            let result = match state {
                Ok(state) => {
                    let header = router.header(group, Some(state.revision()));
                    query.look(state).result(&context, &header)
                }
                Err(error) => OpResult::Error(operation::error_of_read(&error)),
            };
            mailbox.result(id, result);
        };
        Ask::Read { group, consistency, look: Box::new(look) }
    }

    /// Has the leader carry it out.
    fn forward(&self, id: u64, group: GroupId, op: Op) {
        if let Err(error) = self.mailbox.begin(id, group, Asked::from(&op), None) {
            self.mailbox
                .lock()
                .results
                .push(v1::OperationResult { id, result: Some(OpResult::Error(error)) });
            self.mailbox.filled.notify_one();
            return;
        }
        let (router, from, mailbox) = (self.router.clone(), self.from.clone(), Arc::clone(&self.mailbox));
        tokio::spawn(async move {
            let result = router.execute_for_session(op, &from).await;
            mailbox.result(id, result);
        });
    }

    /// Ends the leases that their clients wanted to end with the connection.
    async fn disconnected(self) {
        let mut groups: BTreeMap<GroupId, Vec<LeaseId>> = BTreeMap::new();
        for lease in self.leases {
            groups.entry(operation::group_of(lease.slot(), self.router.groups())).or_default().push(lease);
        }
        for (group, leases) in groups {
            let look = move |state: &State| {
                let ends =
                    |lease: &LeaseId| state.lease(*lease).is_some_and(|view| view.revoke_on_disconnect);
                leases.into_iter().filter(ends).collect::<Vec<LeaseId>>()
            };
            let Ok((_, ends)) = self.router.look(group, Consistency::Stale, look).await else { continue };
            for lease in ends {
                let command = Box::new(Command::RevokeLease(RevokeLease { lease, disconnected: true }));
                self.router.node().tell(Ask::Command { group, command, fast: false });
            }
        }
    }
}

fn operation_of(caller: &Caller) -> u64 {
    match caller {
        Caller::Of(_, operation) => *operation,
        Caller::Nobody => 0,
    }
}

/// Words answers, and sends frames as long as somebody reads them.
async fn write(router: Router, mailbox: Arc<Mailbox>, outgoing: mpsc::Sender<Frame>) {
    loop {
        let mut results = gather(&router, &mailbox);
        if results.is_empty() {
            tokio::select! {
                () = mailbox.filled.notified() => continue,
                () = outgoing.closed() => return,
            }
        }
        while !results.is_empty() {
            let rest = results.split_off(results.len().min(FRAME_RESULTS_MAX));
            let frame = v1::SessionResponse { results, header: None };
            if outgoing.send(Ok(frame)).await.is_err() {
                return;
            }
            results = rest;
        }
    }
}

/// Everything that there is to tell.
fn gather(router: &Router, mailbox: &Arc<Mailbox>) -> Vec<v1::OperationResult> {
    let mut inner = mailbox.lock();
    let mut results = std::mem::take(&mut inner.results);
    mailbox.emptied.notify_one();
    let answers = std::mem::take(&mut inner.answers);
    let mut finished = Vec::with_capacity(answers.len());
    for (id, answer) in answers {
        if let Answer::Queued { create_revision, position } = answer {
            if let Some(under_way) = inner.under_way.get_mut(&id) {
                under_way.queued = Some((create_revision, position));
            }
            let queued = v1::Queued { position, create_revision: create_revision.get() };
            results.push(v1::OperationResult { id, result: Some(OpResult::Queued(queued)) });
        } else if let Some(under_way) = inner.under_way.remove(&id) {
            finished.push((id, answer, under_way));
        }
    }
    drop(inner);
    for (id, answer, under_way) in finished {
        let held_already = under_way.context.as_ref().is_some_and(|context| context.held_already(&answer));
        match (finish(router, answer, &under_way), under_way.context) {
            (OpResult::Lock(response), Some(context)) if is_incomplete(held_already, &response) => {
                tokio::spawn(complete(
                    router.clone(),
                    Arc::clone(mailbox),
                    (id, under_way.group, context, held_already),
                    response,
                ));
            }
            (result, _) => results.push(v1::OperationResult { id, result: Some(result) }),
        }
    }
    results
}

/// Tells a lock request's answer once it has all that the driver's answer lacks.
async fn complete(
    router: Router,
    mailbox: Arc<Mailbox>,
    (id, group, context, held_already): (u64, GroupId, Context, bool),
    mut response: v1::LockResponse,
) {
    router.complete(group, &context, held_already, &mut response).await;
    mailbox.result(id, OpResult::Lock(response));
}

fn finish(router: &Router, answer: Answer, under_way: &UnderWay) -> OpResult {
    let UnderWay { group, context, asked, began, queued } = under_way;
    match (&answer, context) {
        (Answer::NotDone(ProposeError::NotLeader { leader, .. }) | Answer::AskAgain { leader, .. }, _) => {
            OpResult::Error(router.not_leader(*group, *leader))
        }
        (_, Some(context)) => {
            let waited_ms = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
            let waited_ms = if queued.is_some() { waited_ms } else { 0 };
            let header = router.header(*group, crate::router::revision_of(&answer));
            let result = context.finish(answer, &header, *queued, waited_ms);
            router.note(&result);
            router.metrics().operation(*asked, &result, began.elapsed());
            result
        }
        (_, None) => unreachable!("reads and forwarded operations come back as results"),
    }
}

/// The frames on their way to a client: few, so that one who does not read is not read from either.
pub(crate) fn frames_channel() -> (mpsc::Sender<Frame>, mpsc::Receiver<Frame>) {
    mpsc::channel(FRAMES_MAX)
}
