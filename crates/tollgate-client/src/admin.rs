//! What operators ask and do. Nothing here is needed to use locks.

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

/// The cluster from an operator's side.
#[derive(Debug, Clone)]
pub struct Admin {
    client: Client,
}

impl Client {
    /// The cluster from an operator's side.
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

    /// How every node is doing that the client knows of, asked all at once. A node that does not answer is in the list
    /// too, with the reason.
    ///
    /// Through a gateway, every member is asked by way of it.
    pub async fn status(&self) -> Vec<EndpointStatus> {
        if self.client.pilot().is_behind_gateway() {
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

    /// How one node is doing, asked of itself.
    pub async fn status_of(&self, endpoint: &str) -> Result<NodeStatus, Error> {
        let ask = |channel| async move { service(channel).status(v1::StatusRequest::default()).await };
        convert::node_status(self.client.unary_at(endpoint, ask).await?)
    }

    /// Status of one member, asked of itself, or by way of the gateway that the client is connected to.
    pub async fn status_of_member(&self, member: &Member) -> Result<NodeStatus, Error> {
        if self.client.pilot().is_behind_gateway() {
            return self.status_by_gateway(member.node).await;
        }
        self.status_of(&member.client_address).await
    }

    /// A node that is down does not come up for being asked again, so it is asked once.
    async fn status_by_gateway(&self, node: NodeId) -> Result<NodeStatus, Error> {
        let request = v1::StatusRequest { node_id: node.number() };
        let ask = |channel| async move { service(channel).status(request).await };
        self.client.unary_once(ask).await.and_then(convert::node_status)
    }

    /// As [`Admin::status`], by way of a gateway.
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

    /// The nodes of the cluster.
    pub async fn members(&self) -> Result<Vec<Member>, Error> {
        let ask = |channel| async move { service(channel).members(v1::MembersRequest::default()).await };
        convert::members(self.client.unary(Repeat::Harmless, ask).await?)
    }

    /// The groups, which slots each serves, and who leads it.
    pub async fn groups(&self) -> Result<Groups, Error> {
        let ask = |channel| async move { service(channel).groups(v1::GroupsRequest::default()).await };
        Ok(convert::groups(self.client.unary(Repeat::Harmless, ask).await?))
    }

    /// Hands the leadership of a group to another node; its present leader chooses one if none is given. Returns who
    /// leads now. Clients notice a pause of some milliseconds.
    pub async fn transfer(&self, group: GroupId, to: Option<NodeId>) -> Result<Option<NodeId>, Error> {
        let request = v1::TransferRequest {
            group_id: group.number(),
            node_id: to.map_or(0, NodeId::number),
            passed_on: false,
        };
        let ask = |channel| async move { service(channel).transfer(request).await };
        // A second hand-over to nobody in particular would move it once more.
        let repeat = if to.is_some() { Repeat::Harmless } else { Repeat::Never };
        Ok(NodeId::new(self.client.unary(repeat, ask).await?.leader_id))
    }

    /// Takes a snapshot now, on one node, of the groups given or of all, and lets the log before it go.
    pub async fn snapshot(&self, endpoint: &str, groups: &[GroupId]) -> Result<Vec<SnapshotTaken>, Error> {
        let group_ids = groups.iter().map(|group| group.number()).collect();
        let request = v1::SnapshotRequest { group_ids };
        let ask = |channel| async move { service(channel).snapshot(request).await };
        convert::snapshots(&self.client.unary_at(endpoint, ask).await?)
    }

    /// The limits in force in a group.
    pub async fn limits(&self, group: GroupId) -> Result<Vec<LimitInfo>, Error> {
        let request = v1::GetLimitsRequest { group_id: group.number(), all_groups: false };
        let ask = |channel| async move { service(channel).get_limits(request).await };
        Ok(convert::limits(self.client.unary(Repeat::Harmless, ask).await?.limits))
    }

    /// The limits in force in all groups, and where these differ.
    pub async fn all_limits(&self) -> Result<Vec<LimitInfo>, Error> {
        let request = v1::GetLimitsRequest { group_id: GroupId::MAP.number(), all_groups: true };
        let ask = |channel| async move { service(channel).get_limits(request).await };
        Ok(convert::limits(self.client.unary(Repeat::Harmless, ask).await?.limits))
    }

    /// Changes limits by name, in the groups given or in all, and returns all limits as they are then. What is over a
    /// new limit stays; nothing is added to it. An error says in which groups they have changed and in which not.
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

    /// The deadlocks that the nodes have found since they started: the last `limit` of them, 0 for the server's choice.
    pub async fn deadlocks(&self, limit: u32) -> Result<Deadlocks, Error> {
        let request = v1::DeadlocksRequest { limit, own_only: false };
        let ask = |channel| async move { service(channel).deadlocks(request).await };
        convert::deadlocks(self.client.unary(Repeat::Harmless, ask).await?)
    }

    /// The settings of one node, and where each comes from.
    pub async fn config(&self, endpoint: &str) -> Result<Vec<Setting>, Error> {
        let ask = |channel| async move { service(channel).config(v1::ConfigRequest {}).await };
        Ok(convert::config(self.client.unary_at(endpoint, ask).await?))
    }
}
