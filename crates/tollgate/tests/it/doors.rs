//! Endpoints for raw clients: a shared list that changes when a node takes another's place.
//!
//! Not here: the client library, which must follow the cluster by itself.

use parking_lot::Mutex;
use std::sync::Arc;

/// A list of endpoints, shared by all clones.
#[derive(Debug, Clone)]
pub(crate) struct Doors(Arc<Mutex<Vec<String>>>);

impl Doors {
    pub(crate) fn new(endpoints: Vec<String>) -> Doors {
        assert!(!endpoints.is_empty(), "a client needs somewhere to go");
        Doors(Arc::new(Mutex::new(endpoints)))
    }

    /// Returns the endpoint with this number, counted round and round.
    pub(crate) fn nth(&self, number: usize) -> String {
        let endpoints = self.0.lock();
        endpoints[number % endpoints.len()].clone()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Replaces an endpoint in the list.
    pub(crate) fn replace(&self, old: &str, new: &str) {
        for endpoint in self.0.lock().iter_mut().filter(|endpoint| *endpoint == old) {
            new.clone_into(endpoint);
        }
    }
}
