//! Metrics of a node's groups, as of the last sample.
//!
//! Not here: the times at which samples are taken.

use super::add;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_replica::Host;
use tollgate_types::Limits;

/// Sample of one group.
#[cfg_attr(test, derive(Default))]
pub(super) struct Seen {
    group: u32,
    leads: bool,
    term: u64,
    applied: u64,
    locks: u64,
    leases: u64,
    /// Limits of the group; a witness has none.
    limits: Option<Limits>,
}

impl Seen {
    /// Returns the limits in force in the group.
    pub(super) fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Group {
    group: u32,
}

type ByGroup = Family<Group, Gauge>;

#[derive(Debug)]
pub(super) struct Groups {
    is_leader: ByGroup,
    term: ByGroup,
    applied_index: ByGroup,
    locks: ByGroup,
    leases: ByGroup,
}

/// Samples all groups. Runs on the driver's thread: the host has every count ready.
pub(super) fn look(host: &Host) -> Vec<Seen> {
    let seen = |group| {
        let (status, state) = (host.status(group)?, host.state(group));
        Some(Seen {
            group: group.number(),
            leads: host.leads(group),
            term: status.term,
            applied: status.applied,
            // A witness keeps no state, so it has neither locks nor leases.
            locks: state.map_or(0, tollgate_core::State::lock_count),
            leases: state.map_or(0, tollgate_core::State::lease_count),
            limits: state.map(|state| state.limits().clone()),
        })
    };
    host.groups().filter_map(seen).collect()
}

impl Groups {
    pub(super) fn register(registry: &mut Registry) -> Groups {
        let mut family = |name: &str, help: &str| add(registry, name, help, ByGroup::default());
        Groups {
            is_leader: family("group_is_leader", "1 if this node leads the group"),
            term: family("group_term", "Raft's term of the group on this node"),
            applied_index: family("group_applied_index", "The log index that this node has applied"),
            locks: family("group_locks", "Locks that someone holds or awaits"),
            leases: family("group_leases", "Leases that live"),
        }
    }

    pub(super) fn set(&self, seen: &[Seen]) {
        for it in seen {
            let group = Group { group: it.group };
            let set = |family: &ByGroup, value: u64| {
                family.get_or_create(&group).set(i64::try_from(value).unwrap_or(i64::MAX));
            };
            set(&self.is_leader, u64::from(it.leads));
            set(&self.term, it.term);
            set(&self.applied_index, it.applied);
            set(&self.locks, it.locks);
            set(&self.leases, it.leases);
        }
    }
}
