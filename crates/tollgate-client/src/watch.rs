//! Watches: every change of a lock, of a register, or of many, in order, through broken connections.
//!
//! Invariant (P11): between two items nothing that the watch asked for is missing, and nothing is told twice, whatever
//! happens to nodes and connections in between; where history is gone the watch says so and ends. Not here: what is
//! told (`event`), where a broken watch goes on (`position`).

mod builder;
mod follower;
mod position;

pub use builder::WatchBuilder;

use crate::error::Error;
use crate::event::Event;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tollgate_types::Revision;

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "nearly all are events, and none is kept")]
pub enum WatchItem {
    /// Something changed.
    Event(Event),
    /// History that the watch has not seen is gone. It ends with this. Read the present state, and watch from the
    /// revision after that of the read.
    Compacted {
        /// The oldest revision that can still be asked for.
        oldest: Revision,
    },
}

/// Changes as they come, without gap and without duplicate.
///
/// It resumes by itself where it stopped when its connection breaks or its node dies. It ends after
/// [`WatchItem::Compacted`] and after an error, which is one that trying again does not help. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    told: mpsc::Receiver<Told>,
    cursor: String,
    served_by: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

/// An item, if there is one, and where to go on after it if that is known.
#[derive(Debug)]
struct Told {
    item: Option<Result<WatchItem, Error>>,
    cursor: Option<String>,
}

impl Watch {
    /// Where to go on after what was told so far: for [`WatchBuilder::cursor`], in another program or after a restart.
    ///
    /// It moves with whole answers of the server: after a restart a few events may be told again, none is skipped. It
    /// moves every few seconds even if nothing happens to what is watched. Keep it after handling an item, not before.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// The node that serves the watch now, or did at last: any node can.
    pub fn endpoint(&self) -> String {
        self.served_by.lock().expect("nobody panics with it").clone()
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
