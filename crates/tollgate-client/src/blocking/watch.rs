//! Watches as iterators.

use super::engine::Engine;
use crate::error::Error;
use crate::watch::WatchItem;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt;

/// Iterator over changes, which waits for each. See [`crate::Watch`].
#[derive(Debug)]
pub struct Watch {
    // Declared before the engine, so that it is dropped first.
    inner: crate::Watch,
    engine: Arc<Engine>,
}

impl Watch {
    pub(super) fn new(inner: crate::Watch, engine: Arc<Engine>) -> Watch {
        Watch { inner, engine }
    }

    /// Returns the cursor from which to continue after the items so far: see [`crate::Watch::cursor`].
    pub fn cursor(&self) -> &str {
        self.inner.cursor()
    }

    /// Waits for the next item, but no longer than `wait`. None if there was none by then, or if the watch has ended;
    /// the iterator tells these two apart.
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
