//! A client's view of the cluster's groups: the group of each operation, and the leader of each group.
//!
//! Nodes pass on operations of other groups, so an outdated or empty routing table costs an extra hop and nothing else.
//! Not here: keeping the routing table up to date (`connections`).

use crate::endpoint::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use tollgate_proto::v1::{self, operation::Op, txn_op};
use tollgate_types::{GroupId, GroupMap, LeaseId, Slot};

/// Known group map, and known leaders of the groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoutingTable {
    map: GroupMap,
    leaders: BTreeMap<GroupId, Endpoint>,
}

impl RoutingTable {
    /// Returns a routing table for a client that knows nothing: one group has all slots.
    pub(crate) fn blank() -> RoutingTable {
        RoutingTable { map: GroupMap::single(), leaders: BTreeMap::new() }
    }

    /// True if nothing is known.
    pub(crate) fn is_blank(&self) -> bool {
        *self == RoutingTable::blank()
    }

    /// Reads a node's list of groups; none if the list is not a valid group map.
    pub(crate) fn read(groups: &v1::GroupsResponse) -> Option<RoutingTable> {
        let mut ranges = Vec::new();
        let mut leaders = BTreeMap::new();
        for group in &groups.groups {
            let id = GroupId::new(group.group_id);
            for range in &group.slots {
                ranges.push((Slot::new(u16::try_from(range.first).ok()?).ok()?, id));
            }
            if let Ok(leader) = Endpoint::parse(&group.leader_address) {
                leaders.insert(id, leader);
            }
        }
        ranges.sort();
        Some(RoutingTable { map: GroupMap::new(groups.map_epoch, ranges).ok()?, leaders })
    }

    /// True if one group has all slots.
    pub(crate) fn is_single(&self) -> bool {
        self.map.is_single()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.map.epoch()
    }

    /// True if a group's leader is not known.
    pub(crate) fn lacks_leaders(&self) -> bool {
        !self.is_blank() && self.map.groups().iter().any(|group| !self.leaders.contains_key(group))
    }

    pub(crate) fn leader(&self, group: GroupId) -> Option<&Endpoint> {
        self.leaders.get(&group)
    }

    /// Returns the addresses of the leaders of all groups.
    pub(crate) fn leaders(&self) -> BTreeSet<Endpoint> {
        self.leaders.values().cloned().collect()
    }

    /// Records the leader of a group.
    pub(crate) fn note_leader(&mut self, group: GroupId, leader: Endpoint) {
        self.leaders.insert(group, leader);
    }

    /// Returns the group of an operation. For an operation on several groups, returns one of them.
    pub(crate) fn group_of(&self, op: &Op) -> GroupId {
        if self.is_single() {
            return GroupId::MAP;
        }
        slot_of(op).map_or(GroupId::MAP, |slot| self.map.group_of(slot))
    }

    /// Returns the home group of a lease.
    pub(crate) fn home_of(&self, lease: LeaseId) -> GroupId {
        self.map.group_of(lease.slot())
    }
}

/// Returns the slot of an operation's name, key or lease; none if the operation has none of these.
fn slot_of(op: &Op) -> Option<Slot> {
    let of_name = |name: &str| (!name.is_empty()).then(|| Slot::of(name.as_bytes()));
    let of_names = |name: &str, names: &[String]| of_name(name).or_else(|| of_name(names.first()?));
    let of_lease = |id: u64| LeaseId::new(id).ok().map(LeaseId::slot);
    let of_key = |key: &[u8]| (!key.is_empty()).then(|| Slot::of(key));
    match op {
        Op::Lock(it) | Op::TryLock(it) => of_names(&it.name, &it.names),
        Op::Unlock(it) => of_names(&it.name, &it.names),
        Op::Convert(it) => of_names(&it.name, &it.names),
        Op::CancelWait(it) => of_names(&it.name, &it.names),
        Op::ForceRelease(it) => of_name(&it.name),
        Op::GetLock(it) => of_name(&it.name),
        Op::Campaign(it) => of_name(&it.name),
        Op::Proclaim(it) => of_name(&it.name),
        Op::Leader(it) => of_name(&it.name),
        Op::Resign(it) => of_name(&it.name),
        Op::LeaseGrant(it) => of_lease(it.id).or_else(|| of_name(&it.near)),
        Op::LeaseRevoke(it) => of_lease(it.id),
        Op::LeaseKeepAlive(it) => of_lease(it.id),
        Op::LeaseTimeToLive(it) => of_lease(it.id),
        Op::Put(it) => of_key(&it.key),
        Op::Get(it) => of_key(&it.key),
        Op::Delete(it) => of_key(&it.key).or_else(|| of_key(&it.prefix)),
        Op::Range(it) => of_key(&it.key).or_else(|| of_key(&it.prefix)),
        Op::Txn(it) => slot_of_txn(it),
    }
}

