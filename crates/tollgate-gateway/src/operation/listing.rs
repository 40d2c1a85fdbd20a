//! Paged lists of locks and leases, group by group.
//!
//! Read from a snapshot, off the driver's thread, because a list visits everything. A page is filled from as many
//! groups as needed; its cursor holds the group in which to continue, and the last item listed. Invariant: nothing that
//! exists from the first page to the last is left out. Not here: registers, whose ranges are read on the driver's
//! thread (`query`).

use super::read_consistency;
use super::route::groups_of_prefix;
use super::view::{self, Counts, Cut};
use prost::Message;
use tollgate_core::Snapshot;
use tollgate_node::Consistency;
use tollgate_proto::{BadField, convert, v1};
use tollgate_types::{GroupId, GroupMap, LeaseId, Name};

/// Maximum number of items on a page, and approximate maximum of its bytes: clients accept 4 MiB by default.
const PAGE_MAX: u32 = 1_000;
const PAGE_BYTES_MAX: usize = 3 << 20;

/// A list of locks, starting from one group.
///
/// Read the snapshot of [`ListLocks::group`], pass it to [`ListLocks::add_to`], and continue with the list that it
/// returns. The answer is complete once it returns none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListLocks {
    prefix: String,
    from: Place<Name>,
}

/// A list of leases, starting from one group. Used like [`ListLocks`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseList {
    from: Place<LeaseId>,
}

/// Position of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place<T> {
    group: GroupId,
    /// Groups still to come after `group`, in order.
    rest: Vec<GroupId>,
    after: Option<T>,
    limit: usize,
    consistency: Consistency,
}

impl ListLocks {
    /// Reads the request.
    pub fn read(request: &v1::ListLocksRequest, map: &GroupMap) -> Result<ListLocks, v1::Error> {
        let prefix = convert::read_name_prefix("prefix", &request.prefix)?.to_owned();
        let groups = groups_of_prefix(prefix.as_bytes(), map);
        let after = |text: &str| Name::new(text).ok();
        let from = Place::read(&request.cursor, &groups, after, request.limit, request.consistency)?;
        Ok(ListLocks { prefix, from })
    }

    /// Returns the group to read.
    pub fn group(&self) -> GroupId {
        self.from.group
    }

    /// Returns the required consistency of the group's state.
    pub fn consistency(&self) -> Consistency {
        self.from.consistency
    }

    /// Adds the group's locks; returns the list to continue with for the same answer.
    pub fn add_to(self, snapshot: &Snapshot, response: &mut v1::ListLocksResponse) -> Option<ListLocks> {
        let limit = self.from.limit.saturating_sub(response.locks.len());
        let mut locks = snapshot.locks(self.prefix.as_bytes(), self.from.after.as_ref(), limit + 1);
        let mut more = locks.len() > limit;
        locks.truncate(limit);
        let (mut bytes, mut last) = (response.encoded_len(), self.from.after.clone());
        let counts: Vec<Counts> = locks.iter_mut().map(|lock| Cut::LISTED.apply(lock)).collect();
        let holders = locks.iter().flat_map(|lock| &lock.holders);
        let addresses = snapshot.addresses(&holders.map(|holder| holder.lease).collect());
        for (lock, counts) in locks.into_iter().zip(counts) {
            let shown = view::lock_state(&lock, counts, snapshot.now(), &addresses);
            bytes += shown.encoded_len() + 8;
            if bytes > PAGE_BYTES_MAX && !response.locks.is_empty() {
                more = true;
                break;
            }
            response.locks.push(shown);
            last = Some(lock.name);
        }
        let last = last.map(|name| name.to_string());
        let next = self.from.next(more, last, response.locks.len());
        next.map(|from| ListLocks { from, ..self }).map_err(|cursor| response.cursor = cursor).ok()
    }
}

impl LeaseList {
    /// Reads the request.
    pub fn read(request: &v1::LeaseListRequest, map: &GroupMap) -> Result<LeaseList, v1::Error> {
        let groups = groups_of_prefix(b"", map);
        let after = |text: &str| LeaseId::new(u64::from_str_radix(text, 16).ok()?).ok();
        let from = Place::read(&request.cursor, &groups, after, request.limit, request.consistency)?;
        Ok(LeaseList { from })
    }

