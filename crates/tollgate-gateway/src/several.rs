//! Operations on names of several groups: split, carried out group by group, and merged again.
//!
//! A group grants all its names at one moment; across groups there is no such moment. So locks are taken in the order
//! of groups, the same for every request: requests made while holding nothing can't wait for each other in a circle.
//! All parts carry the seq of the whole, since each group numbers the requests of a lease separately: a repeat, through
//! any node, finds what was taken before and continues. All parts also carry the names of the whole, so that each group
//! distinguishes a part of another request from a repeat of this one. Invariant: a request that is answered without the
//! locks has left nothing behind in any group, or the answer says that it may have. Not here: operations on one group
//! (`router`).

use crate::link::Purpose;
use crate::operation::{self, RESULT_BYTES_MAX};
use crate::router::{CallContext, Router};
use prost::Message;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tollgate_proto::Retry;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_proto::{BadField, convert};
use tollgate_types::{Address, GroupId, GroupMap};

/// Name of the limit above which a lease's requests wait for acknowledgements.
const OPS_IN_FLIGHT: &str = "ops_in_flight_per_lease_max";

/// Age of the first grant, at the end of the request, from which on all parts but the last are checked again: their
/// holder may have lost them meanwhile.
const GRANT_AGE_MAX: Duration = Duration::from_millis(100);

/// Maximum number of attempts to give back a part after the caller has gone; each is retried like any operation.
const UNDO_ATTEMPTS: u32 = 3;

/// An operation on names of several groups.
pub(crate) enum Several {
    /// Takes locks, all or none.
    Lock { lock: v1::LockRequest, tries: bool, parts: Vec<Vec<String>> },
    /// Releases locks.
    Unlock { unlock: v1::UnlockRequest, parts: Vec<Vec<String>> },
    /// Reads registers, each group at a moment of its own.
    Range { range: v1::RangeRequest, groups: Vec<GroupId> },
    /// Leaves the queues of a request, and gives back its grants.
    Cancel { cancel: v1::CancelWaitRequest, parts: Vec<Vec<String>> },
}

/// Splits an operation; none if its names belong to one group. Other errors in the operation are not checked here.
pub(crate) fn split(op: &Op, map: &GroupMap) -> Option<Several> {
    // Keeps the fast path fast: a single group has all names, and so has the group of a single name.
    if map.is_single() {
        return None;
    }
    match op {
        Op::Lock(lock) | Op::TryLock(lock) => {
            let tries = matches!(op, Op::TryLock(_));
            parts(&lock.names, map).map(|parts| Several::Lock { lock: lock.clone(), tries, parts })
        }
        Op::Unlock(unlock) => {
            parts(&unlock.names, map).map(|parts| Several::Unlock { unlock: unlock.clone(), parts })
        }
        Op::Range(range) => {
            let groups = operation::groups_of_range(range, map)?;
            (groups.len() > 1).then(|| Several::Range { range: range.clone(), groups })
        }
        Op::CancelWait(cancel) => {
            parts(&cancel.names, map).map(|parts| Several::Cancel { cancel: cancel.clone(), parts })
        }
        _ => None,
    }
}

/// Returns true if an operation names several groups.
pub fn is_over_groups(op: &Op, map: &GroupMap) -> bool {
    split(op, map).is_some()
}

/// Returns the names of each group, in the order of groups; none if there is only one.
fn parts(names: &[String], map: &GroupMap) -> Option<Vec<Vec<String>>> {
    if names.len() < 2 {
        return None;
    }
    let read = convert::read_names("", names).ok()?;
    let mut parts: BTreeMap<GroupId, Vec<String>> = BTreeMap::new();
    for name in read.as_slice() {
        parts.entry(map.group_of(name.slot())).or_default().push(name.to_string());
    }
    (parts.len() > 1).then(|| parts.into_values().collect())
}

/// Parts taken so far, given back if the caller goes before it is told of them. For a session nothing is given back:
/// its client repeats the request, possibly at another node.
struct Taken<'a> {
    router: &'a Router,
    from: &'a Address,
    ops: Vec<Op>,
    goes_with_caller: bool,
}

