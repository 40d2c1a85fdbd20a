//! Acquiring locks with a blocking client.

use super::engine::Engine;
use super::guard::Guard;
use crate::acquire_error::AcquireError;
use std::sync::Arc;
use std::time::Duration;
use tollgate_types::Mode;

/// Request for a lock: see [`crate::Acquire`].
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

    /// Limits the time to wait in line. Zero means not to wait.
    pub fn wait(self, wait: Duration) -> Acquire {
        self.map(|inner| inner.wait(wait))
    }

    /// Waits in line as long as the session lives; the default.
    pub fn wait_forever(self) -> Acquire {
        self.map(crate::Acquire::wait_forever)
    }

    /// Sets a text for people that explains why the lock is wanted: one line, without control characters.
    pub fn why(self, why: impl Into<String>) -> Acquire {
        self.map(|inner| inner.why(why))
    }

    /// Sets metadata for programs that look at the lock: any bytes, in place of [`why`](Acquire::why).
    pub fn metadata(self, metadata: impl Into<Vec<u8>>) -> Acquire {
        self.map(|inner| inner.metadata(metadata))
    }

    /// Acquires the lock in shared mode, together with other readers.
    pub fn shared(self) -> Acquire {
        self.map(crate::Acquire::shared)
    }

    /// Acquires the lock in exclusive mode; the default.
    pub fn exclusive(self) -> Acquire {
        self.map(crate::Acquire::exclusive)
    }

    /// Acquires the lock in this mode.
    pub fn mode(self, mode: Mode) -> Acquire {
        self.map(|inner| inner.mode(mode))
    }

    /// Acquires `n` of a semaphore's `of` permits.
    pub fn permits(self, n: u32, of: u32) -> Acquire {
        self.map(|inner| inner.permits(n, of))
    }

    /// Sets the time that the lock stays closed to others if it is lost against this program's will.
    pub fn lock_delay(self, delay: Duration) -> Acquire {
        self.map(|inner| inner.lock_delay(delay))
    }

    /// Sets the maximum time that the lock is held, even if the session lives on.
    pub fn max_hold(self, max_hold: Duration) -> Acquire {
        self.map(|inner| inner.max_hold(max_hold))
    }

    /// Acquires the lock, waiting in line for as long as was set.
    pub fn acquire(self) -> Result<Guard, AcquireError> {
        let inner = self.engine.wait(self.inner.acquire())?;
        Ok(Guard::new(inner, self.engine))
    }

    /// Acquires the lock if it is free, without waiting in line.
    pub fn try_acquire(self) -> Result<Guard, AcquireError> {
        let inner = self.engine.wait(self.inner.try_acquire())?;
        Ok(Guard::new(inner, self.engine))
    }
}

/// Semaphore: see [`crate::Semaphore`].
#[derive(Debug, Clone)]
pub struct Semaphore {
    inner: crate::Semaphore,
    engine: Arc<Engine>,
}

impl Semaphore {
    pub(super) fn new(inner: crate::Semaphore, engine: Arc<Engine>) -> Semaphore {
        Semaphore { inner, engine }
    }

    /// Returns a request for `n` of the semaphore's permits.
    pub fn acquire(&self, n: u32) -> Acquire {
        Acquire::new(self.inner.acquire(n), Arc::clone(&self.engine))
    }
}
