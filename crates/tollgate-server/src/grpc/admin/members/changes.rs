//! Executes changes of members in all groups, each by the leader of the group.
//!
//! The node that is asked hands the whole change to the leader of group 0. That leader makes one change at a time; it
//! refuses an impossible change before any group has changed, and asks the leaders of the groups, one after the other.
//! Invariant: a completed step is not done again; if an interrupted change is requested again, it goes on to its end,
//! whatever other changes were made meanwhile. Not here: the steps (`steps`), the changes that a group allows
//! (`tollgate_replica`).

use super::steps::{Earlier, Step, Wish};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tollgate_gateway::{Router, operation};
use tollgate_node::{Answer, Ask, NodeHandle};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, Error, ErrorReason};
use tollgate_proto::{MEMBER_CHANGE_PATIENCE, Retry, error_of_status};
use tollgate_replica::{Host, MemberRefusal, Members, ProposeError};
use tollgate_types::{GroupId, NodeId};
use tonic::transport::Endpoint as Dialled;

/// Time limit for one group, with a change of leaders and an earlier change of members included.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time limit for a call to the leader of a group, which has a time limit of its own.
const CALL_PATIENCE: Duration = Duration::from_secs(25);
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Grace period of a new leader, which has not heard from every member yet: only after this long, its refusals count
/// that a member does not answer, lacks entries, or does not exist.
const FRESH_LEADER: Duration = Duration::from_secs(1);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Role in which a node is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestInfo {
    /// As any node, by an operator.
    Anybody,
    /// As the leader of group 0, by another node.
    First,
    /// As the leader of these groups, by the leader of group 0.
    Leader(Vec<GroupId>),
}

/// Part of a change that one leader carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// The whole change, as the leader of group 0.
    Whole,
    /// The steps of one group, as its leader.
    Group(GroupId),
}

impl Task {
    fn group(self) -> GroupId {
        match self {
            Task::Whole => GroupId::MAP,
            Task::Group(group) => group,
        }
    }
}

/// State of a group, as seen by this node.
struct Sight {
    members: Members,
    /// True if this node leads the group.
    leads: bool,
    /// True once this node, as the leader, has applied everything that was committed before.
    serves: bool,
    /// Members that this node has heard from lately.
    heard: Vec<NodeId>,
}

/// Executes changes of members. Cheap to clone.
#[derive(Clone)]
pub(in crate::grpc::admin) struct Changes {
    router: Router,
    node: NodeHandle,
    /// Held by the change that this node makes as the leader of group 0: of two concurrent changes, each would find
    /// some groups that the other has already changed and some that it has not.
    alone: Arc<Mutex<()>>,
}

impl Changes {
    pub(in crate::grpc::admin) fn new(router: Router, node: NodeHandle) -> Changes {
        Changes { router, node, alone: Arc::default() }
    }

