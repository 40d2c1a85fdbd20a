//! Answers that wait for a session's client, and the operations that the client waits for.
//!
//! Filled by the driver and by tasks that wait for other nodes, emptied by `response_writer`. Invariant: the number of
//! operations under way and the amount of unread answers have limits. Not here: converting answers to results
//! (`response_writer`).

use super::response_writer::{RESULT_BYTES_MAX, has_only_looked, too_long};
use super::send_backlog::Charge;
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tollgate_core::{OpResult as StepResult, Reply};
use tollgate_gateway::operation::{self, Context, Seen};
use tollgate_gateway::{AdmissionPermit, RequestInfo, Router};
use tollgate_node::planted::{Bug, planted};
use tollgate_node::{Answer, Sink};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_replica::ReadError;
use tollgate_types::{Address, GroupId, LeaseId, Revision};

/// Maximum number of operations of one session without a final result, waits in queues included.
const UNDER_WAY_MAX: usize = 100_000;

/// Maximum number of operations without a final result, for all sessions of another node together.
const NODE_UNDER_WAY_MAX: usize = 100 * UNDER_WAY_MAX;

/// Maximum number of results that wait for a client that does not read; past it, the session takes no more operations.
const RESULTS_WAITING_MAX: usize = 10_000;

/// Approximate maximum bytes of results that wait for a client that does not read; past it, the session takes no more
/// operations.
const BYTES_WAITING_MAX: usize = 16 << 20;

/// Approximate size of an answer without values; an answer this small is sent even past the limit.
const SMALL_BYTES: usize = 256;

/// Maximum of the estimated length of what a read saw; past it, the data is not converted to a result at all. The
/// estimate is rough, so this is far above the length that a result may have.
const SEEN_BYTES_MAX: usize = 8 * RESULT_BYTES_MAX;

/// Maximum number of leases of one session that are remembered, to end with it; further leases end by themselves.
const LEASES_MAX: usize = 100_000;

/// Answers that wait for a session's client, and the operations that the client waits for.
pub(super) struct Mailbox {
    pub(super) inner: Mutex<Inner>,
    pub(super) filled: Notify,
    pub(super) emptied: Notify,
    /// Number of the session on this node, because two sessions may number their operations alike.
    pub(super) stream: u64,
    /// Address of the client.
    pub(super) from: Address,
}

#[derive(Default)]
pub(super) struct Inner {
    /// Answers of the driver, not converted to results yet.
    pub(super) answers: VecDeque<(u64, Answer)>,
    /// Data that reads saw, not converted to results yet.
    pub(super) seen: VecDeque<(u64, Result<Seen, ReadError>)>,
    /// Results that are ready to be sent.
    pub(super) results: Vec<v1::OperationResult>,
    /// Approximate length of the answers, data and results that wait, charged to the stream's account.
    pub(super) unread: Charge,
    /// True if nobody will be sent anything any more.
    pub(super) is_closed: bool,
    pub(super) under_way: HashMap<u64, UnderWay>,
    /// Number of answers that are converted but for the part that another read has to add.
    pub(super) completing: usize,
    /// True if a flush is still to come.
    pub(super) touched: bool,
    /// State of the client's input.
    pub(super) input: Input,
    /// Leases that this session keeps alive, and whether each is known to end with it. None once the session has ended,
    /// and for a stream of another node, whose own sessions have the leases.
    pub(super) leases: Option<BTreeMap<LeaseId, bool>>,
}

/// Treatment of further operations of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Input {
    /// Operations are accepted.
    #[default]
    Taken,
    /// The client sends no more operations.
    Ended,
    /// Operations are refused, because the gateway stops.
    Refused,
}

impl Inner {
    pub(super) fn is_full(&self) -> bool {
        let count = self.answers.len() + self.seen.len() + self.results.len();
        count >= RESULTS_WAITING_MAX || self.unread.bytes() >= BYTES_WAITING_MAX
    }

