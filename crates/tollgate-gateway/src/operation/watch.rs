//! Requests on a watch stream: their scope, groups and start revision.
//!
//! A cursor holds the next revision of each group that a watch follows, so that another node can resume exactly where
//! this one stopped. Not here: the events delivered (`event`), and the bound on events in flight (the servers of the
//! stream).

use super::route::groups_of_prefix;
use std::collections::BTreeMap;
use std::fmt::Write;
use tollgate_core::Watch;
use tollgate_node::planted::{Bug, planted};
use tollgate_proto::convert::{self, WatchFilters, WatchTarget};
use tollgate_proto::{BadField, v1};
use tollgate_types::{GroupId, GroupMap, Revision};

/// A request on a watch stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchOrder {
    /// Opens a new watch.
    Open(WatchOpen),
    /// Ends a watch.
    Cancel {
        /// Number of the watch on the stream.
        watch_id: u64,
    },
    /// Asks for the progress of a watch.
    Progress {
        /// Number of the watch on the stream; 0 for all.
        watch_id: u64,
    },
}

/// A new watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchOpen {
    /// Number of the watch on the stream; 0 lets the server choose.
    pub watch_id: u64,
    /// Scope of the watch.
    pub filter: Watch,
    /// Groups to follow, with the start revision; none starts with new events.
    pub groups: BTreeMap<GroupId, Option<Revision>>,
    /// Kinds of events to leave out.
    pub filters: WatchFilters,
    /// True if events include the previous state.
    pub prev_kv: bool,
}

/// Reads a request on a watch stream. A cancel takes precedence over everything else in it, then a request for
/// progress.
pub fn read_watch(request: &v1::WatchRequest, map: &GroupMap) -> Result<WatchOrder, v1::Error> {
    let watch_id = request.watch_id;
    if request.cancel {
        return Ok(WatchOrder::Cancel { watch_id });
    }
    if request.progress {
        return Ok(WatchOrder::Progress { watch_id });
    }
    let filters = convert::read_watch_filters("filters", &request.filters)?;
    let (filter, groups) = read_target(request, map)?;
    let groups = read_start(request, &groups)?;
    Ok(WatchOrder::Open(WatchOpen { watch_id, filter, groups, filters, prev_kv: request.prev_kv }))
}

/// Returns the scope of a watch, and the groups that can have such events.
fn read_target(request: &v1::WatchRequest, map: &GroupMap) -> Result<(Watch, Vec<GroupId>), BadField> {
    let one = |group| vec![group];
    Ok(match convert::read_watch_target(request.target.as_ref())? {
        WatchTarget::All => (Watch::All, groups_of_prefix(b"", map)),
        WatchTarget::Lock(name) => {
            let group = map.group_of(name.slot());
            (Watch::Lock(name), one(group))
        }
        // Wherever the lease's home is, its locks may be in any group.
        WatchTarget::Lease(lease) if planted(Bug::LeaseWatchedAtHome) => {
            (Watch::Lease(lease), one(map.group_of(lease.slot())))
        }
        WatchTarget::Lease(lease) => (Watch::Lease(lease), groups_of_prefix(b"", map)),
        WatchTarget::Register(key) => {
            let group = map.group_of(key.slot());
            (Watch::Register(key), one(group))
        }
        WatchTarget::LockPrefix(prefix) => {
            let range = groups_of_prefix(prefix.as_bytes(), map);
            (Watch::LockPrefix(prefix.into_bytes()), range)
        }
        WatchTarget::RegisterPrefix(prefix) => {
            let range = groups_of_prefix(&prefix, map);
            (Watch::RegisterPrefix(prefix), range)
        }
    })
}

/// Returns the revision at which to start in each group.
fn read_start(
    request: &v1::WatchRequest,
    groups: &[GroupId],
) -> Result<BTreeMap<GroupId, Option<Revision>>, BadField> {
    let all = groups.iter().copied();
    if !request.cursor.is_empty() {
        let given = read_cursor(&request.cursor).filter(|given| given.keys().copied().eq(all));
        let says = "it is not one that this watch gave out: begin anew without one, after reading the state";
        let given = given.ok_or_else(|| BadField::new("cursor", says))?;
        return Ok(given.into_iter().map(|(group, next)| (group, Some(next))).collect());
    }
    if request.start_revision == 0 {
        return Ok(all.map(|group| (group, None)).collect());
    }
    if groups.len() > 1 {
        let says = "the watch follows several groups, whose revisions have nothing to do with each other: use a cursor";
        return Err(BadField::new("start_revision", says));
    }
    let start = convert::read_revision("start_revision", request.start_revision)?;
    Ok(all.map(|group| (group, Some(start))).collect())
}

/// Returns the cursor of a watch: the next revision that it needs from each group.
pub fn write_cursor(next: &BTreeMap<GroupId, Revision>) -> String {
    let mut cursor = String::new();
    for (group, next) in next {
        let comma = if cursor.is_empty() { "" } else { "," };
        write!(cursor, "{comma}{group}.{next}").expect("a string takes all text");
    }
    cursor
}

