//! Events in the form in which watches deliver them.
//!
//! Not here: the scope and start of a watch (`watch`).

use super::view::end_reason;
use tollgate_core::{Change, ClaimState, Event, LockChange, RegisterChange, RegisterState};
use tollgate_proto::convert::{
    MetadataFields, ModeFields, WatchFilters, write_lease_id, write_metadata, write_mode, write_token,
};
use tollgate_proto::{claim_key, v1};
use tollgate_types::{Key, Revision};

/// Converts an event, unless the watch filters it out. `prev_kv` includes the previous state.
pub fn event(event: &Event, filters: WatchFilters, prev_kv: bool) -> Option<v1::Event> {
    let wire = match &event.change {
        Change::Lock(change) if filters.no_waiters && only_waits(change) => return None,
        Change::Lock(change) => lock_event(change, event.revision, prev_kv),
        Change::Register(change) => register_event(change, event.revision, prev_kv),
    };
    let left_out = match wire.r#type() {
        v1::EventType::Put => filters.no_put,
        v1::EventType::Delete => filters.no_delete,
        v1::EventType::Unspecified => false,
    };
    (!left_out).then_some(wire)
}

/// Returns true if a claim joins the queue, or leaves it without a grant.
fn only_waits(change: &LockChange) -> bool {
    change.now.or(change.prev).is_some_and(|state| state.token.is_none())
}

fn lock_event(change: &LockChange, revision: Revision, prev_kv: bool) -> v1::Event {
    let (kind, kv) = match &change.now {
        Some(now) => {
            let value = change.value.as_ref().map_or_else(Vec::new, |value| value.as_bytes().to_vec());
            (v1::EventType::Put, v1::Claim { value, ..claim(change, now) })
        }
        None => (v1::EventType::Delete, v1::Claim { mod_revision: revision.get(), ..which_claim(change) }),
    };
    let prev = change.prev.as_ref().filter(|_| prev_kv).map(|prev| of_claim(claim(change, prev)));
    v1::Event {
        r#type: kind.into(),
        kv: Some(of_claim(kv)),
        prev_kv: prev,
        revision: revision.get(),
        end_reason: change.end.map_or(v1::EndReason::Unspecified, end_reason).into(),
        note: change.note.to_string(),
        vacant: change.vacant,
    }
}

fn which_claim(change: &LockChange) -> v1::Claim {
    v1::Claim {
        key: claim_key(&change.name, change.lease, &change.owner),
        name: change.name.to_string(),
        lease_id: change.lease.get(),
        owner: change.owner.to_string(),
        create_revision: change.create_revision.get(),
        ..v1::Claim::default()
    }
}

fn claim(change: &LockChange, state: &ClaimState) -> v1::Claim {
    let ModeFields { mode, permits, of } = write_mode(state.mode);
    let MetadataFields { metadata, metadata_bytes } = write_metadata(&change.metadata);
    let wants = state.wants.map_or(v1::Mode::Unspecified, |wants| write_mode(wants).mode);
    v1::Claim {
        mode: mode.into(),
        permits,
        of,
        fencing_token: write_token(state.token),
        wants: wants.into(),
        mod_revision: state.mod_revision.get(),
        version: state.version,
        metadata,
        metadata_bytes,
        ..which_claim(change)
    }
}

fn of_claim(claim: v1::Claim) -> v1::KeyValue {
    v1::KeyValue { kv: Some(v1::key_value::Kv::Claim(claim)) }
}

fn register_event(change: &RegisterChange, revision: Revision, prev_kv: bool) -> v1::Event {
    let (kind, kv) = match (&change.now, &change.prev) {
        (Some(now), _) => (v1::EventType::Put, register(&change.key, now)),
        (None, prev) => {
            let gone = v1::Register {
                key: change.key.as_bytes().to_vec(),
                create_revision: prev.as_ref().map_or(0, |prev| prev.create_revision.get()),
                mod_revision: revision.get(),
                ..v1::Register::default()
            };
            (v1::EventType::Delete, gone)
        }
    };
    let prev = change.prev.as_ref().filter(|_| prev_kv).map(|prev| of_register(register(&change.key, prev)));
    v1::Event {
        r#type: kind.into(),
        kv: Some(of_register(kv)),
        prev_kv: prev,
        revision: revision.get(),
        ..v1::Event::default()
    }
}

fn register(key: &Key, state: &RegisterState) -> v1::Register {
    v1::Register {
        key: key.as_bytes().to_vec(),
        value: state.value.as_bytes().to_vec(),
        lease_id: write_lease_id(state.lease),
        create_revision: state.create_revision.get(),
        mod_revision: state.mod_revision.get(),
        version: state.version,
    }
}

