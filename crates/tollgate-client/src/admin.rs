//! Administration of a cluster. Nothing here is needed to use locks.

mod members;

use crate::client::Client;
use crate::cluster_info::{
    Deadlocks, EndpointStatus, Groups, LimitInfo, Member, NodeStatus, Setting, SnapshotTaken,
};
use crate::convert;
use crate::error::Error;
use crate::unary::{ANSWER_BYTES_MAX, Repeat};
use tokio::task::JoinSet;
use tollgate_proto::v1;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_types::{GroupId, NodeId};
use tonic::transport::Channel;

/// Administration of a cluster. Made by [`Client::admin`].
#[derive(Debug, Clone)]
pub struct Admin {
    client: Client,
}

impl Client {
    /// Returns the administration interface of the cluster.
    ///
    /// ```no_run
    /// # async fn example(client: tollgate_client::Client) {
    /// for node in client.admin().status().await {
    ///     match node.status {
    ///         Ok(status) => println!("{}: up for {:?}", node.endpoint, status.uptime),
    ///         Err(error) => println!("{}: {error}", node.endpoint),
    ///     }
    /// }
    /// # }
    /// ```
    pub fn admin(&self) -> Admin {
        Admin { client: self.clone() }
    }
}

pub(crate) fn service(channel: Channel) -> AdminServiceClient<Channel> {
    AdminServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

impl Admin {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the status of every node that the client knows, asking all nodes at once. A node that does not answer is
    /// in the list too, with the reason.
    ///
    /// Through a gateway, every member is asked by way of the gateway.
    pub async fn status(&self) -> Vec<EndpointStatus> {
        if self.client.connections().is_behind_gateway() {
            return self.status_of_members().await;
        }
        let endpoints = self.client.endpoints();
        let mut asked = JoinSet::new();
        for (place, endpoint) in endpoints.into_iter().enumerate() {
            let admin = self.clone();
            asked.spawn(async move {
                let status = admin.status_of(&endpoint).await;
                (place, EndpointStatus { endpoint, status })
            });
        }
        let mut told = asked.join_all().await;
        told.sort_by_key(|(place, _)| *place);
        told.into_iter().map(|(_, status)| status).collect()
    }

    /// Returns the status of the node at an endpoint, asked directly.
    pub async fn status_of(&self, endpoint: &str) -> Result<NodeStatus, Error> {
        let ask = |channel| async move { service(channel).status(v1::StatusRequest::default()).await };
        convert::node_status(self.client.unary_at(endpoint, ask).await?)
    }

    /// Returns the status of one member, asked directly, or by way of the gateway that the client is connected to.
    pub async fn status_of_member(&self, member: &Member) -> Result<NodeStatus, Error> {
        if self.client.connections().is_behind_gateway() {
            return self.status_by_gateway(member.node).await;
        }
        self.status_of(&member.client_address).await
    }

    /// Returns the status of a member by way of a gateway. Asks only once, because repeating does not bring up a node
    /// that is down.
    async fn status_by_gateway(&self, node: NodeId) -> Result<NodeStatus, Error> {
        let request = v1::StatusRequest { node_id: node.number() };
        let ask = |channel| async move { service(channel).status(request).await };
        self.client.unary_once(ask).await.and_then(convert::node_status)
    }

    /// Returns the status of all members by way of a gateway: see [`Admin::status`].
    async fn status_of_members(&self) -> Vec<EndpointStatus> {
        let members = match self.members().await {
            Ok(members) => members,
            Err(error) => {
                let endpoint = self.client.endpoints().swap_remove(0);
                return vec![EndpointStatus { endpoint, status: Err(error) }];
            }
        };
        let mut asked = JoinSet::new();
        for member in members {
            let admin = self.clone();
            asked.spawn(async move {
                let status = admin.status_by_gateway(member.node).await;
                (member.node, EndpointStatus { endpoint: member.client_address, status })
            });
        }
        let mut told = asked.join_all().await;
        told.sort_by_key(|(node, _)| *node);
        told.into_iter().map(|(_, status)| status).collect()
    }

    /// Returns the nodes of the cluster.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        let ask = |channel| async move { service(channel).members(v1::MembersRequest::default()).await };
        convert::members(self.client.unary(Repeat::Harmless, ask).await?)
    }

    /// Returns the groups, the slots that each serves, and its leader.
    pub async fn groups(&self) -> Result<Groups, Error> {
        let ask = |channel| async move { service(channel).groups(v1::GroupsRequest::default()).await };
        Ok(convert::groups(self.client.unary(Repeat::Harmless, ask).await?))
    }

    /// Transfers the leadership of a group to another node; the present leader chooses one if `to` is none. Returns the
    /// new leader. Clients notice a pause of some milliseconds.
    pub async fn transfer(&self, group: GroupId, to: Option<NodeId>) -> Result<Option<NodeId>, Error> {
        let request = v1::TransferRequest {
            group_id: group.number(),
            node_id: to.map_or(0, NodeId::number),
            passed_on: false,
        };
        let ask = |channel| async move { service(channel).transfer(request).await };
        // Repeating a transfer without a target would move the leadership once more.
        let repeat = if to.is_some() { Repeat::Harmless } else { Repeat::Never };
        Ok(NodeId::new(self.client.unary(repeat, ask).await?.leader_id))
    }

    /// Takes a snapshot now, on one node, of the given groups or of all if `groups` is empty, and lets the log before
    /// the snapshot be compacted.
    pub async fn snapshot(&self, endpoint: &str, groups: &[GroupId]) -> Result<Vec<SnapshotTaken>, Error> {
        let group_ids = groups.iter().map(|group| group.number()).collect();
        let request = v1::SnapshotRequest { group_ids };
        let ask = |channel| async move { service(channel).snapshot(request).await };
        convert::snapshots(&self.client.unary_at(endpoint, ask).await?)
    }

    /// Returns the limits in force in a group.
    pub async fn limits(&self, group: GroupId) -> Result<Vec<LimitInfo>, Error> {
        let request = v1::GetLimitsRequest { group_id: group.number(), all_groups: false };
        let ask = |channel| async move { service(channel).get_limits(request).await };
        Ok(convert::limits(self.client.unary(Repeat::Harmless, ask).await?.limits))
    }

    /// Returns the limits in force in all groups, and the values in each group where the groups differ.
    pub async fn all_limits(&self) -> Result<Vec<LimitInfo>, Error> {
        let request = v1::GetLimitsRequest { group_id: GroupId::MAP.number(), all_groups: true };
        let ask = |channel| async move { service(channel).get_limits(request).await };
        Ok(convert::limits(self.client.unary(Repeat::Harmless, ask).await?.limits))
    }

    /// Changes limits by name, in the given groups or in all if `groups` is empty, and returns all limits after the
    /// change. What already exceeds a new limit stays, but nothing is added. An error says in which groups the limits
    /// have changed and in which not.
    pub async fn set_limits(
        &self,
        limits: &[(&str, u64)],
        groups: &[GroupId],
    ) -> Result<Vec<LimitInfo>, Error> {
        let limit = |(name, value): &(&str, u64)| v1::Limit {
            name: (*name).to_owned(),
            value: *value,
            ..Default::default()
        };
        let request = v1::SetLimitsRequest {
            limits: limits.iter().map(limit).collect(),
            group_ids: groups.iter().map(|group| group.number()).collect(),
            passed_on: false,
        };
        let ask = |channel| {
            let request = request.clone();
            async move { service(channel).set_limits(request).await }
        };
        Ok(convert::limits(self.client.unary(Repeat::Harmless, ask).await?.limits))
    }

    /// Returns the deadlocks that the nodes have found since they started: the last `limit` of them; 0 leaves the
    /// number to the server.
    pub async fn deadlocks(&self, limit: u32) -> Result<Deadlocks, Error> {
        let request = v1::DeadlocksRequest { limit, own_only: false };
        let ask = |channel| async move { service(channel).deadlocks(request).await };
        convert::deadlocks(self.client.unary(Repeat::Harmless, ask).await?)
    }

    /// Returns the settings of one node, and the origin of each.
    pub async fn config(&self, endpoint: &str) -> Result<Vec<Setting>, Error> {
        let ask = |channel| async move { service(channel).config(v1::ConfigRequest {}).await };
        Ok(convert::config(self.client.unary_at(endpoint, ask).await?))
    }
}
