//! One lock in words: who holds it and why, who waits and for whom, what will happen next.
//!
//! For people; nothing takes the sentences apart. Not here: the same in fields (`view`).

use super::context::HeaderInfo;
use super::query::{Query, Seen};
use super::view::Counts;
use tollgate_core::{HolderView, LockView, WaiterView};
use tollgate_proto::{convert, v1};
use tollgate_types::{ClientId, GroupId, GroupMap, LeaseId, LogTime, Metadata, Name, NodeId, Owner};

/// How many holders and how many waiters get a sentence each.
const SENTENCES_MAX: usize = 20;

/// A lock to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explain {
    /// Which.
    pub name: Name,
    /// Where it lives.
    pub group: GroupId,
}

impl Explain {
    /// Reads the request.
    pub fn read(request: &v1::ExplainRequest, map: &GroupMap) -> Result<Explain, v1::Error> {
        let name = convert::read_name("name", &request.name)?;
        let group = map.group_of(name.slot());
        Ok(Explain { name, group })
    }

    /// What to look at.
    pub fn query(&self) -> Query {
        Query::Lock(self.name.clone())
    }

    /// The answer. `leader` is who leads the group.
    pub fn response(&self, seen: &Seen, header: &HeaderInfo, leader: Option<NodeId>) -> v1::ExplainResponse {
        v1::ExplainResponse {
            header: header.at(seen.revision()),
            lock: Some(seen.lock_state(&self.name)),
            slot: self.name.slot().number().into(),
            group_id: self.group.number(),
            leader_id: leader.map_or(0, NodeId::number),
            lines: self.lines(seen),
        }
    }
}

impl Explain {
    fn lines(&self, seen: &Seen) -> Vec<String> {
        let mut lines = explain_lines(&self.name, seen.counted_lock(), seen.now());
        if let Some(until) = seen.closed_until() {
            if seen.lock().is_none() {
                lines = vec![format!("Nobody holds {} and nobody waits for it.", self.name)];
            }
            lines.push(format!(
                "The cluster was restored from a backup, and grants no lock for {} more: a holder from after the \
                 backup may still believe that it holds one. Whoever waits is granted then.",
                span(seen.now().until(until).ms())
            ));
        }
        lines
    }
}

/// Sentences about the lock of this name; without a view, it is free.
pub fn explain_lines(name: &Name, view: Option<(&LockView, Counts)>, now: LogTime) -> Vec<String> {
    let Some((view, counts)) = view else {
        return vec![format!("{name} is free: nobody holds it and nobody waits for it.")];
    };
    let mut lines = Vec::new();
    if view.holders.is_empty() {
        lines.push(format!("Nobody holds {name}."));
    }
    lines.extend(view.holders.iter().take(SENTENCES_MAX).map(|holder| held(name, holder, now)));
    lines.extend(more(counts.holders, "hold it"));
    if let Some(until) = view.closed_until {
        lines.push(format!(
            "It stays closed for {} more: its last holder may not know yet that it lost it.",
            span(now.until(until).ms())
        ));
    }
    if view.waiters.is_empty() {
        lines.push("Nobody waits for it.".to_owned());
    }
    lines.extend(view.waiters.iter().take(SENTENCES_MAX).map(|waiter| waits(waiter, now)));
    lines.extend(more(counts.waiters, "wait"));
    lines.extend(next(view));
    lines
}

fn held(name: &Name, holder: &HolderView, now: LogTime) -> String {
    let who = who(&holder.client_id, holder.lease, &holder.owner);
    let end = match holder.expiration {
        LogTime::NEVER => "ends when its lease does, which lives in another group".to_owned(),
        until => format!("ends in {} unless its lease is renewed", span(now.until(until).ms())),
    };
    let (mode, token, why) = (holder.mode, holder.token, why(&holder.metadata));
    let held = span(holder.since.until(now).ms());
    format!("{name} has been held ({mode}) for {held} by {who} with token {token}{why}; the grant {end}.")
}

fn waits(waiter: &WaiterView, now: LogTime) -> String {
    let who = who(&waiter.client_id, waiter.lease, &waiter.owner);
    let upgrade = if waiter.upgrade { ", and holds it in a weaker mode meanwhile" } else { "" };
    let behind = match &waiter.predecessor_key {
        Some(key) => format!("behind {key}"),
        None => "for it to be open".to_owned(),
    };
    let end = match waiter.deadline {
        Some(deadline) => format!("gives up in {}", span(now.until(deadline).ms())),
        None => "waits as long as its lease lives".to_owned(),
    };
    let (position, mode, why) = (waiter.position, waiter.mode, why(&waiter.metadata));
    let for_long = span(waiter.since.until(now).ms());
    format!(
        "Number {position} in line is {who}, which wants it ({mode}){why}{upgrade}; it has waited for {for_long} \
         {behind} and {end}."
    )
}

