//! `AdminService` of a gateway: a node answers what concerns the cluster.
//!
//! Reads go to any node that is in touch with the others, and so do requests that a node passes on to the leaders of
//! all groups; a request that concerns one group goes to its leader. The settings are the gateway's own. Not here: the
//! answers (`admin`).

use super::admin::settings_of;
use crate::config::Settings;
use tollgate_gateway::{MEMBER_CALL_PATIENCE, RELAYED_BYTES_MAX, Relay, Repeat, Router, Whom};
use tollgate_proto::convert;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::admin_service_server::AdminService;
use tollgate_proto::v1::{
    AddMemberRequest, AddMemberResponse, BackupRequest, BackupResponse, ConfigRequest, ConfigResponse,
    DeadlocksRequest, DeadlocksResponse, EndDeadlockRequest, EndDeadlockResponse, GetLimitsRequest,
    GetLimitsResponse, GroupsRequest, GroupsResponse, MembersRequest, MembersResponse, PromoteMemberRequest,
    PromoteMemberResponse, RemoveMemberRequest, RemoveMemberResponse, ReplaceMemberRequest,
    ReplaceMemberResponse, SetLimitsRequest, SetLimitsResponse, SnapshotRequest, SnapshotResponse,
    StatusRequest, StatusResponse, TransferRequest, TransferResponse,
};
use tollgate_types::GroupId;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct AdminRelay {
    router: Router,
    relay: Relay,
    settings: Settings,
}

impl AdminRelay {
    pub(crate) fn new(router: Router, relay: Relay, settings: Settings) -> AdminRelay {
        AdminRelay { router, relay, settings }
    }
}

fn service(channel: Channel) -> AdminServiceClient<Channel> {
    AdminServiceClient::new(channel).max_decoding_message_size(RELAYED_BYTES_MAX)
}

/// Relays a change of members, which may take long. All but an addition without an id may be repeated.
macro_rules! member_change {
    ($self:ident, $rpc:ident, $request:expr, $repeat:expr) => {{
        let request = $request;
        let whom = Whom::Leader(GroupId::MAP);
        let asked = $self.relay.ask_within(MEMBER_CALL_PATIENCE, whom, $repeat, |channel| {
            let request = request.clone();
            async move { service(channel).$rpc(request).await }
        });
        Ok(Response::new(asked.await?))
    }};
}

/// Relays a call unchanged.
macro_rules! relayed {
    ($self:ident, $rpc:ident, $request:expr, $whom:expr, $repeat:expr) => {{
        let request = $request;
        let asked = $self.relay.ask($whom, $repeat, |channel| {
            let request = request.clone();
            async move { service(channel).$rpc(request).await }
        });
        Ok(Response::new(asked.await?))
    }};
}

#[tonic::async_trait]
impl AdminService for AdminRelay {
    async fn status(&self, request: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let request = request.into_inner();
        let whom = convert::read_node_id_or_none(request.node_id).map_or(Whom::Any, Whom::Node);
        relayed!(self, status, request, whom, Repeat::Look)
    }

    async fn members(&self, request: Request<MembersRequest>) -> Result<Response<MembersResponse>, Status> {
        relayed!(self, members, request.into_inner(), Whom::Any, Repeat::Look)
    }

    async fn groups(&self, request: Request<GroupsRequest>) -> Result<Response<GroupsResponse>, Status> {
        let request = request.into_inner();
        let whom = convert::read_node_id_or_none(request.node_id).map_or(Whom::Any, Whom::Node);
        let told: Result<Response<GroupsResponse>, Status> =
            relayed!(self, groups, request, whom, Repeat::Look);
        Ok(Response::new(GroupsResponse { via_gateway: true, ..told?.into_inner() }))
    }

    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<TransferResponse>, Status> {
        let request = request.into_inner();
        let whom = Whom::Leader(GroupId::new(request.group_id));
        // A second transfer without a named target would move the leadership once more.
        let repeat = if request.node_id == 0 { Repeat::Never } else { Repeat::Harmless };
        relayed!(self, transfer, request, whom, repeat)
    }

    async fn snapshot(
        &self,
        request: Request<SnapshotRequest>,
    ) -> Result<Response<SnapshotResponse>, Status> {
        relayed!(self, snapshot, request.into_inner(), Whom::Any, Repeat::Never)
    }

    async fn get_limits(
        &self,
        request: Request<GetLimitsRequest>,
    ) -> Result<Response<GetLimitsResponse>, Status> {
        relayed!(self, get_limits, request.into_inner(), Whom::Any, Repeat::Look)
    }

    async fn set_limits(
        &self,
        request: Request<SetLimitsRequest>,
    ) -> Result<Response<SetLimitsResponse>, Status> {
        relayed!(self, set_limits, request.into_inner(), Whom::Any, Repeat::Harmless)
    }

    async fn deadlocks(
        &self,
        request: Request<DeadlocksRequest>,
    ) -> Result<Response<DeadlocksResponse>, Status> {
        // Any node asks all others.
        relayed!(self, deadlocks, request.into_inner(), Whom::Any, Repeat::Look)
    }

    async fn end_deadlock(
        &self,
        request: Request<EndDeadlockRequest>,
    ) -> Result<Response<EndDeadlockResponse>, Status> {
        let request = request.into_inner();
        let whom = Whom::Leader(GroupId::new(request.group_id));
        relayed!(self, end_deadlock, request, whom, Repeat::Harmless)
    }

    async fn add_member(
        &self,
        request: Request<AddMemberRequest>,
    ) -> Result<Response<AddMemberResponse>, Status> {
        let request = request.into_inner();
        // Without an id, a second attempt could add a second node.
        let repeat = if request.node_id == 0 { Repeat::Never } else { Repeat::Harmless };
        member_change!(self, add_member, request, repeat)
    }

    async fn promote_member(
        &self,
        request: Request<PromoteMemberRequest>,
    ) -> Result<Response<PromoteMemberResponse>, Status> {
        member_change!(self, promote_member, request.into_inner(), Repeat::Harmless)
    }

    async fn remove_member(
        &self,
        request: Request<RemoveMemberRequest>,
    ) -> Result<Response<RemoveMemberResponse>, Status> {
        member_change!(self, remove_member, request.into_inner(), Repeat::Harmless)
    }

    async fn replace_member(
        &self,
        request: Request<ReplaceMemberRequest>,
    ) -> Result<Response<ReplaceMemberResponse>, Status> {
        member_change!(self, replace_member, request.into_inner(), Repeat::Harmless)
    }

    type BackupStream = Streaming<BackupResponse>;

    async fn backup(&self, _: Request<BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let open = |channel| async move { service(channel).backup(BackupRequest {}).await };
        let (_, pieces) = self.relay.open(open).await?;
        Ok(Response::new(pieces))
    }

    async fn config(&self, _: Request<ConfigRequest>) -> Result<Response<ConfigResponse>, Status> {
        let header = self.router.header(GroupId::MAP, None);
        let (header, settings) = (header.at(header.revision), settings_of(&self.settings));
        Ok(Response::new(ConfigResponse { header, settings }))
    }
}
