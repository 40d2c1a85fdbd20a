//! Requests that only the leader of a group can serve, accepted by any node.
//!
//! The node that is asked does the work if it leads the group, and otherwise passes the request on to the leader,
//! through changes of leaders. Invariant: a request that may have had effect is repeated only if that is harmless, and
//! no later attempt hides that an earlier one may have had effect. Not here: changes of members, which go through all
//! groups in an order of their own (`members`), and calls to other nodes (`tollgate_gateway`).

use std::time::{Duration, Instant};
use tollgate_gateway::{Repeat, Router};
use tollgate_node::{NodeHandle, NodeStatus};
use tollgate_proto::Retry;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{Error, ErrorReason};
use tollgate_types::{GroupId, NodeId};
use tonic::Status;
use tonic::transport::Channel;

/// Maximum wait for the answer of a leader that was replaced, which may still be on its way.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Leaders of all groups, as far as this node knows. Cheap to clone.
#[derive(Clone)]
pub(super) struct Leaders {
    router: Router,
    node: NodeHandle,
}

impl Leaders {
    pub(super) fn new(router: Router, node: NodeHandle) -> Leaders {
        Leaders { router, node }
    }

    /// Returns the error for a caller that asked this node to do what only the leader can do.
    pub(super) fn not_leader(&self, group: GroupId) -> Error {
        let leader = self.node.status().borrow().leader(group);
        self.router.not_leader(group, leader.filter(|leader| *leader != self.node.node()))
    }

    /// Has the leader of a group do something: `here` runs if this node leads, `there` runs over a connection to the
    /// leader. If another node takes over the leadership before an answer arrives, `succeeded` decides what that means:
    /// it returns the answer, or none if the change of leaders means nothing.
    pub(super) async fn ask<T, H, F>(
        &self,
        group: GroupId,
        repeat: Repeat,
        until: Instant,
        here: impl Fn() -> H,
        there: impl Fn(AdminServiceClient<Channel>) -> F,
        succeeded: impl Fn(NodeId) -> Option<T>,
    ) -> Result<T, Error>
    where
        H: Future<Output = Result<T, Error>>,
        F: Future<Output = Result<T, Status>>,
    {
        let (mut hint, mut unsure) = (None, false);
        loop {
            let known = self.node.status().borrow().leader(group);
            let leader = hint.take().or(known);
            let asked = match leader {
                Some(leader) if leader == self.node.node() => here().await,
                Some(leader) => self.pass_on(group, leader, until, &there, &succeeded).await,
                None => Err(self.router.not_leader(group, None)),
            };
            let error = match asked {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            unsure |= error.may_have_happened;
            let again = match error.retry() {
                Retry::AtLeader => true,
                Retry::AsItIs => repeat != Repeat::Never,
                _ => false,
            };
            if !again || Instant::now() >= until {
                return Err(Error { may_have_happened: unsure, ..error });
            }
            hint = NodeId::new(error.leader_id).filter(|hinted| Some(*hinted) != leader);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks another node, which leads the group as far as is known. If that node falls silent because another has taken
    /// over, `succeeded` decides what that means.
    async fn pass_on<T, F>(
        &self,
        group: GroupId,
        leader: NodeId,
        until: Instant,
        there: impl Fn(AdminServiceClient<Channel>) -> F,
        succeeded: impl Fn(NodeId) -> Option<T>,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let asked = async {
            let asked = self.router.ask_admin(leader, until, Repeat::Never, there).await;
            asked.map_err(|error| Error { group_id: group.number(), ..error })
        };
        let mut asked = std::pin::pin!(asked);
        let successor = tokio::select! {
            biased;
            asked = &mut asked => match asked {
                Err(error) if error.reason() == ErrorReason::Indeterminate => {
                    return self.successor(group, leader).and_then(succeeded).ok_or(error);
                }
                asked => return asked,
            },
            successor = self.another_leads(group, leader) => successor,
        };
        // The old leader stands still, or it has handed on the leadership and its answer is on its way.
        match tokio::time::timeout(LAST_WORDS, asked).await {
            Ok(Err(error)) if error.reason() == ErrorReason::Indeterminate => {
                succeeded(successor).ok_or(error)
            }
            Ok(asked) => asked,
            Err(_) => succeeded(successor).ok_or_else(|| went_away(group)),
        }
    }

    /// Returns the leader, if another node than `of` is known to lead the group.
    fn successor(&self, group: GroupId, of: NodeId) -> Option<NodeId> {
        self.node.status().borrow().leader(group).filter(|leader| *leader != of)
    }

    /// Waits until another node than `than` is known to have taken over the group, and returns the new leader.
    async fn another_leads(&self, group: GroupId, than: NodeId) -> NodeId {
        let mut status = self.node.status().clone();
        let before = status.borrow().leader(group);
        let another = |status: &NodeStatus| {
            status.leader(group).filter(|leader| Some(*leader) != before && *leader != than)
        };
        let found = status.wait_for(|status| another(status).is_some()).await.ok();
        let found = found.and_then(|status| another(&status));
        match found {
            Some(leader) => leader,
            // The node is going down, and the call with it.
            None => std::future::pending().await,
        }
    }
}

/// Returns the error for a leader that went away: nobody knows whether it did what was asked.
fn went_away(group: GroupId) -> Error {
    let says = format!("the leader of group {group} went away before it answered: look whether it was done");
    Error { group_id: group.number(), ..Error::new(ErrorReason::Indeterminate, says) }
}
