//! Makes a lease known in a group in which it wants locks and which is not its home.
//!
//! The group's leader asks the home whether the lease lives, adds a stub for it, and waits until the home has recorded
//! the stub (`tollgate_replica` carries the group messages). Invariant: nothing is granted under a stub that the home
//! has not confirmed, so the end of a lease always ends its locks. Not here: the decision whether an operation needs
//! its lease to be known ([`Context::needs_lease`]), and keepalives, one of which serves all groups.

use crate::operation::{self, Context};
use crate::router::Router;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate_core::{AddStub, Command, Rejection, Reply};
use tollgate_node::{Answer, Ask, Consistency, Sight};
use tollgate_proto::v1::{self, operation_result::Result as OpResult};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{GroupId, GroupMap, LeaseId};

/// Maximum time for a stub registration while a home or a group has no leader.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two looks at the stub: doubles from `PAUSE_MIN` to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Maximum number of stub registrations for one operation: the lease may end and be granted anew meanwhile.
pub const STUB_REGISTRATIONS_MAX: u32 = 4;

/// Stub registrations in progress on this node: a second request for the same lease and group waits for the first.
#[derive(Debug, Default)]
pub(crate) struct StubRegistrations(Mutex<HashMap<(LeaseId, GroupId), Turn>>);

/// Lock whose holder makes the stub registration.
type Turn = Arc<tokio::sync::Mutex<()>>;

impl StubRegistrations {
    fn of(&self, key: (LeaseId, GroupId)) -> Place<'_> {
        let turn = Arc::clone(self.lock().entry(key).or_default());
        Place { all: self, key, turn }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(LeaseId, GroupId), Turn>> {
        self.0.lock()
    }
}

/// A task that makes a stub registration, or waits for another task to make it.
struct Place<'a> {
    all: &'a StubRegistrations,
    key: (LeaseId, GroupId),
    turn: Turn,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // Two references, this one and the table's: no other task waits.
        if Arc::strong_count(&self.turn) == 2 {
            all.remove(&self.key);
        }
    }
}

/// Returns true if an operation is for a group that may not know its lease.
pub fn is_not_home(context: &Context, map: &GroupMap) -> bool {
    let elsewhere = |lease: LeaseId| map.group_of(lease.slot()) != context.group();
    context.needs_lease().is_some_and(elsewhere)
}

/// Returns the lease that must be introduced to the group before an operation with this result is retried, if any.
pub fn unknown_lease(context: &Context, result: &OpResult, map: &GroupMap) -> Option<LeaseId> {
    let OpResult::Error(error) = result else { return None };
    if !matches!(error.reason(), v1::ErrorReason::LeaseNotFound | v1::ErrorReason::StubPending) {
        return None;
    }
    context.needs_lease().filter(|_| is_not_home(context, map))
}

impl Router {
    /// Makes a lease known in a group that this node leads. An error says why the lease can't be used there.
    pub async fn introduce(&self, lease: LeaseId, group: GroupId) -> Result<(), v1::Error> {
        let until = Instant::now() + PATIENCE;
        let own = self.stub_registrations().of((lease, group));
        let _turn = own.turn.lock().await;
        self.until_introduced(lease, group, until).await
    }

    async fn until_introduced(
        &self,
        lease: LeaseId,
        group: GroupId,
        until: Instant,
    ) -> Result<(), v1::Error> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.stub_is_pending(lease, group).await {
                Some(false) => return Ok(()),
                Some(true) => {}
                None => self.add_stub(lease, group).await?,
            }
            if Instant::now() >= until {
                let home = self.map().group_of(lease.slot());
                return Err(operation::error_of_rejection(&Rejection::StubPending { lease, home }, group));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns true if the stub of a lease still waits for the home's confirmation; none if there is no stub.
    async fn stub_is_pending(&self, lease: LeaseId, group: GroupId) -> Option<bool> {
        let look = move |sight: Sight<'_>| sight.state.lease(lease).and_then(|lease| lease.stub);
        let stub = self.here().read(group, Consistency::Stale, look).await.ok()?;
        stub.map(|stub| stub.pending)
    }

    /// Asks the home for the lease, and adds a stub if it lives. Conditions that may pass in a moment are not errors.
    async fn add_stub(&self, lease: LeaseId, group: GroupId) -> Result<(), v1::Error> {
        let home = self.map().group_of(lease.slot());
        let look = move |sight: Sight<'_>| {
            sight.state.lease(lease).map(|found| (found.incarnation, found.client_id.clone()))
        };
        let (incarnation, client_id) = match self.here().read(home, Consistency::Linearizable, look).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                return Err(operation::error_of_rejection(&Rejection::LeaseNotFound { lease }, group));
            }
            Err(ReadError::TimedOut { .. }) => return Ok(()),
            Err(error) => return Err(operation::error_of_read(&error)),
        };
        let command = Box::new(Command::AddStub(AddStub { lease, incarnation, client_id, home }));
        let called = self.here().call(Ask::Command { group, command, fast: false }).await;
        let called = called.map_err(|error| operation::error_of_not_answered(error, group))?;
        match called.answer {
            // In all these cases the caller looks again: the stub exists now; or there is a stub of an older
            // incarnation, which the home ends first; or the lease was granted anew since it was read; or the outcome
            // is unknown, and adding the stub a second time would change nothing.
            Answer::Replied { reply: Reply::Stub(_), .. }
            | Answer::Replied {
                reply: Reply::Rejected(Rejection::OtherIncarnation { .. } | Rejection::LeaseNotFound { .. }),
                ..
            }
            | Answer::NotDone(ProposeError::Indeterminate { .. }) => Ok(()),
            Answer::Replied { reply: Reply::Rejected(rejection), .. } => {
                Err(operation::error_of_rejection(&rejection, group))
            }
            Answer::NotDone(ProposeError::NotLeader { leader, .. }) => Err(self.not_leader(group, leader)),
            Answer::NotDone(error) => Err(operation::error_of_propose(&error, true)),
            _ => Err(operation::unexpected("AddStub")),
        }
    }
}