impl Taken<'_> {
    /// Gives everything back; returns true if all of it is known to be given back.
    async fn give_back(mut self) -> bool {
        let mut all = true;
        while let Some(op) = self.ops.last().cloned() {
            all &= is_given_back(&self.router.carry_on(op, self.from).await);
            self.ops.pop();
        }
        all
    }

    fn keep(mut self) {
        self.ops.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut ops = std::mem::take(&mut self.ops);
        if ops.is_empty() || !self.goes_with_caller {
            return;
        }
        // A caller that goes takes nothing from another that asked for the same, possibly at another node.
        for op in &mut ops {
            if let Op::CancelWait(cancel) = op {
                cancel.asked_at_most = 1;
            }
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (router, from) = (self.router.clone(), self.from.clone());
            runtime.spawn(async move {
                for op in ops.into_iter().rev() {
                    for _ in 0..UNDO_ATTEMPTS {
                        if is_given_back(&router.carry_on(op.clone(), &from).await) {
                            break;
                        }
                    }
                }
            });
        }
    }
}

/// A part that was granted.
struct Granted {
    op: Op,
    names: Vec<String>,
    token: u64,
    waited: bool,
    /// Times at which the part was asked for, and at which the grant arrived.
    asked: Instant,
    heard: Instant,
}

/// Returns true if the outcome of an operation is unknown.
fn is_unsure(result: &OpResult) -> bool {
    matches!(result, OpResult::Error(error) if error.may_have_happened)
}

/// Returns true if an operation failed without effect for a transient reason: the caller asks again.
fn is_passing(result: &OpResult) -> bool {
    let OpResult::Error(error) = result else { return false };
    match error.reason().retry() {
        Retry::AtLeader | Retry::AtItsGroup | Retry::Later => true,
        _ => error.reason() == v1::ErrorReason::LimitExceeded && error.limit == OPS_IN_FLIGHT,
    }
}

/// Converts the failure of a part after others were taken: the caller repeats the request with its seq, which continues
/// with what was taken.
fn ask_again(failed: OpResult) -> OpResult {
    match failed {
        OpResult::Error(error) => {
            let unknown = v1::Error::new(v1::ErrorReason::Indeterminate, "");
            let (code, reason, may_have_happened) = (unknown.code, unknown.reason, unknown.may_have_happened);
            OpResult::Error(v1::Error { code, reason, may_have_happened, ..error })
        }
        done => done,
    }
}

fn is_given_back(result: &OpResult) -> bool {
    match result {
        OpResult::Error(error) => {
            use v1::ErrorReason as R;
            matches!(
                error.reason(),
                R::NotHeld | R::StaleToken | R::LeaseNotFound | R::NotWaiting | R::SeqAcked
            )
        }
        _ => true,
    }
}

impl Router {
    /// Carries out an operation on several groups.
    pub(crate) async fn carry_out_several(
        &self,
        several: Several,
        call_context: CallContext<'_>,
    ) -> OpResult {
        match several {
            Several::Lock { lock, tries, parts } => self.lock_several(lock, tries, parts, call_context).await,
            Several::Unlock { unlock, parts } => self.unlock_several(&unlock, parts, call_context).await,
            Several::Range { range, groups } => self.range_several(range, groups, call_context).await,
            Several::Cancel { cancel, parts } => self.cancel_several(&cancel, parts, call_context).await,
        }
    }

    async fn lock_several(
        &self,
        lock: v1::LockRequest,
        tries: bool,
        parts: Vec<Vec<String>>,
        call_context: CallContext<'_>,
    ) -> OpResult {
        let began = Instant::now();
        let goes_with_caller = call_context.purpose == Purpose::Attended;
        let mut taken = Taken { router: self, from: call_context.from, ops: Vec::new(), goes_with_caller };
        let mut whole: Option<v1::LockResponse> = None;
        let mut granted: Vec<Granted> = Vec::new();
        for names in parts {
            let part = part_of(&lock, names.clone(), began);
            let (undo, asked) = (undo(&part), Instant::now());
            let mut op = if tries { Op::TryLock(part) } else { Op::Lock(part) };
            match self.carry_out_one(&mut op, call_context).await {
                OpResult::Lock(got) if got.acquired => {
                    // The locks that the owner held before stay its own. Without a seq the answer shows them, if the
                    // lease could be renewed; with a seq, a cancel releases nothing that was held before. A repeat of a
                    // granted request looks as if the lock had been held.
                    if lock.request.is_some() || !got.renewed {
                        taken.ops.push(undo(&got));
                    }
                    let (waited, heard) = (got.waited_ms > 0, Instant::now());
                    granted.push(Granted { op, names, token: got.fencing_token, waited, asked, heard });
                    whole = Some(join(whole, got));
                }
                failed => return not_all(taken, failed, lock.request.is_some()).await,
            }
        }
        if may_have_been_lost(&granted, lock.max_hold_ms) {
            let (_, earlier) = granted.split_last().expect("a request over groups has parts");
            for part in earlier {
                if let Some(lost) = self.look_after(part, &lock, call_context).await {
                    return not_all(taken, lost, lock.request.is_some()).await;
                }
            }
        }
        taken.keep();
        whole.map_or_else(|| OpResult::Error(half_done()), OpResult::Lock)
    }

