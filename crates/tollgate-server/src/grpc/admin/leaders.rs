//! What only the leader of a group can do, asked of any node.
//!
//! The node that is asked does it if it leads the group, and passes it on to the leader otherwise, through changes of
//! leaders. Invariant: what may have happened is not asked for again unless that is harmless, and no later attempt
//! unsays it. Not here: changes of members, which go through all groups in an order of their own (`members`).

use std::time::{Duration, Instant};
use tollgate_gateway::{Repeat, Router};
use tollgate_node::NodeHandle;
use tollgate_proto::error_of_status;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{Error, ErrorReason};
use tollgate_types::{GroupId, NodeId};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// How long a connection to another node may take.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The leaders of all groups, as far as this node knows. Cheap to clone.
#[derive(Clone)]
pub(super) struct Leaders {
    router: Router,
    node: NodeHandle,
}

impl Leaders {
    pub(super) fn new(router: Router, node: NodeHandle) -> Leaders {
        Leaders { router, node }
    }

    /// The error of one who asked this node to do what only the leader does.
    pub(super) fn not_leader(&self, group: GroupId) -> Error {
        let leader = self.node.status().borrow().leader(group);
        self.router.not_leader(group, leader.filter(|leader| *leader != self.node.node()))
    }

    /// Has something done by the leader of a group: `here` if this node is it, `there` over a connection to it.
    pub(super) async fn ask<T, H, F>(
        &self,
        group: GroupId,
        repeat: Repeat,
        until: Instant,
        here: impl Fn() -> H,
        there: impl Fn(AdminServiceClient<Channel>) -> F,
    ) -> Result<T, Error>
    where
        H: Future<Output = Result<T, Error>>,
        F: Future<Output = Result<T, Status>>,
    {
        let (mut hint, mut unsure) = (None, false);
        loop {
            let known = self.node.status().borrow().leader(group);
            let leader = hint.take().or(known);
            let asked = match leader.map(|leader| (leader, self.router.client_address(leader))) {
                Some((leader, _)) if leader == self.node.node() => here().await,
                Some((leader, Some(address))) => tokio::select! {
                    asked = self.pass_on(group, &address, until, &there) => asked,
                    // It stands still, or hands on.
                    () = self.another_leads(group, leader) => Err(went_away(group)),
                },
                Some((_, None)) | None => Err(self.router.not_leader(group, None)),
            };
            let error = match asked {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            unsure |= error.may_have_happened;
            let again = match error.reason() {
                ErrorReason::NotLeader | ErrorReason::NoLeader | ErrorReason::ShuttingDown => true,
                ErrorReason::Indeterminate => repeat != Repeat::Never,
                _ => false,
            };
            if !again || Instant::now() >= until {
                return Err(Error { may_have_happened: unsure, ..error });
            }
            hint = NodeId::new(error.leader_id).filter(|hinted| Some(*hinted) != leader);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks another node, which leads the group as far as is known.
    async fn pass_on<T, F>(
        &self,
        group: GroupId,
        address: &str,
        until: Instant,
        there: impl Fn(AdminServiceClient<Channel>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let address = address.strip_prefix("http://").unwrap_or(address);
        // Nothing was asked.
        let unreached = |_| self.router.not_leader(group, None);
        let dialled = Endpoint::from_shared(format!("http://{address}")).map_err(unreached)?;
        let dialled = dialled.connect_timeout(CONNECT_PATIENCE).tcp_nodelay(true);
        let channel = dialled.connect().await.map_err(unreached)?;
        match tokio::time::timeout_at(until.into(), there(AdminServiceClient::new(channel))).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(status)) => Err(error_of_status(&status).unwrap_or_else(|| went_away(group))),
            Err(_) => Err(went_away(group)),
        }
    }

    /// Waits until it becomes known that somebody else leads the group than this node.
    async fn another_leads(&self, group: GroupId, than: NodeId) {
        let mut status = self.node.status().clone();
        let before = status.borrow().leader(group);
        let another =
            |leader: Option<NodeId>| leader != before && leader.is_some_and(|leader| leader != than);
        if status.wait_for(|status| another(status.leader(group))).await.is_err() {
            // The node is going down, and the call with it.
            std::future::pending::<()>().await;
        }
    }
}

/// Nobody knows what a leader made of it.
fn went_away(group: GroupId) -> Error {
    let says = format!("the leader of group {group} went away before it answered: look whether it was done");
    Error { group_id: group.number(), ..Error::new(ErrorReason::Indeterminate, says) }
}
