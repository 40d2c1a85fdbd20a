//! Formats events, locks, leases and registers for a script's output.

use super::words::time;
use tollgate_core::{
    BlockedBy, BlockedWait, Blocker, Change, ClaimState, Closed, EndReason, Event, HolderView, LeaseView,
    LockChange, LockView, RegisterChange, RegisterView, StubView, UnackedEnd, WaiterView,
};
use tollgate_types::{LeaseId, Mode, Owner, Revision, Value};

/// A position in the queue that an answer gave to the waiter with this revision.
pub(super) type Place = (Revision, u64);

/// One text per revision. `place` is shown with the event of its revision.
pub(super) fn events(events: &[Event], place: Option<Place>) -> Vec<String> {
    let same_revision = |a: &Event, b: &Event| a.revision == b.revision;
    events.chunk_by(same_revision).map(|together| revision(together, place)).collect()
}

/// The events of one revision: names with the same change are listed together.
fn revision(events: &[Event], place: Option<Place>) -> String {
    let mut parts: Vec<(String, Vec<String>, String)> = Vec::new();
    for event in events {
        let (what, name, rest) = match &event.change {
            Change::Lock(lock) => lock_change(lock, event.revision, place),
            Change::Register(register) => register_change(register, event.revision),
        };
        match parts.last_mut() {
            Some((same, names, also)) if *same == what && *also == rest => names.push(name),
            _ => parts.push((what, vec![name], rest)),
        }
    }
    let texts: Vec<String> =
        parts.iter().map(|(what, names, rest)| format!("{what} {}{rest}", names.join(","))).collect();
    format!("r{} {}", events[0].revision, texts.join(", "))
}

/// The three parts of a change: the verb, the name, and what follows.
fn lock_change(change: &LockChange, revision: Revision, place: Option<Place>) -> (String, String, String) {
    let (verb, detail) = match (&change.prev, &change.now) {
        (None, Some(now)) if now.token.is_some() => ("granted", held(now)),
        (None, Some(now)) => ("queued", format!("{}{}", mode(now.mode), position(revision, place))),
        (Some(prev), Some(now)) if prev.token.is_none() => ("granted", held(now)),
        (Some(prev), Some(ClaimState { wants: Some(wants), .. })) if prev.wants.is_none() => {
            ("upgrade queued", format!(" to {wants}{}", position(revision, place)))
        }
        (Some(_), Some(_)) if change.end.is_some() => ("upgrade ended", String::new()),
        (Some(prev), Some(now)) if prev.token == now.token && prev.mode == now.mode => {
            ("proclaimed", String::new())
        }
        (Some(prev), Some(now)) if prev.token == now.token => ("downgraded", held(now)),
        (Some(_), Some(now)) => ("upgraded", held(now)),
        (Some(prev), None) if prev.token.is_none() => ("wait ended", String::new()),
        (Some(_), None) => ("ended", String::new()),
        (None, None) => ("WRONG: neither before nor after", String::new()),
    };
    let mut rest = format!(" {}{detail}", who(change.lease, &change.owner));
    rest.extend(change.end.map(|end| format!(" {}", reason(end))));
    rest.push_str(&quoted("note", &change.note));
    if change.now.is_some() {
        rest.push_str(&quoted("why", &change.metadata));
    }
    rest.push_str(&said(change.value.as_ref()));
    if change.vacant {
        rest.push_str(" vacant");
    }
    rest.extend(wrong_numbers(change, revision));
    (verb.into(), change.name.to_string(), rest)
}

/// Numbers that can be derived from the others, shown only if they are not as expected.
fn wrong_numbers(change: &LockChange, revision: Revision) -> Option<String> {
    let prev_version = change.prev.map_or(0, |prev| prev.version);
    let wrong = change.now.is_some_and(|now| now.mod_revision != revision || now.version != prev_version + 1)
        || (change.prev.is_none() && change.create_revision != revision)
        || (change.now.is_some() && change.vacant);
    wrong.then(|| format!(" WRONG: {change:?}"))
}