    /// Checks a part that was granted; returns a result if the part is no longer held or its state is unknown.
    async fn look_after(
        &self,
        part: &Granted,
        lock: &v1::LockRequest,
        call_context: CallContext<'_>,
    ) -> Option<OpResult> {
        for name in &part.names {
            let get = v1::GetLockRequest { name: name.clone(), ..v1::GetLockRequest::default() };
            let held = match self.carry_on(Op::GetLock(get), call_context.from).await {
                OpResult::GetLock(seen) => is_held(seen.lock.as_ref(), lock, part.token),
                failed => return Some(failed),
            };
            if held == Some(true) {
                continue;
            }
            // A repeat of a numbered request returns the end of its grant. A grant that lost only some of its names
            // still stands.
            if lock.request.is_some() {
                match self.carry_on(part.op.clone(), call_context.from).await {
                    OpResult::Lock(told) if told.acquired => {}
                    ended => return Some(ended),
                }
            }
            if held == Some(false) {
                return Some(OpResult::Lock(taken_away(part, lock.max_hold_ms)));
            }
        }
        None
    }

    /// Each group releases by itself: a refusal by one group does not keep the others from releasing.
    async fn unlock_several(
        &self,
        unlock: &v1::UnlockRequest,
        parts: Vec<Vec<String>>,
        call_context: CallContext<'_>,
    ) -> OpResult {
        if unlock.fencing_token != 0 {
            let says = "the names live in several groups, each with a token of its own: name lease and owner alone, or \
                        release the names of each group by their token";
            return OpResult::Error(BadField::new("fencing_token", says).into());
        }
        let mut outcome = None;
        for names in parts {
            let mut part = v1::UnlockRequest { name: String::new(), names, ..unlock.clone() };
            if let Some(request) = &mut part.request {
                request.all_names.clone_from(&unlock.names);
            }
            let result = self.carry_out_one(&mut Op::Unlock(part), call_context).await;
            let failed = matches!(result, OpResult::Error(_));
            if failed || outcome.is_none() {
                outcome = Some(worse(outcome, result));
            }
        }
        outcome.unwrap_or_else(|| OpResult::Error(half_done()))
    }

    async fn range_several(
        &self,
        mut range: v1::RangeRequest,
        groups: Vec<GroupId>,
        call_context: CallContext<'_>,
    ) -> OpResult {
        range.group_ids.clear();
        let mut whole = v1::RangeResponse::default();
        for group in groups {
            let part = v1::RangeRequest { group_ids: vec![group.number()], ..range.clone() };
            match self.carry_out_one(&mut Op::Range(part), call_context).await {
                OpResult::Range(part) => add(&mut whole, part, &range),
                failed => return failed,
            }
            let length = whole.registers.iter().map(Message::encoded_len).sum();
            if length > RESULT_BYTES_MAX {
                return OpResult::Error(operation::too_long(length, RESULT_BYTES_MAX));
            }
        }
        OpResult::Range(whole)
    }

