//! A request that may wait in line: made, waited for, and taken back if nobody wants its answer any more.
//!
//! Invariant: whatever moment its caller goes away at, the request leaves no lock and no waiter behind. The answer's
//! taker disarms the claim; until then dropping it has a task cancel the request by its seq, until the cluster has done
//! so or the lease is over. A cancel that overtakes its request forbids it. Not here: what is asked for (`acquire`,
//! `campaign`, `guard`).

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

/// How much longer than its wait a request is tried: time for the cluster's own answer that the wait is over.
const GRACE: Duration = Duration::from_millis(500);

/// How long a request may wait in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    For(Duration),
    Forever,
}

impl Wait {
    /// For the wire: what is left of it, if it began then.
    pub(crate) fn timeout_ms(self, began: Instant) -> i64 {
        match self {
            Wait::No => 0,
            Wait::For(wait) => crate::convert::millis_at_least(wait.saturating_sub(began.elapsed())).max(1),
            Wait::Forever => -1,
        }
    }
}

/// What to do once a request was taken back, with the cluster's answer if there is one.
pub(crate) type Settled = Box<dyn FnOnce(Option<v1::CancelWaitResponse>) + Send>;

/// A request that is taken back unless its answer is.
pub(crate) struct Claim {
    core: Arc<Core>,
    seq: Seq,
    /// The locks asked for, which say where the request went.
    names: Arc<[String]>,
    armed: bool,
    /// Whether a grant is given back. One who converts keeps what it had.
    gives_back: bool,
    settled: Option<Settled>,
}

impl Claim {
    /// A new request of the session.
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

    /// Makes the request and waits for its answer. After an answer the claim must be [disarmed](Claim::disarm).
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

    /// Nothing came of it, and nothing will.
    fn refused(&mut self) {
        self.armed = false;
        self.core.seqs.answered(self.seq);
    }

    /// The answer is with somebody who deals with it.
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

/// Has the cluster cancel a request, however long that takes.
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

/// A place among the session's requests, unless the wait is over or the session lost before there is one.
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

/// What a wait that this side gave up comes to.
pub(crate) fn given_up(failed: Failed, name: &str, wait: Wait) -> AcquireError {
    match (failed, wait) {
        (Failed::Error(error), Wait::For(_))
            if error.kind() == ErrorKind::TimedOut && error.wire().is_none() =>
        {
            // The cluster's own answer would have come first, so this says nothing about the lock.
            let says = format!("nothing was heard of the wait for {name} until it was over: {error}");
            AcquireError::Failed(Error::new(ErrorKind::TimedOut, says, false))
        }
        (failed, _) => AcquireError::from(failed),
    }
}
