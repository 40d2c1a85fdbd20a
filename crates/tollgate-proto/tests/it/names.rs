//! Tests of the names that programs in other languages are written against. Names are added, never changed.

use crate::descriptors::{files, message};

/// Messages, and the fields that each must have.
const FIELDS: [(&str, &str); 21] = [
    ("Header", "cluster_id member_id group_id revision raft_term"),
    ("Request", "seq acked attempt"),
    (
        "LockRequest",
        "name names lease_id metadata timeout_ms mode owner permits of lock_delay_ms max_hold_ms tree request \
         metadata_bytes",
    ),
    (
        "LockResponse",
        "header key fencing_token acquired mode tokens position holders waited_ms renewed create_revision",
    ),
    ("UnlockRequest", "name lease_id owner fencing_token request"),
    ("LeaseGrantRequest", "ttl id ttl_ms client_id near revoke_on_disconnect"),
    ("LeaseGrantResponse", "header id ttl ttl_ms"),
    ("LeaseKeepAliveRequest", "id seq"),
    ("LeaseKeepAliveResponse", "header id seq ttl ttl_ms"),
    ("LeaseTimeToLiveRequest", "id keys"),
    ("WatchRequest", "key prefix lease_id start_revision cursor watch_id prev_kv filters cancel progress"),
    ("WatchResponse", "header watch_id events compact_revision created canceled cursor"),
    ("Event", "type kv prev_kv"),
    ("ListLocksRequest", "prefix limit consistency"),
    ("ExplainRequest", "name"),
    ("ForceReleaseRequest", "name fencing_token reason"),
    ("CancelWaitRequest", "lease_id seq name owner release_if_granted"),
    ("Waiter", "waiter_key predecessor_key create_revision"),
    ("Error", "code reason message group_id leader_id retry_after_ms may_have_happened field"),
    ("Operation", "id lock try_lock unlock convert cancel_wait lease_grant lease_revoke lease_keep_alive"),
    ("OperationResult", "id lock unlock lease_grant lease_keep_alive error queued"),
];

/// Services, and the calls that each must have. A `<` marks a call that takes a stream, a `>` a call that returns one.
const CALLS: [(&str, &str); 5] = [
    (
        "LockService",
        "Lock TryLock Unlock Convert CancelWait LeaseGrant LeaseRevoke <>LeaseKeepAlive LeaseTimeToLive \
         LeaseList <>Watch GetLock ListLocks Explain ForceRelease",
    ),
    ("RegisterService", "Put Get Delete Range Txn"),
    ("ElectionService", "Campaign Proclaim Leader >Observe Resign"),
    (
        "AdminService",
        "Status Members Groups Transfer Snapshot GetLimits SetLimits Deadlocks Config \
         AddMember PromoteMember RemoveMember ReplaceMember EndDeadlock >Backup",
    ),
    ("SessionService", "<>Session"),
];

#[test]
fn every_promised_field_exists() {
    let files = files();
    for (name, fields) in FIELDS {
        let message = message(&files, name);
        for field in fields.split(' ') {
            assert!(message.field.iter().any(|known| known.name() == field), "{name} has no {field}");
        }
    }
}

#[test]
fn the_services_have_the_promised_calls() {
    let files = files();
    let services: Vec<_> = files.file.iter().flat_map(|file| &file.service).collect();
    assert_eq!(services.len(), CALLS.len());
    for (name, calls) in CALLS {
        let service = services.iter().find(|service| service.name() == name).unwrap();
        let found: Vec<String> = service
            .method
            .iter()
            .map(|call| {
                let takes = if call.client_streaming() { "<" } else { "" };
                let gives = if call.server_streaming() { ">" } else { "" };
                format!("{takes}{gives}{}", call.name())
            })
            .collect();
        assert_eq!(found, calls.split(' ').collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn every_answer_of_a_call_has_a_header() {
    let files = files();
    let calls = files.file.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
    for call in calls {
        let answer = message(&files, call.output_type().trim_start_matches(".tollgate.v1."));
        assert!(answer.field.iter().any(|field| field.name() == "header"), "{}", answer.name());
    }
}

#[test]
fn what_a_session_carries_most_has_tags_of_one_byte() {
    let files = files();
    for (name, fields) in [
        ("Operation", "id lock unlock try_lock lease_keep_alive convert cancel_wait lease_grant"),
        ("OperationResult", "id lock unlock queued error lease_keep_alive"),
        ("LockRequest", "name lease_id timeout_ms mode owner request"),
        ("LockResponse", "header key fencing_token acquired mode create_revision"),
    ] {
        let message = message(&files, name);
        for field in fields.split(' ') {
            let field = message.field.iter().find(|known| known.name() == field).unwrap();
            assert!(field.number() < 16, "{name}.{}", field.name());
        }
    }
}
