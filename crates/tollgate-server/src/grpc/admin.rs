//! `AdminService`: operators' requests to one node.
//!
//! The leader of a group makes all changes to that group; another node passes the request on (`leaders`). Not here:
//! changes of members (`members`) and of limits (`limits`), which go through all groups.

mod backup;
mod leaders;
mod limits;
mod members;
mod transfer;

use crate::config::{Config, Origin, Settings};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tollgate_core::EndDeadlock;
use tollgate_gateway::{Router, is_passed_on, operation};
use tollgate_node::{Ask, NodeHandle, NotAnswered, NotTaken};
use tollgate_proto::convert::{self, ToldLimits};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::admin_service_server::AdminService;
use tollgate_proto::v1::{
    AddMemberRequest, AddMemberResponse, BackupRequest, ClockComparison, ConfigRequest, ConfigResponse,
    DeadlocksRequest, DeadlocksResponse, EndDeadlockRequest, EndDeadlockResponse, Error, ErrorReason,
    GetLimitsRequest, GetLimitsResponse, Group, GroupsRequest, GroupsResponse, MemberKind, MembersRequest,
    MembersResponse, PromoteMemberRequest, PromoteMemberResponse, RemoveMemberRequest, RemoveMemberResponse,
    ReplaceMemberRequest, ReplaceMemberResponse, ReplicaStatus, Role, SetLimitsRequest, SetLimitsResponse,
    Setting, SettingOrigin, SlotRange, SnapshotRequest, SnapshotResponse, SnapshotTaken, StatusRequest,
    StatusResponse, TransferRequest, TransferResponse,
};
use tollgate_replica::{Host, MemberProgress, Members, ReplicaKind};
use tollgate_types::{GroupId, GroupMap, NodeId};
use tonic::{Request, Response, Status};

/// Time limit of a requested change, after which the caller is told that it has not happened yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval between two looks at whether the change has happened.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Number of deadlocks listed if the request does not say.
const DEADLOCKS_DEFAULT: usize = 100;

pub(crate) struct Admin {
    router: Router,
    node: NodeHandle,
    /// Members in this node's configuration, whose addresses override those known to the cluster.
    configured: Vec<crate::config::Member>,
    cluster_name: String,
    zone: String,
    data_dir: PathBuf,
    settings: Settings,
    started: Instant,
    leaders: leaders::Leaders,
    limits: limits::LimitChanges,
    backups: backup::Backups,
    changes: members::Changes,
}

impl Admin {
    pub(crate) fn new(router: Router, node: NodeHandle, config: &Config, settings: Settings) -> Admin {
        let leaders = leaders::Leaders::new(router.clone(), node.clone());
        Admin {
            changes: members::Changes::new(router.clone(), node.clone()),
            limits: limits::LimitChanges::new(router.clone(), node.clone(), leaders.clone()),
            leaders,
            router,
            node,
            configured: config.cluster.members.clone(),
            cluster_name: config.cluster.name.clone(),
            zone: config.node.zone.clone(),
            data_dir: config.node.data_dir.clone(),
            settings,
            started: Instant::now(),
            backups: backup::Backups::new(config.cluster.name.clone()),
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "messages have optional headers")]
    fn header(&self, group: GroupId) -> Option<tollgate_proto::v1::Header> {
        let header = self.router.header(group, None);
        header.at(header.revision)
    }