fn held(now: &ClaimState) -> String {
    let token = now.token.map_or("none".into(), |token| token.to_string());
    let wants = now.wants.map(|wants| format!(" wants={wants}")).unwrap_or_default();
    format!("{} token={token}{wants}", mode(now.mode))
}

fn position(revision: Revision, place: Option<Place>) -> String {
    let here = place.filter(|(of, _)| *of == revision);
    here.map(|(_, position)| format!(" position={position}")).unwrap_or_default()
}

/// The mode; nothing for exclusive, the most frequent one.
pub(super) fn mode(mode: Mode) -> String {
    if mode == Mode::Exclusive { String::new() } else { format!(" {mode}") }
}

/// Formats an owner: `l1`, or `l1/owner`.
pub(super) fn who(lease: LeaseId, owner: &Owner) -> String {
    if owner.is_empty() { lease.to_string() } else { format!("{lease}/{owner}") }
}

/// Reason for an end.
pub(super) fn reason(end: EndReason) -> &'static str {
    match end {
        EndReason::Released => "released",
        EndReason::LeaseExpired => "expired",
        EndReason::LeaseRevoked => "revoked",
        EndReason::Disconnected => "disconnected",
        EndReason::Forced => "forced",
        EndReason::MaxHold => "max hold",
        EndReason::TimedOut => "timed out",
        EndReason::Cancelled => "cancelled",
        EndReason::Deadlock => "deadlock",
    }
}

fn quoted(what: &str, text: &impl std::fmt::Display) -> String {
    let text = text.to_string();
    if text.is_empty() { String::new() } else { format!(" {what}=\"{text}\"") }
}

/// The value, shown even if it is empty; nothing if there is none.
fn said(value: Option<&Value>) -> String {
    value.map_or_else(String::new, |value| format!(" says=\"{value}\""))
}

fn register_change(change: &RegisterChange, revision: Revision) -> (String, String, String) {
    let key = change.key.to_string();
    match (&change.prev, &change.now) {
        (prev, Some(now)) => {
            let (created, version) = prev.as_ref().map_or((revision, 0), |p| (p.create_revision, p.version));
            let lease = now.lease.map(|lease| format!(" lease={lease}")).unwrap_or_default();
            let good =
                now.mod_revision == revision && now.create_revision == created && now.version == version + 1;
            let wrong = if good { String::new() } else { format!(" WRONG: {change:?}") };
            ("put".into(), format!("{key}={}", now.value), format!(" version={}{lease}{wrong}", now.version))
        }
        (Some(prev), None) => ("deleted".into(), format!("{key}={}", prev.value), String::new()),
        (None, None) => ("WRONG: neither before nor after".into(), key, String::new()),
    }
}

/// A lock with all details that reads return.
pub(super) fn lock(lock: &LockView) -> String {
    let mut parts: Vec<String> = lock.holders.iter().map(holder).collect();
    parts.extend(lock.waiters.iter().map(waiter));
    parts.extend(lock.closed_until.map(|until| format!("closed until {}", time(until.ms()))));
    parts.join("; ")
}

fn holder(holder: &HolderView) -> String {
    format!(
        "{} holds{} token={} since={} created=r{} changed=r{} version={} until={}{}{}{}{}",
        holder.key,
        mode(holder.mode),
        holder.token,
        time(holder.since.ms()),
        holder.create_revision,
        holder.mod_revision,
        holder.version,
        time(holder.expiration.ms()),
        client(holder.client_id.to_string()),
        quoted("why", &holder.metadata),
        said(holder.said.as_ref().map(|(value, _)| value)),
        holder.said.as_ref().map_or_else(String::new, |(_, since)| format!(" since=r{since}")),
    )
}

