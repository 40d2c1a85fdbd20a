//! Members of the cluster: who they are, and how they come and go.
//!
//! A change is carried out in all groups, one after the other, each by its leader: whichever node is asked asks the
//! others. Invariant: what was done is done once; asked again, a change that was interrupted goes on to its end. A node
//! is added to group 0 first and removed from it last, so that group 0 knows of everybody who is in any group. Not
//! here: what a group allows (`tollgate_replica`).

mod steps;

use super::Admin;
use crate::config::{Endpoint, NODE_ID_MAX};
use std::time::{Duration, Instant};
use steps::{Step, Wish};
use tollgate_gateway::operation;
use tollgate_node::{Answer, Ask};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, Error, ErrorReason};
use tollgate_proto::{BadField, convert, error_of_status};
use tollgate_replica::{Host, MemberProgress, MemberRefusal, Members, ProposeError, Whereabouts};
use tollgate_types::{GroupId, NodeId, Zone};
use tonic::Status;
use tonic::transport::Endpoint as Dialled;

/// How long one group may take, with a change of leaders and another change of members before.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long another node may take, which has a patience of its own.
const CALL_PATIENCE: Duration = Duration::from_secs(25);
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// A leader that has just taken over has not heard of everybody yet: only after so long it means it when it says that
/// somebody does not answer, or lacks entries.
const FRESH_LEADER: Duration = Duration::from_secs(1);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// What the leader of a group sees of it.
struct Sight {
    members: Members,
    /// Whether it leads.
    leads: bool,
    /// Who has spoken lately.
    heard: Vec<NodeId>,
}

impl Admin {
    /// The members, and where they are found.
    pub(super) async fn list_members(&self) -> Result<v1::MembersResponse, Status> {
        let status = self.node.status().borrow().clone();
        let members = status.members;
        let all = members.all();
        let heard = self
            .inspect(move |host| all.into_iter().map(|node| (node, host.hears(node))).collect::<Vec<_>>());
        let listed = heard.await?.into_iter().map(|(node, connected)| {
            let led = status.groups.values().filter(|group| group.leader == Some(node)).count();
            let configured = self.configured.iter().find(|member| member.id == node);
            let peer = configured.map(|member| member.peer.to_string());
            v1::Member {
                node_id: node.number(),
                name: format!("node {node}"),
                zone: self.zone_of(node, &members),
                client_address: self.router.client_address(node).unwrap_or_default(),
                peer_address: peer.unwrap_or_else(|| members.whereabouts_of(node).peer.to_string()),
                kind: kind_of(&members, node).into(),
                connected,
                groups_led: u32::try_from(led).unwrap_or(u32::MAX),
                version: String::new(),
                votes: members.is_voter(node),
            }
        });
        let listed = listed.collect();
        let header = self.header(GroupId::MAP);
        Ok(v1::MembersResponse { header, members: listed, next_node_id: members.next_node })
    }

    /// Where a node stands: what the cluster was told, or what this node's configuration says.
    pub(super) fn zone_of(&self, node: NodeId, members: &Members) -> String {
        let replicated = &members.whereabouts_of(node).zone;
        if *replicated != Zone::NONE {
            return replicated.to_string();
        }
        if node == self.node.node() && !self.zone.is_empty() {
            return self.zone.clone();
        }
        let configured = self.configured.iter().find(|member| member.id == node);
        configured.map_or_else(String::new, |member| member.zone.clone())
    }

    pub(super) async fn add(&self, request: v1::AddMemberRequest) -> Result<v1::AddMemberResponse, Status> {
        let wish = read_new_member(&request)?;
        let (groups, forwarded) = self.groups_of(&request.group_ids)?;
        let node = self.in_all(groups, forwarded, wish).await?;
        let (header, cluster_name) = (self.header(GroupId::MAP), self.cluster_name.clone());
        Ok(v1::AddMemberResponse { header, node_id: node.map_or(0, NodeId::number), cluster_name })
    }

    pub(super) async fn promote(
        &self,
        request: v1::PromoteMemberRequest,
    ) -> Result<v1::PromoteMemberResponse, Status> {
        let node = convert::read_node_id("node_id", request.node_id)?;
        let (groups, forwarded) = self.groups_of(&request.group_ids)?;
        self.in_all(groups, forwarded, Wish::Promote { node }).await?;
        Ok(v1::PromoteMemberResponse { header: self.header(GroupId::MAP) })
    }

    pub(super) async fn remove(
        &self,
        request: v1::RemoveMemberRequest,
    ) -> Result<v1::RemoveMemberResponse, Status> {
        let node = convert::read_node_id("node_id", request.node_id)?;
        let (mut groups, forwarded) = self.groups_of(&request.group_ids)?;
        groups.reverse();
        self.in_all(groups, forwarded, Wish::Remove { node }).await?;
        Ok(v1::RemoveMemberResponse { header: self.header(GroupId::MAP) })
    }

