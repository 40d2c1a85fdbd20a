//! Where raw clients connect: a list that changes under their hands when a node takes another's place.
//!
//! Not here: the client library, which must follow the cluster by itself.

use std::sync::{Arc, Mutex};

/// Endpoints, the same for all who have a copy.
#[derive(Debug, Clone)]
pub(crate) struct Doors(Arc<Mutex<Vec<String>>>);

impl Doors {
    pub(crate) fn new(endpoints: Vec<String>) -> Doors {
        assert!(!endpoints.is_empty(), "a client needs somewhere to go");
        Doors(Arc::new(Mutex::new(endpoints)))
    }

    /// One after the other, again and again.
    pub(crate) fn nth(&self, number: usize) -> String {
        let endpoints = self.0.lock().unwrap();
        endpoints[number % endpoints.len()].clone()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Somebody is found elsewhere from now on.
    pub(crate) fn replace(&self, old: &str, new: &str) {
        for endpoint in self.0.lock().unwrap().iter_mut().filter(|endpoint| *endpoint == old) {
            new.clone_into(endpoint);
        }
    }
}
