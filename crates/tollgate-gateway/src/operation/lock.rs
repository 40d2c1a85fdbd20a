//! Lock requests: from their fields to commands.
//!
//! Not here: their answers (`lock_answer`).

use super::context::{About, ForcedRelease};
use super::lock_answer::{Purpose, RequestInfo};
use super::part::{check_part, whole};
use super::query::Query;
use super::route::group_of_names;
use super::{Kind, Prepared, read_consistency};
use tollgate_core::{
    AcquireLock, CancelTarget, CancelWait, Command, ConvertLock, ForceRelease, ReleaseBy, ReleaseLock,
    Request, Scope, Wait,
};
use tollgate_proto::convert::{self, RequestIdentity};
use tollgate_proto::{BadField, v1};
use tollgate_types::{Address, GroupId, GroupMap, LeaseId, Name, Names, Owner, Seq};

/// Reads the wait time of a request as the state machine's [`Wait`].
pub(super) fn read_wait(timeout_ms: i64) -> Result<Wait, BadField> {
    Ok(match convert::read_wait("timeout_ms", timeout_ms)? {
        convert::Wait::No => Wait::No,
        convert::Wait::For(duration) => Wait::For(duration),
        convert::Wait::Forever => Wait::Forever,
    })
}

/// Returns the part of a request's identity that goes into the log.
pub(super) fn request(identity: RequestIdentity) -> Request {
    let scope = identity.part_of.map_or(Scope::Whole, |whole| Scope::PartOf(Box::new(whole)));
    Request { seq: identity.seq, acked: identity.acked, scope }
}

/// Returns true for a request that may be answered "busy" without a log entry: a first attempt that does not wait.
pub(super) fn is_fast(wait: Wait, identity: Option<&RequestIdentity>) -> bool {
    wait == Wait::No && identity.is_none_or(|identity| identity.attempt == 0)
}

pub(super) fn prepare_try_lock(request: &v1::LockRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    if request.timeout_ms != 0 {
        let says = "trying does not wait: leave it 0, or use Lock";
        return Err(BadField::new("timeout_ms", says).into());
    }
    prepare_lock(request, map)
}

pub(super) fn prepare_lock(request: &v1::LockRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let names = convert::read_names(&request.name, &request.names)?;
    convert::read_no_tree(request.tree)?;
    let lease = convert::read_lease_id("lease_id", request.lease_id)?;
    let identity = convert::read_request(Some(lease), request.request.as_ref())?;
    check_part(&names, identity.as_ref(), map)?;
    let wait = read_wait(request.timeout_ms)?;
    let fast = is_fast(wait, identity.as_ref());
    let acquire = AcquireLock {
        names,
        lease,
        owner: convert::read_owner("owner", &request.owner)?,
        mode: convert::read_mode(request.mode, request.permits, request.of)?,
        wait,
        lock_delay: convert::read_duration("lock_delay_ms", request.lock_delay_ms)?,
        max_hold: convert::read_duration_or_none("max_hold_ms", request.max_hold_ms)?,
        metadata: convert::read_metadata(&request.metadata, &request.metadata_bytes)?,
        value: None,
        attended: false,
        request: identity.map(self::request),
    };
    let several = !request.names.is_empty();
    prepare_acquire(acquire, fast, Purpose::Lock { several }, map)
}

pub(super) fn prepare_acquire(
    acquire: AcquireLock,
    fast: bool,
    purpose: Purpose,
    map: &GroupMap,
) -> Result<Prepared, v1::Error> {
    let group = group_of_names(&acquire.names, map)?;
    let asked = RequestInfo {
        names: acquire.names.clone(),
        lease: acquire.lease,
        owner: acquire.owner.clone(),
        seq: acquire.request.as_ref().map(|request| request.seq),
        waits: acquire.wait != Wait::No,
        purpose,
    };
    let kind = Kind::Command { command: Command::AcquireLock(acquire), fast };
    Ok(Prepared::new(group, kind, About::Lock(asked)))
}