    /// Returns the group to read.
    pub fn group(&self) -> GroupId {
        self.from.group
    }

    /// Returns the required consistency of the group's state.
    pub fn consistency(&self) -> Consistency {
        self.from.consistency
    }

    /// Adds the group's leases; returns the list to continue with for the same answer.
    pub fn add_to(self, snapshot: &Snapshot, response: &mut v1::LeaseListResponse) -> Option<LeaseList> {
        let (group, limit) = (self.from.group, self.from.limit.saturating_sub(response.leases.len()));
        let mut leases = snapshot.leases(self.from.after, limit + 1);
        let more = leases.len() > limit;
        leases.truncate(limit);
        // A lease is listed at its home only.
        let homes = leases.iter().filter(|lease| lease.stub.is_none());
        response.leases.extend(homes.map(|lease| view::lease(lease, snapshot.now(), group)));
        let last = leases.pop().map(|lease| format!("{:016x}", lease.lease));
        let next = self.from.next(more, last, response.leases.len());
        next.map(|from| LeaseList { from }).map_err(|cursor| response.cursor = cursor).ok()
    }
}

impl<T> Place<T> {
    fn read(
        cursor: &str,
        groups: &[GroupId],
        after: impl Fn(&str) -> Option<T>,
        limit: u32,
        consistency: i32,
    ) -> Result<Place<T>, BadField> {
        let limit = if limit == 0 { PAGE_MAX } else { limit.min(PAGE_MAX) };
        let limit = usize::try_from(limit).expect("a page fits in memory");
        let consistency = read_consistency(consistency)?;
        let read = || {
            let (group, text) = cursor.split_once('/')?;
            let group = GroupId::new(group.parse().ok()?);
            let place = groups.iter().position(|known| *known == group)?;
            let after = if text.is_empty() { None } else { Some(after(text)?) };
            Some((place, after))
        };
        let says = "it is not one that this list gave out: begin anew with an empty one";
        let (place, after) = if cursor.is_empty() {
            (0, None)
        } else {
            read().ok_or_else(|| BadField::new("cursor", says))?
        };
        Ok(Place { group: groups[place], rest: groups[place + 1..].to_vec(), after, limit, consistency })
    }

