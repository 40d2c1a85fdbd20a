//! Deadlocks found by any node: each node remembers those that it found as a leader, so all nodes are asked.
//!
//! All nodes are asked at once, with a timeout of a few seconds. Invariant: a node that could not be asked is named in
//! the answer. Not here: the deadlocks that this node remembers (`deadlocks`).

use crate::deadlocks::REMEMBERED_MAX;
use crate::relay::Repeat;
use crate::router::Router;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tollgate_node::NodeHandle;
use tollgate_proto::v1::{self, missing::Who};
use tollgate_types::NodeId;

/// Maximum time for another node to answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Router {
    /// Returns the number of deadlocks that this node found since it started, and the latest of them, newest first.
    pub fn deadlocks(&self, limit: usize) -> v1::DeadlocksResponse {
        let (found, deadlocks) = self.found_deadlocks(limit);
        v1::DeadlocksResponse { found, deadlocks, ..v1::DeadlocksResponse::default() }
    }

    /// Returns the number of deadlocks that all nodes found, and the latest of them, newest first.
    pub async fn deadlocks_of_all(&self, limit: usize) -> v1::DeadlocksResponse {
        let limit = limit.min(REMEMBERED_MAX);
        let mut whole = self.deadlocks(limit);
        let mut asked = JoinSet::new();
        for node in self.other_nodes() {
            let (router, request_limit) = (self.clone(), u32::try_from(limit).unwrap_or(u32::MAX));
            asked.spawn(async move {
                let request = v1::DeadlocksRequest { limit: request_limit, own_only: true };
                (node, router.ask_for_deadlocks(node, request).await)
            });
        }
        let mut missing = BTreeMap::new();
        while let Some(answer) = asked.join_next().await {
            match answer.expect("a call does not panic, and is not aborted") {
                (_, Ok(part)) => {
                    whole.found += part.found;
                    whole.deadlocks.extend(part.deadlocks);
                }
                (node, Err(error)) => drop(missing.insert(node, why_of(node, error.message))),
            }
        }
        whole.deadlocks.sort_by_key(|deadlock| deadlock.ago_ms);
        whole.deadlocks.truncate(limit);
        whole.missing = missing.into_iter().map(|(node, why)| silent(node, &why)).collect();
        whole
    }

    /// Returns all members except this node that can lead, and so may have found a deadlock.
    fn other_nodes(&self) -> Vec<NodeId> {
        let (members, own) = (self.status().borrow().members.clone(), self.node().map(NodeHandle::node));
        let all = members.all().into_iter();
        all.filter(|node| Some(*node) != own && !members.witnesses.contains(node)).collect()
    }

    async fn ask_for_deadlocks(
        &self,
        node: NodeId,
        request: v1::DeadlocksRequest,
    ) -> Result<v1::DeadlocksResponse, v1::Error> {
        let asked = self.ask_admin(node, Instant::now() + PATIENCE, Repeat::Look, |mut admin| async move {
            admin.deadlocks(request).await
        });
        asked.await.map(tonic::Response::into_inner)
    }
}

/// Words the reason a node could not be asked, to be shown beside the node's id.
fn why_of(node: NodeId, message: String) -> String {
    match message.strip_prefix(&format!("node {node} ")) {
        Some(rest) => format!("it {rest}"),
        None => message,
    }
}

fn silent(node: NodeId, why: &str) -> v1::Missing {
    v1::Missing { who: Some(Who::NodeId(node.number())), message: why.to_owned() }
}
