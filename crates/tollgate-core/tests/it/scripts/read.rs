//! The verbs that read the state between two entries: they take no time and no revision.

use super::aliases::Aliases;
use super::parse::valid;
use super::print;
use super::stubs;
use super::txn;
use super::words::{Words, time};
use std::sync::Arc;
use tollgate_core::{
    APPLY_VERSION_SUPPORTED, Command, Entry, KeySelector, RangeQuery, SnapshotReader, State, Watch,
};
use tollgate_types::{DurationMs, GroupId, GroupMap, Key, LeaseId, LogTime, Name, Revision};

/// Chunk size, so small that a snapshot of a few leases has several chunks.
const CHUNK_BYTES: usize = 64;

/// A read of the state.
pub(super) enum Read {
    /// A lock with its holders and waiters.
    Lock(Name),
    /// A lease.
    Lease(LeaseId),
    /// Registers, without a transaction.
    Range(RangeQuery),
    /// The history from a revision on.
    Events { from: Revision, watch: Watch, events_max: usize },
    /// Stubs of leases that live elsewhere.
    Stubs { pending: bool, after: Option<LeaseId>, limit: usize },
    /// The groups that must be told of leases' ends.
    Unacked { limit: usize },
    /// Liveness of a lease.
    Lives { lease: LeaseId, incarnation: Revision },
    /// The waits that may be part of a deadlock over groups.
    Waits { visits_max: u64 },
    /// The log time at which the next tick has something to do.
    Deadline,
    /// Not a read but a test: continues with a state restored from its own snapshot.
    Snapshot,
    /// Not a read either: continues with an empty state of this group, with the slots evenly spread over `of` groups.
    Group { group: u32, of: u32 },
    /// Not a read either: continues with an empty state of this apply version.
    Founded { version: u32 },
    /// The lineage.
    Lineage,
    /// Not a read either: continues as the first state of a cluster that was restored from a backup.
    Resume { above: u64, grace: DurationMs },
}

impl Read {
    /// Parses a read; none if the verb is a command's.
    pub(super) fn parse(
        verb: &str,
        words: &mut Words,
        aliases: &mut Aliases,
    ) -> Result<Option<Read>, String> {
        Ok(Some(match verb {
            "show" => Read::Lock(valid(Name::new(words.next("the name")?))?),
            "show-lease" => Read::Lease(aliases.lease(&words.next("the lease")?)?),
            "range" => Read::Range(txn::range(words)?),
            "events" => {
                let from = words.next("the revision")?;
                let from = from.parse().map_err(|_| format!("{from} is no revision"))?;
                let events_max = words.number("max")?.unwrap_or(usize::MAX);
                Read::Events { from: valid(Revision::new(from))?, watch: watch(words, aliases)?, events_max }
            }
            "stubs" => Read::Stubs {
                pending: words.has("pending"),
                after: words.flag("after").map(|alias| aliases.lease(&alias)).transpose()?,
                limit: words.number("limit")?.unwrap_or(usize::MAX),
            },
            "unacked" => Read::Unacked { limit: words.number("limit")?.unwrap_or(usize::MAX) },
            "lives" => {
                let lease = aliases.lease(&words.next("the lease")?)?;
                Read::Lives { lease, incarnation: stubs::incarnation(words)? }
            }
            "waits" => Read::Waits { visits_max: words.number("visits")?.unwrap_or(u64::MAX) },
            "deadline" => Read::Deadline,
            "snapshot" => Read::Snapshot,
            "group" => {
                let group = words.next("the group")?;
                let group = group.parse().map_err(|_| format!("{group} is no group"))?;
                Read::Group { group, of: words.number("of")?.ok_or("of= is missing")? }
            }
            "founded" => Read::Founded { version: words.number("version")?.ok_or("version= is missing")? },
            "show-lineage" => Read::Lineage,
            "resume" => Read::Resume {
                above: words.number("above")?.ok_or("above= is missing")?,
                grace: words.duration("grace")?.unwrap_or_default(),
            },
            _ => return Ok(None),
        }))
    }

