//! Changes of the cluster's members. Every change is carried out in all groups by their leaders, and may be repeated: a
//! repeat continues where the change stopped.

use super::{Admin, service};
use crate::cluster_info::{AddedMember, Group, NewMember};
use crate::convert;
use crate::error::Error;
use crate::unary::Repeat;
use std::time::Duration;
use tollgate_proto::{MEMBER_CHANGE_PATIENCE, v1};
use tollgate_types::NodeId;
use tonic::transport::Channel;
use tonic::{Response, Status};

/// Maximum time to wait for a change of members: longer than a node or a gateway takes to answer that the change is not
/// done.
const CHANGE_PATIENCE: Duration = Duration::from_secs(MEMBER_CHANGE_PATIENCE.as_secs() + 10);

impl Admin {
    /// Adds a node that does not vote yet. Afterwards the node may be started with the instruction to join; once it has
    /// caught up ([`Admin::progress`]) it can be promoted.
    pub async fn add_member(&self, member: &NewMember) -> Result<AddedMember, Error> {
        let request = v1::AddMemberRequest {
            node_id: member.node.map_or(0, NodeId::number),
            peer_address: member.peer_address.clone(),
            client_address: member.client_address.clone(),
            zone: member.zone.clone(),
            witness: member.witness,
            ..v1::AddMemberRequest::default()
        };
        let ask = |channel| {
            let request = request.clone();
            async move { service(channel).add_member(request).await }
        };
        convert::added_member(self.changed(ask).await?)
    }

    /// Gives a vote to a node that has caught up.
    pub async fn promote_member(&self, node: NodeId) -> Result<(), Error> {
        let request = v1::PromoteMemberRequest { node_id: node.number(), ..Default::default() };
        let ask = |channel| {
            let request = request.clone();
            async move { service(channel).promote_member(request).await }
        };
        self.changed(ask).await.map(drop)
    }

    /// Removes a node permanently: its id is never used again.
    pub async fn remove_member(&self, node: NodeId) -> Result<(), Error> {
        let request = v1::RemoveMemberRequest { node_id: node.number(), ..Default::default() };
        let ask = |channel| {
            let request = request.clone();
            async move { service(channel).remove_member(request).await }
        };
        self.changed(ask).await.map(drop)
    }

    /// Gives the vote of `out` to `by`, which must have been added before and have caught up, and removes `out`
    /// permanently.
    pub async fn replace_member(&self, out: NodeId, by: NodeId) -> Result<(), Error> {
        let (out_id, by_id) = (out.number(), by.number());
        let request = v1::ReplaceMemberRequest { out_id, by_id, ..Default::default() };
        let ask = |channel| {
            let request = request.clone();
            async move { service(channel).replace_member(request).await }
        };
        self.changed(ask).await.map(drop)
    }

    /// Makes a request for a change of members, with more patience than for other calls: the change covers all groups,
    /// and each may have to find a leader first.
    async fn changed<T, F>(&self, ask: impl Fn(Channel) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let patience = self.client.call_timeout().max(CHANGE_PATIENCE);
        self.client.unary_within(patience, Repeat::Harmless, ask).await
    }

    /// Returns the groups, each as its own leader reports it, with the progress of its members. A group whose leader
    /// does not answer has no progress.
    pub async fn progress(&self) -> Result<Vec<Group>, Error> {
        let mut groups = self.groups().await?.groups;
        for group in groups.iter_mut().filter(|group| group.progress.is_empty()) {
            let Some(told) = self.told_by_leader(group).await else { continue };
            if let Some(own) = convert::groups(told).groups.into_iter().find(|own| own.id == group.id) {
                *group = own;
            }
        }
        Ok(groups)
    }

    /// Returns the answer of a group's leader, if it answers. Behind a gateway, the leader is asked by way of the
    /// gateway.
    async fn told_by_leader(&self, group: &Group) -> Option<v1::GroupsResponse> {
        let node_id = group.leader?.number();
        let request = v1::GroupsRequest { node_id, ..Default::default() };
        let ask = |channel| async move { service(channel).groups(request).await };
        if self.client.connections().is_behind_gateway() {
            return self.client.unary_once(ask).await.ok();
        }
        if group.leader_address.is_empty() {
            return None;
        }
        self.client.unary_at(&group.leader_address, ask).await.ok()
    }
}
