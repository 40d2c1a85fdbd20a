//! Limits, read and changed over all groups.
//!
//! Limits are part of a group's state, so changing them takes a log entry in each group. The node that is asked has the
//! leader of each group change the limits of that group. Invariant: an impossible change is refused before any group
//! has changed, and an error says which groups have changed and which have not. Not here: names and ranges
//! (`tollgate_proto::convert`).

use super::leaders::Leaders;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tollgate_core::{Command, Reply};
use tollgate_gateway::{Repeat, Router, operation, passing_on};
use tollgate_node::{Answer, Ask, Consistency, NodeHandle, Sight};
use tollgate_proto::convert::{self, ToldLimits};
use tollgate_proto::v1::{self, Error};
use tollgate_types::{GroupId, Limits};

/// Time limit for the leaders to change limits: shorter than the patience of clients.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit for a leader to return its limits.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum number of groups that are asked concurrently.
const AT_ONCE: usize = 16;

/// Reads and changes limits. Cheap to clone.
#[derive(Clone)]
pub(super) struct LimitChanges {
    router: Router,
    node: NodeHandle,
    leaders: Leaders,
    /// Held while this node changes limits as a leader: a change must not be undone by another one that has read the
    /// limits before it.
    alone: Arc<Mutex<()>>,
}

impl LimitChanges {
    pub(super) fn new(router: Router, node: NodeHandle, leaders: Leaders) -> LimitChanges {
        LimitChanges { router, node, leaders, alone: Arc::default() }
    }

    /// Returns the limits of these groups, in their order. Limits that this node can't read now are requested from the
    /// leaders, unless the request came from another node.
    pub(super) async fn read(
        &self,
        groups: &[GroupId],
        passed_on: bool,
    ) -> Result<Vec<(GroupId, ToldLimits)>, Error> {
        let read = |changes: LimitChanges, group| async move { changes.look(group, passed_on).await };
        let read = self.of_each(groups, read).await;
        read.into_iter().map(|(group, limits)| Ok((group, limits?))).collect()
    }

    /// Changes limits in these groups, whichever nodes lead them, and returns the new limits.
    pub(super) async fn change(
        &self,
        groups: &[GroupId],
        given: Vec<v1::Limit>,
    ) -> Result<Vec<(GroupId, ToldLimits)>, Error> {
        // The range of a limit may depend on other limits of its group.
        for (group, base) in self.read(groups, false).await? {
            convert::read_limits("limits", &given, &base.or_default())
                .map_err(|error| Error { group_id: group.number(), ..error.into() })?;
        }
        let until = Instant::now() + PATIENCE;
        let change = move |changes: LimitChanges, group| {
            let given = given.clone();
            async move { changes.change_at_leader(group, given, until).await }
        };
        let (mut changed, mut failed) = (Vec::new(), Vec::new());
        for (group, outcome) in self.of_each(groups, change).await {
            match outcome {
                Ok(limits) => changed.push((group, limits)),
                Err(error) => failed.push((group, error)),
            }
        }
        if failed.is_empty() { Ok(changed) } else { Err(not_in_all(&changed, failed)) }
    }

    async fn change_at_leader(
        &self,
        group: GroupId,
        given: Vec<v1::Limit>,
        until: Instant,
    ) -> Result<ToldLimits, Error> {
        let here = async || Ok(ToldLimits::from(&self.change_as_leader(group, &given).await?));
        let there = |mut admin: super::AdminServiceClient<_>| {
            let (limits, group_ids) = (given.clone(), vec![group.number()]);
            let request = v1::SetLimitsRequest { limits, group_ids, passed_on: true };
            async move { Ok(ToldLimits::read(&admin.set_limits(request).await?.into_inner().limits)) }
        };
        self.leaders.ask(group, Repeat::Harmless, until, here, there, |_| None).await
    }

    /// Changes the limits of a group, if this node leads it.
    pub(super) async fn change_as_leader(
        &self,
        group: GroupId,
        given: &[v1::Limit],
    ) -> Result<Limits, Error> {
        if !self.router.serves(group) {
            let full = self.router.disk_full(group, false, true);
            return Err(full.unwrap_or_else(|| self.leaders.not_leader(group)));
        }
        let _alone = self.alone.lock().await;
        let base = self.look_here(group).await?;
        let limits = convert::read_limits("limits", given, &base)?;
        if limits == base {
            return Ok(limits);
        }
        let command = Box::new(Command::SetLimits(Box::new(limits.clone())));
        let called = self.node.call(Ask::Command { group, command, fast: false }).await;
        let called = called.map_err(|error| operation::error_of_not_answered(error, group))?;
        match called.answer {
            Answer::Replied { reply: Reply::Rejected(rejection), .. } => {
                Err(operation::error_of_rejection(&rejection, group))
            }
            Answer::Replied { .. } => Ok(limits),
            Answer::NotDone(error) => {
                Err(self.router.with_address(operation::error_of_propose(&error, true)))
            }
            _ => Err(operation::unexpected("SetLimits")),
        }
    }

