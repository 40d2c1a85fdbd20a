//! The client's types, as text for people and as JSON for programs.
//!
//! In JSON, ids, tokens and revisions are strings, since a double can't hold every 64-bit number; times are in
//! milliseconds if the field's name says so, and null if unknown. Invariant: fields are added, never renamed.

use crate::globals::Globals;
use crate::span;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;
use tollgate_client::{
    Consistency, DeadlockStep, Holder, Leader, LeaseInfo, LockInfo, Missing, Mode, Silent, Waiter,
};
use tollgate_types::escaped;

/// Returns the consistency of a read.
pub(crate) fn freshness(stale: bool) -> Consistency {
    if stale { Consistency::Stale } else { Consistency::Linearizable }
}

/// Warns that the data may be old, if `--stale` was given.
pub(crate) fn warn_of_age(globals: &Globals, stale: bool) {
    if stale {
        globals.remark("tollgate: as one node knows it, which asked no other: it may be old");
    }
}

/// Returns a number as a JSON string, since a parser may turn a JSON number into a double.
pub(crate) fn text(number: impl Display) -> Value {
    Value::String(number.to_string())
}

/// Returns a span as a number of milliseconds.
pub(crate) fn ms(span: Duration) -> Value {
    Value::from(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Formats a span for people, or a dash if it is unknown.
pub(crate) fn span_or_dash(span: Option<Duration>) -> String {
    span.map_or_else(|| "-".to_owned(), span::text)
}

/// Describes the reason why a lock without holders is closed.
pub(crate) fn closed_text(left: Duration, restored: bool) -> String {
    let left = span::text(left);
    if restored {
        return format!("the cluster was restored from a backup and grants nothing for {left} more");
    }
    format!("closed by a lock-delay for {left}")
}

/// Returns a text for people, or a dash if it is empty.
pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Names a client by its id, or by its lease if it has none.
pub(crate) fn client_text(client_id: &str, lease: impl Display) -> String {
    if client_id.is_empty() { format!("lease {lease}") } else { escaped(client_id).to_string() }
}

/// Describes a holder in a few words: `w1 for 12s (token 7, because "schema v42")`.
pub(crate) fn holder_text(holder: &Holder) -> String {
    let since = holder.held.map_or_else(String::new, |held| format!(" for {}", span::text(held)));
    let why =
        if holder.why.is_empty() { String::new() } else { format!(", because \"{}\"", escaped(&holder.why)) };
    let who = client_text(&holder.client_id, holder.lease);
    format!("{who}{since} (token {}{why})", holder.token)
}

/// Describes a cycle of waits, one line per step.
pub(crate) fn cycle_text(cycle: &[DeadlockStep]) -> String {
    let who = |lease: &dyn Display, owner: &str| {
        let owner = escaped(owner).to_string();
        if owner.is_empty() { format!("lease {lease}") } else { format!("{owner} (lease {lease})") }
    };
    let lines = cycle.iter().map(|step| {
        let waiter = who(&step.lease, &step.owner);
        let blocker = who(&step.blocker_lease, &step.blocker_owner);
        let how = match step.blocker_token {
            Some(token) => format!("held by {blocker} with token {token}"),
            None => format!("for which {blocker} waits ahead"),
        };
        format!("  {waiter} waits for {} ({}), {how}", escaped(&step.name), step.mode)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the permits that are taken, and their total number; null for modes without permits.
pub(crate) fn permits_json(mode: Mode) -> (Value, Value) {
    match mode {
        Mode::Permit { n, of } => (json!(n), json!(of)),
        _ => (Value::Null, Value::Null),
    }
}

/// Returns the word for a mode; the permits are fields of their own.
pub(crate) fn mode_json(mode: Mode) -> Value {
    match mode {
        Mode::Permit { .. } => json!("permit"),
        plain => text(plain),
    }
}

/// Lists the groups and nodes that could not be asked, for programs.
pub(crate) fn missing_json(missing: &[Missing]) -> Value {
    let missing = missing.iter().map(|missing| {
        let (group, node) = match missing.who {
            Silent::Group(group) => (Some(group.number()), None),
            Silent::Node(node) => (None, Some(text(node.number()))),
            _ => (None, None),
        };
        json!({"group_id": group, "node_id": node, "message": missing.message})
    });
    Value::Array(missing.collect())
}

/// Lists the groups and nodes that could not be asked with the unknown part, one line each, without duplicates.
pub(crate) fn missing_text<'a>(missing: impl Iterator<Item = &'a Missing>, unknown: &str) -> Vec<String> {
    let lines: BTreeSet<String> = missing.map(|missing| format!("{unknown}: {missing}")).collect();
    lines.into_iter().collect()
}

/// Returns metadata in base64 if it is not text; `None` if it is text, which `why` shows.
pub(crate) fn base64_unless_text(metadata: &[u8]) -> Option<String> {
    std::str::from_utf8(metadata).is_err().then(|| BASE64.encode(metadata))
}

pub(crate) fn lock_json(lock: &LockInfo) -> Value {
    json!({
        "name": lock.name,
        "holders": lock.holders.iter().map(holder_json).collect::<Vec<_>>(),
        "waiters": lock.waiters.iter().map(waiter_json).collect::<Vec<_>>(),
        "holder_count": lock.holder_count,
        "waiter_count": lock.waiter_count,
        "closed_ms": ms(lock.closed_for),
        "restored": lock.restored,
        "revision": text(lock.revision),
        "missing": missing_json(&lock.missing),
    })
}

pub(crate) fn holder_json(holder: &Holder) -> Value {
    let (permits, of) = permits_json(holder.mode);
    json!({
        "key": holder.key,
        "lease_id": text(holder.lease),
        "owner": holder.owner,
        "mode": mode_json(holder.mode),
        "permits": permits,
        "of": of,
        "fencing_token": text(holder.token),
        "client_id": holder.client_id,
        "address": holder.address,
        "why": holder.why,
        "metadata_base64": base64_unless_text(&holder.metadata),
        "held_ms": holder.held.map(ms),
        "remaining_ms": holder.remaining.map(ms),
        "create_revision": text(holder.create_revision),
        "mod_revision": text(holder.mod_revision),
    })
}

pub(crate) fn waiter_json(waiter: &Waiter) -> Value {
    let (permits, of) = permits_json(waiter.mode);
    json!({
        "key": waiter.key,
        "predecessor_key": waiter.predecessor_key,
        "position": waiter.position,
        "lease_id": text(waiter.lease),
        "owner": waiter.owner,
        "mode": mode_json(waiter.mode),
        "permits": permits,
        "of": of,
        "upgrade": waiter.upgrade,
        "client_id": waiter.client_id,
        "address": waiter.address,
        "why": waiter.why,
        "metadata_base64": base64_unless_text(&waiter.metadata),
        "waited_ms": waiter.waited.map(ms),
        "remaining_ms": waiter.remaining.map(ms),
        "create_revision": text(waiter.create_revision),
    })
}

pub(crate) fn lease_json(lease: &LeaseInfo) -> Value {
    json!({
        "lease_id": text(lease.id),
        "ttl_ms": ms(lease.ttl),
        "remaining_ms": ms(lease.remaining),
        "client_id": lease.client_id,
        "address": lease.address,
        "last_seen_ms": ms(lease.last_seen),
        "revoke_on_disconnect": lease.revoke_on_disconnect,
        "claims": lease.claims,
        "incarnation": text(lease.incarnation),
        "group_id": lease.group.number(),
        "other_group_ids": lease.other_groups.iter().map(|group| group.number()).collect::<Vec<_>>(),
        "missing": missing_json(&lease.missing),
    })
}

pub(crate) fn leader_json(election: &str, leader: Option<&Leader>) -> Value {
    let Some(leader) = leader else { return json!({"name": election, "leader": null}) };
    json!({
        "name": election,
        "leader": {
            "lease_id": text(leader.lease),
            "owner": leader.owner,
            "fencing_token": text(leader.token),
            "value": String::from_utf8_lossy(&leader.value),
            "value_revision": text(leader.value_revision),
            "client_id": leader.client_id,
        },
    })
}

pub(crate) fn cycle_json(cycle: &[DeadlockStep]) -> Value {
    let steps = cycle.iter().map(|step| {
        json!({
            "lease_id": text(step.lease),
            "owner": step.owner,
            "name": step.name,
            "mode": mode_json(step.mode),
            "blocker_lease_id": text(step.blocker_lease),
            "blocker_owner": step.blocker_owner,
            "blocker_fencing_token": step.blocker_token.map(text),
        })
    });
    Value::Array(steps.collect())
}
