//! Deadlocks that any node found: each remembers those that it found as a leader, so all nodes are asked.
//!
//! All at once, and not for longer than a few seconds. Invariant: a node that could not be asked is named. Not here:
//! what this node remembers (`deadlocks`).

use crate::deadlocks::REMEMBERED_MAX;
use crate::relay::RELAYED_BYTES_MAX;
use crate::router::Router;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;
use tokio::task::JoinSet;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, missing::Who};
use tollgate_types::NodeId;
use tonic::transport::{Channel, Endpoint};

/// How long another node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Router {
    /// How many deadlocks this node found since it started, and the last of them, newest first.
    pub fn deadlocks(&self, limit: usize) -> v1::DeadlocksResponse {
        let (found, deadlocks) = self.found_deadlocks(limit);
        v1::DeadlocksResponse { found, deadlocks, ..v1::DeadlocksResponse::default() }
    }

    /// Likewise, of all nodes.
    pub async fn deadlocks_of_all(&self, limit: usize) -> v1::DeadlocksResponse {
        let limit = limit.min(REMEMBERED_MAX);
        let mut whole = self.deadlocks(limit);
        let mut asked = JoinSet::new();
        for node in self.other_nodes() {
            let (router, request_limit) = (self.clone(), u32::try_from(limit).unwrap_or(u32::MAX));
            asked.spawn(async move {
                let request = v1::DeadlocksRequest { limit: request_limit, own_only: true };
                (node, tokio::time::timeout(PATIENCE, router.ask_for_deadlocks(node, request)).await)
            });
        }
        let mut missing = BTreeMap::new();
        while let Some(answer) = asked.join_next().await {
            match answer.expect("a call does not panic, and is not aborted") {
                (_, Ok(Ok(part))) => {
                    whole.found += part.found;
                    whole.deadlocks.extend(part.deadlocks);
                }
                (node, Ok(Err(why))) => drop(missing.insert(node, why)),
                (node, Err(_)) => {
                    drop(missing.insert(node, format!("it did not answer within {PATIENCE:?}")))
                }
            }
        }
        whole.deadlocks.sort_by_key(|deadlock| deadlock.ago_ms);
        whole.deadlocks.truncate(limit);
        whole.missing = missing.into_iter().map(|(node, why)| silent(node, &why)).collect();
        whole
    }

    /// All members but this node that can lead, or could when they found something.
    fn other_nodes(&self) -> Vec<NodeId> {
        let (members, own) = (self.status().borrow().members.clone(), self.node().map(|node| node.node()));
        let all = members.all().into_iter();
        all.filter(|node| Some(*node) != own && !members.witnesses.contains(node)).collect()
    }

    async fn ask_for_deadlocks(
        &self,
        node: NodeId,
        request: v1::DeadlocksRequest,
    ) -> Result<v1::DeadlocksResponse, String> {
        let mut admin = self.admin_of(node).await?;
        let answer = admin.deadlocks(request).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
    }

    /// The administration of another node.
    pub(crate) async fn admin_of(&self, node: NodeId) -> Result<AdminServiceClient<Channel>, String> {
        let address = self.client_address(node).ok_or("where it serves clients is not known here")?;
        let dial = async {
            let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
            endpoint.connect_timeout(PATIENCE).timeout(PATIENCE).connect().await
        };
        let channel =
            dial.await.map_err(|error| format!("it can't be reached at {address}: {}", innermost(&error)))?;
        Ok(AdminServiceClient::new(channel).max_decoding_message_size(RELAYED_BYTES_MAX))
    }
}

/// What lies under an error of the transport, which by itself says no more than that it is one.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn silent(node: NodeId, why: &str) -> v1::Missing {
    v1::Missing { who: Some(Who::NodeId(node.number())), message: why.to_owned() }
}
