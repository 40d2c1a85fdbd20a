//! Searches for deadlocks across several groups, which no group sees by itself, and has one wait of each ended.
//!
//! The node that leads the group with the map searches once a second while a deadlock is possible. Every full node has
//! a replica of every group, so the search sends no requests to other nodes: it reads each local replica linearizably.
//! Two passes, the second begun after the first has ended, make sure that all waits of a deadlock existed at the same
//! moment; the group that ends the wait checks it once more. Not here: the search algorithm
//! (`tollgate_core::find_deadlocks`), and deadlocks within one group, which are refused before they arise.

use crate::operation;
use crate::relay::Repeat;
use crate::router::Router;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tollgate_core::{Command, CycleStep, EndDeadlock, Rejection, Reply, Victim, WaitEdges, find_deadlocks};
use tollgate_node::{Answer, Ask, Consistency, Sight};
use tollgate_proto::v1;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_types::{GroupId, escaped};

/// Interval between two searches.
const EVERY: Duration = Duration::from_secs(1);

/// Maximum number of claims that one read of a group visits to find waits, on the driver's thread; following the waits
/// visits as many again.
const VISITS_MAX: u64 = 10_000;

/// Maximum number of waits ended after one search; the next search finds the rest.
const VICTIMS_MAX: usize = 64;

/// Maximum time for another node to end a wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Searches for deadlocks for as long as the node runs.
pub async fn detect_deadlocks(router: Router) {
    let mut status = router.status().clone();
    loop {
        // Only the leader of the group with the map searches, and only if there are several groups.
        let detects = status.wait_for(|status| {
            status.serves(GroupId::MAP) && status.map.as_ref().is_some_and(|map| !map.is_single())
        });
        if detects.await.is_err() {
            return;
        }
        tokio::time::sleep(EVERY).await;
        detect(&router).await;
    }
}

async fn detect(router: &Router) {
    // A stale read is cheap, and nearly always shows that nobody waits.
    let Some(glance) = pass(router, Consistency::Stale).await else { return };
    if glance.values().all(|edges| edges.waits.is_empty()) {
        return;
    }
    let Some(first) = pass(router, Consistency::Linearizable).await else { return };
    let Some(second) = pass(router, Consistency::Linearizable).await else { return };
    for victim in find_deadlocks(&first, &second, VICTIMS_MAX) {
        end(router, victim).await;
    }
}

/// Reads the waits of all groups; none if one of the groups can't be read now.
async fn pass(router: &Router, consistency: Consistency) -> Option<BTreeMap<GroupId, WaitEdges>> {
    let mut edges = BTreeMap::new();
    for group in router.map().groups() {
        let look = |sight: Sight<'_>| sight.state.wait_edges(VISITS_MAX);
        let (_, seen) = router.look(group, consistency, look).await.ok()?;
        if seen.truncated {
            tracing::warn!(%group, "there are too many waits to look for all deadlocks over groups");
        }
        edges.insert(group, seen);
    }
    Some(edges)
}

/// Ends the wait of a victim, on whichever node leads its group.
async fn end(router: &Router, victim: Victim) {
    let Victim { group, end, cycle } = victim;
    let (name, steps) = (end.name.clone(), cycle.len());
    let found = operation::error_of_rejection(&Rejection::Deadlock { cycle: cycle.clone() }, group);
    let ended = if router.serves(group) {
        router.end_deadlock(group, end, cycle).await
    } else {
        end_elsewhere(router, group, &end, &found).await
    };
    match ended {
        Ok(()) => {
            let name = escaped(name.as_bytes());
            tracing::warn!(%group, %name, steps, "a deadlock over several groups was broken");
            router.note_deadlock(&found);
        }
        // The deadlock has dissolved, or the next search finds it again.
        Err(error) => {
            let name = escaped(name.as_bytes());
            tracing::debug!(%group, %name, error = %error.message, "a deadlock was not broken");
        }
    }
}

async fn end_elsewhere(
    router: &Router,
    group: GroupId,
    end: &EndDeadlock,
    found: &v1::Error,
) -> Result<(), v1::Error> {
    let leader = router.status().borrow().leader(group);
    let leader = leader.ok_or_else(|| router.not_leader(group, None))?;
    let request = v1::EndDeadlockRequest {
        group_id: group.number(),
        name: end.name.to_string(),
        create_revision: end.create_revision.get(),
        blocker_token: end.blocker.get(),
        cycle: found.cycle.clone(),
    };
    let ended = async |mut admin: AdminServiceClient<_>| admin.end_deadlock(request).await;
    router.ask_admin(leader, Instant::now() + PATIENCE, Repeat::Never, ended).await.map(drop)
}

impl Router {
    /// Ends a wait in a group that the local node leads, if the wait is still part of the deadlock that was found.
    /// Keeps the circle, so that the caller of the wait can be told about it.
    pub async fn end_deadlock(
        &self,
        group: GroupId,
        end: EndDeadlock,
        circle: Vec<CycleStep>,
    ) -> Result<(), v1::Error> {
        let node = self.node().ok_or_else(|| self.not_leader(group, None))?;
        self.keep_circle(circle);
        let command = Box::new(Command::EndDeadlock(end));
        let called = node.call(Ask::Command { group, command, fast: false }).await;
        match called.map_err(|error| operation::error_of_not_answered(error, group))?.answer {
            Answer::Replied { reply: Reply::Done, .. } => Ok(()),
            Answer::Replied { reply: Reply::Rejected(rejection), .. } => {
                Err(operation::error_of_rejection(&rejection, group))
            }
            Answer::NotDone(error) => Err(self.with_address(operation::error_of_propose(&error, true))),
            _ => Err(operation::unexpected("EndDeadlock")),
        }
    }
}
