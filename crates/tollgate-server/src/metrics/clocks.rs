//! The rates of the other nodes' clocks against this node's, as of the last sample.
//!
//! Invariant: there is a series for each peer whose clock is measured, and none for others. Not here: the measurement
//! (`tollgate_node`).

use super::add;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use tollgate_types::NodeId;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Peer {
    peer: u64,
}

#[derive(Debug)]
pub(super) struct Clocks {
    differences: Family<Peer, Gauge<f64, AtomicU64>>,
    /// Peers that have a series.
    told: Mutex<Vec<NodeId>>,
}

impl Clocks {
    pub(super) fn register(registry: &mut Registry) -> Clocks {
        let says =
            "By which part a peer's clock runs faster than this node's: 0.02 is 2% fast, -0.02 is 2% slow";
        let differences = add(registry, "clock_rate_difference_ratio", says, Family::default());
        Clocks { differences, told: Mutex::default() }
    }

    pub(super) fn set(&self, differences: &BTreeMap<NodeId, f64>) {
        let of = |node: NodeId| Peer { peer: node.number() };
        let mut told = self.told.lock();
        for gone in told.iter().filter(|node| !differences.contains_key(node)) {
            self.differences.remove(&of(*gone));
        }
        for (node, difference) in differences {
            self.differences.get_or_create(&of(*node)).set(*difference);
        }
        *told = differences.keys().copied().collect();
    }
}