pub(super) fn prepare_convert(convert: &v1::ConvertRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let names = convert::read_names(&convert.name, &convert.names)?;
    let lease = convert::read_lease_id("lease_id", convert.lease_id)?;
    let owner = convert::read_owner("owner", &convert.owner)?;
    let identity = whole(convert::read_request(Some(lease), convert.request.as_ref())?)?;
    let mode = convert::read_mode(convert.mode, convert.permits, convert.of)?;
    let wait = read_wait(convert.timeout_ms)?;
    let group = group_of_names(&names, map)?;
    let asked = RequestInfo {
        names: names.clone(),
        lease,
        owner: owner.clone(),
        seq: identity.as_ref().map(|identity| identity.seq),
        waits: wait != Wait::No,
        purpose: Purpose::Convert { several: !convert.names.is_empty() },
    };
    let (attended, request) = (false, identity.map(request));
    let command = ConvertLock { names, lease, owner, mode, wait, attended, request };
    Ok(Prepared::command(group, Command::ConvertLock(command), About::Lock(asked)))
}

pub(super) fn prepare_unlock(unlock: &v1::UnlockRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let names = convert::read_names(&unlock.name, &unlock.names)?;
    let request = unlock.request.as_ref();
    let release = convert::read_release(unlock.lease_id, &unlock.owner, unlock.fencing_token, request)?;
    if let convert::Release::Holder { request, .. } = &release {
        check_part(&names, request.as_ref(), map)?;
    }
    let group = group_of_names(&names, map)?;
    let (command, lease, seq) = release_command(names, release);
    Ok(Prepared::command(group, command, About::Unlock { lease, seq }))
}

/// Returns the command that releases locks, the lease of their holder, and the request's seq.
pub(super) fn release_command(
    names: Names,
    release: convert::Release,
) -> (Command, Option<LeaseId>, Option<Seq>) {
    let (by, lease, seq) = match release {
        convert::Release::Token(token) => (ReleaseBy::Token(token), None, None),
        convert::Release::Holder { lease, owner, token, request: identity } => {
            let request = identity.map(request);
            let seq = request.as_ref().map(|request| request.seq);
            (ReleaseBy::Holder { lease, owner, token, request }, Some(lease), seq)
        }
    };
    (Command::ReleaseLock(ReleaseLock { names, by }), lease, seq)
}

pub(super) fn prepare_cancel(cancel: &v1::CancelWaitRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let (group, target) = match convert::read_cancel_target(
        cancel.seq,
        name_of_cancel(cancel)?,
        &cancel.owner,
    )? {
        convert::CancelTarget::Waiter { name, owner } => {
            (map.group_of(name.slot()), CancelTarget::Waiter { name, owner })
        }
        convert::CancelTarget::Seq(seq, Some(name)) => {
            (map.group_of(name.slot()), CancelTarget::SeqOn { seq, name })
        }
        convert::CancelTarget::Seq(seq, None) if map.is_single() => (GroupId::MAP, CancelTarget::Seq(seq)),
        // Any group would answer "cancelled" for a seq that it has not seen, while the request keeps waiting in another
        // group.
        convert::CancelTarget::Seq(..) => {
            let says = "where there are several groups, a seq does not say which of them has the request: set name \
                        to one of its locks as well";
            return Err(BadField::new("name", says).into());
        }
    };
    let lease = convert::read_lease_id("lease_id", cancel.lease_id)?;
    let acked = convert::read_seq_ranges("acked", &cancel.acked)?;
    let release_if_granted = cancel.release_if_granted;
    let asks_max = (cancel.asked_at_most != 0).then_some(cancel.asked_at_most);
    let by_seq = matches!(target, CancelTarget::Seq(_) | CancelTarget::SeqOn { .. });
    let repeats = by_seq || !release_if_granted;
    let command = CancelWait { lease, target, release_if_granted, asks_max, acked };
    Ok(Prepared::command(group, Command::CancelWait(command), About::CancelWait { lease, repeats }))
}

/// Returns the name of the lock by which the group of a cancel is found.
fn name_of_cancel(cancel: &v1::CancelWaitRequest) -> Result<&str, BadField> {
    match cancel.names.first() {
        Some(_) if !cancel.name.is_empty() => {
            Err(BadField::new("names", "name is set as well: put all locks of the request into names"))
        }
        Some(_) if cancel.seq == 0 => {
            Err(BadField::new("seq", "several names are those of one request: set its seq, or name alone"))
        }
        Some(first) => Ok(first),
        None => Ok(&cancel.name),
    }
}