fn of_register(register: v1::Register) -> v1::KeyValue {
    v1::KeyValue { kv: Some(v1::key_value::Kv::Register(register)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::EndReason;
    use tollgate_types::{LeaseId, Metadata, Mode, Name, Owner, Reason, Token, Value};

    const ALL: WatchFilters = WatchFilters { no_put: false, no_delete: false, no_waiters: false };

    fn revision(number: u64) -> Revision {
        Revision::new(number).unwrap()
    }

    fn state(token: Option<u64>) -> ClaimState {
        ClaimState {
            mode: Mode::Shared,
            token: token.map(|token| Token::new(token).unwrap()),
            wants: token.map(|_| Mode::Exclusive),
            mod_revision: revision(8),
            version: 2,
        }
    }

    fn lock(now: Option<ClaimState>, prev: Option<ClaimState>) -> Event {
        let change = LockChange {
            name: Name::new("jobs").unwrap(),
            lease: LeaseId::new(1).unwrap(),
            owner: Owner::LEASE,
            metadata: Metadata::new("why").unwrap(),
            create_revision: revision(4),
            now,
            prev,
            end: now.is_none().then_some(EndReason::Forced),
            note: Reason::new("note").unwrap(),
            value: now.and(Value::new("says").ok()),
            vacant: now.is_none(),
        };
        Event { revision: revision(9), change: Change::Lock(change) }
    }

    fn claim_of(kv: Option<v1::KeyValue>) -> v1::Claim {
        match kv.unwrap().kv {
            Some(v1::key_value::Kv::Claim(claim)) => claim,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_grant_is_a_put_with_what_it_was() {
        let told = event(&lock(Some(state(Some(9))), Some(state(None))), ALL, true).unwrap();
        assert_eq!((told.r#type(), told.revision), (v1::EventType::Put, 9));
        let (now, prev) = (claim_of(told.kv), claim_of(told.prev_kv));
        assert_eq!((now.key.as_str(), now.fencing_token), ("jobs/0000000000000001", 9));
        assert_eq!((now.mode(), now.wants()), (v1::Mode::Shared, v1::Mode::Exclusive));
        assert_eq!((now.create_revision, now.mod_revision, now.version), (4, 8, 2));
        assert_eq!((prev.fencing_token, prev.metadata.as_str()), (0, "why"));
        assert_eq!((now.value.as_slice(), prev.value.as_slice()), (b"says".as_slice(), b"".as_slice()));
    }

    #[test]
    fn an_end_is_a_delete_that_says_which_and_why() {
        let told = event(&lock(None, Some(state(Some(5)))), ALL, false).unwrap();
        assert_eq!((told.r#type(), told.end_reason()), (v1::EventType::Delete, v1::EndReason::Forced));
        assert!(told.vacant && told.note == "note" && told.prev_kv.is_none());
        let gone = claim_of(told.kv);
        assert_eq!((gone.create_revision, gone.mod_revision, gone.fencing_token), (4, 9, 0));
        assert!(gone.metadata.is_empty());
    }

    #[test]
    fn filters_leave_out_what_they_name() {
        let told = |filters, event_: &Event| event(event_, filters, true).is_some();
        let joins = lock(Some(state(None)), None);
        let granted = lock(Some(state(Some(9))), Some(state(None)));
        let gives_up = lock(None, Some(state(None)));
        let released = lock(None, Some(state(Some(5))));
        let no_waiters = WatchFilters { no_waiters: true, ..ALL };
        assert!(!told(no_waiters, &joins) && !told(no_waiters, &gives_up));
        assert!(told(no_waiters, &granted) && told(no_waiters, &released));
        let no_put = WatchFilters { no_put: true, ..ALL };
        assert!(!told(no_put, &granted) && told(no_put, &released));
        let no_delete = WatchFilters { no_delete: true, ..ALL };
        assert!(told(no_delete, &granted) && !told(no_delete, &released));
    }

    #[test]
    fn a_register_is_told_as_it_is_and_was() {
        let state = RegisterState {
            value: Value::new("v").unwrap(),
            lease: LeaseId::new(3).ok(),
            create_revision: revision(2),
            mod_revision: revision(6),
            version: 4,
        };
        let change = |now, prev| {
            let change = RegisterChange { key: Key::new("k").unwrap(), now, prev };
            Event { revision: revision(9), change: Change::Register(change) }
        };
        let of = |kv: Option<v1::KeyValue>| match kv.unwrap().kv {
            Some(v1::key_value::Kv::Register(register)) => register,
            other => panic!("{other:?}"),
        };
        let put = event(&change(Some(state.clone()), None), ALL, true).unwrap();
        assert_eq!((put.r#type(), put.prev_kv.clone()), (v1::EventType::Put, None));
        let now = of(put.kv);
        assert_eq!((now.value.as_slice(), now.lease_id, now.version), (b"v".as_slice(), 3, 4));
        let delete = event(&change(None, Some(state)), ALL, true).unwrap();
        assert_eq!(delete.r#type(), v1::EventType::Delete);
        assert_eq!(of(delete.prev_kv).mod_revision, 6);
        let gone = of(delete.kv);
        assert_eq!((gone.value.len(), gone.create_revision, gone.mod_revision), (0, 2, 9));
    }
}