    pub(super) async fn replace(
        &self,
        request: v1::ReplaceMemberRequest,
    ) -> Result<v1::ReplaceMemberResponse, Status> {
        let out = convert::read_node_id("out_id", request.out_id)?;
        let by = convert::read_node_id("by_id", request.by_id)?;
        if out == by {
            return Err(BadField::new("by_id", "a node can't replace itself: name another").into());
        }
        let (mut groups, forwarded) = self.groups_of(&request.group_ids)?;
        groups.reverse();
        self.in_all(groups, forwarded, Wish::Replace { out, by }).await?;
        Ok(v1::ReplaceMemberResponse { header: self.header(GroupId::MAP) })
    }

    /// The groups that a request is about, in order, and whether another node asks: then nothing is passed on.
    fn groups_of(&self, named: &[u32]) -> Result<(Vec<GroupId>, bool), Status> {
        let status = self.node.status().borrow().clone();
        let hosted: Vec<GroupId> = status.groups.keys().copied().collect();
        if named.is_empty() {
            return Ok((hosted, false));
        }
        let named: Vec<GroupId> = named.iter().copied().map(GroupId::new).collect();
        match named.iter().find(|group| !hosted.contains(group)) {
            None => Ok((named, true)),
            Some(group) => {
                let error = ProposeError::NoSuchGroup { group: *group };
                Err(operation::error_of_propose(&error, true).into())
            }
        }
    }

    /// Carries a wish out in one group after the other. The node that was added, if one was.
    async fn in_all(
        &self,
        groups: Vec<GroupId>,
        forwarded: bool,
        mut wish: Wish,
    ) -> Result<Option<NodeId>, Status> {
        let (count, mut added) = (groups.len(), None);
        for (done, group) in groups.into_iter().enumerate() {
            let carried_out = if forwarded {
                self.as_leader(group, &wish).await
            } else {
                self.at_leader(group, &wish).await
            };
            match carried_out {
                Ok(node) => {
                    added = added.or(node);
                    wish.settle(added);
                }
                Err(error) if forwarded || count == 1 => return Err(error.into()),
                Err(mut error) => {
                    let says = &error.message;
                    error.message = format!(
                        "group {group}: {says} ({done} of {count} groups are done: run it again to go on)"
                    );
                    return Err(error.into());
                }
            }
        }
        Ok(added)
    }

