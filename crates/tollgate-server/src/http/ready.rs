//! The readiness check of a node.
//!
//! A leader that is not confirmed does not count: each group is read as a client would read it, with confirmation by a
//! quorum, all groups at once within one second. Not here: the check that the process runs at all.

use super::error::answer;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;
use tollgate_gateway::Router;
use tollgate_node::Consistency;
use tollgate_types::{GroupId, NodeId};

/// Time limit for a quorum to confirm a leader.
const PATIENCE: Duration = Duration::from_secs(1);

/// Role for which readiness is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadyAs {
    /// Serving clients.
    Server,
    /// Taking part in the cluster, which for a witness means to vote.
    Member,
}

/// Result of a readiness check.
pub(super) struct Verdict {
    /// Reasons that keep the whole node from serving.
    node: Vec<&'static str>,
    groups: Vec<Checked>,
}

struct Checked {
    group: GroupId,
    leader: Option<NodeId>,
    /// Reason why the group can't be served.
    why: Option<String>,
}

/// Checks all groups. A witness can be ready as a member, but never for clients.
pub(super) async fn check(router: &Router, ready_as: ReadyAs) -> Verdict {
    let status = router.status().borrow().clone();
    let idle = status.witness && ready_as == ReadyAs::Server;
    let reasons = [
        (status.stopping, "it is stopping"),
        (status.disk_full, "the disk is full: free some space"),
        (status.removed, "the node was removed from the cluster: stop it"),
        (idle, "a witness serves no clients: `/readyz?member` tells whether it votes"),
    ];
    let node = reasons.into_iter().filter(|(holds, _)| *holds).map(|(_, says)| says).collect();
    let mut checks = JoinSet::new();
    for group in router.map().groups() {
        let (router, leader) = (router.clone(), status.leader(group));
        checks.spawn(async move { Checked { group, leader, why: doubt(&router, group, leader).await } });
    }
    let mut groups = checks.join_all().await;
    groups.sort_by_key(|group| group.group);
    Verdict { node, groups }
}

async fn doubt(router: &Router, group: GroupId, leader: Option<NodeId>) -> Option<String> {
    if leader.is_none() {
        return Some("no leader is known".to_owned());
    }
    if router.status().borrow().witness {
        // A witness has no state to read, and its vote needs no confirmation by a quorum.
        return None;
    }
    // A gateway has its knowledge from a node, and asks no quorum for each probe.
    router.node()?;
    let stuck = router.status().borrow().groups.get(&group).is_some_and(|known| known.stuck);
    if stuck {
        return Some("too few disks have room to write anything: free some space".to_owned());
    }
    let confirmed = router.look(group, Consistency::Linearizable, |_| ());
    match tokio::time::timeout(PATIENCE, confirmed).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no quorum confirmed its leader within {} ms", PATIENCE.as_millis())),
    }
}

impl Verdict {
    fn ready(&self) -> bool {
        self.node.is_empty() && self.groups.iter().all(|group| group.why.is_none())
    }

    /// Returns only the problems, or everything if `verbose`.
    pub(super) fn response(&self, verbose: bool) -> Response {
        let ready = self.ready();
        let mut body = json!({ "ready": ready });
        let told = self.groups.iter().filter(|group| verbose || group.why.is_some());
        if verbose || !ready {
            body["node"] = json!(self.node);
            body["groups"] = told.map(Checked::json).collect();
        }
        answer(if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
    }
}

impl Checked {
    fn json(&self) -> Value {
        let leader = self.leader.map(|leader| leader.number().to_string());
        let mut group =
            json!({ "group_id": self.group.number(), "ready": self.why.is_none(), "leader_id": leader });
        if let Some(why) = &self.why {
            group["why"] = why.as_str().into();
        }
        group
    }
}
