//! Carries changes of members out, in all groups, each by its leader.
//!
//! Whichever node is asked hands the whole change to the leader of group 0. That one makes one change at a time; it
//! refuses what can't be before any group has changed, and asks the leaders of the groups, one after the other.
//! Invariant: what was done is done once; asked again, a change that was interrupted goes on to its end, whatever other
//! changes were made meanwhile. Not here: the steps (`steps`), what a group allows (`tollgate_replica`).

use super::steps::{Earlier, Step, Wish};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tollgate_gateway::{Router, operation};
use tollgate_node::{Answer, Ask, NodeHandle};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{self, Error, ErrorReason};
use tollgate_proto::{MEMBER_CHANGE_PATIENCE, error_of_status};
use tollgate_replica::{Host, MemberRefusal, Members, ProposeError};
use tollgate_types::{GroupId, NodeId};
use tonic::transport::Endpoint as Dialled;

/// How long one group may take, with a change of leaders and another change of members before.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the leader of a group may take, which has a patience of its own.
const CALL_PATIENCE: Duration = Duration::from_secs(25);
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// A leader that has just taken over has not heard of everybody yet: only after so long it means it when it says that
/// somebody does not answer, or lacks entries, or is nobody.
const FRESH_LEADER: Duration = Duration::from_secs(1);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// In which role a node is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// As any node, by an operator.
    Anybody,
    /// As the leader of group 0, by another node.
    First,
    /// As the leader of these groups, by the leader of group 0.
    Leader(Vec<GroupId>),
}

/// What a leader is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// All of it, as the leader of group 0.
    Whole,
    /// What there is to do in its group.
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

/// What a node sees of a group.
struct Sight {
    members: Members,
    /// Whether it leads...
    leads: bool,
    /// ...and has applied all that was committed before.
    serves: bool,
    /// Who has spoken lately.
    heard: Vec<NodeId>,
}

/// Carries changes of members out. Cheap to clone.
#[derive(Clone)]
pub(in crate::grpc::admin) struct Changes {
    router: Router,
    node: NodeHandle,
    /// Whoever makes a change as the leader of group 0: of two at a time, each would meet groups that the other has
    /// been to and groups that it has not.
    alone: Arc<Mutex<()>>,
}

impl Changes {
    pub(in crate::grpc::admin) fn new(router: Router, node: NodeHandle) -> Changes {
        Changes { router, node, alone: Arc::default() }
    }

    /// Carries a wish out, as far as that is asked of this node. The node that was added, if one was.
    ///
    /// Begun, it goes on though nobody may wait for it any more: whoever hangs up must not leave the groups at odds.
    pub(super) async fn carry_out(&self, asked: Asked, wish: Wish) -> Result<Option<NodeId>, Error> {
        let changes = self.clone();
        let under_way = tokio::spawn(async move { changes.go_through(asked, wish).await });
        match tokio::time::timeout(MEMBER_CHANGE_PATIENCE, under_way).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(operation::unexpected("a change of members")),
            Err(_) => Err(late()),
        }
    }

    async fn go_through(&self, asked: Asked, wish: Wish) -> Result<Option<NodeId>, Error> {
        let until = Instant::now() + MEMBER_CHANGE_PATIENCE;
        match asked {
            Asked::Anybody => self.at_leader(Task::Whole, &wish, until).await,
            Asked::First => self.in_all(wish, until).await,
            Asked::Leader(groups) => {
                let mut added = None;
                for group in groups {
                    added = added.or(self.as_leader(group, &wish).await?);
                }
                Ok(added)
            }
        }
    }

    /// Carries a wish out in one group after the other, if this node leads group 0.
    async fn in_all(&self, mut wish: Wish, until: Instant) -> Result<Option<NodeId>, Error> {
        let Ok(_alone) = tokio::time::timeout_at(until.into(), self.alone.lock()).await else {
            return Err(late());
        };
        self.object(&wish).await?;
        let groups: Vec<GroupId> = self.node.status().borrow().groups.keys().copied().collect();
        let (count, mut added) = (groups.len(), None);
        for (done, group) in wish.order(groups).into_iter().enumerate() {
            // Whoever leads group 0 now is asked to go on: two at a time would be in each other's way.
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

    /// Refuses what can't be, before any group has changed: group 0 knows of everybody.
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

    /// Has a task done by whoever leads its group, through changes of leaders.
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
                    // It stands still, or hands on: whoever leads now goes on where it stopped.
                    () = self.another_leads(group, leader) => Err(self.not_leader(group)),
                },
                Some((_, None)) | None => Err(self.router.not_leader(group, None)),
            };
            let error = match carried_out {
                Ok(node) => return Ok(node),
                Err(error) => error,
            };
            let again = matches!(
                error.reason(),
                ErrorReason::NotLeader
                    | ErrorReason::NoLeader
                    | ErrorReason::Indeterminate
                    | ErrorReason::Overloaded
                    | ErrorReason::ShuttingDown
            );
            if !again || Instant::now() >= until_here {
                return Err(error);
            }
            hint = NodeId::new(error.leader_id)
                .filter(|hinted| Some(*hinted) != leader && error.group_id == group.number());
            tokio::time::sleep(PAUSE).await;
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

    /// Asks another node, which leads the group as far as is known.
    async fn forward(
        &self,
        task: Task,
        wish: &Wish,
        address: &str,
        until: Instant,
    ) -> Result<Option<NodeId>, Error> {
        let address = address.strip_prefix("http://").unwrap_or(address);
        // Nothing was asked, or the leader went away; either way the wish may be repeated.
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
            Wish::Add { node, witness, whereabouts, before } => {
                let request = v1::AddMemberRequest {
                    node_id: node.map_or(0, NodeId::number),
                    peer_address: whereabouts.peer.to_string(),
                    client_address: whereabouts.client.to_string(),
                    zone: whereabouts.zone.to_string(),
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

    /// Carries a wish out here, step by step, if this node leads the group.
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
            // Somebody else who carries out the same may have done it between the look and the step. Seen again, there
            // is then nothing left to do.
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
    let Earlier { node, witness, whereabouts } = earlier;
    v1::EarlierMember {
        node_id: node.number(),
        peer_address: whereabouts.peer.to_string(),
        client_address: whereabouts.client.to_string(),
        zone: whereabouts.zone.to_string(),
        witness: *witness,
    }
}

/// How long a refusal may pass by itself.
fn patience_with(refused: &ProposeError) -> Duration {
    match refused {
        ProposeError::Refused(MemberRefusal::Busy) => PATIENCE,
        ProposeError::Refused(MemberRefusal::WouldLoseQuorum { .. } | MemberRefusal::NotCaughtUp { .. }) => {
            FRESH_LEADER
        }
        _ => Duration::ZERO,
    }
}

/// Nobody waits any longer for what goes on.
fn late() -> Error {
    let says = format!(
        "the change is not done after {} s, and goes on: look at `tollgate member ls`, and run it again",
        MEMBER_CHANGE_PATIENCE.as_secs()
    );
    Error::new(ErrorReason::TimedOut, says)
}

/// What one group said, after others had done their part. What is refused is not done by asking again.
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