    /// True if something of this length is too much for a client that does not read. A client that reads can still ask
    /// for it.
    pub(super) fn has_no_room_for(&self, bytes: usize) -> bool {
        bytes > SMALL_BYTES && self.unread.bytes() + bytes > BYTES_WAITING_MAX.max(bytes)
    }

    /// True if there are answers or results that were not gathered yet.
    pub(super) fn has_more(&self) -> bool {
        !self.answers.is_empty() || !self.seen.is_empty() || !self.results.is_empty()
    }

    /// True if the client will be sent nothing more.
    pub(super) fn is_over(&self) -> bool {
        // An operation that ends with the session is repeated elsewhere by its client, and is not waited for.
        let answered = match self.input {
            Input::Taken => false,
            Input::Ended => self.under_way.is_empty(),
            Input::Refused => self.under_way.values().all(|under_way| under_way.awaiting.is_some()),
        };
        answered
            && self.completing == 0
            && self.answers.is_empty()
            && self.seen.is_empty()
            && self.results.is_empty()
    }

    pub(super) fn push(&mut self, id: u64, result: OpResult) {
        if !self.is_closed {
            let result = v1::OperationResult { id, result: Some(result) };
            self.unread.add(result.encoded_len());
            self.results.push(result);
        }
    }

    /// Remembers a lease that lives on according to the answer, and forgets a lease that has ended. `ends`: whether a
    /// lease that was granted ends with the session.
    pub(super) fn note_lease(&mut self, router: &Router, from: &Address, ends: bool, result: &OpResult) {
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
                    router.lease_sessions().kept(lease, from);
                } else if leases.len() < LEASES_MAX {
                    leases.insert(lease, ends);
                    router.lease_sessions().add(lease, from);
                }
            }
            None => {
                if leases.remove(&lease).is_some() {
                    router.lease_sessions().remove(lease);
                }
            }
        }
    }
}

/// Facts about an operation that are recorded before it is examined.
#[derive(Clone, Copy)]
pub(super) struct Asking {
    pub(super) asked: RequestInfo,
    /// True if the operation grants a lease that ends with the session.
    pub(super) ends: bool,
    /// Lease that the operation renews, if it is a keepalive.
    pub(super) renews: Option<LeaseId>,
    /// Arrival time of the operation.
    pub(super) began: Instant,
}

impl Asking {
    pub(super) fn new(op: &Op, began: Instant) -> Asking {
        let renews = match op {
            Op::LeaseKeepAlive(keep) => LeaseId::new(keep.id).ok(),
            _ => None,
        };
        let ends = matches!(op, Op::LeaseGrant(grant) if grant.revoke_on_disconnect);
        Asking { asked: RequestInfo::from(op), ends, renews, began }
    }
}

/// An operation without a final result.
pub(super) struct UnderWay {
    pub(super) group: GroupId,
    /// None for an operation that is forwarded: its answer comes back as a result.
    pub(super) context: Option<Context>,
    pub(super) asked: RequestInfo,
    /// Lease that the operation renews, if it is a keepalive.
    pub(super) renews: Option<LeaseId>,
    /// True if nobody wants the result any more.
    pub(super) hung_up: bool,
    /// True if the operation grants a lease that ends with the session.
    pub(super) ends: bool,
    pub(super) began: Instant,
    pub(super) queued: Option<(Revision, u64)>,
    /// For a forwarded operation that ends with its session: the task that waits for the answer, aborted when this is
    /// dropped.
    pub(super) awaiting: Option<Awaiting>,
    /// Operation to repeat once its lease is known in its group, if that group is not the lease's home.
    pub(super) not_home: Option<Box<NotHome>>,
    /// Place among the operations under way on this node; none for an operation that is forwarded, or waits in a queue.
    pub(super) permit: Option<AdmissionPermit>,
}

/// An operation whose lease lives in another group.
pub(super) struct NotHome {
    pub(super) op: Op,
    pub(super) from: Address,
    /// Number of times that the lease was introduced to the group for this operation.
    pub(super) introduced: u32,
}

