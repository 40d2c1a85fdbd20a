//! Converts answers to results and puts them into frames.
//!
//! Invariant: no frame is longer than its reader accepts; a result that would be longer is replaced by an error. Not
//! here: the answers that wait (`mailbox`).

use super::Intake;
use super::frames::FrameSender;
use super::mailbox::{Mailbox, UnderWay, length_of_answer, length_of_seen};
use super::send_backlog::{Account, Charge};
use prost::Message;
use std::sync::Arc;
use std::time::Instant;
use tollgate_gateway::operation::{self, Context, HeaderInfo, Seen};
pub(super) use tollgate_gateway::operation::{RESULT_BYTES_MAX, too_long};
use tollgate_gateway::{Router, is_incomplete};
use tollgate_gateway::{STUB_REGISTRATIONS_MAX, unknown_lease};
use tollgate_node::Answer;
use tollgate_proto::v1::{self, operation_result::Result as OpResult};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{GroupId, LeaseId, Revision};

/// Approximate bytes of answers that are converted at once; the rest waits in the shorter form that the driver gave it.
const WORDED_BYTES_MAX: usize = 1 << 20;

/// Number of answers that are converted at once, and leave in one frame: the client handles these while the next are
/// converted.
const FRAME_RESULTS: usize = 128;

/// Maximum number of results in one frame, and of their bytes; a longer result gets a frame of its own.
const FRAME_RESULTS_MAX: usize = 4_096;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Converts answers, and sends frames as long as somebody reads them, until there is nothing more to send.
pub(super) async fn write(intake: &Intake, outgoing: &FrameSender, account: &Arc<Account>) {
    let mailbox = &intake.mailbox;
    loop {
        let (results, _gathered) = gather(intake);
        if results.is_empty() {
            if mailbox.lock().is_over() {
                return;
            }
            if mailbox.lock().has_more() {
                // All answers that were gathered have to be completed first; more answers wait behind them.
                continue;
            }
            tokio::select! {
                () = mailbox.filled.notified() => continue,
                () = outgoing.closed() => return,
            }
        }
        for (bytes, results) in frames(results) {
            let frame = v1::SessionResponse { results, header: None };
            if outgoing.send(frame, account.charge(bytes)).await.is_err() {
                return;
            }
            // The transport writes the frame only while this task yields.
            tokio::task::yield_now().await;
        }
    }
}

/// Groups results into frames, each with its length. A result that is too long is replaced by an error.
fn frames(results: Vec<v1::OperationResult>) -> impl Iterator<Item = (usize, Vec<v1::OperationResult>)> {
    let mut results = results.into_iter().map(fit).peekable();
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

/// Returns a result and its length, or the error that replaces a result that is too long.
fn fit(result: v1::OperationResult) -> (usize, v1::OperationResult) {
    let length = result.encoded_len();
    if length <= RESULT_BYTES_MAX {
        return (length, result);
    }
    let may_have_happened = !result.result.as_ref().is_some_and(has_only_looked);
    let error = v1::Error { may_have_happened, ..too_long(length, RESULT_BYTES_MAX) };
    let result = v1::OperationResult { id: result.id, result: Some(OpResult::Error(error)) };
    (result.encoded_len(), result)
}

pub(super) fn has_only_looked(result: &OpResult) -> bool {
    matches!(
        result,
        OpResult::Get(_)
            | OpResult::Range(_)
            | OpResult::GetLock(_)
            | OpResult::Leader(_)
            | OpResult::LeaseTimeToLive(_)
    )
}

/// Takes the next results to send, and the charge for their memory while they waited.
fn gather(intake: &Intake) -> (Vec<v1::OperationResult>, Charge) {
    let (router, mailbox) = (&intake.router, &intake.mailbox);
    let mut inner = mailbox.lock();
    let mut results = std::mem::take(&mut inner.results);
    let mut bytes = results.iter().map(Message::encoded_len).sum();
    mailbox.emptied.notify_one();
    let mut finished = Vec::new();
    while bytes < WORDED_BYTES_MAX
        && finished.len() < FRAME_RESULTS
        && let Some((id, answer)) = inner.answers.pop_front()
    {
        bytes += length_of_answer(&answer);
        if let Answer::Queued { create_revision, position } = answer {
            let Some(under_way) = inner.under_way.get_mut(&id) else { continue };
            under_way.queued = Some((create_revision, position));
            // An operation that waits in a queue is no load.
            under_way.permit = None;
            let queued = v1::Queued { position, create_revision: create_revision.get() };
            results.push(v1::OperationResult { id, result: Some(OpResult::Queued(queued)) });
        } else if let Some(under_way) = inner.under_way.remove(&id) {
            finished.push((id, Outcome::Answered(answer), under_way));
        }
    }
    while bytes < WORDED_BYTES_MAX
        && finished.len() < FRAME_RESULTS
        && let Some((id, seen)) = inner.seen.pop_front()
    {
        bytes += length_of_seen(&seen);
        if let Some(under_way) = inner.under_way.remove(&id) {
            finished.push((id, Outcome::Seen(seen), under_way));
        }
    }
    let gathered = inner.unread.split(bytes);
    drop(inner);
    let mut dispatcher = Wording { router, now: Instant::now(), header: None };
    for (id, outcome, under_way) in finished {
        let held_already = under_way.held_already(&outcome);
        let result = dispatcher.finish(outcome, &under_way);
        if let Some(lease) = to_introduce(&under_way, &result, router) {
            let group = under_way.group;
            mailbox.lock().under_way.insert(id, under_way);
            tokio::spawn(intake.clone().introduce(id, lease, group));
            continue;
        }
        if intake.purpose.is_none() {
            // The node that forwards an operation counts it.
            router.measure(
                under_way.asked,
                &result,
                dispatcher.now.saturating_duration_since(under_way.began),
            );
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
                    mailbox.lock().note_lease(router, &mailbox.from, under_way.ends, &result);
                }
                results.push(v1::OperationResult { id, result: Some(result) });
            }
        }
    }
    (results, gathered)
}