fn read_cursor(cursor: &str) -> Option<BTreeMap<GroupId, Revision>> {
    let part = |part: &str| {
        let (group, next) = part.split_once('.')?;
        let next = Revision::new(next.parse().ok()?).ok()?;
        Some((GroupId::new(group.parse().ok()?), next))
    };
    cursor.split(',').map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{LeaseId, Name};
    use v1::watch_request::Target;

    fn open(request: &v1::WatchRequest, groups: u32) -> WatchOpen {
        match read_watch(request, &GroupMap::even(groups).unwrap()).unwrap() {
            WatchOrder::Open(open) => open,
            other => panic!("{other:?}"),
        }
    }

    fn on(target: Target) -> v1::WatchRequest {
        v1::WatchRequest { target: Some(target), watch_id: 4, ..Default::default() }
    }

    #[test]
    fn a_watch_on_one_lock_follows_its_group_from_the_revision_given() {
        let request = v1::WatchRequest { start_revision: 7, prev_kv: true, ..on(Target::Key("jobs".into())) };
        let open = open(&request, 16);
        let name = Name::new("jobs").unwrap();
        let start = Some(Revision::new(7).unwrap());
        assert_eq!(open.groups, BTreeMap::from([(GroupMap::even(16).unwrap().group_of(name.slot()), start)]));
        assert_eq!((open.filter, open.watch_id, open.prev_kv), (Watch::Lock(name), 4, true));
    }

    #[test]
    fn a_watch_on_everything_follows_every_group() {
        let all = open(&v1::WatchRequest::default(), 3);
        assert_eq!((all.filter, all.groups.len()), (Watch::All, 3));
        assert!(all.groups.values().all(Option::is_none));
        let prefix = open(&on(Target::RegisterPrefix(b"{t}/".to_vec())), 16);
        assert_eq!(prefix.groups.len(), 1, "a tag has one group");
        let prefix = open(&on(Target::Prefix("t/".into())), 16);
        assert_eq!((prefix.groups.len(), prefix.filter), (16, Watch::LockPrefix(b"t/".to_vec())));
    }

    #[test]
    fn a_watch_on_a_lease_follows_every_group_by_cursor() {
        let lease = open(&on(Target::LeaseId(9)), 3);
        assert_eq!((lease.filter, lease.groups.len()), (Watch::Lease(LeaseId::new(9).unwrap()), 3));
        assert!(lease.groups.values().all(Option::is_none));
        let resumed = v1::WatchRequest { cursor: "0.4,1.5,2.6".into(), ..on(Target::LeaseId(9)) };
        let groups = open(&resumed, 3).groups.into_values().map(|next| next.unwrap().get());
        assert_eq!(groups.collect::<Vec<_>>(), [4, 5, 6]);
        let late = v1::WatchRequest { start_revision: 4, ..on(Target::LeaseId(9)) };
        let refused = read_watch(&late, &GroupMap::even(3).unwrap()).unwrap_err();
        assert_eq!(refused.field, "start_revision");
        assert_eq!(open(&late, 1).groups.into_values().flatten().count(), 1, "one group has one count");
    }

    #[test]
    fn a_cursor_goes_on_in_every_group() {
        let next = BTreeMap::from(
            [0, 1, 2].map(|group| (GroupId::new(group), Revision::new(u64::from(group) * 10).unwrap())),
        );
        let cursor = write_cursor(&next);
        assert_eq!(cursor, "0.0,1.10,2.20");
        let open = open(&v1::WatchRequest { cursor, start_revision: 99, ..Default::default() }, 3);
        let expected: BTreeMap<_, _> = next.into_iter().map(|(group, next)| (group, Some(next))).collect();
        assert_eq!(open.groups, expected, "it wins over start_revision");
    }

    #[test]
    fn a_start_that_does_not_fit_is_refused() {
        let field =
            |request, groups| read_watch(&request, &GroupMap::even(groups).unwrap()).unwrap_err().field;
        let request = v1::WatchRequest { start_revision: 7, ..Default::default() };
        assert_eq!(field(request.clone(), 2), "start_revision");
        assert!(read_watch(&request, &GroupMap::single()).is_ok());
        for cursor in ["0.1", "0.1,2.1", "0.1,1.x", "nonsense", "0.1,1.1,2.1"] {
            let request = v1::WatchRequest { cursor: cursor.into(), ..Default::default() };
            assert_eq!(field(request, 2), "cursor", "{cursor}");
        }
        let request = v1::WatchRequest { filters: vec![77], ..Default::default() };
        assert_eq!(field(request, 1), "filters");
    }

    #[test]
    fn a_cancel_counts_before_all_else() {
        let cancel = v1::WatchRequest { cancel: true, progress: true, ..on(Target::Key(String::new())) };
        assert_eq!(read_watch(&cancel, &GroupMap::single()), Ok(WatchOrder::Cancel { watch_id: 4 }));
        let progress = v1::WatchRequest { progress: true, ..on(Target::Key(String::new())) };
        assert_eq!(read_watch(&progress, &GroupMap::single()), Ok(WatchOrder::Progress { watch_id: 4 }));
    }
}