fn slot_of_txn(txn: &v1::TxnRequest) -> Option<Slot> {
    let compared = txn.compares.first().map(|compare| Slot::of(&compare.key));
    compared.or_else(|| {
        let step = txn.then_ops.first().or(txn.else_ops.first())?;
        match step.op.as_ref()? {
            txn_op::Op::Put(put) => Some(Slot::of(&put.key)),
            txn_op::Op::Get(range) => Some(Slot::of(&range.key)),
            txn_op::Op::Delete(delete) => Some(Slot::of(&delete.key)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(group_id: u32, first: u32, last: u32, leader: &str) -> v1::Group {
        let slots = vec![v1::SlotRange { first, last }];
        v1::Group { group_id, slots, leader_address: leader.into(), ..v1::Group::default() }
    }

    fn routing_table() -> RoutingTable {
        let groups = vec![group(1, 8_192, 16_383, "b:1"), group(0, 0, 8_191, "a:1")];
        RoutingTable::read(&v1::GroupsResponse { groups, map_epoch: 3, ..Default::default() }).unwrap()
    }

    #[test]
    fn an_operation_goes_where_its_name_key_or_lease_is() {
        let routing_table = routing_table();
        let name = |group| {
            let mut names = (0..).map(|number| format!("n-{number}"));
            let in_group = |name: &String| routing_table.map.group_of(Slot::of(name.as_bytes())) == group;
            names.find(in_group).unwrap()
        };
        for group in [GroupId::new(0), GroupId::new(1)] {
            let name = name(group);
            let key = name.clone().into_bytes();
            let lease = LeaseId::assigned(Slot::of(&key), 7);
            let ops = [
                Op::Lock(v1::LockRequest { name: name.clone(), ..Default::default() }),
                Op::Unlock(v1::UnlockRequest { names: vec![name.clone()], ..Default::default() }),
                Op::Put(v1::PutRequest { key: key.clone(), ..Default::default() }),
                Op::LeaseKeepAlive(v1::LeaseKeepAliveRequest { id: lease.get(), ..Default::default() }),
                Op::LeaseGrant(v1::LeaseGrantRequest { near: name.clone(), ..Default::default() }),
                Op::Leader(v1::LeaderRequest { name, ..Default::default() }),
            ];
            for op in ops {
                assert_eq!(routing_table.group_of(&op), group, "{op:?}");
            }
            assert_eq!(routing_table.home_of(lease), group);
        }
    }

    #[test]
    fn what_makes_no_map_is_no_chart_and_a_missing_leader_makes_it_incomplete() {
        assert!(!routing_table().lacks_leaders() && routing_table().epoch() == 3);
        let hole = vec![group(0, 5, 8_191, "a:1")];
        assert_eq!(
            RoutingTable::read(&v1::GroupsResponse { groups: hole, map_epoch: 1, ..Default::default() }),
            None
        );
        let silent = vec![group(0, 0, 8_191, "a:1"), group(1, 8_192, 16_383, "")];
        let silent = v1::GroupsResponse { groups: silent, map_epoch: 1, ..Default::default() };
        let mut silent = RoutingTable::read(&silent).unwrap();
        assert!(silent.lacks_leaders());
        silent.note_leader(GroupId::new(1), Endpoint::parse("c:1").unwrap());
        assert!(!silent.lacks_leaders() && silent.leaders().len() == 2);
    }
}
