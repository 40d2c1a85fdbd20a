//! `AdminService`: what an operator asks one node.
//!
//! Changes are made by the leader of their group; another node refuses them and says whom to ask. Not here: changes of
//! members (`members`), which any node sees to.

mod backup;
mod members;

use crate::config::{Config, Origin, Settings};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tollgate_core::{Command, EndDeadlock};
use tollgate_gateway::Router;
use tollgate_gateway::operation;
use tollgate_node::{Answer, Ask, Consistency, NodeHandle, NotAnswered, NotTaken, Sight};
use tollgate_proto::convert;
use tollgate_proto::v1::admin_service_server::AdminService;
use tollgate_proto::v1::{
    AddMemberRequest, AddMemberResponse, BackupRequest, ConfigRequest, ConfigResponse, DeadlocksRequest,
    DeadlocksResponse, EndDeadlockRequest, EndDeadlockResponse, Error, ErrorReason, GetLimitsRequest,
    GetLimitsResponse, Group, GroupsRequest, GroupsResponse, MemberKind, MembersRequest, MembersResponse,
    PromoteMemberRequest, PromoteMemberResponse, RemoveMemberRequest, RemoveMemberResponse,
    ReplaceMemberRequest, ReplaceMemberResponse, ReplicaStatus, Role, SetLimitsRequest, SetLimitsResponse,
    Setting, SettingOrigin, SlotRange, SnapshotRequest, SnapshotResponse, SnapshotTaken, StatusRequest,
    StatusResponse, TransferRequest, TransferResponse,
};
use tollgate_replica::{Host, MemberProgress, Members, ReplicaKind};
use tollgate_types::{GroupId, GroupMap, NodeId};
use tonic::{Request, Response, Status};

/// How long a change that was asked for may take before the asker is told that it has not happened yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Deadlocks listed if the asker does not say how many.
const DEADLOCKS_DEFAULT: usize = 100;

pub(crate) struct Admin {
    router: Router,
    node: NodeHandle,
    /// What this node's configuration says of members, which wins over what the cluster says.
    configured: Vec<crate::config::Member>,
    cluster_name: String,
    zone: String,
    data_dir: PathBuf,
    settings: Settings,
    started: Instant,
    /// Whoever changes limits: what one changes must not be undone by another that has read them before.
    limits: Mutex<()>,
    backups: backup::Backups,
    changes: members::Changes,
}

impl Admin {
    pub(crate) fn new(router: Router, node: NodeHandle, config: &Config, settings: Settings) -> Admin {
        Admin {
            changes: members::Changes::new(router.clone(), node.clone()),
            router,
            node,
            configured: config.cluster.members.clone(),
            cluster_name: config.cluster.name.clone(),
            zone: config.node.zone.clone(),
            data_dir: config.node.data_dir.clone(),
            settings,
            started: Instant::now(),
            limits: Mutex::new(()),
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
            // To look is never harmful, so whether it happened does not matter.
            NotAnswered::Stopped => NotAnswered::NotTaken(NotTaken::Stopped),
            error @ NotAnswered::NotTaken(_) => error,
        })
        .map_err(|error| operation::error_of_not_answered(error, GroupId::new(0)).into())
    }

    /// Groups that a request names; all if it names none.
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

    /// Refuses where another node leads.
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
        let request = request.into_inner();
        let group = self.group(request.group_id)?;
        self.must_lead(group)?;
        let to = convert::read_node_id_or_none(request.node_id);
        let own = self.node.node();
        if to == Some(own) {
            let header = self.header(group);
            return Ok(Response::new(TransferResponse { header, leader_id: own.number() }));
        }
        self.node.tell(Ask::TransferLeadership { group, to });
        let mut status = self.node.status().clone();
        let moved = status.wait_for(|status| status.leader(group).is_some_and(|leader| leader != own));
        let leader = match tokio::time::timeout(PATIENCE, moved).await {
            Ok(Ok(status)) => status.leader(group),
            _ => None,
        };
        let Some(leader) = leader else {
            let says = "nobody took over: is the node a voter, up, and caught up?";
            return Err(Error::new(ErrorReason::MemberRefused, says).into());
        };
        let header = self.header(group);
        Ok(Response::new(TransferResponse { header, leader_id: leader.number() }))
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
        let group = self.group(request.into_inner().group_id)?;
        let look = |sight: Sight<'_>| convert::write_limits(sight.state.limits());
        let read = self.router.look(group, Consistency::Linearizable, look).await;
        let (header, limits) = read.map_err(|error| Status::from(operation::error_of_read(&error)))?;
        Ok(Response::new(GetLimitsResponse { header: header.at(header.revision), limits }))
    }

    async fn set_limits(
        &self,
        request: Request<SetLimitsRequest>,
    ) -> Result<Response<SetLimitsResponse>, Status> {
        let request = request.into_inner();
        let groups = self.groups(&request.group_ids)?;
        for group in &groups {
            self.must_lead(*group)?;
        }
        let mut last = None;
        // Only the leader changes limits, and this is it.
        let _alone = self.limits.lock().await;
        for group in groups {
            let look = |sight: Sight<'_>| sight.state.limits().clone();
            let read = self.router.look(group, Consistency::Linearizable, look).await;
            let (header, base) = read.map_err(|error| Status::from(operation::error_of_read(&error)))?;
            let limits = convert::read_limits("limits", &request.limits, &base)?;
            let command = Box::new(Command::SetLimits(Box::new(limits.clone())));
            let called = self.node.call(Ask::Command { group, command, fast: false }).await;
            let called =
                called.map_err(|error| Status::from(operation::error_of_not_answered(error, group)))?;
            match called.answer {
                Answer::Replied { reply: tollgate_core::Reply::Rejected(rejection), .. } => {
                    return Err(operation::error_of_rejection(&rejection, group).into());
                }
                Answer::Replied { .. } => {}
                Answer::NotDone(error) => return Err(operation::error_of_propose(&error, true).into()),
                _ => return Err(operation::unexpected("SetLimits").into()),
            }
            last = Some((header, convert::write_limits(&limits)));
        }
        let (header, limits) = last.ok_or_else(|| Status::from(operation::unexpected("SetLimits")))?;
        Ok(Response::new(SetLimitsResponse { header: header.at(header.revision), limits }))
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

/// The size of all files in a directory; what goes while it is looked at counts nothing.
fn bytes_in(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

/// The slots that a group serves.
fn slots_of(group: GroupId, map: &GroupMap) -> Vec<SlotRange> {
    let own = map.ranges().filter(|range| range.group == group);
    own.map(|range| SlotRange { first: range.first.number().into(), last: range.last.number().into() })
        .collect()
}

/// Settings as the wire says them.
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
