//! Members of the cluster: the list of members, and requests to add, promote, remove and replace them.
//!
//! Not here: carrying out changes (`changes`, `steps`), the changes that a group allows (`tollgate_replica`).

mod changes;
mod steps;

pub(super) use changes::Changes;

use super::Admin;
use crate::config::{Endpoint, NODE_ID_MAX};
use changes::RequestInfo;
use steps::{Earlier, Wish};
use tollgate_gateway::operation;
use tollgate_proto::v1;
use tollgate_proto::{BadField, convert};
use tollgate_replica::{MemberProgress, Members, NodeAddresses, ProposeError};
use tollgate_types::{GroupId, NodeId, Zone};
use tonic::Status;

impl Admin {
    /// Returns the members and their addresses.
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
                peer_address: peer.unwrap_or_else(|| members.addresses_of(node).peer.to_string()),
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

    /// Returns the zone of a node: the replicated one, or else the one in this node's configuration.
    pub(super) fn zone_of(&self, node: NodeId, members: &Members) -> String {
        let replicated = &members.addresses_of(node).zone;
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
        let asked = self.asked(&request.group_ids, request.passed_on)?;
        let node = self.changes.carry_out(asked, wish).await?;
        let (header, cluster_name) = (self.header(GroupId::MAP), self.cluster_name.clone());
        Ok(v1::AddMemberResponse { header, node_id: node.map_or(0, NodeId::number), cluster_name })
    }

    pub(super) async fn promote(
        &self,
        request: v1::PromoteMemberRequest,
    ) -> Result<v1::PromoteMemberResponse, Status> {
        let node = convert::read_node_id("node_id", request.node_id)?;
        let asked = self.asked(&request.group_ids, request.passed_on)?;
        self.changes.carry_out(asked, Wish::Promote { node }).await?;
        Ok(v1::PromoteMemberResponse { header: self.header(GroupId::MAP) })
    }

    pub(super) async fn remove(
        &self,
        request: v1::RemoveMemberRequest,
    ) -> Result<v1::RemoveMemberResponse, Status> {
        let node = convert::read_node_id("node_id", request.node_id)?;
        let asked = self.asked(&request.group_ids, request.passed_on)?;
        self.changes.carry_out(asked, Wish::Remove { node }).await?;
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
        let asked = self.asked(&request.group_ids, request.passed_on)?;
        self.changes.carry_out(asked, Wish::Replace { out, by }).await?;
        Ok(v1::ReplaceMemberResponse { header: self.header(GroupId::MAP) })
    }

    /// Returns the role in which this node is asked, by the fields that only nodes set.
    fn asked(&self, named: &[u32], passed_on: bool) -> Result<RequestInfo, Status> {
        if named.is_empty() {
            return Ok(if passed_on { RequestInfo::First } else { RequestInfo::Anybody });
        }
        let status = self.node.status().borrow().clone();
        let named: Vec<GroupId> = named.iter().copied().map(GroupId::new).collect();
        match named.iter().find(|group| !status.groups.contains_key(group)) {
            None => Ok(RequestInfo::Leader(named)),
            Some(group) => {
                let error = ProposeError::NoSuchGroup { group: *group };
                Err(operation::error_of_propose(&error, true).into())
            }
        }
    }
}

fn read_new_member(request: &v1::AddMemberRequest) -> Result<Wish, BadField> {
    let node_addresses = read_node_addresses(&request.peer_address, &request.client_address, &request.zone)?;
    if node_addresses.peer == node_addresses.client {
        let says = format!("it is {}, and so is peer_address: give each its own port", node_addresses.client);
        return Err(BadField::new("client_address", says));
    }
    if request.node_id > NODE_ID_MAX {
        return Err(BadField::new("node_id", format!("it is above {NODE_ID_MAX}: choose a lower one")));
    }
    let earlier = |wire: &v1::EarlierMember| {
        let node = convert::read_node_id("before", wire.node_id)?;
        let node_addresses = read_node_addresses(&wire.peer_address, &wire.client_address, &wire.zone)?;
        Ok(Earlier { node, witness: wire.witness, node_addresses })
    };
    let before = request.before.iter().map(earlier).collect::<Result<_, BadField>>()?;
    Ok(Wish::Add { node: NodeId::new(request.node_id), witness: request.witness, node_addresses, before })
}

fn read_node_addresses(peer: &str, client: &str, zone: &str) -> Result<NodeAddresses, BadField> {
    let address = |field: &'static str, text: &str| {
        let text = text.strip_prefix("http://").unwrap_or(text);
        let endpoint = Endpoint::parse(text);
        endpoint
            .map(|endpoint| endpoint.host_port())
            .map_err(|wrong| BadField::new(field, format!("it {}: {}", wrong.what, wrong.advice)))
    };
    let (peer, client) = (address("peer_address", peer)?, address("client_address", client)?);
    Ok(NodeAddresses { peer, client, zone: Zone::new(zone).map_err(BadField::invalid("zone"))? })
}

pub(super) fn progress(progress: &MemberProgress) -> v1::MemberProgress {
    let MemberProgress { node, matched, behind, active, caught_up, connected, .. } = *progress;
    v1::MemberProgress {
        node_id: node.number(),
        match_index: matched,
        behind,
        active,
        caught_up,
        connected,
        snapshot_received_bytes: progress.snapshot_received_bytes,
        snapshot_bytes: progress.snapshot_bytes,
    }
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