fn next(view: &LockView) -> Option<String> {
    let first = view.waiters.first()?;
    let who = who(&first.client_id, first.lease, &first.owner);
    let others = view.holders.iter().any(|holder| holder.key != first.waiter_key);
    let when = match (others, view.closed_until) {
        (true, _) => "When those in its way release it, or their leases end",
        (false, Some(_)) => "When that time has passed",
        (false, None) => "With the next entry of the log",
    };
    Some(format!("{when}, {who} is next."))
}

fn more(count: usize, what: &str) -> Option<String> {
    let rest = count.checked_sub(SENTENCES_MAX).filter(|rest| *rest > 0)?;
    Some(format!("{rest} more {what}."))
}

fn who(client: &ClientId, lease: LeaseId, owner: &Owner) -> String {
    let client = if client.is_empty() { "a client without a name".to_owned() } else { client.to_string() };
    let owner = if owner.is_empty() { String::new() } else { format!(", owner {owner}") };
    format!("{client} (lease {lease}{owner})")
}

fn why(metadata: &Metadata) -> String {
    if metadata.is_empty() { String::new() } else { format!(", because \"{metadata}\"") }
}

fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{Mode, Revision, Token};

    fn name() -> Name {
        Name::new("jobs").unwrap()
    }

    fn holder() -> HolderView {
        HolderView {
            key: "jobs/0000000000000001".into(),
            lease: LeaseId::new(1).unwrap(),
            owner: Owner::LEASE,
            client_id: ClientId::new("w1").unwrap(),
            mode: Mode::Exclusive,
            token: Token::new(3).unwrap(),
            metadata: Metadata::new("schema v42").unwrap(),
            said: None,
            create_revision: Revision::ZERO,
            mod_revision: Revision::ZERO,
            version: 1,
            since: LogTime::ZERO,
            expiration: LogTime::from_ms(9_500),
        }
    }

    fn waiter() -> WaiterView {
        WaiterView {
            waiter_key: "jobs/0000000000000002/t".into(),
            predecessor_key: Some("jobs/0000000000000001".into()),
            position: 1,
            lease: LeaseId::new(2).unwrap(),
            owner: Owner::new("t").unwrap(),
            client_id: ClientId::NONE,
            mode: Mode::Shared,
            upgrade: false,
            metadata: Metadata::NONE,
            create_revision: Revision::ZERO,
            since: LogTime::ZERO,
            deadline: Some(LogTime::from_ms(700)),
            attended: false,
            asks: 1,
        }
    }

    #[test]
    fn a_free_lock_takes_one_sentence() {
        let lines = explain_lines(&name(), None, LogTime::ZERO);
        assert_eq!(lines, ["jobs is free: nobody holds it and nobody waits for it."]);
    }

    #[test]
    fn a_lock_is_explained_from_its_holder_to_who_is_next() {
        let view =
            LockView { name: name(), holders: vec![holder()], waiters: vec![waiter()], closed_until: None };
        let expected = [
            "jobs has been held (exclusive) for 0 ms by w1 (lease L-0000000000000001) with token 3, because \
             \"schema v42\"; the grant ends in 9.5 s unless its lease is renewed.",
            "Number 1 in line is a client without a name (lease L-0000000000000002, owner t), which wants it \
             (shared); it has waited for 0 ms behind jobs/0000000000000001 and gives up in 700 ms.",
            "When those in its way release it, or their leases end, a client without a name (lease \
             L-0000000000000002, owner t) is next.",
        ];
        assert_eq!(explain_lines(&name(), Some((&view, Counts::of(&view))), LogTime::ZERO), expected);
    }

    #[test]
    fn a_closed_lock_says_for_how_long() {
        let waiter = WaiterView { predecessor_key: None, deadline: None, ..waiter() };
        let closed_until = Some(LogTime::from_ms(3_000));
        let view = LockView { name: name(), holders: vec![], waiters: vec![waiter], closed_until };
        let lines = explain_lines(&name(), Some((&view, Counts::of(&view))), LogTime::ZERO).join("\n");
        for part in
            ["Nobody holds jobs.", "closed for 3.0 s more", "as long as its lease lives", "has passed"]
        {
            assert!(lines.contains(part), "{lines}");
        }
    }

    #[test]
    fn a_crowd_is_cut_short() {
        let view =
            LockView { name: name(), holders: vec![holder(); 25], waiters: vec![], closed_until: None };
        let lines = explain_lines(&name(), Some((&view, Counts::of(&view))), LogTime::ZERO);
        assert_eq!(lines.len(), SENTENCES_MAX + 2);
        assert!(lines.contains(&"5 more hold it.".to_owned()));
    }
}
