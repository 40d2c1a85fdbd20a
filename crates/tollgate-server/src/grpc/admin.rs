//! `AdminService`: what an operator asks one node.
//!
//! Changes are made by the leader of their group; another node refuses them and says whom to ask. Not here: changes of
//! members.

use crate::config::{Config, Origin, Settings};
use crate::operation;
use crate::router::Router;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tollgate_core::Command;
use tollgate_node::{Answer, Ask, Consistency, NotAnswered, NotTaken, Sight};
use tollgate_proto::convert;
use tollgate_proto::v1::admin_service_server::AdminService;
use tollgate_proto::v1::{
    ConfigRequest, ConfigResponse, DeadlocksRequest, DeadlocksResponse, Error, ErrorReason, GetLimitsRequest,
    GetLimitsResponse, Group, GroupsRequest, GroupsResponse, Member, MemberKind, MembersRequest,
    MembersResponse, ReplicaStatus, Role, SetLimitsRequest, SetLimitsResponse, Setting, SettingOrigin,
    SlotRange, SnapshotRequest, SnapshotResponse, SnapshotTaken, StatusRequest, StatusResponse,
    TransferRequest, TransferResponse,
};
use tollgate_replica::{Host, Members, ReplicaKind};
use tollgate_types::{GroupId, NodeId, SLOTS};
use tonic::{Request, Response, Status};

/// How long a change that was asked for may take before the asker is told that it has not happened yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Deadlocks listed if the asker does not say how many.
const DEADLOCKS_DEFAULT: usize = 100;

pub(crate) struct Admin {
    router: Router,
    members: Vec<crate::config::Member>,
    zone: String,
    data_dir: PathBuf,
    settings: Settings,
    started: Instant,
    /// Whoever changes limits: what one changes must not be undone by another that has read them before.
    limits: Mutex<()>,
}

