//! Transfers of a group's leadership.
//!
//! The leader of the group carries out the transfer. Invariant: a transfer that can't succeed is refused at once, with
//! the reason; one that fails on the way is reported as soon as the leader has given up. Not here: the transfer itself
//! (`tollgate_replica`).

use super::{Admin, LOOK_EVERY, PATIENCE};
use std::time::{Duration, Instant};
use tollgate_gateway::{Repeat, operation};
use tollgate_node::Ask;
use tollgate_proto::convert;
use tollgate_proto::v1::{Error, ErrorReason, TransferRequest, TransferResponse};
use tollgate_replica::{Host, MemberRefusal, Members, ProposeError};
use tollgate_types::{GroupId, NodeId};
use tonic::Status;

/// Grace period of a new leader, which has not heard from every member yet: only after this long, its refusals count
/// that a member does not answer.
const FRESH_LEADER: Duration = Duration::from_secs(1);

impl Admin {
    pub(super) async fn hand_on(&self, request: &TransferRequest) -> Result<TransferResponse, Status> {
        let group = self.group(request.group_id)?;
        let to = convert::read_node_id_or_none(request.node_id);
        let leader = if request.passed_on {
            self.hand_on_as_leader(group, to).await?
        } else {
            // A second transfer without a named target would move the leadership once more.
            let repeat = if to.is_some() { Repeat::Harmless } else { Repeat::Never };
            let until = Instant::now() + PATIENCE;
            let here = || self.hand_on_as_leader(group, to);
            let there = |mut admin: super::AdminServiceClient<_>| async move {
                let request = TransferRequest { passed_on: true, ..*request };
                let handed_on = admin.transfer(request).await?.into_inner();
                Ok(NodeId::new(handed_on.leader_id))
            };
            // Wherever the leadership went, it has left the old leader, whose answer may arrive after that news.
            let moved = |leader| to.is_none().then_some(Some(leader));
            self.leaders.ask(group, repeat, until, here, there, moved).await?
        };
        let leader_id = leader.map_or(0, NodeId::number);
        Ok(TransferResponse { header: self.header(group), leader_id })
    }

    /// Transfers the leadership, if this node has it, and returns the new leader.
    async fn hand_on_as_leader(&self, group: GroupId, to: Option<NodeId>) -> Result<Option<NodeId>, Error> {
        let own = self.node.node();
        let leads = self.node.status().borrow().leader(group) == Some(own);
        if !leads {
            return Err(self.leaders.not_leader(group));
        }
        if to == Some(own) {
            return Ok(to);
        }
        self.object(group, to).await?;
        self.node.tell(Ask::TransferLeadership { group, to });
        let until = Instant::now() + PATIENCE;
        loop {
            let look = move |host: &Host| (host.leader(group), host.hands_on(group));
            let (leader, hands_on) =
                self.seen(group, look).await.map_err(|error| was_ordered(group, &error))?;
            match leader {
                Some(leader) if leader != own => return Ok(Some(leader)),
                // The target stood still, or lacked too many entries.
                Some(_) if !hands_on => return Err(nobody_took_over()),
                _ if Instant::now() >= until => return Err(nobody_took_over()),
                _ => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Refuses a transfer that can't succeed.
    async fn object(&self, group: GroupId, to: Option<NodeId>) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let look = move |host: &Host| {
                let members = host.members(group).map(Members::all).unwrap_or_default();
                (host.transfer_refusal(group, to), members)
            };
            let (refusal, members) = self.seen(group, look).await?;
            match refusal {
                None => return Ok(()),
                Some(MemberRefusal::NotMember { node }) => {
                    let members = members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                    let says = format!("node {node} is not a member: the members are these nodes: {members}");
                    return Err(Error::new(ErrorReason::MemberRefused, says));
                }
                Some(refusal) if began.elapsed() >= FRESH_LEADER => {
                    return Err(operation::error_of_propose(&ProposeError::Refused(refusal), true));
                }
                Some(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn seen<T: Send + 'static>(
        &self,
        group: GroupId,
        look: impl FnOnce(&Host) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let seen = self.node.inspect(look).await;
        seen.map_err(|error| operation::error_of_not_answered(error, group))
    }
}

/// Error after the transfer was ordered: a second order could move the leadership once more.
fn was_ordered(group: GroupId, error: &Error) -> Error {
    let says =
        format!("the transfer was ordered, and then: {}; look who leads before you ask again", error.message);
    Error { group_id: group.number(), ..Error::new(ErrorReason::Indeterminate, says) }
}

fn nobody_took_over() -> Error {
    let says = "nobody took over: the node that was to lead stood still, or lacked too much; look at `tollgate member \
                ls`, and try again";
    Error::new(ErrorReason::MemberRefused, says)
}
