//! Conversions of what administrators read: nodes, groups, limits, deadlocks, settings.

use super::{duration, lease_id, mode, node, revision, strange, token_or_none};
use crate::cluster_info::{
    AddedMember, ClockComparison, DeadlockFound, DeadlockStep, Deadlocks, Group, Groups, LimitInfo, Member,
    MemberKind, MemberProgress, NodeStatus, ReplicaStatus, Role, Setting, SettingOrigin, SnapshotTaken,
};
use crate::error::Error;
use tollgate_proto::v1;
use tollgate_types::{ClusterId, GroupId, Lineage, NodeId};

pub(crate) fn node_status(wire: v1::StatusResponse) -> Result<NodeStatus, Error> {
    let header = wire.header.unwrap_or_default();
    Ok(NodeStatus {
        cluster: ClusterId::new(header.cluster_id),
        lineage: Lineage::new(header.lineage),
        node: node(header.member_id),
        name: wire.node_name,
        zone: wire.zone,
        version: wire.version,
        uptime: duration(wire.uptime_ms),
        data_dir_bytes: wire.data_dir_bytes,
        replicas: wire.replicas.iter().map(replica).collect::<Result<_, _>>()?,
        warnings: wire.warnings,
        clocks: wire.clocks.iter().filter_map(clock_comparison).collect(),
    })
}

/// Reads a clock comparison; none if it names no valid node.
fn clock_comparison(wire: &v1::ClockComparison) -> Option<ClockComparison> {
    let rate_difference_ppm = wire.rate_difference_ppm;
    node(wire.node_id).map(|node| ClockComparison { node, rate_difference_ppm })
}

fn replica(wire: &v1::ReplicaStatus) -> Result<ReplicaStatus, Error> {
    let role = match wire.role() {
        v1::Role::Leader => Role::Leader,
        v1::Role::Follower => Role::Follower,
        v1::Role::Candidate => Role::Candidate,
        v1::Role::Unspecified => Role::Unknown,
    };
    Ok(ReplicaStatus {
        group: GroupId::new(wire.group_id),
        role,
        kind: kind(wire.kind()),
        raft_term: wire.raft_term,
        leader: node(wire.leader_id),
        applied_index: wire.applied_index,
        committed_index: wire.committed_index,
        first_index: wire.first_index,
        last_index: wire.last_index,
        snapshot_index: wire.snapshot_index,
        serves: wire.serves,
        revision: revision(wire.revision)?,
        min_revision: revision(wire.min_revision)?,
        apply_version: wire.apply_version,
        locks: wire.locks,
        claims: wire.claims,
        leases: wire.leases,
        registers: wire.registers,
    })
}

fn kind(wire: v1::MemberKind) -> MemberKind {
    match wire {
        v1::MemberKind::Voter => MemberKind::Voter,
        v1::MemberKind::Learner => MemberKind::Learner,
        v1::MemberKind::Witness => MemberKind::Witness,
        v1::MemberKind::Unspecified => MemberKind::Unknown,
    }
}

pub(crate) fn members(wire: v1::MembersResponse) -> Result<Vec<Member>, Error> {
    wire.members.into_iter().map(member).collect()
}

fn member(wire: v1::Member) -> Result<Member, Error> {
    Ok(Member {
        node: node(wire.node_id).ok_or_else(|| strange(()))?,
        kind: kind(wire.kind()),
        name: wire.name,
        zone: wire.zone,
        client_address: wire.client_address,
        peer_address: wire.peer_address,
        connected: wire.connected,
        groups_led: wire.groups_led,
        version: wire.version,
        votes: wire.votes,
    })
}

pub(crate) fn added_member(wire: v1::AddMemberResponse) -> Result<AddedMember, Error> {
    let cluster = ClusterId::new(wire.header.unwrap_or_default().cluster_id);
    let node = node(wire.node_id).ok_or_else(|| strange(()))?;
    Ok(AddedMember { node, cluster, cluster_name: wire.cluster_name })
}