impl Admin {
    pub(crate) fn new(router: Router, config: &Config, settings: Settings) -> Admin {
        let (members, zone) = (config.cluster.members.clone(), config.node.zone.clone());
        let (data_dir, started) = (config.node.data_dir.clone(), Instant::now());
        Admin { router, members, zone, data_dir, settings, started, limits: Mutex::new(()) }
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
        let seen = self.router.node().inspect(look).await;
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
            return Ok((0..self.router.groups()).map(GroupId::new).collect());
        }
        named.iter().map(|number| self.group(*number)).collect()
    }

    fn group(&self, number: u32) -> Result<GroupId, Status> {
        if number < self.router.groups() {
            return Ok(GroupId::new(number));
        }
        let says = format!("there is no group {number}: they go from 0 to {}", self.router.groups() - 1);
        Err(Error { group_id: number, ..Error::new(ErrorReason::NoSuchGroup, says) }.into())
    }

    /// Refuses where another node leads.
    fn must_lead(&self, group: GroupId) -> Result<(), Status> {
        let status = self.router.node().status().borrow().clone();
        if status.serves(group) {
            return Ok(());
        }
        Err(self.router.not_leader(group, status.leader(group)).into())
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let replicas = self.inspect(|host| host.groups().map(|group| replica(host, group)).collect()).await?;
        let data_dir = self.data_dir.clone();
        let data_dir_bytes = tokio::task::spawn_blocking(move || bytes_in(&data_dir)).await.unwrap_or(0);
        let status = self.router.node().status().borrow().clone();
        let mut warnings = Vec::new();
        if status.disk_full {
            warnings.push("the disk is full: free some space; the node goes on by itself then".to_owned());
        }
        if status.stopping {
            warnings.push("the node is stopping".to_owned());
        }
        for (group, _) in status.groups.iter().filter(|(_, status)| status.leader.is_none()) {
            warnings.push(format!("group {group} has no leader that this node knows of"));
        }
        Ok(Response::new(StatusResponse {
            header: self.header(GroupId::new(0)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node_name: format!("node {}", self.router.node().node()),
            zone: self.zone.clone(),
            uptime_ms: i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX),
            data_dir_bytes,
            apply_version_max: tollgate_core::APPLY_VERSION_SUPPORTED,
            replicas,
            warnings,
        }))
    }

    async fn members(&self, _: Request<MembersRequest>) -> Result<Response<MembersResponse>, Status> {
        let (members, heard) = self
            .inspect(|host| {
                let members = host.status(GroupId::new(0)).map(|status| status.members);
                let members = members.unwrap_or_else(|| Members::first([], []));
                let all = members.voters.iter().chain(&members.learners).copied();
                let heard: Vec<(NodeId, bool)> = all.map(|node| (node, host.hears(node))).collect();
                (members, heard)
            })
            .await?;
        let leaders = self.router.node().status().borrow().clone();
        let members = heard.into_iter().map(|(node, connected)| {
            let known = self.members.iter().find(|member| member.id == node);
            let led = leaders.groups.values().filter(|group| group.leader == Some(node)).count();
            Member {
                node_id: node.number(),
                name: format!("node {node}"),
                zone: String::new(),
                client_address: known.map_or_else(String::new, |member| member.client.to_string()),
                peer_address: known.map_or_else(String::new, |member| member.peer.to_string()),
                kind: kind_of(&members, node).into(),
                connected,
                groups_led: u32::try_from(led).unwrap_or(u32::MAX),
                version: String::new(),
            }
        });
        let members = members.collect();
        Ok(Response::new(MembersResponse { header: self.header(GroupId::new(0)), members }))
    }

    async fn groups(&self, _: Request<GroupsRequest>) -> Result<Response<GroupsResponse>, Status> {
        let count = self.router.groups();
        let found: Vec<(GroupId, Members, Option<NodeId>)> = self
            .inspect(|host| {
                let of = |group| host.status(group).map(|status| (group, status.members, status.leader));
                host.groups().filter_map(of).collect()
            })
            .await?;
        let groups = found.into_iter().map(|(group, members, leader)| Group {
            group_id: group.number(),
            slots: slots_of(group, count),
            leader_id: leader.map_or(0, NodeId::number),
            leader_address: leader
                .and_then(|leader| self.router.client_address(leader))
                .unwrap_or_default()
                .to_owned(),
            voters: members.voters.iter().map(|node| node.number()).collect(),
            learners: members.learners.iter().map(|node| node.number()).collect(),
            witnesses: members.witnesses.iter().map(|node| node.number()).collect(),
        });
        let groups = groups.collect();
        let header = self.header(GroupId::new(0));
        Ok(Response::new(GroupsResponse { header, map_epoch: 1, groups }))
    }

    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<TransferResponse>, Status> {
        let request = request.into_inner();
        let group = self.group(request.group_id)?;
        self.must_lead(group)?;
        let to = convert::read_node_id_or_none(request.node_id);
        let own = self.router.node().node();
        if to == Some(own) {
            let header = self.header(group);
            return Ok(Response::new(TransferResponse { header, leader_id: own.number() }));
        }
        self.router.node().tell(Ask::TransferLeadership { group, to });
        let mut status = self.router.node().status().clone();
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
            self.router.node().tell(Ask::TakeSnapshot { group });
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
            let called = self.router.node().call(Ask::Command { group, command, fast: false }).await;
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
        let limit = usize::try_from(request.into_inner().limit).unwrap_or(usize::MAX);
        let limit = if limit == 0 { DEADLOCKS_DEFAULT } else { limit };
        let (found, deadlocks) = self.router.deadlocks(limit);
        let header = self.header(GroupId::new(0));
        Ok(Response::new(DeadlocksResponse { header, deadlocks, found }))
    }

    async fn config(&self, _: Request<ConfigRequest>) -> Result<Response<ConfigResponse>, Status> {
        let settings = self.settings.iter().map(|setting| Setting {
            key: setting.key.path(),
            value: setting.value.to_string(),
            origin: origin_of(&setting.origin).into(),
            source: setting.origin.to_string(),
            secret: false,
        });
        let settings = settings.collect();
        Ok(Response::new(ConfigResponse { header: self.header(GroupId::new(0)), settings }))
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

fn kind_of(members: &Members, node: NodeId) -> MemberKind {
    if members.witnesses.contains(&node) {
        MemberKind::Witness
    } else if members.learners.contains(&node) {
        MemberKind::Learner
    } else {
        MemberKind::Voter
    }
}

/// The slots that a group serves: equal ranges in order.
fn slots_of(group: GroupId, groups: u32) -> Vec<SlotRange> {
    let of = |slot: u16| tollgate_types::Slot::new(slot).ok().map(|slot| operation::group_of(slot, groups));
    let own = (0..SLOTS).filter(|slot| of(*slot) == Some(group));
    let (first, last) = own.fold((None, None), |(first, _), slot| (first.or(Some(slot)), Some(slot)));
    first
        .zip(last)
        .map(|(first, last)| SlotRange { first: first.into(), last: last.into() })
        .into_iter()
        .collect()
}

fn origin_of(origin: &Origin) -> SettingOrigin {
    match origin {
        Origin::Default => SettingOrigin::Default,
        Origin::File { .. } => SettingOrigin::File,
        Origin::Env { .. } => SettingOrigin::Environment,
        Origin::Flag { .. } => SettingOrigin::Flag,
    }
}
