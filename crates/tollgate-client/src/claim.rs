//! A request that may wait in line: sent, waited for, and cancelled if its caller gives up.
//!
//! Invariant: at whatever moment its caller goes away, the request leaves no lock and no waiter behind. The caller that
//! takes the answer disarms the claim; until then, dropping the claim starts a task that cancels the request by its
//! seq, until the cluster has done so or the lease is over. A cancel that overtakes its request makes that request
//! fail. Not here: the content of requests (`acquire`, `campaign`, `guard`).

use crate::acquire_error::AcquireError;
use crate::call::Answered;
use crate::error::{Error, ErrorKind};
use crate::grant::wire_names;
use crate::session::{Core, Failed, Returning};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_types::Seq;

/// Time beyond its wait for which a request is tried, so that the cluster's own answer to the end of the wait can
/// arrive.
const GRACE: Duration = Duration::from_millis(500);

/// Maximum time that a request waits in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    For(Duration),
    Forever,
}

impl Wait {
    /// Returns the rest of the wait as a field for the wire, for a wait that began at `began`.
    pub(crate) fn timeout_ms(self, began: Instant) -> i64 {
        match self {
            Wait::No => 0,
            Wait::For(wait) => crate::convert::millis_at_least(wait.saturating_sub(began.elapsed())).max(1),
            Wait::Forever => -1,
        }
    }
}

/// Callback for the end of a cancelled request, with the cluster's answer if there is one.
pub(crate) type Settled = Box<dyn FnOnce(Option<v1::CancelWaitResponse>) + Send>;

/// Request that is cancelled when dropped, unless its answer was taken.
pub(crate) struct Claim {
    core: Arc<Core>,
    seq: Seq,
    /// Locks that the request is for, which tell the group of the request.
    names: Arc<[String]>,
    armed: bool,
    /// True if a cancel releases what was granted. False for a conversion, which keeps the old grant.
    gives_back: bool,
    settled: Option<Settled>,
}

impl Claim {
    /// Creates a claim for a new request of the session.
    pub(crate) fn new(
        core: &Arc<Core>,
        names: Arc<[String]>,
        gives_back: bool,
        settled: Option<Settled>,
    ) -> Claim {
        let (core, seq) = (Arc::clone(core), core.seqs.next());
        Claim { core, seq, names, armed: false, gives_back, settled }
    }

    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    /// Sends the request and waits for its answer. After an answer the claim must be [disarmed](Claim::disarm).
    pub(crate) async fn ask(&mut self, op: &mut Op, wait: Wait, began: Instant) -> Result<Answered, Failed> {
        let until = match wait {
            Wait::No => Some(began + self.core.client.call_timeout()),
            Wait::For(wait) => began.checked_add(wait.saturating_add(GRACE)),
            Wait::Forever => None,
        };
        self.armed = true;
        let answered = self.core.ask(op, until).await;
        if let Err(Failed::Error(error)) = &answered
            && !error.may_have_happened()
        {
            self.refused();
        }
        answered
    }

    /// Disarms the claim of a request that failed for certain: it has no effect, and never will.
    fn refused(&mut self) {
        self.armed = false;
        self.core.seqs.answered(self.seq);
    }

    /// Disarms the claim: the caller has taken the answer.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
        self.settled = None;
        self.core.seqs.answered(self.seq);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let settled = self.settled.take();
        if !self.armed || !self.core.gives_back() {
            if let Some(settled) = settled {
                settled(None);
            }
            return;
        }
        let (core, seq, gives_back) = (Arc::clone(&self.core), self.seq, self.gives_back);
        let (name, names) = wire_names(&self.names);
        let op = Op::CancelWait(v1::CancelWaitRequest {
            lease_id: core.lease.get(),
            seq: seq.get(),
            name,
            names,
            release_if_granted: gives_back,
            ..v1::CancelWaitRequest::default()
        });
        let returning = core.returns();
        self.core.client.runtime().spawn(take_back(returning, core, seq, op, settled));
    }
}

/// Cancels a request at the cluster, however long that takes.
async fn take_back(_returning: Returning, core: Arc<Core>, seq: Seq, mut op: Op, settled: Option<Settled>) {
    let _place = core.place().await;
    let answer = match core.give_back(&mut op).await {
        Ok(Answered { result: OpResult::CancelWait(answer), .. }) => Some(answer),
        Ok(_) | Err(Failed::Lost(_)) => None,
        Err(Failed::Error(error)) => {
            tracing::warn!(lease = %core.lease, %seq, %error, "a request could not be taken back");
            None
        }
    };
    core.seqs.answered(seq);
    if let Some(settled) = settled {
        settled(answer);
    }
}

/// Returns a place among the session's requests in progress, unless the wait or the session ends before there is one.
pub(crate) async fn place(core: &Core, wait: Wait, began: Instant) -> Result<SemaphorePermit<'_>, Failed> {
    let until = match wait {
        Wait::No => Some(began + core.client.call_timeout()),
        Wait::For(wait) => began.checked_add(wait),
        Wait::Forever => None,
    };
    let place = async {
        match wait {
            Wait::No => core.place().await,
            Wait::For(_) | Wait::Forever => core.place_to_wait().await,
        }
    };
    let too_late = async {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        place = place => Ok(place),
        lost = core.until_lost() => Err(Failed::Lost(lost)),
        () = too_late => {
            let says = "the session has as many requests under way as it may: use more sessions";
            Err(Failed::Error(Error::new(ErrorKind::Limit, says, false)))
        }
    }
}

/// Returns the error for a wait that failed on this side.
pub(crate) fn given_up(failed: Failed, name: &str, wait: Wait) -> AcquireError {
    match (failed, wait) {
        (Failed::Error(error), Wait::For(_))
            if error.kind() == ErrorKind::TimedOut && error.wire().is_none() =>
        {
            // The cluster's own answer to the end of the wait would have come first, so this says nothing about the
            // lock.
            let says = format!("nothing was heard of the wait for {name} until it was over: {error}");
            AcquireError::Failed(Error::new(ErrorKind::TimedOut, says, false))
        }
        (failed, _) => AcquireError::from(failed),
    }
}
