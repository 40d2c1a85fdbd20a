//! A guard that counts something as long as it is open.

use prometheus_client::metrics::gauge::Gauge;

/// Counted in a gauge until it is dropped.
#[derive(Debug)]
#[must_use = "what is dropped is not counted"]
pub struct Open(Gauge);

impl Open {
    pub(super) fn new(gauge: Gauge) -> Open {
        gauge.inc();
        Open(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
