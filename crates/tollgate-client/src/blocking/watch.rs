//! Watches as iterators.

use super::engine::Engine;
use crate::error::Error;
use crate::watch::WatchItem;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt;

/// Changes as they come: an iterator that waits for each. See [`crate::Watch`].
#[derive(Debug)]
pub struct Watch {
    // Before the engine, which waits for what this leaves behind.
    inner: crate::Watch,
    engine: Arc<Engine>,
}

impl Watch {
    pub(super) fn new(inner: crate::Watch, engine: Arc<Engine>) -> Watch {
        Watch { inner, engine }
    }

    /// Where to go on after what was told so far: see [`crate::Watch::cursor`].
    pub fn cursor(&self) -> &str {
        self.inner.cursor()
    }

    /// Waits for the next item for at most so long. None if there was none; then, or if the watch has ended, the
    /// iterator says which.
    pub fn next_within(&mut self, wait: Duration) -> Option<Result<WatchItem, Error>> {
        let Watch { inner, engine } = self;
        engine.wait(async { tokio::time::timeout(wait, inner.next()).await.ok().flatten() })
    }
}

impl Iterator for Watch {
    type Item = Result<WatchItem, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let Watch { inner, engine } = self;
        engine.wait(inner.next())
    }
}