fn progress(wire: &v1::MemberProgress) -> Option<MemberProgress> {
    Some(MemberProgress {
        node: node(wire.node_id)?,
        match_index: wire.match_index,
        behind: wire.behind,
        active: wire.active,
        caught_up: wire.caught_up,
        connected: wire.connected,
        snapshot_received_bytes: wire.snapshot_received_bytes,
        snapshot_bytes: wire.snapshot_bytes,
    })
}

pub(crate) fn groups(wire: v1::GroupsResponse) -> Groups {
    Groups { map_epoch: wire.map_epoch, groups: wire.groups.into_iter().map(group).collect() }
}

fn group(wire: v1::Group) -> Group {
    let nodes = |numbers: Vec<u64>| numbers.into_iter().filter_map(NodeId::new).collect();
    Group {
        id: GroupId::new(wire.group_id),
        slots: wire.slots.iter().map(|range| (range.first, range.last)).collect(),
        leader: node(wire.leader_id),
        leader_address: wire.leader_address,
        voters: nodes(wire.voters),
        learners: nodes(wire.learners),
        witnesses: nodes(wire.witnesses),
        progress: wire.progress.iter().filter_map(progress).collect(),
    }
}

pub(crate) fn snapshots(wire: &v1::SnapshotResponse) -> Result<Vec<SnapshotTaken>, Error> {
    let taken = |wire: &v1::SnapshotTaken| {
        let revision = revision(wire.revision)?;
        Ok(SnapshotTaken { group: GroupId::new(wire.group_id), index: wire.index, revision })
    };
    wire.snapshots.iter().map(taken).collect()
}

pub(crate) fn limits(wire: Vec<v1::Limit>) -> Vec<LimitInfo> {
    let limit = |v1::Limit { name, value, min, max, default, by_group }| {
        let of = |of: v1::GroupLimit| (GroupId::new(of.group_id), of.value);
        let by_group = by_group.into_iter().map(of).collect();
        LimitInfo { name, value, min, max, default, by_group }
    };
    wire.into_iter().map(limit).collect()
}

pub(crate) fn deadlocks(wire: v1::DeadlocksResponse) -> Result<Deadlocks, Error> {
    let found = |wire: v1::Deadlock| {
        let (ago, group) = (duration(wire.ago_ms), GroupId::new(wire.group_id));
        Ok(DeadlockFound { cycle: deadlock_cycle(wire.cycle)?, ago, group })
    };
    let deadlocks = wire.deadlocks.into_iter().map(found).collect::<Result<_, Error>>()?;
    Ok(Deadlocks { deadlocks, found: wire.found, missing: super::missing(&wire.missing) })
}

pub(crate) fn deadlock_cycle(wire: Vec<v1::DeadlockStep>) -> Result<Vec<DeadlockStep>, Error> {
    let step = |wire: v1::DeadlockStep| {
        Ok(DeadlockStep {
            lease: lease_id(wire.lease_id)?,
            mode: mode(wire.mode, wire.permits, wire.of)?,
            blocker_lease: lease_id(wire.blocker_lease_id)?,
            blocker_token: token_or_none(wire.blocker_fencing_token)?,
            owner: wire.owner,
            name: wire.name,
            blocker_owner: wire.blocker_owner,
        })
    };
    wire.into_iter().map(step).collect()
}

pub(crate) fn config(wire: v1::ConfigResponse) -> Vec<Setting> {
    let setting = |wire: v1::Setting| {
        let origin = match wire.origin() {
            v1::SettingOrigin::Default => SettingOrigin::Default,
            v1::SettingOrigin::File => SettingOrigin::File,
            v1::SettingOrigin::Environment => SettingOrigin::Environment,
            v1::SettingOrigin::Flag => SettingOrigin::Flag,
            v1::SettingOrigin::Unspecified => SettingOrigin::Unknown,
        };
        let value = (!wire.secret).then_some(wire.value);
        Setting { key: wire.key, value, origin, source: wire.source }
    };
    wire.settings.into_iter().map(setting).collect()
}
