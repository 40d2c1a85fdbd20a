//! The effects of an operation's joining a lock's queue, at whichever node leads.
//!
//! The operation no longer counts as in flight, and a session's client is told its position in the queue. Both happen
//! each time that the operation joins: a new leader may report another position. Not here: how the notice arrives from
//! another node (`link`).

use crate::admission::AdmissionPermit;
use std::fmt;
use std::sync::Arc;
use tollgate_proto::v1;

/// Callback that receives the position in the queue. It must be quick, because other calls wait meanwhile.
#[derive(Clone)]
pub struct OnQueue(Arc<dyn Fn(v1::Queued) + Send + Sync>);

impl OnQueue {
    /// Wraps a callback.
    pub fn new(told: impl Fn(v1::Queued) + Send + Sync + 'static) -> OnQueue {
        OnQueue(Arc::new(told))
    }
}

impl fmt::Debug for OnQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnQueue")
    }
}

/// The admission that an operation gives up, and the callback that it notifies, when it joins a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueNotice {
    /// Admission of the operation, which counts as in flight until this is given up.
    pub(crate) permit: Option<Arc<AdmissionPermit>>,
    pub(crate) on_queue: Option<OnQueue>,
}

impl QueueNotice {
    /// Handles the operation's joining a queue at the given position.
    pub(crate) fn joined(&self, queued: v1::Queued) {
        if let Some(permit) = &self.permit {
            permit.leave();
        }
        if let Some(OnQueue(told)) = &self.on_queue {
            told(queued);
        }
    }
}