/// Returns the lease to introduce to the group before the operation is repeated, if the result asks for that.
fn to_introduce(under_way: &UnderWay, result: &OpResult, router: &Router) -> Option<LeaseId> {
    under_way.not_home.as_ref().filter(|not_home| not_home.introduced < STUB_REGISTRATIONS_MAX)?;
    unknown_lease(under_way.context.as_ref()?, result, &router.map())
}

/// Sends an answer once it has the parts that the driver's answer lacks.
async fn complete(
    router: Router,
    mailbox: Arc<Mailbox>,
    (id, group, context, held_already): (u64, GroupId, Context, bool),
    mut result: OpResult,
) {
    router.complete(group, &context, held_already, &mut result).await;
    mailbox.completed(id, result);
}

/// Reply of the driver to an operation.
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

/// Converts answers to results. Data that is the same for many of them is looked up once.
struct Wording<'a> {
    router: &'a Router,
    now: Instant,
    /// Header of the group that was used last.
    header: Option<HeaderInfo>,
}

impl Wording<'_> {
    fn header(&mut self, group: GroupId, revision: Option<Revision>) -> HeaderInfo {
        let known = self.header.filter(|header| header.group == group);
        let header = known.unwrap_or_else(|| self.router.header(group, None));
        self.header = Some(header);
        HeaderInfo { revision: revision.unwrap_or(Revision::ZERO), ..header }
    }

    fn finish(&mut self, outcome: Outcome, under_way: &UnderWay) -> OpResult {
        let UnderWay { group, began, queued, .. } = under_way;
        let Some(context) = &under_way.context else {
            return OpResult::Error(operation::unexpected("to a forwarded operation"));
        };
        let answer = match outcome {
            Outcome::Answered(answer) => answer,
            Outcome::Seen(Ok(seen)) => {
                let header = self.header(*group, Some(seen.revision()));
                return seen.result(context, &header);
            }
            Outcome::Seen(Err(error)) => return OpResult::Error(operation::error_of_read(&error)),
        };
        if let Answer::NotDone(ProposeError::NotLeader { leader, .. }) = &answer {
            return OpResult::Error(self.router.not_leader(*group, *leader));
        }
        let waited_ms = self.now.saturating_duration_since(*began).as_millis();
        let waited_ms = queued.map_or(0, |_| i64::try_from(waited_ms).unwrap_or(i64::MAX));
        let header = self.header(*group, tollgate_gateway::revision_of(&answer));
        let result = match context.finish(answer, &header, *queued, waited_ms) {
            OpResult::Error(error) if error.leader_id != 0 => {
                OpResult::Error(self.router.with_address(error))
            }
            result => result,
        };
        self.router.note(context, &result);
        result
    }
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
        let frames: Vec<_> = frames(results).collect();
        let ids: Vec<Vec<u64>> =
            frames.iter().map(|(_, frame)| frame.iter().map(|told| told.id).collect()).collect();
        assert_eq!(ids, [vec![1], vec![2], vec![3, 4]]);
        let Some(OpResult::Error(error)) = &frames[2].1[0].result else { panic!("{:?}", frames[2]) };
        assert_eq!((error.reason(), error.may_have_happened), (v1::ErrorReason::LimitExceeded, false));
    }
}