    /// Carries out the part of a wish that this node was asked for, and returns the node that was added, if one was.
    ///
    /// Once begun, the change goes on even if nobody waits for it any more: a caller that hangs up must not leave the
    /// groups at odds.
    pub(super) async fn carry_out(&self, asked: RequestInfo, wish: Wish) -> Result<Option<NodeId>, Error> {
        let changes = self.clone();
        let under_way = tokio::spawn(async move { changes.go_through(asked, wish).await });
        match tokio::time::timeout(MEMBER_CHANGE_PATIENCE, under_way).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(operation::unexpected("a change of members")),
            Err(_) => Err(late()),
        }
    }

    async fn go_through(&self, asked: RequestInfo, wish: Wish) -> Result<Option<NodeId>, Error> {
        let until = Instant::now() + MEMBER_CHANGE_PATIENCE;
        match asked {
            RequestInfo::Anybody => self.at_leader(Task::Whole, &wish, until).await,
            RequestInfo::First => self.in_all(wish, until).await,
            RequestInfo::Leader(groups) => {
                let mut added = None;
                for group in groups {
                    added = added.or(self.as_leader(group, &wish).await?);
                }
                Ok(added)
            }
        }
    }

    /// Carries out a wish in one group after the other, if this node leads group 0.
    async fn in_all(&self, mut wish: Wish, until: Instant) -> Result<Option<NodeId>, Error> {
        let Ok(_alone) = tokio::time::timeout_at(until.into(), self.alone.lock()).await else {
            return Err(late());
        };
        self.object(&wish).await?;
        let groups: Vec<GroupId> = self.node.status().borrow().groups.keys().copied().collect();
        let (count, mut added) = (groups.len(), None);
        for (done, group) in wish.order(groups).into_iter().enumerate() {
            // If another node leads group 0 now, that node is asked to go on: two at a time would be in each other's
            // way.
            let Sight { members, leads, .. } = self.sight(GroupId::MAP).await?;
            if !leads {
                return Err(self.not_leader(GroupId::MAP));
            }
            if done > 0 {
                wish.settle(added, &members);
            }
            match self.at_leader(Task::Group(group), &wish, until).await {
                Ok(node) => added = added.or(node),
                Err(error) if count == 1 => return Err(error),
                Err(error) => return Err(interrupted(error, group, done, count)),
            }
        }
        Ok(added)
    }

    /// Refuses an impossible wish before any group has changed, by the members of group 0, which knows every node.
    async fn object(&self, wish: &Wish) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let Sight { members, leads, serves, .. } = self.sight(GroupId::MAP).await?;
            if !leads {
                return Err(self.not_leader(GroupId::MAP));
            }
            match wish.objection(&members) {
                None => return Ok(()),
                Some(refusal) if serves || began.elapsed() >= FRESH_LEADER => {
                    return Err(operation::error_of_propose(&ProposeError::Refused(refusal), true));
                }
                Some(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Has the leader of a task's group do the task, through changes of leaders.
    async fn at_leader(&self, task: Task, wish: &Wish, until: Instant) -> Result<Option<NodeId>, Error> {
        let patience = if task == Task::Whole { MEMBER_CHANGE_PATIENCE } else { PATIENCE };
        let until_here = until.min(Instant::now() + patience);
        let (group, own) = (task.group(), self.node.node());
        let mut hint = None;
        loop {
            let known = self.node.status().borrow().leader(group);
            let leader = hint.take().or(known);
            let carried_out = match leader.map(|leader| (leader, self.router.client_address(leader))) {
                Some((leader, _)) if leader == own => match task {
                    Task::Whole => Box::pin(self.in_all(wish.clone(), until)).await,
                    Task::Group(group) => self.as_leader(group, wish).await,
                },
                Some((leader, Some(address))) => tokio::select! {
                    carried_out = self.forward(task, wish, &address, until) => carried_out,
                    // The leader stands still, or hands on the leadership: the next leader goes on where it stopped.
                    () = self.another_leads(group, leader) => Err(self.not_leader(group)),
                },
                Some((_, None)) | None => Err(self.router.not_leader(group, None)),
            };
            let error = match carried_out {
                Ok(node) => return Ok(node),
                Err(error) => error,
            };
            let again = match error.retry() {
                Retry::AtLeader | Retry::AsItIs => true,
                // A full disk is for the operator.
                Retry::Later => error.reason() == ErrorReason::Overloaded,
                _ => false,
            };
            if !again || Instant::now() >= until_here {
                return Err(error);
            }
            hint = NodeId::new(error.leader_id)
                .filter(|hinted| Some(*hinted) != leader && error.group_id == group.number());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until another node than `than` is known to have taken over the group.
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

    /// Asks another node, which leads the group as far as is known.
    async fn forward(
        &self,
        task: Task,
        wish: &Wish,
        address: &str,
        until: Instant,
    ) -> Result<Option<NodeId>, Error> {
        let address = address.strip_prefix("http://").unwrap_or(address);
        // Either nothing was asked, or the leader went away; in both cases the wish may be repeated.
        let lost = |_| self.router.not_leader(task.group(), None);
        let left = until.saturating_duration_since(Instant::now());
        let (patience, group_ids, passed_on) = match task {
            Task::Whole => (left, Vec::new(), true),
            Task::Group(group) => (left.min(CALL_PATIENCE), vec![group.number()], false),
        };
        let dialled = Dialled::from_shared(format!("http://{address}")).map_err(lost)?;
        let dialled = dialled.connect_timeout(CONNECT_PATIENCE).timeout(patience);
        let mut admin = AdminServiceClient::new(dialled.connect().await.map_err(lost)?);
        let asked = match wish {
            Wish::Add { node, witness, node_addresses, before } => {
                let request = v1::AddMemberRequest {
                    node_id: node.map_or(0, NodeId::number),
                    peer_address: node_addresses.peer.to_string(),
                    client_address: node_addresses.client.to_string(),
                    zone: node_addresses.zone.to_string(),
                    witness: *witness,
                    group_ids,
                    passed_on,
                    before: before.iter().map(earlier_member).collect(),
                };
                admin.add_member(request).await.map(|added| NodeId::new(added.into_inner().node_id))
            }
            Wish::Promote { node } => {
                let request = v1::PromoteMemberRequest { node_id: node.number(), group_ids, passed_on };
                admin.promote_member(request).await.map(|_| None)
            }
            Wish::Remove { node } => {
                let request = v1::RemoveMemberRequest { node_id: node.number(), group_ids, passed_on };
                admin.remove_member(request).await.map(|_| None)
            }
            Wish::Replace { out, by } => {
                let (out_id, by_id) = (out.number(), by.number());
                let request = v1::ReplaceMemberRequest { out_id, by_id, group_ids, passed_on };
                admin.replace_member(request).await.map(|_| None)
            }
        };
        asked.map_err(|status| {
            error_of_status(&status).unwrap_or_else(|| self.router.not_leader(task.group(), None))
        })
    }

    /// Carries out a wish here, step by step, if this node leads the group.
    async fn as_leader(&self, group: GroupId, wish: &Wish) -> Result<Option<NodeId>, Error> {
        let (began, mut refused_before) = (Instant::now(), false);
        loop {
            let Sight { members, leads, heard, .. } = self.sight(group).await?;
            if !leads {
                return Err(self.not_leader(group));
            }
            let refused = match wish.step(group, &members, &heard) {
                Step::Done(node) => return Ok(node),
                Step::Refused(refusal) => return Err(refusal),
                Step::Wait => ProposeError::Refused(MemberRefusal::Busy),
                Step::Change(change) => {
                    let ask = Ask::ChangeMembers { group, change: Box::new(change) };
                    let called = self.node.call(ask).await;
                    let called = called.map_err(|error| operation::error_of_not_answered(error, group))?;
                    match called.answer {
                        Answer::Members(_) => continue,
                        Answer::NotDone(error) => error,
                        _ => return Err(operation::unexpected("a change of members")),
                    }
                }
            };
            // Another task that carries out the same wish may have made the change between the look and the step. At
            // the next look there is then nothing left to do.
            if refused_before && began.elapsed() >= patience_with(&refused) {
                return Err(self.router.with_address(operation::error_of_propose(&refused, true)));
            }
            refused_before = true;
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn not_leader(&self, group: GroupId) -> Error {
        let leader = self.node.status().borrow().leader(group);
        self.router.not_leader(group, leader)
    }

    async fn sight(&self, group: GroupId) -> Result<Sight, Error> {
        let look = move |host: &Host| {
            let members = host.members(group).cloned().unwrap_or_default();
            let heard = members.all().into_iter().filter(|node| host.hears(*node)).collect();
            let serves = host.brief(group).is_some_and(|brief| brief.serves);
            Sight { members, leads: host.leads(group), serves, heard }
        };
        let seen = self.node.inspect(look).await;
        seen.map_err(|error| operation::error_of_not_answered(error, group))
    }
}

fn earlier_member(earlier: &Earlier) -> v1::EarlierMember {
    let Earlier { node, witness, node_addresses } = earlier;
    v1::EarlierMember {
        node_id: node.number(),
        peer_address: node_addresses.peer.to_string(),
        client_address: node_addresses.client.to_string(),
        zone: node_addresses.zone.to_string(),
        witness: *witness,
    }
}

/// Returns for how long a refusal may still pass by itself.
fn patience_with(refused: &ProposeError) -> Duration {
    match refused {
        ProposeError::Refused(MemberRefusal::Busy) => PATIENCE,
        ProposeError::Refused(MemberRefusal::WouldLoseQuorum { .. } | MemberRefusal::NotCaughtUp { .. }) => {
            FRESH_LEADER
        }
        _ => Duration::ZERO,
    }
}

/// Returns the error for a caller whose time is up while the change goes on.
fn late() -> Error {
    let says = format!(
        "the change is not done after {} s, and goes on: look at `tollgate member ls`, and run it again",
        MEMBER_CHANGE_PATIENCE.as_secs()
    );
    Error::new(ErrorReason::TimedOut, says)
}

/// Returns the error of one group, after other groups have done their part. A refused change does not succeed by
/// running it again, so the message does not advise that.
fn interrupted(error: Error, group: GroupId, done: usize, count: usize) -> Error {
    let next = if error.reason() == ErrorReason::MemberRefused { "" } else { ": run it again to go on" };
    let says = &error.message;
    let message = format!("group {group}: {says} ({done} of {count} groups are done{next})");
    Error { message, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_pass_is_to_be_run_again() {
        let says = |reason| interrupted(Error::new(reason, "it is so"), GroupId::new(2), 1, 4).message;
        let again = "group 2: it is so (1 of 4 groups are done: run it again to go on)";
        assert_eq!(says(ErrorReason::NoLeader), again);
        assert_eq!(says(ErrorReason::MemberRefused), "group 2: it is so (1 of 4 groups are done)");
    }
}
