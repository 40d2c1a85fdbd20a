//! Describes one lock in sentences: its holders and their reasons, its waiters and their predecessors, and what happens
//! next.
//!
//! For people; no program parses the sentences. Not here: the same facts as fields (`view`).

use super::context::HeaderInfo;
use super::homes::Homes;
use super::query::{Query, Seen};
use super::view::Counts;
use tollgate_core::{HolderView, LockView, WaiterView};
use tollgate_proto::{convert, v1};
use tollgate_types::{ClientId, GroupId, GroupMap, LeaseId, LogTime, Metadata, Name, NodeId, Owner};

/// Maximum number of holders, and of waiters, that get a sentence each.
const SENTENCES_MAX: usize = 20;

/// A lock to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explain {
    /// Name of the lock.
    pub name: Name,
    /// Group that serves the lock.
    pub group: GroupId,
}

impl Explain {
    /// Reads the request.
    pub fn read(request: &v1::ExplainRequest, map: &GroupMap) -> Result<Explain, v1::Error> {
        let name = convert::read_name("name", &request.name)?;
        let group = map.group_of(name.slot());
        Ok(Explain { name, group })
    }

    /// Returns the query that reads the lock.
    pub fn query(&self) -> Query {
        Query::Lock(self.name.clone())
    }

    /// Returns the leases of the lock's holders and waiters, each with the lock's group.
    pub fn leases(&self, seen: &Seen) -> Vec<(GroupId, LeaseId)> {
        let Some(view) = seen.lock() else { return Vec::new() };
        let holders = view.holders.iter().map(|holder| holder.lease);
        let leases = holders.chain(view.waiters.iter().map(|waiter| waiter.lease));
        leases.map(|lease| (self.group, lease)).collect()
    }

    /// Returns the answer. `homes` knows those of the leases that live in other groups, `leader` is the group's leader.
    pub fn response(
        &self,
        seen: &Seen,
        homes: &Homes,
        header: &HeaderInfo,
        leader: Option<NodeId>,
    ) -> v1::ExplainResponse {
        let mut lock = seen.lock_state(&self.name);
        homes.complete(&mut lock);
        v1::ExplainResponse {
            header: header.at(seen.revision()),
            lock: Some(lock),
            slot: self.name.slot().number().into(),
            group_id: self.group.number(),
            leader_id: leader.map_or(0, NodeId::number),
            lines: self.lines(seen, homes),
            missing: homes.missing(),
        }
    }
}

impl Explain {
    fn lines(&self, seen: &Seen, homes: &Homes) -> Vec<String> {
        let mut lines = explain_lines(&self.name, seen.counted_lock(), seen.now(), homes);
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

/// Returns sentences about the lock `name`; without a view, the lock is free.
pub fn explain_lines(
    name: &Name,
    view: Option<(&LockView, Counts)>,
    now: LogTime,
    homes: &Homes,
) -> Vec<String> {
    let Some((view, counts)) = view else {
        return vec![format!("{name} is free: nobody holds it and nobody waits for it.")];
    };
    let mut lines = Vec::new();
    if view.holders.is_empty() {
        lines.push(format!("Nobody holds {name}."));
    }
    lines.extend(view.holders.iter().take(SENTENCES_MAX).map(|holder| held(name, holder, now, homes)));
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

fn held(name: &Name, holder: &HolderView, now: LogTime, homes: &Homes) -> String {
    let who = who(&holder.client_id, holder.lease, &holder.owner);
    let end = end(holder, now, homes);
    let (mode, token, why) = (holder.mode, holder.token, why(&holder.metadata));
    let held = span(holder.since.until(now).ms());
    format!("{name} has been held ({mode}) for {held} by {who} with token {token}{why}; the grant {end}.")
}

/// Describes how the grant ends if nobody acts.
fn end(holder: &HolderView, now: LogTime, homes: &Homes) -> String {
    let ends_in = |left_ms| format!("ends in {} unless its lease is renewed", span(left_ms));
    let left_ms = (holder.expiration != LogTime::NEVER).then(|| now.until(holder.expiration).ms());
    if let Some(home) = homes.of(holder.lease) {
        return match u64::try_from(home.remaining_ms).unwrap_or(0) {
            0 => "ends now: its lease has ended".to_owned(),
            of_lease_ms => ends_in(left_ms.map_or(of_lease_ms, |left_ms| left_ms.min(of_lease_ms))),
        };
    }
    match (left_ms, homes.silent(holder.lease)) {
        (Some(left_ms), (_, None)) => ends_in(left_ms),
        (left_ms, (home, why)) => {
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            let latest =
                left_ms.map_or_else(String::new, |left| format!(", in {} at the latest", span(left)));
            format!("ends when its lease does, which lives in group {home}{why}{latest}")
        }
    }
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
    use super::super::homes::AtHome;
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

    /// Lookup results for leases of other groups: the time that lease 1 has left, or the reason its home did not
    /// answer.
    fn homes(left_ms: &[i64], why: Option<&str>) -> Homes {
        let lease = LeaseId::new(1).unwrap();
        let known = |ms: &i64| (lease, AtHome { remaining_ms: *ms, ..AtHome::default() });
        let missing = why.map(|why| (GroupId::new(0), why.to_owned()));
        let map = std::sync::Arc::new(GroupMap::single());
        Homes::new(map, left_ms.iter().map(known).collect(), missing.into_iter().collect())
    }

    #[test]
    fn a_grant_whose_lease_lives_in_another_group_ends_as_its_home_says_or_says_why_nobody_knows() {
        let elsewhere = HolderView { expiration: LogTime::NEVER, ..holder() };
        let max_hold = holder();
        let silent = Some("group 0 has no leader that this node knows of");
        let cases = [
            (&elsewhere, homes(&[4_200], None), "ends in 4.2 s unless its lease is renewed"),
            (&max_hold, homes(&[4_200], None), "ends in 4.2 s unless its lease is renewed"),
            (&max_hold, homes(&[12_000], None), "ends in 9.5 s unless its lease is renewed"),
            (&elsewhere, homes(&[0], None), "ends now: its lease has ended"),
            (
                &elsewhere,
                homes(&[], silent),
                "ends when its lease does, which lives in group 0 (group 0 has no leader that this node knows of)",
            ),
            (
                &max_hold,
                homes(&[], silent),
                "ends when its lease does, which lives in group 0 (group 0 has no leader that this node knows of), in \
                 9.5 s at the latest",
            ),
        ];
        for (holder, homes, expected) in cases {
            assert_eq!(end(holder, LogTime::ZERO, &homes), expected);
        }
    }

    #[test]
    fn a_free_lock_takes_one_sentence() {
        let lines = explain_lines(&name(), None, LogTime::ZERO, &homes(&[], None));
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
        assert_eq!(
            explain_lines(&name(), Some((&view, Counts::of(&view))), LogTime::ZERO, &homes(&[], None)),
            expected
        );
    }

    #[test]
    fn a_closed_lock_says_for_how_long() {
        let waiter = WaiterView { predecessor_key: None, deadline: None, ..waiter() };
        let closed_until = Some(LogTime::from_ms(3_000));
        let view = LockView { name: name(), holders: vec![], waiters: vec![waiter], closed_until };
        let lines =
            explain_lines(&name(), Some((&view, Counts::of(&view))), LogTime::ZERO, &homes(&[], None))
                .join("\n");
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
        let lines =
            explain_lines(&name(), Some((&view, Counts::of(&view))), LogTime::ZERO, &homes(&[], None));
        assert_eq!(lines.len(), SENTENCES_MAX + 2);
        assert!(lines.contains(&"5 more hold it.".to_owned()));
    }
}
