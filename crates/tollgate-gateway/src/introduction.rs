//! Makes a lease known in a group where it wants locks and that is not its home.
//!
//! The group's leader asks the home whether the lease lives, adds a stub for it, and waits until the home has taken
//! note of that (`tollgate_replica` carries the letters). Invariant: nothing is granted under a stub that the home has
//! not confirmed, so a lease's end always finds its locks. Not here: whether an operation needs its lease to be known
//! ([`Context::needs_lease`]), and the keepalives, of which one serves all groups.

use crate::operation::{self, Context};
use crate::router::Router;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tollgate_core::{AddStub, Command, Rejection, Reply};
use tollgate_node::{Answer, Ask, Consistency, Sight};
use tollgate_proto::v1::{self, operation_result::Result as OpResult};
use tollgate_replica::{ProposeError, ReadError};
use tollgate_types::{GroupId, GroupMap, LeaseId};

/// How long an introduction may take while a home or a group has no leader.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks: doubles from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How often a lease is made known for one operation: it may end and be granted anew meanwhile.
pub const INTRODUCTIONS_MAX: u32 = 4;

/// Introductions under way on this node: who comes second waits for the first.
#[derive(Debug, Default)]
pub(crate) struct Introductions(Mutex<HashMap<(LeaseId, GroupId), Turn>>);

/// Whoever has it makes the introduction.
type Turn = Arc<tokio::sync::Mutex<()>>;

impl Introductions {
    fn of(&self, key: (LeaseId, GroupId)) -> Place<'_> {
        let turn = Arc::clone(self.lock().entry(key).or_default());
        Place { all: self, key, turn }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(LeaseId, GroupId), Turn>> {
        self.0.lock().expect("nobody panics with it")
    }
}

/// One who makes an introduction, or waits for another to.
struct Place<'a> {
    all: &'a Introductions,
    key: (LeaseId, GroupId),
    turn: Turn,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        // Its own and the table's: nobody else waits.
        if Arc::strong_count(&self.turn) == 2 {
            all.remove(&self.key);
        }
    }
}

/// Whether an operation is for a group that may not know its lease.
pub fn is_strange(context: &Context, map: &GroupMap) -> bool {
    let elsewhere = |lease: LeaseId| map.group_of(lease.slot()) != context.group();
    context.needs_lease().is_some_and(elsewhere)
}

/// The lease that is to be introduced to the group before an operation with this result is tried again, if there is
/// one.
pub fn unknown_lease(context: &Context, result: &OpResult, map: &GroupMap) -> Option<LeaseId> {
    let OpResult::Error(error) = result else { return None };
    if !matches!(error.reason(), v1::ErrorReason::LeaseNotFound | v1::ErrorReason::StubPending) {
        return None;
    }
    context.needs_lease().filter(|_| is_strange(context, map))
}

impl Router {
    /// Makes a lease known in a group that this node leads. An error says why it can't be used there.
    pub async fn introduce(&self, lease: LeaseId, group: GroupId) -> Result<(), v1::Error> {
        let until = Instant::now() + PATIENCE;
        let own = self.introductions().of((lease, group));
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

    /// Whether the stub of a lease waits for its home's word; none if there is no stub.
    async fn stub_is_pending(&self, lease: LeaseId, group: GroupId) -> Option<bool> {
        let look = move |sight: Sight<'_>| sight.state.lease(lease).and_then(|lease| lease.stub);
        let stub = self.here().read(group, Consistency::Stale, look).await.ok()?;
        stub.map(|stub| stub.pending)
    }

    /// Asks the home for the lease, and adds a stub if it lives. What may be otherwise in a moment is no error.
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
            // There is one now; or one of an older incarnation, which its home ends first; or the lease was granted
            // anew since it was read; or nobody knows, and a second one would be the same. Look again.
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