    /// Returns the position to continue from: `Ok` for the same answer, `Err` with a cursor for the next one. `more` is
    /// true if the group has items after `last`, the last one listed (in the format that `read` takes); `have` is the
    /// number of items in the answer.
    fn next(&self, more: bool, last: Option<String>, have: usize) -> Result<Place<T>, String> {
        if more {
            let last = last.unwrap_or_default();
            return Err(format!("{}/{last}", self.group));
        }
        let Some((group, rest)) = self.rest.split_first() else { return Err(String::new()) };
        if have >= self.limit {
            return Err(format!("{group}/"));
        }
        let (limit, consistency) = (self.limit, self.consistency);
        Ok(Place { group: *group, rest: rest.to_vec(), after: None, limit, consistency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{AcquireLock, Command, Entry, GrantLease, LeaseChoice, State, Wait};
    use tollgate_types::{Address, ClientId, DurationMs, Limits, LogTime, Metadata, Mode, Owner};

    /// Snapshot with leases 1 to 3, the first of which holds the locks `names`.
    fn snapshot(names: &[&str]) -> Snapshot {
        snapshot_with(names, &Metadata::NONE)
    }

    /// Like [`snapshot`]; the locks have this metadata.
    fn snapshot_with(names: &[&str], metadata: &Metadata) -> Snapshot {
        let mut state = State::new(Limits::DEFAULT);
        let mut apply = |command| state.apply(Entry::new(LogTime::ZERO, command));
        for id in 1..=3 {
            apply(Command::GrantLease(GrantLease {
                id: LeaseChoice::Chosen(LeaseId::new(id).unwrap()),
                ttl: DurationMs::from_secs(10),
                client_id: ClientId::NONE,
                address: Address::NONE,
                revoke_on_disconnect: false,
            }));
        }
        for name in names {
            apply(Command::AcquireLock(AcquireLock {
                names: Name::new(name).unwrap().into(),
                lease: LeaseId::new(1).unwrap(),
                owner: Owner::LEASE,
                mode: Mode::Exclusive,
                wait: Wait::No,
                lock_delay: DurationMs::ZERO,
                max_hold: None,
                metadata: metadata.clone(),
                value: None,
                attended: false,
                request: None,
            }));
        }
        state.snapshot()
    }

    /// Returns all pages of a list over these groups.
    fn pages(prefix: &str, limit: u32, groups: &[Snapshot]) -> Vec<Vec<String>> {
        let mut request = v1::ListLocksRequest { prefix: prefix.into(), limit, ..Default::default() };
        let mut pages = Vec::new();
        loop {
            let mut list =
                ListLocks::read(&request, &GroupMap::even(u32::try_from(groups.len()).unwrap()).unwrap())
                    .unwrap();
            let mut response = v1::ListLocksResponse::default();
            while let Some(next) = list.clone().add_to(&groups[list.group().number() as usize], &mut response)
            {
                list = next;
            }
            pages.push(response.locks.into_iter().map(|lock| lock.name).collect());
            request.cursor = response.cursor;
            if request.cursor.is_empty() {
                return pages;
            }
        }
    }

    #[test]
    fn a_list_goes_page_by_page_through_all_groups() {
        let groups = [snapshot(&["a", "b", "c"]), snapshot(&[]), snapshot(&["a2", "z"])];
        assert_eq!(pages("", 0, &groups), [["a", "b", "c", "a2", "z"]]);
        assert_eq!(pages("", 2, &groups), [vec!["a", "b"], vec!["c", "a2"], vec!["z"]]);
        assert_eq!(pages("a", 1, &groups), [["a"], ["a2"]]);
        assert_eq!(pages("", 3, &groups), [vec!["a", "b", "c"], vec!["a2", "z"]]);
    }

    #[test]
    fn p16_a_page_ends_before_it_is_too_long_for_a_client_and_nothing_is_left_out() {
        let long = Metadata::new("x".repeat(4_096)).unwrap();
        let names = |first: u32| (first..first + 600).map(|number| format!("n{number}")).collect::<Vec<_>>();
        let groups = [1_000, 2_000].map(|first| {
            let names = names(first);
            snapshot_with(&names.iter().map(String::as_str).collect::<Vec<_>>(), &long)
        });
        let pages = pages("", 0, &groups);
        assert_eq!(pages.concat(), [names(1_000), names(2_000)].concat());
        let longest = pages.iter().map(Vec::len).max().unwrap();
        assert!(pages.len() == 2 && longest * 4_096 < PAGE_BYTES_MAX, "{} {longest}", pages.len());
    }

    #[test]
    fn a_prefix_with_a_tag_reads_one_group() {
        let request = v1::ListLocksRequest { prefix: "{t}/".into(), ..Default::default() };
        let list = ListLocks::read(&request, &GroupMap::even(16).unwrap()).unwrap();
        assert_eq!(list.from.rest, []);
    }

    #[test]
    fn leases_are_listed_by_id() {
        let groups = snapshot(&["a"]);
        let mut request = v1::LeaseListRequest { limit: 2, ..Default::default() };
        let mut ids = Vec::new();
        for more in [true, false] {
            let mut response = v1::LeaseListResponse::default();
            assert!(
                LeaseList::read(&request, &GroupMap::single())
                    .unwrap()
                    .add_to(&groups, &mut response)
                    .is_none()
            );
            ids.extend(response.leases.iter().map(|lease| lease.id));
            request.cursor = response.cursor;
            assert_eq!(!request.cursor.is_empty(), more);
        }
        assert_eq!(ids, [1, 2, 3]);
    }

    #[test]
    fn a_cursor_from_elsewhere_is_refused() {
        for cursor in ["x", "9/a", "0/a\n", "/", "-1/a"] {
            let request = v1::ListLocksRequest { cursor: cursor.into(), ..Default::default() };
            assert_eq!(
                ListLocks::read(&request, &GroupMap::even(2).unwrap()).unwrap_err().field,
                "cursor",
                "{cursor:?}"
            );
        }
        let request = v1::LeaseListRequest { cursor: "0/zz".into(), ..Default::default() };
        assert_eq!(LeaseList::read(&request, &GroupMap::even(2).unwrap()).unwrap_err().field, "cursor");
        let request = v1::ListLocksRequest { consistency: 9, ..Default::default() };
        assert_eq!(ListLocks::read(&request, &GroupMap::even(2).unwrap()).unwrap_err().field, "consistency");
    }
}
