//! Watches: every change of a lock, of a register, or of many, in order, across broken connections.
//!
//! Invariant (P11): between two items nothing that the watch asked for is missing, and nothing is reported twice,
//! whatever happens to nodes and connections in between; where history is compacted the watch reports this and ends.
//! Not here: events (`event`), the place where a broken watch resumes (`position`).

mod builder;
mod follower;
mod position;

pub use builder::WatchBuilder;

use crate::error::Error;
use crate::event::Event;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tollgate_types::Revision;

/// Item of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "nearly all are events, and none is kept")]
pub enum WatchItem {
    /// A lock or a register changed.
    Event(Event),
    /// History that the watch has not seen is compacted. The watch ends with this item. Read the present state, and
    /// watch from the revision after that of the read.
    Compacted {
        /// Oldest revision whose history is still available.
        oldest: Revision,
    },
}

/// Stream of changes, without gaps and duplicates.
///
/// The watch resumes by itself where it stopped when its connection breaks or its node dies. It ends after
/// [`WatchItem::Compacted`] and after an error, which is one that retrying does not cure. Dropping the watch ends it.
#[derive(Debug)]
pub struct Watch {
    told: mpsc::Receiver<Told>,
    cursor: String,
    served_by: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

/// An item, if there is one, and the cursor after it if that is known.
#[derive(Debug)]
struct Told {
    item: Option<Result<WatchItem, Error>>,
    cursor: Option<String>,
}

impl Watch {
    /// Returns the cursor from which to continue after the items so far: for [`WatchBuilder::cursor`], in another
    /// program or after a restart.
    ///
    /// The cursor moves with whole answers of the server: after a restart a few events may be reported again, none is
    /// skipped. The cursor moves every few seconds even if nothing changes. Save it after handling an item, not before.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// Returns the address of the node that serves the watch now, or served it last. Any node can serve it.
    pub fn endpoint(&self) -> String {
        self.served_by.lock().clone()
    }
}

impl Stream for Watch {
    type Item = Result<WatchItem, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while let Some(told) = std::task::ready!(self.told.poll_recv(context)) {
            if let Some(cursor) = told.cursor {
                self.cursor = cursor;
            }
            if told.item.is_some() {
                return Poll::Ready(told.item);
            }
        }
        Poll::Ready(None)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