    /// Has a wish carried out by whoever leads the group, through changes of leaders.
    async fn at_leader(&self, group: GroupId, wish: &Wish) -> Result<Option<NodeId>, Error> {
        let until = Instant::now() + PATIENCE;
        let mut hint = None;
        loop {
            let known = self.node.status().borrow().leader(group);
            let leader = hint.take().or(known);
            let own = self.node.node();
            let carried_out = match leader.map(|leader| (leader, self.router.client_address(leader))) {
                Some((leader, _)) if leader == own => self.as_leader(group, wish).await,
                Some((_, Some(address))) => self.forward(group, wish, &address).await,
                Some((_, None)) | None => Err(self.router.not_leader(group, None)),
            };
            let error = match carried_out {
                Ok(node) => return Ok(node),
                Err(error) => error,
            };
            let again = matches!(
                error.reason(),
                ErrorReason::NotLeader
                    | ErrorReason::NoLeader
                    | ErrorReason::Indeterminate
                    | ErrorReason::Overloaded
                    | ErrorReason::ShuttingDown
            );
            if !again || Instant::now() >= until {
                return Err(error);
            }
            hint = NodeId::new(error.leader_id).filter(|hinted| Some(*hinted) != leader);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks another node, which leads the group as far as is known.
    async fn forward(&self, group: GroupId, wish: &Wish, address: &str) -> Result<Option<NodeId>, Error> {
        let address = address.strip_prefix("http://").unwrap_or(address);
        // Nothing was asked, or the leader went away; either way the wish may be repeated.
        let lost = |_| self.router.not_leader(group, None);
        let dialled = Dialled::from_shared(format!("http://{address}")).map_err(lost)?;
        let dialled = dialled.connect_timeout(CONNECT_PATIENCE).timeout(CALL_PATIENCE);
        let mut admin = AdminServiceClient::new(dialled.connect().await.map_err(lost)?);
        let group_ids = vec![group.number()];
        let asked = match wish {
            Wish::Add { node, witness, whereabouts } => {
                let request = v1::AddMemberRequest {
                    node_id: node.map_or(0, NodeId::number),
                    peer_address: whereabouts.peer.to_string(),
                    client_address: whereabouts.client.to_string(),
                    zone: whereabouts.zone.to_string(),
                    witness: *witness,
                    group_ids,
                };
                admin.add_member(request).await.map(|added| NodeId::new(added.into_inner().node_id))
            }
            Wish::Promote { node } => {
                let request = v1::PromoteMemberRequest { node_id: node.number(), group_ids };
                admin.promote_member(request).await.map(|_| None)
            }
            Wish::Remove { node } => {
                let request = v1::RemoveMemberRequest { node_id: node.number(), group_ids };
                admin.remove_member(request).await.map(|_| None)
            }
            Wish::Replace { out, by } => {
                let request =
                    v1::ReplaceMemberRequest { out_id: out.number(), by_id: by.number(), group_ids };
                admin.replace_member(request).await.map(|_| None)
            }
        };
        asked
            .map_err(|status| error_of_status(&status).unwrap_or_else(|| self.router.not_leader(group, None)))
    }

    /// Carries a wish out here, step by step, if this node leads the group.
    async fn as_leader(&self, group: GroupId, wish: &Wish) -> Result<Option<NodeId>, Error> {
        let began = Instant::now();
        loop {
            let Sight { members, leads, heard } = self.sight(group).await?;
            if !leads {
                let leader = self.node.status().borrow().leader(group);
                return Err(self.router.not_leader(group, leader));
            }
            let refused = match wish.step(group, &members, &heard) {
                Step::Done(node) => return Ok(node),
                Step::Refused(refusal) => return Err(refusal),
                Step::Wait => ProposeError::Refused(MemberRefusal::Busy),
                Step::Change(change) => {
                    let ask = Ask::ChangeMembers { group, change };
                    let called = self.node.call(ask).await;
                    let called = called.map_err(|error| operation::error_of_not_answered(error, group))?;
                    match called.answer {
                        Answer::Members(_) => continue,
                        Answer::NotDone(error) => error,
                        _ => return Err(operation::unexpected("a change of members")),
                    }
                }
            };
            if began.elapsed() >= patience_with(&refused) {
                return Err(self.router.with_address(operation::error_of_propose(&refused, true)));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn sight(&self, group: GroupId) -> Result<Sight, Error> {
        let look = move |host: &Host| {
            let members = host.members(group).cloned().unwrap_or_default();
            let heard = members.all().into_iter().filter(|node| host.hears(*node)).collect();
            Sight { members, leads: host.leads(group), heard }
        };
        let seen = self.node.inspect(look).await;
        seen.map_err(|error| operation::error_of_not_answered(error, group))
    }
}

/// How long a refusal may pass by itself.
fn patience_with(refused: &ProposeError) -> Duration {
    match refused {
        ProposeError::Refused(MemberRefusal::Busy) => PATIENCE,
        ProposeError::Refused(MemberRefusal::WouldLoseQuorum { .. } | MemberRefusal::NotCaughtUp { .. }) => {
            FRESH_LEADER
        }
        _ => Duration::ZERO,
    }
}

fn read_new_member(request: &v1::AddMemberRequest) -> Result<Wish, BadField> {
    let address = |field: &'static str, text: &str| {
        let text = text.strip_prefix("http://").unwrap_or(text);
        let endpoint = Endpoint::parse(text);
        endpoint
            .map(|endpoint| endpoint.host_port())
            .map_err(|wrong| BadField::new(field, format!("it {}: {}", wrong.what, wrong.advice)))
    };
    let peer = address("peer_address", &request.peer_address)?;
    let client = address("client_address", &request.client_address)?;
    if peer == client {
        let says = format!("it is {client}, and so is peer_address: give each its own port");
        return Err(BadField::new("client_address", says));
    }
    if request.node_id > NODE_ID_MAX {
        return Err(BadField::new("node_id", format!("it is above {NODE_ID_MAX}: choose a lower one")));
    }
    let zone = Zone::new(&request.zone).map_err(BadField::invalid("zone"))?;
    let whereabouts = Whereabouts { peer, client, zone };
    Ok(Wish::Add { node: NodeId::new(request.node_id), witness: request.witness, whereabouts })
}

pub(super) fn progress(progress: &MemberProgress) -> v1::MemberProgress {
    let MemberProgress { node, matched, behind, active, caught_up } = *progress;
    v1::MemberProgress { node_id: node.number(), match_index: matched, behind, active, caught_up }
}

fn kind_of(members: &Members, node: NodeId) -> v1::MemberKind {
    if members.witnesses.contains(&node) {
        v1::MemberKind::Witness
    } else if members.learners.contains(&node) {
        v1::MemberKind::Learner
    } else {
        v1::MemberKind::Voter
    }
}
