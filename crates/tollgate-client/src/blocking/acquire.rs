//! Taking locks with a blocking client.

use super::engine::Engine;
use super::guard::Guard;
use crate::acquire_error::AcquireError;
use std::sync::Arc;
use std::time::Duration;
use tollgate_types::Mode;

/// A lock to be taken: see [`crate::Acquire`].
#[must_use = "nothing is taken until `acquire` or `try_acquire` is called"]
pub struct Acquire {
    inner: crate::Acquire,
    engine: Arc<Engine>,
}

impl Acquire {
    pub(super) fn new(inner: crate::Acquire, engine: Arc<Engine>) -> Acquire {
        Acquire { inner, engine }
    }

    fn map(self, change: impl FnOnce(crate::Acquire) -> crate::Acquire) -> Acquire {
        Acquire { inner: change(self.inner), engine: self.engine }
    }

    /// Waits in line for at most so long.
    pub fn wait(self, wait: Duration) -> Acquire {
        self.map(|inner| inner.wait(wait))
    }

    /// Waits in line as long as the session lives; the default.
    pub fn wait_forever(self) -> Acquire {
        self.map(crate::Acquire::wait_forever)
    }

    /// Why the lock is wanted, for people who look at it: text on one line, without control characters.
    pub fn why(self, why: impl Into<String>) -> Acquire {
        self.map(|inner| inner.why(why))
    }

    /// Metadata for programs that look at the lock: any bytes, in place of [`why`](Acquire::why).
    pub fn metadata(self, metadata: impl Into<Vec<u8>>) -> Acquire {
        self.map(|inner| inner.metadata(metadata))
    }

    /// Holds it together with other readers.
    pub fn shared(self) -> Acquire {
        self.map(crate::Acquire::shared)
    }

    /// Holds it alone; the default.
    pub fn exclusive(self) -> Acquire {
        self.map(crate::Acquire::exclusive)
    }

    /// Holds it in this mode.
    pub fn mode(self, mode: Mode) -> Acquire {
        self.map(|inner| inner.mode(mode))
    }

    /// Takes `n` of a semaphore's `of` permits.
    pub fn permits(self, n: u32, of: u32) -> Acquire {
        self.map(|inner| inner.permits(n, of))
    }

    /// How long the lock stays closed to others should it be lost against this program's will.
    pub fn lock_delay(self, delay: Duration) -> Acquire {
        self.map(|inner| inner.lock_delay(delay))
    }

    /// How long it is held at most, even if the session lives.
    pub fn max_hold(self, max_hold: Duration) -> Acquire {
        self.map(|inner| inner.max_hold(max_hold))
    }

    /// Takes it, waiting in line as long as was set.
    pub fn acquire(self) -> Result<Guard, AcquireError> {
        let inner = self.engine.wait(self.inner.acquire())?;
        Ok(Guard::new(inner, self.engine))
    }

    /// Takes it if it is free, without waiting in line.
    pub fn try_acquire(self) -> Result<Guard, AcquireError> {
        let inner = self.engine.wait(self.inner.try_acquire())?;
        Ok(Guard::new(inner, self.engine))
    }
}

/// A semaphore: see [`crate::Semaphore`].
#[derive(Debug, Clone)]
pub struct Semaphore {
    inner: crate::Semaphore,
    engine: Arc<Engine>,
}

impl Semaphore {
    pub(super) fn new(inner: crate::Semaphore, engine: Arc<Engine>) -> Semaphore {
        Semaphore { inner, engine }
    }

    /// Takes so many of its permits.
    pub fn acquire(&self, n: u32) -> Acquire {
        Acquire::new(self.inner.acquire(n), Arc::clone(&self.engine))
    }
}