fn waiter(waiter: &WaiterView) -> String {
    let wanted = if waiter.upgrade { format!(" to upgrade to {}", waiter.mode) } else { mode(waiter.mode) };
    format!(
        "{} waits{wanted} position={} behind={} since={} created=r{}{}{}{}",
        waiter.waiter_key,
        waiter.position,
        waiter.predecessor_key.as_deref().unwrap_or("nobody"),
        time(waiter.since.ms()),
        waiter.create_revision,
        waiter.deadline.map(|deadline| format!(" until={}", time(deadline.ms()))).unwrap_or_default(),
        client(waiter.client_id.to_string()),
        quoted("why", &waiter.metadata),
    )
}

fn client(id: String) -> String {
    if id.is_empty() { id } else { format!(" client={id}") }
}

/// The holders that keep a lock busy.
pub(super) fn busy(holders: &[HolderView], closed: Option<Closed>) -> String {
    let one = |holder: &HolderView| {
        format!("{}{} token={}", who(holder.lease, &holder.owner), mode(holder.mode), holder.token)
    };
    let holders: Vec<String> = holders.iter().map(one).collect();
    let held = if holders.is_empty() { "nobody".to_owned() } else { holders.join(", ") };
    let closed = closed.map_or_else(String::new, |Closed { left, restored }| {
        format!(", closed for {} more{}", time(left.ms()), if restored { " after a restore" } else { "" })
    });
    format!("busy held by {held}{closed}")
}

/// A lease with all details that reads return.
pub(super) fn lease(lease: &LeaseView) -> String {
    let address = lease.address.to_string();
    format!(
        "{} granted=r{} ttl={} remaining={} until={} seen={} claims={}{}{}{}{}",
        lease.lease,
        lease.incarnation,
        time(lease.ttl.ms()),
        time(lease.remaining.ms()),
        time(lease.deadline.ms()),
        time(lease.last_seen.ms()),
        lease.claims,
        client(lease.client_id.to_string()),
        if address.is_empty() { address } else { format!(" addr={address}") },
        if lease.revoke_on_disconnect { " revoke-on-disconnect" } else { "" },
        lease.stub.map(|it| format!("; {} added=r{}", stub(&it), it.added)).unwrap_or_default(),
    )
}

/// A wait and its blockers.
pub(super) fn blocked(wait: &BlockedWait) -> String {
    let one = |blocker: &Blocker| {
        let (who, name) = (who(blocker.who.lease, &blocker.who.owner), &blocker.name);
        match blocker.by {
            BlockedBy::Grant(token) => format!("{who} holds {name} token={token}"),
            BlockedBy::Ahead { create_revision, excludes } => {
                let share = if excludes { "" } else { " to share" };
                format!("{who} waits ahead for {name} since r{create_revision}{share}")
            }
        }
    };
    let blockers: Vec<String> = wait.blockers.iter().map(one).collect();
    let (waiter, name, since) = (who(wait.who.lease, &wait.who.owner), &wait.name, wait.create_revision);
    format!("{waiter} waits for {name}{} since r{since}: {}", mode(wait.mode), blockers.join(", "))
}

/// A lease's stub.
pub(super) fn stub(stub: &StubView) -> String {
    let state = if stub.pending { "pending" } else { "confirmed" };
    format!("stub {} home={} incarnation={} {state}", stub.lease, stub.home, stub.incarnation)
}

/// A group that must be told of a lease's end.
pub(super) fn unacked_end(end: &UnackedEnd) -> String {
    let reason = reason(end.reason.into());
    format!("tell group {} that {} of r{} {reason}", end.group, end.lease, end.incarnation)
}

/// The result of a range.
pub(super) fn registers(registers: &[RegisterView], count: u64) -> String {
    let one = |register: &RegisterView| {
        let lease = register.lease.map(|lease| format!(" lease={lease}")).unwrap_or_default();
        let (key, value, version) = (&register.key, &register.value, register.version);
        let (created, changed) = (register.create_revision, register.mod_revision);
        format!("{key}={value} created=r{created} changed=r{changed} version={version}{lease}")
    };
    let found: Vec<String> = registers.iter().map(one).collect();
    if found.is_empty() {
        format!("got 0 of {count}")
    } else {
        format!("got {} of {count}: {}", found.len(), found.join(", "))
    }
}