    /// Runs the read, and returns its output.
    pub(super) fn run(self, state: &mut State) -> String {
        match self {
            Read::Lock(name) => match state.lock(&name) {
                Some(lock) => print::lock(&lock),
                None => format!("{name} is free"),
            },
            Read::Lease(lease) => match state.lease(lease) {
                Some(lease) => print::lease(&lease),
                None => format!("{lease} not found"),
            },
            Read::Range(query) => range(state, &query),
            Read::Events { from, watch, events_max } => match state.events_since(from, &watch, events_max) {
                Ok(batch) => {
                    let mut parts = print::events(&batch.events, None);
                    parts.push(format!("next=r{}", batch.next));
                    parts.join("; ")
                }
                Err(compacted) => format!("compacted: history starts at r{}", compacted.min_revision),
            },
            Read::Stubs { pending, after, limit } => {
                let found =
                    if pending { state.pending_stubs(after, limit) } else { state.stubs(after, limit) };
                listed(found.iter().map(|stub| format!("{} added=r{}", print::stub(stub), stub.added)))
            }
            Read::Unacked { limit } => listed(state.unacked_ends(None, limit).iter().map(print::unacked_end)),
            Read::Lives { lease, incarnation } => {
                let lives = state.lease_lives(lease, incarnation);
                format!("{lease} of r{incarnation} {}", if lives { "lives" } else { "has ended" })
            }
            Read::Waits { visits_max } => {
                let edges = state.wait_edges(visits_max);
                let more = edges.truncated.then(|| "and more".to_owned());
                listed(edges.waits.iter().map(print::blocked).chain(more))
            }
            Read::Deadline => state.next_deadline().map_or("none".into(), |at| time(at.ms())),
            Read::Snapshot => restore(state),
            Read::Group { group, of } => found(state, group, of),
            Read::Founded { version } => founded(state, version),
            Read::Lineage => state.lineage().map_or("none".into(), |lineage| lineage.number().to_string()),
            Read::Resume { above, grace } => resume(state, above, grace),
        }
    }
}

fn listed(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() { "none".into() } else { texts.join("; ") }
}

fn watch(words: &mut Words, aliases: &mut Aliases) -> Result<Watch, String> {
    if let Some(prefix) = words.flag("prefix") {
        return Ok(Watch::LockPrefix(prefix.into_bytes()));
    }
    if let Some(prefix) = words.flag("key-prefix") {
        return Ok(Watch::RegisterPrefix(prefix.into_bytes()));
    }
    if let Some(alias) = words.flag("lease") {
        return aliases.lease(&alias).map(Watch::Lease);
    }
    if let Some(key) = words.flag("key") {
        return valid(Key::new(key)).map(Watch::Register);
    }
    words.next_plain().map_or(Ok(Watch::All), |name| valid(Name::new(name)).map(Watch::Lock))
}

fn range(state: &State, query: &RangeQuery) -> String {
    let (registers, count) = match state.range(query) {
        Ok(found) => found,
        Err(rejection) => return format!("rejected: {rejection}"),
    };
    if let KeySelector::Key(key) = &query.keys {
        assert_eq!(state.register(key).as_ref(), registers.first(), "the two ways to read {key} agree");
    }
    print::registers(&registers, count)
}

fn founded(state: &mut State, version: u32) -> String {
    assert_eq!(state.now(), LogTime::ZERO, "a script says first what it begins with");
    *state = State::of_group(state.limits().clone(), state.group(), Arc::clone(state.map()));
    state.apply(Entry::new(LogTime::ZERO, Command::RaiseApplyVersion(version)));
    format!("apply version {}", state.apply_version())
}

fn found(state: &mut State, group: u32, of: u32) -> String {
    assert_eq!(state.now(), LogTime::ZERO, "a script says first which group it is about");
    let map = GroupMap::even(of).expect("a good number of groups");
    *state = State::of_group(state.limits().clone(), GroupId::new(group), Arc::new(map));
    state.apply(Entry::new(LogTime::ZERO, Command::RaiseApplyVersion(APPLY_VERSION_SUPPORTED)));
    format!("group {} of {of}, epoch {}", state.group(), state.map().epoch())
}

fn resume(state: &mut State, above: u64, grace: DurationMs) -> String {
    if let Err(error) = state.resume(above, grace) {
        return format!("refused: {error}");
    }
    state.assert_invariants();
    let closed = state.closed_until().map(|until| format!(", closed until {}", time(until.ms())));
    format!("goes on above r{}{}", state.revision(), closed.unwrap_or_default())
}

fn restore(state: &mut State) -> String {
    let snapshot = state.snapshot();
    let mut reader = SnapshotReader::new();
    for chunk in snapshot.chunks(CHUNK_BYTES) {
        reader.push(&chunk).expect("our own chunks are good");
    }
    let restored = reader.finish().expect("our own snapshot is whole");
    restored.assert_invariants();
    let (before, after) = (snapshot.hash(), restored.snapshot().hash());
    *state = restored;
    if before == after { "same".into() } else { "WRONG: the restored state has another hash".into() }
}
