//! All nodes that a client knows: configured ones, and ones learned from the cluster.
//!
//! Invariant: a configured node is never forgotten; a learned node is replaced by what is learned later. Not here: the
//! choice of the node to use (`connections`).

use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind};
use crate::random;
use parking_lot::{Mutex, MutexGuard};

/// Maximum number of known nodes.
const ENDPOINTS_MAX: usize = 64;

/// Known nodes of the cluster.
#[derive(Debug)]
pub(crate) struct Endpoints {
    known: Mutex<Vec<Known>>,
}

#[derive(Debug)]
struct Known {
    endpoint: Endpoint,
    given: bool,
    /// Error of the last attempt to reach the node; none if it succeeded.
    trouble: Option<String>,
}

impl Endpoints {
    /// Creates the list from the configured nodes: at least one.
    pub(crate) fn new(given: Vec<Endpoint>) -> Result<Endpoints, Error> {
        let mut known: Vec<Known> = Vec::new();
        for endpoint in given {
            if !known.iter().any(|known| known.endpoint == endpoint) {
                known.push(Known { endpoint, given: true, trouble: None });
            }
        }
        if known.is_empty() {
            return Err(Error::invalid("endpoints", "there is none: give the address of at least one node"));
        }
        Ok(Endpoints { known: Mutex::new(known) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock()
    }

    /// Records the addresses of the cluster's nodes, as reported by a node.
    pub(crate) fn learn(&self, members: &[Endpoint]) {
        let mut known = self.lock();
        known.retain(|known| known.given || members.contains(&known.endpoint));
        for endpoint in members {
            if known.len() < ENDPOINTS_MAX && !known.iter().any(|known| known.endpoint == *endpoint) {
                known.push(Known { endpoint: endpoint.clone(), given: false, trouble: None });
            }
        }
    }

    /// Records the outcome of an attempt to reach a node.
    pub(crate) fn note(&self, endpoint: &Endpoint, trouble: Option<String>) {
        if let Some(known) = self.lock().iter_mut().find(|known| known.endpoint == *endpoint) {
            known.trouble = trouble;
        }
    }

    /// Returns all nodes in the order in which to try them: those without trouble first, otherwise at random.
    pub(crate) fn to_try(&self) -> Vec<Endpoint> {
        let known = self.lock();
        let mut order: Vec<(bool, u64, Endpoint)> = known
            .iter()
            .map(|known| (known.trouble.is_some(), random::number(), known.endpoint.clone()))
            .collect();
        order.sort();
        order.into_iter().map(|(_, _, endpoint)| endpoint).collect()
    }

    /// Returns all nodes in the order in which they became known.
    pub(crate) fn all(&self) -> Vec<Endpoint> {
        self.lock().iter().map(|known| known.endpoint.clone()).collect()
    }

    /// Returns the error for a cluster of which no node can be reached.
    pub(crate) fn unreachable(&self, may_have_happened: bool) -> Error {
        let told: Vec<String> = self
            .lock()
            .iter()
            .map(|known| {
                let trouble = known.trouble.as_deref().unwrap_or("no answer yet");
                format!("{}: {trouble}", known.endpoint)
            })
            .collect();
        let says = match &told[..] {
            [one] => format!("no node could be reached: {one}"),
            all => format!("no node could be reached:\n  {}", all.join("\n  ")),
        };
        Error::new(ErrorKind::Unreachable, says, may_have_happened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        Endpoint::parse(text).unwrap()
    }

    #[test]
    fn what_was_given_stays_and_what_was_learned_is_replaced() {
        let endpoints = Endpoints::new(vec![endpoint("a:1"), endpoint("a:1")]).unwrap();
        endpoints.learn(&[endpoint("a:1"), endpoint("b:1")]);
        assert_eq!(endpoints.all(), [endpoint("a:1"), endpoint("b:1")]);
        endpoints.learn(&[endpoint("c:1")]);
        assert_eq!(endpoints.all(), [endpoint("a:1"), endpoint("c:1")]);
    }

    #[test]
    fn troubled_ones_are_tried_last_and_named_with_their_troubles() {
        let endpoints = Endpoints::new(vec![endpoint("a:1"), endpoint("b:1")]).unwrap();
        endpoints.note(&endpoint("a:1"), Some("connection refused".into()));
        for _ in 0..20 {
            assert_eq!(endpoints.to_try(), [endpoint("b:1"), endpoint("a:1")]);
        }
        let error = endpoints.unreachable(false);
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.message().contains("http://a:1: connection refused"), "{error}");
        assert!(error.message().contains("http://b:1: no answer yet"), "{error}");
    }

    #[test]
    fn at_least_one_is_needed() {
        assert_eq!(Endpoints::new(Vec::new()).unwrap_err().field(), Some("endpoints"));
    }
}