/// Returns the command that leaves the queue of a lock, or releases the lock.
pub(super) fn leave(name: Name, lease: LeaseId, owner: Owner) -> Command {
    let target = CancelTarget::Waiter { name, owner };
    let acked = tollgate_types::SeqRanges::default();
    Command::CancelWait(CancelWait { lease, target, release_if_granted: true, asks_max: None, acked })
}

pub(super) fn prepare_force_release(
    force: &v1::ForceReleaseRequest,
    map: &GroupMap,
    from: &Address,
) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &force.name)?;
    let token = convert::read_token("fencing_token", force.fencing_token)?;
    let reason = convert::read_reason("reason", &force.reason)?;
    let group = map.group_of(name.slot());
    let about = ForcedRelease { name: name.clone(), token, reason: reason.clone(), from: from.clone() };
    let command = Command::ForceRelease(ForceRelease { name, token, reason });
    Ok(Prepared::command(group, command, About::ForceRelease(Box::new(about))))
}

pub(super) fn prepare_get(get: &v1::GetLockRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &get.name)?;
    let consistency = read_consistency(get.consistency)?;
    let group = map.group_of(name.slot());
    Ok(Prepared::read(group, consistency, Query::Lock(name.clone()), About::GetLock { name, consistency }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{DurationMs, Mode};

    fn lock() -> v1::LockRequest {
        v1::LockRequest { name: "jobs".into(), lease_id: 7, ..Default::default() }
    }

    fn acquire(request: &v1::LockRequest) -> (AcquireLock, bool) {
        let Kind::Command { command: Command::AcquireLock(acquire), fast } =
            prepare_lock(request, &GroupMap::single()).unwrap().kind
        else {
            panic!("a lock is an acquire")
        };
        (acquire, fast)
    }

    fn field(result: Result<Prepared, v1::Error>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.reason(), v1::ErrorReason::BadField);
        error.field
    }

    fn numbered(attempt: u32) -> v1::Request {
        v1::Request { seq: 3, attempt, ..Default::default() }
    }

    #[test]
    fn a_lock_request_becomes_an_acquire() {
        let request = v1::LockRequest {
            timeout_ms: 500,
            mode: v1::Mode::Shared.into(),
            owner: "t1".into(),
            metadata: "why".into(),
            lock_delay_ms: 10,
            max_hold_ms: 20,
            request: Some(numbered(0)),
            ..lock()
        };
        let (acquire, fast) = acquire(&request);
        assert!(!fast);
        assert_eq!(acquire.wait, Wait::For(DurationMs::from_ms(500)));
        assert_eq!((acquire.mode, acquire.lease.get()), (Mode::Shared, 7));
        assert_eq!((acquire.lock_delay.ms(), acquire.max_hold), (10, Some(DurationMs::from_ms(20))));
        assert_eq!(acquire.request.map(|request| request.seq.get()), Some(3));
        assert_eq!((acquire.owner.to_string(), acquire.metadata.to_string()), ("t1".into(), "why".into()));
    }

    #[test]
    fn only_a_first_attempt_that_does_not_wait_is_fast() {
        assert!(acquire(&lock()).1);
        assert!(acquire(&v1::LockRequest { request: Some(numbered(0)), ..lock() }).1);
        assert!(!acquire(&v1::LockRequest { request: Some(numbered(1)), ..lock() }).1);
        assert!(!acquire(&v1::LockRequest { timeout_ms: -1, ..lock() }).1);
    }

    #[test]
    fn bad_fields_of_a_lock_are_named() {
        let lock_field = |request| field(prepare_lock(&request, &GroupMap::single()));
        assert_eq!(lock_field(v1::LockRequest { name: String::new(), ..lock() }), "name");
        assert_eq!(lock_field(v1::LockRequest { lease_id: 0, ..lock() }), "lease_id");
        assert_eq!(lock_field(v1::LockRequest { timeout_ms: -2, ..lock() }), "timeout_ms");
        assert_eq!(lock_field(v1::LockRequest { permits: 1, ..lock() }), "of");
        assert_eq!(lock_field(v1::LockRequest { mode: 99, ..lock() }), "mode");
        assert_eq!(lock_field(v1::LockRequest { tree: true, ..lock() }), "tree");
        assert_eq!(lock_field(v1::LockRequest { owner: "a\n".into(), ..lock() }), "owner");
        let both = v1::LockRequest { metadata: "\0".into(), metadata_bytes: vec![0], ..lock() };
        assert_eq!(lock_field(both), "metadata_bytes");
        assert_eq!(lock_field(v1::LockRequest { lock_delay_ms: -1, ..lock() }), "lock_delay_ms");
        assert_eq!(lock_field(v1::LockRequest { max_hold_ms: -1, ..lock() }), "max_hold_ms");
        let request = Some(v1::Request::default());
        assert_eq!(lock_field(v1::LockRequest { request, ..lock() }), "request.seq");
        assert_eq!(
            field(prepare_try_lock(&v1::LockRequest { timeout_ms: 1, ..lock() }, &GroupMap::single())),
            "timeout_ms"
        );
    }

    #[test]
    fn names_of_several_groups_are_refused_for_now() {
        let names = (0..8).map(|i| i.to_string()).collect();
        let error = prepare_lock(
            &v1::LockRequest { name: String::new(), names, ..lock() },
            &GroupMap::even(8).unwrap(),
        )
        .unwrap_err();
        assert_eq!(error.reason(), v1::ErrorReason::NotSupported);
        assert!(error.message.contains("one by one"));
    }

    #[test]
    fn bad_fields_of_the_other_requests_are_named() {
        let convert =
            v1::ConvertRequest { name: "a".into(), lease_id: 7, of: 3, mode: 1, ..Default::default() };
        assert_eq!(field(prepare_convert(&convert, &GroupMap::single())), "of");
        let unlock = v1::UnlockRequest { name: "a".into(), ..Default::default() };
        assert_eq!(field(prepare_unlock(&unlock, &GroupMap::single())), "lease_id");
        let force = v1::ForceReleaseRequest { name: "a".into(), fencing_token: 4, reason: " ".into() };
        assert_eq!(field(prepare_force_release(&force, &GroupMap::single(), &Address::NONE)), "reason");
        let get = v1::GetLockRequest { name: "a".into(), consistency: 9 };
        assert_eq!(field(prepare_get(&get, &GroupMap::single())), "consistency");
        let cancel = v1::CancelWaitRequest { seq: 4, ..Default::default() };
        assert_eq!(field(prepare_cancel(&cancel, &GroupMap::single())), "lease_id");
    }

    #[test]
    fn a_cancel_by_seq_needs_to_know_the_group() {
        let cancel = v1::CancelWaitRequest { lease_id: 7, seq: 4, ..Default::default() };
        assert_eq!(prepare_cancel(&cancel, &GroupMap::single()).unwrap().group, GroupId::MAP);
        assert_eq!(field(prepare_cancel(&cancel, &GroupMap::even(2).unwrap())), "name");
        let named = v1::CancelWaitRequest { name: "jobs".into(), ..cancel };
        let group = GroupMap::even(16).unwrap().group_of(Name::new("jobs").unwrap().slot());
        let prepared = prepare_cancel(&named, &GroupMap::even(16).unwrap()).unwrap();
        assert_eq!((prepared.group, prepared.context.group()), (group, group));
    }

    #[test]
    fn a_request_goes_to_the_group_of_its_name() {
        for name in ["a", "b", "c", "{c}/1"] {
            let expected = GroupMap::even(16).unwrap().group_of(Name::new(name).unwrap().slot());
            let request = v1::LockRequest { name: name.into(), ..lock() };
            let prepared = prepare_lock(&request, &GroupMap::even(16).unwrap()).unwrap();
            assert_eq!((prepared.group, prepared.context.group()), (expected, expected));
            let get = v1::GetLockRequest { name: name.into(), consistency: 0 };
            assert_eq!(prepare_get(&get, &GroupMap::even(16).unwrap()).unwrap().group, expected);
        }
    }
}
