//! A caller that stands by while its request may wait, and what is told when it goes.
//!
//! The leader ends a wait that nobody stands by (`tollgate_replica::Desk`): it is told when a caller hangs up, here or
//! over a link. What it can't know is that a grant was on its way when its caller went; if the request has a seq, that
//! is taken back. Invariant: one who goes takes nothing from another that asked for the same. Not here: who else stands
//! by (the desk), and callers behind other nodes (`link`).

use crate::operation::Context;
use crate::router::Router;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use tollgate_node::planted::{Bug, planted};
use tollgate_node::{Ask, Called, NotAnswered};
use tollgate_proto::v1;
use tollgate_replica::CallerKey;
use tollgate_types::Address;

/// A caller, as long as it is there. Dropped before it has its answer, it has hung up.
pub(crate) struct Standing {
    router: Router,
    from: Address,
    /// Its name at this node's desk.
    stream: u64,
    /// How often its request was sent to where it may have had an effect.
    asked: AtomicU32,
    request: Mutex<Option<Context>>,
}

impl Standing {
    pub(crate) fn new(router: Router, from: &Address) -> Standing {
        let stream = router.node().fresh_stream();
        let (asked, request) = (AtomicU32::new(0), Mutex::new(None));
        Standing { router, from: from.clone(), stream, asked, request }
    }

    fn request(&self) -> MutexGuard<'_, Option<Context>> {
        self.request.lock().expect("nobody panics with it")
    }

    /// What it asks for may wait.
    pub(crate) fn may_wait(&self, request: &Context) {
        *self.request() = Some(request.clone());
    }

    /// It asks, here or elsewhere.
    pub(crate) fn asks(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// That never left this node.
    pub(crate) fn did_not_ask(&self) {
        self.asked.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks this node. Dropped before the answer, the desk is told that the caller has hung up.
    pub(crate) async fn call(&self, ask: Ask) -> Result<Called, NotAnswered> {
        struct HangUp<'a>(Option<&'a Standing>);
        impl Drop for HangUp<'_> {
            fn drop(&mut self) {
                if let Some(standing) = self.0.filter(|_| !planted(Bug::HangUpUnnoticed)) {
                    let who = CallerKey { stream: standing.stream, call: 0 };
                    standing.router.node().tell(Ask::HangUp(who));
                }
            }
        }
        self.asks();
        let mut gone = HangUp(self.request().is_some().then_some(self));
        let called = self.router.node().call_by(self.stream, ask).await;
        gone.0 = None;
        called
    }

    /// It has its answer, and what became of its request is its own affair.
    pub(crate) fn leave_with_answer(self) {
        *self.request() = None;
    }

    /// What takes back a grant that its caller will not hear of.
    fn take_back(&self) -> Option<v1::CancelWaitRequest> {
        let asked = self.asked.load(Ordering::Relaxed);
        self.request().take().filter(|_| asked > 0)?.cancel(asked)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let Some(cancel) = self.take_back().filter(|_| !planted(Bug::HangUpUnnoticed)) else { return };
        let (router, from) = (self.router.clone(), self.from.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { router.take_back(cancel, &from).await });
        }
    }
}
