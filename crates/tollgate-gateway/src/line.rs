//! What happens when an operation comes to wait in line, at whichever node leads.
//!
//! It counts as under way no longer, and a session's client is told its place. Said once for each time that it joins:
//! at a new leader it may say another place. Not here: how the word gets here from another node (`link`).

use crate::admission::Place;
use std::fmt;
use std::sync::Arc;
use tollgate_proto::v1;

/// Whom to tell of the place in line: it must be quick, for others wait meanwhile.
#[derive(Clone)]
pub struct OnQueue(Arc<dyn Fn(v1::Queued) + Send + Sync>);

impl OnQueue {
    /// Tells this one.
    pub fn new(told: impl Fn(v1::Queued) + Send + Sync + 'static) -> OnQueue {
        OnQueue(Arc::new(told))
    }
}

impl fmt::Debug for OnQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnQueue")
    }
}

/// What an operation gives up and whom it tells when it joins a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// What lets it count as under way.
    pub(crate) place: Option<Arc<Place>>,
    pub(crate) on_queue: Option<OnQueue>,
}

impl Line {
    /// It waits, at this place.
    pub(crate) fn joined(&self, queued: v1::Queued) {
        if let Some(place) = &self.place {
            place.leave();
        }
        if let Some(OnQueue(told)) = &self.on_queue {
            told(queued);
        }
    }
}