impl UnderWay {
    /// True if another node executes the operation.
    pub(super) fn is_forwarded(&self) -> bool {
        self.context.is_none()
    }
}

/// A task that is aborted when this is dropped.
pub(super) struct Awaiting(pub(super) AbortHandle);

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Mailbox {
    pub(super) fn new(stream: u64, forwarded: bool, unread: Charge, from: Address) -> Arc<Mailbox> {
        let leases = (!forwarded).then(BTreeMap::new);
        let inner = Mutex::new(Inner { unread, leases, ..Inner::default() });
        Arc::new(Mailbox { inner, filled: Notify::new(), emptied: Notify::new(), stream, from })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Waits while the client has too much unread.
    pub(super) async fn until_read(&self) {
        while self.lock().is_full() {
            self.emptied.notified().await;
        }
    }

    /// Adds the result of an operation that is under way and was not answered by the driver.
    pub(super) fn result(&self, router: &Router, id: u64, result: OpResult) {
        let mut inner = self.lock();
        let ends = inner.under_way.remove(&id).is_some_and(|under_way| under_way.ends);
        inner.note_lease(router, &self.from, ends, &result);
        let length = result.encoded_len();
        let result = if inner.has_no_room_for(length) { OpResult::Error(unread(&result)) } else { result };
        inner.push(id, result);
        drop(inner);
        self.filled.notify_one();
    }

    /// Reports that an operation forwarded to another node waits in a queue there.
    pub(super) fn queued(&self, id: u64, queued: v1::Queued) {
        let mut inner = self.lock();
        if inner.under_way.contains_key(&id) && !inner.is_full() {
            inner.push(id, OpResult::Queued(queued));
        }
        drop(inner);
        self.filled.notify_one();
    }

    /// Adds the result of an operation that never was under way: an operation with the same id may be.
    pub(super) fn refuse(&self, id: u64, error: v1::Error) {
        self.lock().push(id, OpResult::Error(error));
        self.filled.notify_one();
    }

    /// Stores the data that a read saw. Runs on the driver's thread, so the data is converted to a result elsewhere.
    pub(super) fn seen(&self, id: u64, seen: Result<Seen, ReadError>) {
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

    /// Adds the result of an answer that had to be completed.
    pub(super) fn completed(&self, id: u64, result: OpResult) {
        let mut inner = self.lock();
        inner.completing -= 1;
        inner.push(id, result);
        drop(inner);
        self.filled.notify_one();
    }

    /// Closes the mailbox, because nobody reads any more: drops everything that waits, or comes late. Returns the
    /// leases that this session was about to renew: it is unknown whether they were.
    pub(super) fn close(&self) -> BTreeSet<LeaseId> {
        let mut inner = self.lock();
        let renewing = inner.under_way.values().filter_map(|under_way| under_way.renews).collect();
        inner.is_closed = true;
        inner.answers = VecDeque::new();
        inner.seen = VecDeque::new();
        inner.results = Vec::new();
        inner.under_way = HashMap::new();
        inner.unread = Charge::default();
        renewing
    }

    /// Called when the client sends no more operations.
    pub(super) fn end_input(&self) {
        let mut inner = self.lock();
        if inner.input == Input::Taken {
            inner.input = Input::Ended;
        }
        drop(inner);
        self.filled.notify_one();
    }

    /// Refuses further operations of the client; those under way are still answered.
    pub(super) fn drain(&self) {
        self.lock().input = Input::Refused;
        self.filled.notify_one();
    }

    /// Records an operation as under way; refuses one that exceeds the limit, or reuses an id.
    pub(super) fn begin(
        &self,
        id: u64,
        group: GroupId,
        Asking { asked, ends, renews, began }: Asking,
        context: Option<Context>,
        not_home: Option<Box<NotHome>>,
        permit: Option<AdmissionPermit>,
    ) -> Result<(), v1::Error> {
        let mut inner = self.lock();
        // Sessions behind a stream of another node have limits of their own; a few must not stop the whole stream.
        let under_way_max = if inner.leases.is_some() { UNDER_WAY_MAX } else { NODE_UNDER_WAY_MAX };
        if inner.under_way.len() >= under_way_max {
            let says =
                format!("a session has at most {under_way_max} operations under way: wait for answers");
            return Err(v1::Error { group_id: group.number(), ..operation::overloaded(says) });
        }
        if inner.under_way.contains_key(&id) {
            let says = "an operation with this id is under way: number them without repeats";
            return Err(tollgate_proto::BadField::new("id", says).into());
        }
        let (queued, awaiting) = (None, None);
        inner.under_way.insert(
            id,
            UnderWay {
                group,
                context,
                asked,
                renews,
                hung_up: false,
                ends,
                began,
                queued,
                awaiting,
                not_home,
                permit,
            },
        );
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

    fn answer_all(&self, answers: std::vec::Drain<'_, (u64, Answer)>) -> bool {
        if planted(Bug::AnswersMixedUp) {
            return answers.fold(false, |first, (operation, answer)| self.answer(operation, answer) || first);
        }
        let mut inner = self.lock();
        if inner.is_closed {
            return false;
        }
        let lengths: usize = answers.as_slice().iter().map(|(_, answer)| length_of_answer(answer)).sum();
        inner.unread.add(lengths);
        inner.answers.extend(answers);
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

pub(super) fn length_of_seen(seen: &Result<Seen, ReadError>) -> usize {
    seen.as_ref().map_or(SMALL_BYTES, Seen::length)
}

/// Returns the approximate length of the answer for the client.
pub(super) fn length_of_answer(answer: &Answer) -> usize {
    let Answer::Replied { reply: Reply::TxnDone { results, .. }, .. } = answer else { return SMALL_BYTES };
    let of_step = |step: &StepResult| match step {
        StepResult::Got { registers, .. } => {
            registers.iter().map(|register| register.key.len() + register.value.len() + 64).sum()
        }
        StepResult::Put | StepResult::Deleted(_) => 16,
    };
    SMALL_BYTES + results.iter().map(of_step).sum::<usize>()
}

/// Returns the error that replaces a result that is too much for a client that does not read.
fn unread(result: &OpResult) -> v1::Error {
    unread_error(!has_only_looked(result))
}

fn unread_error(may_have_happened: bool) -> v1::Error {
    let says = format!("{BYTES_WAITING_MAX} bytes of results are unread: read them before asking for more");
    let error = operation::overloaded(says);
    v1::Error { may_have_happened, limit_value: BYTES_WAITING_MAX as u64, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_leaves_the_operation_alone_that_has_its_id() {
        let mailbox = Mailbox::new(0, false, Charge::default(), Address::NONE);
        let measured = Asking::new(&Op::Get(v1::GetRequest::default()), Instant::now());
        assert!(mailbox.begin(1, GroupId::new(0), measured, None, None, None).is_ok());
        let again = mailbox.begin(1, GroupId::new(0), measured, None, None, None);
        mailbox.refuse(1, again.unwrap_err());
        assert!(mailbox.lock().under_way.contains_key(&1));
        mailbox.end_input();
        assert!(!mailbox.lock().is_over(), "its client waits for an answer");
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_from_by_count_or_bytes() {
        let mailbox = Mailbox::new(0, false, Charge::default(), Address::NONE);
        let register = Some(v1::Register { value: vec![7; BYTES_WAITING_MAX], ..Default::default() });
        mailbox.lock().push(1, OpResult::Get(v1::GetResponse { header: None, register }));
        assert!(mailbox.lock().is_full());
        let answers = (0..).map(|id| (id, Answer::Queued { create_revision: Revision::ZERO, position: 1 }));
        *mailbox.lock() = Inner { answers: answers.take(RESULTS_WAITING_MAX).collect(), ..Inner::default() };
        assert!(mailbox.lock().is_full());
    }
}
