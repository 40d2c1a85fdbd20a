//! Attending callers: callers that stay connected while their request may wait, and the cleanup when they go.
//!
//! The request is carried out by a task of its own. When its caller hangs up, the leader is told, which ends the wait
//! if no other caller attends it (`tollgate_replica::Dispatcher`), and the task keeps listening for the outcome: a
//! grant that was on its way by then is given back. Invariant: a caller that goes takes nothing from another that asked
//! for the same. So a grant is given back only if its request has a seq, the grant is known to have been made for this
//! caller, and nobody repeated the request. Not here: the other attending callers (the `Dispatcher`), and the way to
//! the leader (`router`, `link`).

use crate::admission::AdmissionPermit;
use crate::operation::{Context, Prepared};
use crate::router::Router;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tollgate_node::planted::{Bug, planted};
use tollgate_proto::v1::{operation::Op, operation_result::Result as OpResult};
use tollgate_types::Address;

/// Presence of a caller, for the task that works for it.
#[derive(Debug, Clone)]
pub(crate) struct AttendedCall {
    there: watch::Receiver<()>,
    /// Stream number of the caller at this node's `Dispatcher`.
    pub(crate) stream: u64,
}

impl AttendedCall {
    /// Waits until the caller has gone.
    pub(crate) async fn gone(&self) {
        let mut there = self.there.clone();
        // Nothing is ever sent, so the loop ends when the other side is dropped.
        while there.changed().await.is_ok() {}
        if planted(Bug::HangUpUnnoticed) {
            std::future::pending::<()>().await;
        }
    }

    /// Returns true if the caller has gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.there.has_changed().is_err()
    }
}

/// Carries out a request that may wait, for an attending caller.
pub(crate) async fn stand_by(
    router: &Router,
    op: Op,
    prepared: Prepared,
    from: &Address,
    permit: Arc<AdmissionPermit>,
) -> OpResult {
    let (here, there) = watch::channel(());
    let (sender, answer) = oneshot::channel();
    let attended_call = AttendedCall { there, stream: router.fresh_stream() };
    let context = prepared.context.clone();
    let take_back = TakeBack { router: router.clone(), context, from: from.clone() };
    tokio::spawn({
        let (router, from, take_back) = (router.clone(), from.clone(), take_back.clone());
        async move {
            let result = router.carry_out_attended(op, prepared, &from, &attended_call, &permit).await;
            if let Err(unheard) = sender.send(result) {
                take_back.of(&unheard).await;
            }
        }
    });
    let mut listening = Listening { answer, take_back, _here: here };
    let answer = (&mut listening.answer).await;
    answer.unwrap_or_else(|_| OpResult::Error(crate::router::stopped(listening.take_back.context.group())))
}

/// The caller's end.
struct Listening {
    answer: oneshot::Receiver<OpResult>,
    take_back: TakeBack,
    _here: watch::Sender<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // From here on the task notices that the caller is gone; an answer that it sent before is checked here.
        self.answer.close();
        if !self.answer.is_terminated()
            && let Ok(unheard) = self.answer.try_recv()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let take_back = self.take_back.clone();
            runtime.spawn(async move { take_back.of(&unheard).await });
        }
    }
}

/// Gives back a grant that no caller will be told of.
#[derive(Clone)]
struct TakeBack {
    router: Router,
    context: Context,
    from: Address,
}

impl TakeBack {
    async fn of(&self, unheard: &OpResult) {
        let granted = match unheard {
            OpResult::Lock(response) => response.acquired,
            OpResult::Campaign(response) => response.elected,
            _ => false,
        };
        if let Some(cancel) = self.context.cancel().filter(|_| granted) {
            self.router.take_back(cancel, &self.from).await;
        }
    }
}
