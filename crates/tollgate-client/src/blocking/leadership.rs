//! Elections with a blocking client.

use super::engine::Engine;
use crate::acquire_error::AcquireError;
use crate::error::Error;
use crate::lost::Lost;
use std::sync::Arc;
use std::time::Duration;
use tollgate_types::Token;

/// Candidacy: see [`crate::Campaign`].
#[must_use = "nobody stands for election until `stand` is called"]
pub struct Campaign {
    inner: crate::Campaign,
    engine: Arc<Engine>,
}

impl Campaign {
    pub(super) fn new(inner: crate::Campaign, engine: Arc<Engine>) -> Campaign {
        Campaign { inner, engine }
    }

    /// Sets the value that the candidate publishes about itself from the moment of its election.
    pub fn value(self, value: impl Into<Vec<u8>>) -> Campaign {
        Campaign { inner: self.inner.value(value), engine: self.engine }
    }

    /// Limits the time to wait in line.
    pub fn wait(self, wait: Duration) -> Campaign {
        Campaign { inner: self.inner.wait(wait), engine: self.engine }
    }

    /// Becomes a candidate, and waits until elected.
    pub fn stand(self) -> Result<Leadership, AcquireError> {
        let inner = self.engine.wait(self.inner.stand())?;
        Ok(Leadership { inner, engine: self.engine })
    }
}

/// Term of a leader: see [`crate::Leadership`].
#[derive(Debug)]
pub struct Leadership {
    // Declared before the engine, so that it is dropped first: the engine waits for the release that this starts.
    inner: crate::Leadership,
    engine: Arc<Engine>,
}

impl Leadership {
    /// Returns the fencing token of the term. Checked against the clock at every call.
    pub fn token(&self) -> Result<Token, Lost> {
        self.inner.token()
    }

    /// Returns the time for which the leadership can be relied on if no more keepalives are answered; zero once it is
    /// lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// True once the leadership is lost; checked against the clock at every call.
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Waits until the leadership is lost, and returns the reason.
    pub fn lost(&self) -> Lost {
        self.engine.wait(self.inner.lost())
    }

    /// Changes the value that the leader publishes.
    pub fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.engine.wait(self.inner.proclaim(value))
    }

    /// Steps down, and waits until the cluster has confirmed it.
    pub fn resign(self) -> Result<(), Error> {
        self.engine.wait(self.inner.resign())
    }
}