    /// Returns the limits of a group, read here if this node can read them, and at the leader otherwise.
    async fn look(&self, group: GroupId, passed_on: bool) -> Result<ToldLimits, Error> {
        let here = async || Ok(ToldLimits::from(&self.look_here(group).await?));
        if passed_on || self.router.reader_elsewhere(group, Consistency::Linearizable).is_none() {
            return here().await;
        }
        let there = |mut admin: super::AdminServiceClient<_>| async move {
            let request = v1::GetLimitsRequest { group_id: group.number(), all_groups: false };
            let told = admin.get_limits(passing_on(request)).await?.into_inner();
            Ok(ToldLimits::read(&told.limits))
        };
        let until = Instant::now() + LOOK_PATIENCE;
        self.leaders.ask(group, Repeat::Look, until, here, there, |_| None).await
    }

    async fn look_here(&self, group: GroupId) -> Result<Limits, Error> {
        let look = |sight: Sight<'_>| sight.state.limits().clone();
        let read = self.router.look(group, Consistency::Linearizable, look).await;
        read.map(|(_, limits)| limits).map_err(|error| operation::error_of_read(&error))
    }

    /// Runs a task for each group, a few at a time, and returns the outcomes in the order of the groups.
    async fn of_each<T, F>(
        &self,
        groups: &[GroupId],
        each: impl Fn(LimitChanges, GroupId) -> F,
    ) -> Vec<(GroupId, Result<T, Error>)>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (mut under_way, mut outcomes) = (JoinSet::new(), Vec::with_capacity(groups.len()));
        for group in groups {
            if under_way.len() >= AT_ONCE {
                outcomes.extend(under_way.join_next().await);
            }
            let (group, done) = (*group, each(self.clone(), *group));
            under_way.spawn(async move { (group, done.await) });
        }
        while let Some(outcome) = under_way.join_next().await {
            outcomes.push(outcome);
        }
        let unwound = "a task ends by itself, and nobody aborts it";
        let mut outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.expect(unwound)).collect();
        outcomes.sort_by_key(|(group, _)| *group);
        outcomes
    }
}

/// Returns the error for a change that did not succeed in all requested groups.
fn not_in_all(changed: &[(GroupId, ToldLimits)], mut failed: Vec<(GroupId, Error)>) -> Error {
    let list = |groups: &mut dyn Iterator<Item = GroupId>| {
        groups.map(|group| group.to_string()).collect::<Vec<_>>().join(", ")
    };
    let unchanged = list(&mut failed.iter().map(|(group, _)| *group));
    let unsure = !changed.is_empty() || failed.iter().any(|(_, error)| error.may_have_happened);
    let (group, error) = failed.swap_remove(0);
    if changed.is_empty() && failed.is_empty() {
        return error;
    }
    let so_far = match list(&mut changed.iter().map(|(group, _)| *group)) {
        none if none.is_empty() => "the limits are changed in no group for sure".to_owned(),
        groups => format!("the limits are changed in these groups: {groups}"),
    };
    let says = &error.message;
    let message = format!(
        "{so_far}; not in these, or not for sure: {unchanged} (group {group}: {says}); set them again"
    );
    Error { message, may_have_happened: unsure, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_proto::v1::ErrorReason;

    #[test]
    fn who_changes_limits_in_some_groups_only_is_told_in_which() {
        let group = GroupId::new;
        let error = |reason| Error::new(reason, "it is so");
        let changed = [0, 3].map(|number| (group(number), ToldLimits::from(&Limits::DEFAULT)));
        let nobody =
            || vec![(group(1), error(ErrorReason::NoLeader)), (group(2), error(ErrorReason::NoLeader))];
        let told = not_in_all(&changed, nobody());
        assert_eq!((told.reason(), told.may_have_happened), (ErrorReason::NoLeader, true));
        assert!(told.message.contains("changed in these groups: 0, 3;"), "{}", told.message);
        assert!(told.message.contains(": 1, 2 (group 1: it is so)"), "{}", told.message);
        assert!(!not_in_all(&[], nobody()).may_have_happened);
        let alone = not_in_all(&[], vec![(group(0), error(ErrorReason::DiskFull))]);
        assert_eq!(alone.message, "it is so", "where there is one group there is nothing to tell apart");
    }
}
