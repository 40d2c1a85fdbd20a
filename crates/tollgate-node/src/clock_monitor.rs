//! Compares the clocks of all peers with this node's: collects readings, and logs the verdict when it changes.
//!
//! Invariant: one entry for each peer that is dialled, removed with it. Not here: asking peers for readings
//! (`peers::clock_link`), the arithmetic (`clock_rate`, `clock_verdict`).

use crate::clock::{Clock, ClockSampling, NodeClock};
use crate::clock_rate::{RateEstimator, Reading};
use crate::clock_verdict::{ClockRates, ClockVerdict};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tollgate_replica::MonotonicTime;
use tollgate_types::NodeId;

/// Number of comparisons in a row without a majority before that is reported: after a start the clock of one peer is
/// known some windows before that of the next, which may show which clock is wrong.
const DIVIDED_TOLD_AT: u32 = 4;

/// A comparison of clocks, shared by the tasks that read them.
#[derive(Debug)]
pub(crate) struct ClockMonitor {
    own: NodeId,
    clock: Arc<dyn Clock>,
    /// Id of this node's clock, unique among those that a peer may meet: drawn at random when the process starts.
    clock_id: u64,
    sampling: ClockSampling,
    peers: Mutex<BTreeMap<NodeId, RateEstimator>>,
    rates: watch::Sender<ClockRates>,
    /// Number of comparisons in a row without a majority.
    divided: AtomicU32,
}

impl ClockMonitor {
    pub(crate) fn new(own: NodeId, NodeClock { clock, sampling }: NodeClock, clock_id: u64) -> ClockMonitor {
        let (peers, rates) = (Mutex::default(), watch::Sender::new(ClockRates::default()));
        ClockMonitor { own, clock, clock_id, sampling, peers, rates, divided: AtomicU32::new(0) }
    }

    /// Returns the id of this node's clock, and its reading.
    pub(crate) fn now(&self) -> (u64, MonotonicTime) {
        (self.clock_id, self.clock.now())
    }

    pub(crate) fn sampling(&self) -> ClockSampling {
        self.sampling
    }

    /// Returns the rates, with their changes.
    pub(crate) fn rates(&self) -> watch::Receiver<ClockRates> {
        self.rates.subscribe()
    }

    /// Adds a peer, when it begins to be dialled.
    pub(crate) fn begin(&self, peer: NodeId) {
        let estimator = RateEstimator::new(self.sampling.window);
        self.peers.lock().insert(peer, estimator);
    }

    /// Takes a reading of the clock of a peer that is dialled.
    pub(crate) fn read(&self, peer: NodeId, reading: Reading) {
        // The peer is missing if it was removed while its answer was on its way.
        if let Some(estimator) = self.peers.lock().get_mut(&peer) {
            estimator.read(reading);
        }
    }

    /// Removes a peer that is no longer dialled.
    pub(crate) fn forget(&self, peer: NodeId) {
        self.peers.lock().remove(&peer);
    }

    /// Compares the clocks once a window, until the node stops.
    pub(crate) async fn run(self: Arc<ClockMonitor>) {
        let mut ticks = tokio::time::interval(self.sampling.window);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.compare();
        }
    }

    /// Compares the clocks, and logs the verdict if other clocks are wrong than before.
    fn compare(&self) {
        let now = self.clock.now();
        let peers = self.peers.lock();
        let differences: BTreeMap<NodeId, f64> =
            peers.iter().filter_map(|(peer, of)| Some((*peer, of.rate(now)?))).collect();
        drop(peers);
        let before = self.rates.borrow().verdict.clone();
        let verdict = self.ripe(ClockVerdict::of(self.own, &differences, &before), &before);
        if !verdict.is_like(&before) {
            for warning in verdict.warnings(self.own) {
                tracing::warn!("{warning}");
            }
            if verdict == ClockVerdict::Right {
                tracing::info!("no clock is known to be wrong any more");
            }
        }
        self.rates.send_replace(ClockRates { differences, verdict });
    }

    /// Returns the verdict, or the previous one if it is too early to report that there is no majority.
    fn ripe(&self, verdict: ClockVerdict, before: &ClockVerdict) -> ClockVerdict {
        if !matches!(verdict, ClockVerdict::Divided { .. }) {
            self.divided.store(0, Ordering::Relaxed);
            return verdict;
        }
        let times = self.divided.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if times < DIVIDED_TOLD_AT { before.clone() } else { verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    #[derive(Debug, Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> MonotonicTime {
            MonotonicTime::from_us(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_peer_that_is_silent_or_no_member_any_more_is_known_no_more() {
        let node = |number| NodeId::new(number).unwrap();
        let hand = Arc::new(Hand::default());
        let sampling = ClockSampling { every: Duration::from_secs(1), window: Duration::from_secs(1) };
        let monitor = ClockMonitor::new(node(1), NodeClock { clock: Arc::clone(&hand) as _, sampling }, 1);
        let rates = monitor.rates();
        monitor.begin(node(2));
        monitor.begin(node(3));
        let live = |seconds: u64, peers: &[u64]| {
            for _ in 0..seconds {
                let now_us = hand.0.fetch_add(1_000_000, Ordering::Relaxed) + 1_000_000;
                for peer in peers {
                    let at = MonotonicTime::from_us(now_us);
                    let shows = MonotonicTime::from_us(if *peer == 2 { now_us / 50 * 51 } else { now_us });
                    monitor.read(node(*peer), Reading { asked: at, answered: at, clock: 7, peer: shows });
                }
            }
            monitor.compare();
        };
        let known = || rates.borrow().differences.keys().map(|node| node.number()).collect::<Vec<_>>();
        live(3, &[2, 3]);
        assert_eq!(known(), [0_u64; 0]);
        live(10, &[2, 3]);
        assert_eq!(known(), [2, 3]);
        assert!(
            matches!(&rates.borrow().verdict, ClockVerdict::Wrong(wrong) if wrong.contains_key(&node(2)))
        );
        monitor.forget(node(3));
        let wrong = rates.borrow().verdict.clone();
        for _ in 1..DIVIDED_TOLD_AT {
            live(1, &[2, 3]);
            assert_eq!(known(), [2]);
            assert!(rates.borrow().verdict.is_like(&wrong), "the third may be back in a moment");
        }
        live(1, &[2, 3]);
        assert!(matches!(rates.borrow().verdict, ClockVerdict::Divided { .. }), "two can't say who is wrong");
        live(20, &[]);
        assert_eq!((known(), rates.borrow().verdict.clone()), (Vec::new(), ClockVerdict::Right));
    }
}