    async fn cancel_several(
        &self,
        cancel: &v1::CancelWaitRequest,
        parts: Vec<Vec<String>>,
        call_context: CallContext<'_>,
    ) -> OpResult {
        let mut outcome: Option<OpResult> = None;
        for names in parts {
            let name = names.into_iter().next().unwrap_or_default();
            let part = v1::CancelWaitRequest { name, names: Vec::new(), ..cancel.clone() };
            let result = self.carry_out_one(&mut Op::CancelWait(part), call_context).await;
            outcome = Some(match (outcome, result) {
                (None, result) => result,
                (Some(OpResult::CancelWait(one)), OpResult::CancelWait(other)) => {
                    OpResult::CancelWait(if weight(&other) > weight(&one) { other } else { one })
                }
                (Some(one), result) => worse(Some(one), result),
            });
        }
        outcome.unwrap_or_else(|| OpResult::Error(half_done()))
    }
}

/// Adds the registers of one group, up to the limit.
fn add(whole: &mut v1::RangeResponse, part: v1::RangeResponse, range: &v1::RangeRequest) {
    whole.header = whole.header.or(part.header);
    whole.count += part.count;
    whole.registers.extend(part.registers);
    sort(&mut whole.registers, range.sort());
    if range.limit > 0 {
        whole.registers.truncate(usize::try_from(range.limit).unwrap_or(usize::MAX));
    }
}

/// Sorts registers of several groups. Revisions of different groups are not comparable: sorted by creation, only the
/// registers of the same group are in order.
fn sort(registers: &mut [v1::Register], sort: v1::Sort) {
    match sort {
        v1::Sort::Unspecified | v1::Sort::Key => registers.sort_by(|a, b| a.key.cmp(&b.key)),
        v1::Sort::KeyDescending => registers.sort_by(|a, b| b.key.cmp(&a.key)),
        v1::Sort::Create => registers.sort_by_key(|register| register.create_revision),
        v1::Sort::CreateDescending => {
            registers.sort_by_key(|register| std::cmp::Reverse(register.create_revision));
        }
    }
}

/// Ranks outcomes by how much they say about the whole: a grant that stands ranks highest, then a release.
fn weight(response: &v1::CancelWaitResponse) -> u8 {
    match response.outcome() {
        v1::CancelOutcome::Granted => 4,
        v1::CancelOutcome::Left => 3,
        v1::CancelOutcome::Released => 2,
        v1::CancelOutcome::Finished => 1,
        v1::CancelOutcome::Cancelled | v1::CancelOutcome::Unspecified => 0,
    }
}

/// Returns the result that the caller must be told of: an error with an unknown outcome before any other error.
fn worse(one: Option<OpResult>, other: OpResult) -> OpResult {
    let rank = |result: &OpResult| match result {
        _ if is_unsure(result) => 3,
        // The part is still to be done, and will be if the caller asks again.
        _ if is_passing(result) => 2,
        OpResult::Error(_) => 1,
        _ => 0,
    };
    match one {
        Some(one) if rank(&one) >= rank(&other) => one,
        _ => other,
    }
}

/// Ends a request that did not get all its names.
async fn not_all(taken: Taken<'_>, failed: OpResult, numbered: bool) -> OpResult {
    // A numbered request is repeated, possibly at another node, and continues from here. Only a decision of the group
    // itself ends it: another node may have had more success with the same request.
    if numbered && (is_unsure(&failed) || is_passing(&failed)) {
        let nothing_taken = taken.ops.is_empty();
        taken.keep();
        return if nothing_taken { failed } else { ask_again(failed) };
    }
    if taken.give_back().await { failed } else { OpResult::Error(half_done()) }
}

/// Returns true if the parts granted first may be lost by now: because later parts had to wait, or the request took
/// long, or there is a max hold. The last part is not checked, because it was granted a moment ago.
fn may_have_been_lost(granted: &[Granted], max_hold_ms: i64) -> bool {
    let Some((first, later)) = granted.split_first() else { return false };
    max_hold_ms > 0 || later.iter().any(|part| part.waited) || first.heard.elapsed() >= GRANT_AGE_MAX
}

/// Returns true if the lock is held by the grant with this token; none if not all its holders are shown.
fn is_held(seen: Option<&v1::LockState>, lock: &v1::LockRequest, token: u64) -> Option<bool> {
    let Some(seen) = seen else { return Some(false) };
    let is_it = |holder: &v1::Holder| {
        holder.lease_id == lock.lease_id && holder.owner == lock.owner && holder.fencing_token == token
    };
    match seen.holders.iter().any(is_it) {
        false if seen.holder_count > seen.holders.len() as u64 => None,
        held => Some(held),
    }
}