    async fn inspect<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Host) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let seen = self.node.inspect(look).await;
        seen.map_err(|error| match error {
            // Looking is never harmful, so it does not matter whether it happened.
            NotAnswered::Stopped => NotAnswered::NotTaken(NotTaken::Stopped),
            error @ NotAnswered::NotTaken(_) => error,
        })
        .map_err(|error| operation::error_of_not_answered(error, GroupId::new(0)).into())
    }

    /// Returns the groups that a request names; all if it names none.
    fn groups(&self, named: &[u32]) -> Result<Vec<GroupId>, Status> {
        if named.is_empty() {
            return Ok(self.router.map().groups());
        }
        named.iter().map(|number| self.group(*number)).collect()
    }

    fn group(&self, number: u32) -> Result<GroupId, Status> {
        let groups = self.router.map().groups();
        if groups.contains(&GroupId::new(number)) {
            return Ok(GroupId::new(number));
        }
        let last = groups.last().map_or(0, |group| group.number());
        let says = format!("there is no group {number}: they go from 0 to {last}");
        Err(Error { group_id: number, ..Error::new(ErrorReason::NoSuchGroup, says) }.into())
    }

    /// Refuses the request if this node does not lead the group.
    fn must_lead(&self, group: GroupId) -> Result<(), Status> {
        let status = self.node.status().borrow().clone();
        if status.serves(group) {
            return Ok(());
        }
        Err(self.router.not_leader(group, status.leader(group)).into())
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    type BackupStream = backup::BackupStream;

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let replicas = self.inspect(|host| host.groups().map(|group| replica(host, group)).collect()).await?;
        let data_dir = self.data_dir.clone();
        let data_dir_bytes = tokio::task::spawn_blocking(move || bytes_in(&data_dir)).await.unwrap_or(0);
        let status = self.node.status().borrow().clone();
        let mut warnings = Vec::new();
        if status.disk_full {
            warnings.push("the disk is full: free some space; the node goes on by itself then".to_owned());
        }
        if status.stopping {
            warnings.push("the node is stopping".to_owned());
        }
        if status.removed {
            let says = "the node was removed from the cluster: stop it, and wipe its data directory";
            warnings.push(says.to_owned());
        }
        for (group, _) in status.groups.iter().filter(|(_, status)| status.leader.is_none()) {
            warnings.push(format!("group {group} has no leader that this node knows of"));
        }
        for (group, _) in status.groups.iter().filter(|(_, status)| status.stuck) {
            warnings.push(format!(
                "group {group} can't write: too few disks have room; free some space, and it goes on by itself"
            ));
        }
        let clocks = self.node.clock_rates().borrow().clone();
        warnings.extend(clocks.verdict.warnings(self.node.node()));
        Ok(Response::new(StatusResponse {
            header: self.header(GroupId::new(0)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node_name: format!("node {}", self.node.node()),
            zone: self.zone_of(self.node.node(), &status.members),
            uptime_ms: i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX),
            data_dir_bytes,
            apply_version_max: tollgate_core::APPLY_VERSION_SUPPORTED,
            replicas,
            warnings,
            clocks: clocks.differences.iter().map(clock_comparison).collect(),
        }))
    }

    async fn members(&self, _: Request<MembersRequest>) -> Result<Response<MembersResponse>, Status> {
        self.list_members().await.map(Response::new)
    }

    async fn groups(&self, _: Request<GroupsRequest>) -> Result<Response<GroupsResponse>, Status> {
        let map = self.router.map();
        let found: Vec<(GroupId, Members, Option<NodeId>, u64, Vec<MemberProgress>)> = self
            .inspect(|host| {
                let of = |group| {
                    let (members, brief) = (host.members(group)?.clone(), host.brief(group)?);
                    let progress = host.progress(group).unwrap_or_default();
                    Some((group, members, brief.leader, brief.term, progress))
                };
                host.groups().filter_map(of).collect()
            })
            .await?;
        let groups = found.into_iter().map(|(group, members, leader, raft_term, progress)| Group {
            group_id: group.number(),
            slots: slots_of(group, &map),
            leader_id: leader.map_or(0, NodeId::number),
            leader_address: leader.and_then(|leader| self.router.client_address(leader)).unwrap_or_default(),
            voters: members.voters.iter().map(|node| node.number()).collect(),
            learners: members.learners.iter().map(|node| node.number()).collect(),
            witnesses: members.witnesses.iter().map(|node| node.number()).collect(),
            progress: progress.iter().map(members::progress).collect(),
            raft_term,
        });
        let groups = groups.collect();
        let header = self.header(GroupId::new(0));
        Ok(Response::new(GroupsResponse { header, map_epoch: map.epoch(), groups, via_gateway: false }))
    }

    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<TransferResponse>, Status> {
        self.hand_on(&request.into_inner()).await.map(Response::new)
    }

    async fn snapshot(
        &self,
        request: Request<SnapshotRequest>,
    ) -> Result<Response<SnapshotResponse>, Status> {
        let groups = self.groups(&request.into_inner().group_ids)?;
        let mut snapshots = Vec::new();
        for group in groups {
            let at = move |host: &Host| {
                let revision = host.state(group).map_or(0, |state| state.revision().get());
                host.status(group).map(|status| (status.applied, status.snapshot_index, revision))
            };
            let Some((applied, _, revision)) = self.inspect(at).await? else { continue };
            self.node.tell(Ask::TakeSnapshot { group });
            let until = Instant::now() + PATIENCE;
            loop {
                let index = self.inspect(at).await?.map_or(0, |(_, index, _)| index);
                if index >= applied {
                    snapshots.push(SnapshotTaken { group_id: group.number(), index, revision });
                    break;
                }
                if Instant::now() > until {
                    let says = format!("group {group}'s snapshot is still being written: look again later");
                    return Err(Error::new(ErrorReason::TimedOut, says).into());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        let header = self.header(GroupId::new(0));
        Ok(Response::new(SnapshotResponse { header, snapshots }))
    }

    async fn get_limits(
        &self,
        request: Request<GetLimitsRequest>,
    ) -> Result<Response<GetLimitsResponse>, Status> {
        let passed_on = is_passed_on(&request);
        let request = request.into_inner();
        let groups = if request.all_groups { self.groups(&[])? } else { vec![self.group(request.group_id)?] };
        let limits = convert::write_limits(&self.limits.read(&groups, passed_on).await?);
        Ok(Response::new(GetLimitsResponse { header: self.header(groups[0]), limits }))
    }

    async fn set_limits(
        &self,
        request: Request<SetLimitsRequest>,
    ) -> Result<Response<SetLimitsResponse>, Status> {
        let SetLimitsRequest { limits, group_ids, passed_on } = request.into_inner();
        let mut groups = self.groups(&group_ids)?;
        groups.sort();
        groups.dedup();
        let changed = if passed_on {
            let mut changed = Vec::with_capacity(groups.len());
            for group in groups {
                let limits = self.limits.change_as_leader(group, &limits).await?;
                changed.push((group, ToldLimits::from(&limits)));
            }
            changed
        } else {
            self.limits.change(&groups, limits).await?
        };
        let (header, limits) = (self.header(changed[0].0), convert::write_limits(&changed));
        Ok(Response::new(SetLimitsResponse { header, limits }))
    }

    async fn deadlocks(
        &self,
        request: Request<DeadlocksRequest>,
    ) -> Result<Response<DeadlocksResponse>, Status> {
        let DeadlocksRequest { limit, own_only } = request.into_inner();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let limit = if limit == 0 { DEADLOCKS_DEFAULT } else { limit };
        let found =
            if own_only { self.router.deadlocks(limit) } else { self.router.deadlocks_of_all(limit).await };
        Ok(Response::new(DeadlocksResponse { header: self.header(GroupId::new(0)), ..found }))
    }

    async fn end_deadlock(
        &self,
        request: Request<EndDeadlockRequest>,
    ) -> Result<Response<EndDeadlockResponse>, Status> {
        let request = request.into_inner();
        let group = self.group(request.group_id)?;
        self.must_lead(group)?;
        let end = EndDeadlock {
            name: convert::read_name("name", &request.name)?,
            create_revision: convert::read_revision("create_revision", request.create_revision)?,
            blocker: convert::read_token("blocker_token", request.blocker_token)?,
        };
        let circle = request.cycle.iter().map(operation::read_step).collect::<Result<_, _>>()?;
        self.router.end_deadlock(group, end, circle).await?;
        Ok(Response::new(EndDeadlockResponse { header: self.header(group) }))
    }

    async fn config(&self, _: Request<ConfigRequest>) -> Result<Response<ConfigResponse>, Status> {
        let settings = settings_of(&self.settings);
        Ok(Response::new(ConfigResponse { header: self.header(GroupId::new(0)), settings }))
    }

    async fn add_member(
        &self,
        request: Request<AddMemberRequest>,
    ) -> Result<Response<AddMemberResponse>, Status> {
        self.add(request.into_inner()).await.map(Response::new)
    }

    async fn promote_member(
        &self,
        request: Request<PromoteMemberRequest>,
    ) -> Result<Response<PromoteMemberResponse>, Status> {
        self.promote(request.into_inner()).await.map(Response::new)
    }

    async fn remove_member(
        &self,
        request: Request<RemoveMemberRequest>,
    ) -> Result<Response<RemoveMemberResponse>, Status> {
        self.remove(request.into_inner()).await.map(Response::new)
    }

    async fn replace_member(
        &self,
        request: Request<ReplaceMemberRequest>,
    ) -> Result<Response<ReplaceMemberResponse>, Status> {
        self.replace(request.into_inner()).await.map(Response::new)
    }

    async fn backup(&self, _: Request<BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let members = self.inspect(|host| host.status(GroupId::new(0)).map(|status| status.members)).await?;
        let members = members.unwrap_or_default();
        Ok(Response::new(self.backups.begin(self.router.clone(), members)?))
    }
}

fn replica(host: &Host, group: GroupId) -> ReplicaStatus {
    let status = host.status(group).expect("one of the host's groups");
    let state = host.state(group);
    let count = |of: fn(&tollgate_core::State) -> u64| state.map_or(0, of);
    let learns = status.members.learners.contains(&host.config().node);
    let kind = match status.kind {
        ReplicaKind::Witness => MemberKind::Witness,
        ReplicaKind::Full if learns => MemberKind::Learner,
        ReplicaKind::Full => MemberKind::Voter,
    };
    let role = match status.role {
        tollgate_replica::Role::Leader => Role::Leader,
        tollgate_replica::Role::Follower => Role::Follower,
        tollgate_replica::Role::Candidate => Role::Candidate,
    };
    ReplicaStatus {
        group_id: group.number(),
        role: role.into(),
        kind: kind.into(),
        raft_term: status.term,
        leader_id: status.leader.map_or(0, NodeId::number),
        applied_index: status.applied,
        committed_index: status.committed,
        first_index: status.first_index,
        last_index: status.last_index,
        snapshot_index: status.snapshot_index,
        serves: status.serves,
        revision: count(|state| state.revision().get()),
        min_revision: count(|state| state.min_revision().get()),
        apply_version: state.map_or(0, tollgate_core::State::apply_version),
        locks: count(tollgate_core::State::lock_count),
        claims: count(tollgate_core::State::claim_count),
        leases: count(tollgate_core::State::lease_count),
        registers: count(tollgate_core::State::register_count),
    }
}

fn clock_comparison((node, difference): (&NodeId, &f64)) -> ClockComparison {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no clock is billions of times too fast; it saturates"
    )]
    let rate_difference_ppm = (difference * 1e6).round() as i64;
    ClockComparison { node_id: node.number(), rate_difference_ppm }
}

/// Returns the size of all files in a directory; a file that disappears meanwhile counts as empty.
fn bytes_in(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

/// Returns the slots that a group serves.
fn slots_of(group: GroupId, map: &GroupMap) -> Vec<SlotRange> {
    let own = map.ranges().filter(|range| range.group == group);
    own.map(|range| SlotRange { first: range.first.number().into(), last: range.last.number().into() })
        .collect()
}

/// Converts settings to their wire form.
pub(super) fn settings_of(settings: &Settings) -> Vec<Setting> {
    let settings = settings.iter().map(|setting| Setting {
        key: setting.key.path(),
        value: setting.value.to_string(),
        origin: origin_of(&setting.origin).into(),
        source: setting.origin.to_string(),
        secret: false,
    });
    settings.collect()
}

fn origin_of(origin: &Origin) -> SettingOrigin {
    match origin {
        Origin::Default => SettingOrigin::Default,
        Origin::File { .. } => SettingOrigin::File,
        Origin::Env { .. } => SettingOrigin::Environment,
        Origin::Flag { .. } => SettingOrigin::Flag,
    }
}