/// Returns the answer to a request one of whose grants ended before all others were made.
fn taken_away(part: &Granted, max_hold_ms: i64) -> v1::LockResponse {
    let max_hold = u64::try_from(max_hold_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
    let over = max_hold.is_some_and(|max_hold| part.asked.elapsed() >= max_hold);
    let end_reason = if over { v1::EndReason::MaxHold } else { v1::EndReason::Forced };
    v1::LockResponse {
        fencing_token: part.token,
        end_reason: end_reason.into(),
        ..v1::LockResponse::default()
    }
}

/// Returns the request for the names of one group.
///
/// No part is a first attempt, because a first attempt may be answered "busy" without a record in the log. Then a
/// repeat by another node could take all names, and the late end of the first attempt would give some of them back.
fn part_of(lock: &v1::LockRequest, names: Vec<String>, began: Instant) -> v1::LockRequest {
    let timeout_ms = left_of(lock.timeout_ms, began);
    let mut part = v1::LockRequest { name: String::new(), names, timeout_ms, ..lock.clone() };
    if let Some(request) = &mut part.request {
        request.attempt = request.attempt.max(1);
        request.all_names.clone_from(&lock.names);
    }
    part
}

/// Returns the remaining part of a timeout.
fn left_of(timeout_ms: i64, began: Instant) -> i64 {
    if timeout_ms <= 0 {
        return timeout_ms;
    }
    let waited = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
    // A timeout of 0 would be a different request: one that does not wait, and is not told that it timed out.
    timeout_ms.saturating_sub(waited).max(1)
}

/// Returns the operation that gives back what a part took: by its seq, or by the token that was granted.
fn undo(part: &v1::LockRequest) -> impl Fn(&v1::LockResponse) -> Op + use<> {
    let v1::LockRequest { names, lease_id, owner, request, .. } = part.clone();
    move |got| match &request {
        Some(request) => Op::CancelWait(v1::CancelWaitRequest {
            lease_id,
            seq: request.seq,
            name: names.first().cloned().unwrap_or_default(),
            release_if_granted: true,
            ..v1::CancelWaitRequest::default()
        }),
        None => Op::Unlock(v1::UnlockRequest {
            names: names.clone(),
            lease_id,
            owner: owner.clone(),
            fencing_token: got.fencing_token,
            ..v1::UnlockRequest::default()
        }),
    }
}

/// Adds a part to the answer to the whole.
fn join(whole: Option<v1::LockResponse>, part: v1::LockResponse) -> v1::LockResponse {
    let Some(mut whole) = whole else { return part };
    // The first name speaks for the whole. Keys of claims contain more than the names, and sort differently.
    let first = |response: &v1::LockResponse| response.tokens.first().map(|named| named.name.clone());
    if first(&part) < first(&whole) {
        whole.key = part.key;
        whole.fencing_token = part.fencing_token;
        whole.create_revision = part.create_revision;
        whole.header = part.header;
    }
    whole.tokens.extend(part.tokens);
    whole.tokens.sort_by(|a, b| a.name.cmp(&b.name));
    whole.waited_ms = whole.waited_ms.saturating_add(part.waited_ms);
    whole.renewed |= part.renewed;
    whole
}

fn half_done() -> v1::Error {
    let says = "the names live in several groups, and what was taken of them could not be given back: repeat the \
                request with its seq, or release the names; they are free when the lease ends";
    v1::Error { may_have_happened: true, ..v1::Error::new(v1::ErrorReason::Indeterminate, says) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::Name;

    fn map() -> GroupMap {
        GroupMap::even(4).unwrap()
    }

    fn name_in(group: u32, nth: usize) -> String {
        let names = (0..).map(|number| format!("n-{number}"));
        let of = |name: &String| map().group_of(Name::new(name).unwrap().slot()) == GroupId::new(group);
        names.filter(of).nth(nth).unwrap()
    }

    fn lock(names: Vec<String>) -> Op {
        Op::Lock(v1::LockRequest { names, lease_id: 1, timeout_ms: -1, ..Default::default() })
    }

    #[test]
    fn p9_names_are_taken_in_the_order_of_groups_whatever_order_they_are_named_in() {
        let (a, b, c) = (name_in(2, 0), name_in(0, 0), name_in(2, 1));
        for names in [vec![a.clone(), b.clone(), c.clone()], vec![c.clone(), a.clone(), b.clone()]] {
            let Some(Several::Lock { parts, .. }) = split(&lock(names), &map()) else { panic!() };
            let mut of_last = vec![a.clone(), c.clone()];
            of_last.sort();
            assert_eq!(parts, [vec![b.clone()], of_last]);
        }
    }

    #[test]
    fn p10_no_part_of_a_numbered_request_may_be_told_that_a_lock_is_busy_unnoted() {
        let Op::Lock(asked) = lock(vec![name_in(0, 0), name_in(1, 0)]) else { unreachable!() };
        assert!(part_of(&asked, vec![name_in(0, 0)], Instant::now()).request.is_none());
        for (attempt, sent) in [(0, 1), (1, 1), (7, 7)] {
            let request = Some(v1::Request { seq: 3, attempt, ..Default::default() });
            let asked = v1::LockRequest { request, ..asked.clone() };
            let part = part_of(&asked, vec![name_in(0, 0)], Instant::now()).request.unwrap();
            assert_eq!((part.seq, part.attempt, part.all_names), (3, sent, asked.names.clone()));
        }
    }

    #[test]
    fn what_one_group_has_is_not_taken_apart() {
        let (a, b) = (name_in(1, 0), name_in(1, 1));
        assert!(!is_over_groups(&lock(vec![a.clone(), b.clone()]), &map()));
        assert!(!is_over_groups(&lock(vec![a, name_in(2, 0)]), &GroupMap::single()));
        // Errors in the operation are reported where the requests of one group are checked.
        assert!(!is_over_groups(&lock(vec![b.clone(), b, name_in(2, 0)]), &map()));
    }

    #[test]
    fn the_first_name_speaks_for_the_whole_and_every_name_has_its_token() {
        let part = |name: &str, token| v1::LockResponse {
            key: format!("{name}/0000000000000001"),
            fencing_token: token,
            create_revision: token - 1,
            acquired: true,
            waited_ms: 5,
            tokens: vec![v1::NamedToken {
                name: name.into(),
                fencing_token: token,
                create_revision: token - 1,
            }],
            ..Default::default()
        };
        // The key of "job-1" sorts before that of "job", its name does not.
        for (one, other) in [("a", "b"), ("job", "job-1")] {
            let whole = join(Some(join(None, part(other, 9))), part(one, 3));
            let tokens: Vec<_> = whole.tokens.iter().map(|it| (it.name.as_str(), it.fencing_token)).collect();
            assert_eq!(tokens, [(one, 3), (other, 9)]);
            assert_eq!((whole.fencing_token, whole.create_revision, whole.waited_ms), (3, 2, 10));
            assert_eq!(whole.key, format!("{one}/0000000000000001"));
            assert_eq!(join(Some(part(one, 3)), part(other, 9)), whole);
        }
    }

    #[test]
    fn p1_a_grant_is_looked_for_by_its_token_and_one_that_is_not_shown_may_stand() {
        let Op::Lock(asked) = lock(vec![name_in(0, 0), name_in(1, 0)]) else { unreachable!() };
        let holder = v1::Holder { lease_id: 1, fencing_token: 7, ..Default::default() };
        let mut seen = v1::LockState { holders: vec![holder], holder_count: 1, ..Default::default() };
        assert_eq!(is_held(Some(&seen), &asked, 7), Some(true));
        assert_eq!(is_held(Some(&seen), &asked, 6), Some(false), "it was granted anew");
        assert_eq!(is_held(None, &asked, 7), Some(false));
        let other = v1::LockRequest { owner: "other".into(), ..asked.clone() };
        assert_eq!(is_held(Some(&seen), &other, 7), Some(false));
        seen.holder_count = 2;
        assert_eq!((is_held(Some(&seen), &asked, 6), is_held(Some(&seen), &asked, 7)), (None, Some(true)));
    }

    #[test]
    fn a_wait_is_shared_by_the_groups_and_no_wait_stays_none() {
        let began = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        assert!((6_900..=7_000).contains(&left_of(10_000, began)));
        assert_eq!((left_of(2_000, began), left_of(0, began), left_of(-1, began)), (1, 0, -1));
    }
}
