//! How long operations took: a histogram with three digits at every size, so that the longest are told as well as the
//! shortest.

use hdrhistogram::Histogram;
use std::time::Duration;

/// What takes longer counts as this long.
const NANOS_MAX: u64 = 3_600_000_000_000;

const DIGITS: u8 = 3;

/// Durations, by how many took how long.
#[derive(Debug, Clone)]
pub struct Latency {
    nanos: Histogram<u64>,
}

impl Latency {
    /// The quantiles that reports tell, with their names.
    pub const QUANTILES: [(&'static str, f64); 4] =
        [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)];

    /// Nothing yet.
    pub fn new() -> Latency {
        let nanos = Histogram::new_with_bounds(1, NANOS_MAX, DIGITS).expect("the bounds are constants");
        Latency { nanos }
    }

    /// Adds one.
    pub fn record(&mut self, took: Duration) {
        self.nanos.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(NANOS_MAX).max(1));
    }

    /// Adds all that another has.
    pub fn merge(&mut self, other: &Latency) {
        self.nanos.add(&other.nanos).expect("all have the same bounds");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// So long or less took this part of them; zero if there are none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(if self.nanos.is_empty() { 0 } else { self.nanos.value_at_quantile(quantile) })
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.nanos.max())
    }

    /// The shortest.
    pub fn min(&self) -> Duration {
        Duration::from_nanos(if self.nanos.is_empty() { 0 } else { self.nanos.min() })
    }

    /// All together by their number.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.nanos.mean() / 1e9)
    }

    /// Quantiles for a plot, ever closer to the last one, as far as there are enough to tell.
    pub fn curve(&self) -> Vec<(f64, Duration)> {
        let mut points = Vec::new();
        // Ten steps from each power of ten of 1/(1-q) to the next.
        for step in 0_i32.. {
            let one_in = 10_f64.powf(f64::from(step) / 10.0);
            #[allow(clippy::cast_precision_loss, reason = "a plot has no more digits")]
            if one_in > (self.count() as f64).max(1.0) {
                return points;
            }
            let quantile = 1.0 - 1.0 / one_in;
            points.push((quantile, self.quantile(quantile)));
        }
        points
    }
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: impl IntoIterator<Item = u64>) -> Latency {
        let mut latency = Latency::new();
        millis.into_iter().for_each(|ms| latency.record(Duration::from_millis(ms)));
        latency
    }

    fn ms(duration: Duration) -> f64 {
        (duration.as_secs_f64() * 1e5).round() / 1e2
    }

    #[test]
    fn quantiles_are_told_to_three_digits() {
        let latency = of(1..=1_000);
        assert_eq!(latency.count(), 1_000);
        for (quantile, expected) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (0.999, 999.0)] {
            let told = ms(latency.quantile(quantile));
            assert!((told - expected).abs() <= expected / 500.0, "{quantile}: {told}");
        }
        assert!((ms(latency.max()) - 1_000.0).abs() < 2.0);
        assert!((ms(latency.mean()) - 500.5).abs() < 2.0);
    }

    #[test]
    fn merged_is_as_if_recorded_together() {
        let mut merged = of(1..=500);
        merged.merge(&of(501..=1_000));
        let together = of(1..=1_000);
        assert_eq!(merged.count(), together.count());
        for (_, quantile) in Latency::QUANTILES {
            assert_eq!(merged.quantile(quantile), together.quantile(quantile));
        }
        assert_eq!((merged.min(), merged.max()), (together.min(), together.max()));
    }

    #[test]
    fn nothing_and_too_much_are_told_too() {
        let mut latency = Latency::new();
        assert_eq!(
            (latency.count(), latency.quantile(0.99), latency.max()),
            (0, Duration::ZERO, Duration::ZERO)
        );
        assert_eq!(latency.curve().len(), 1);
        latency.record(Duration::from_secs(100_000));
        latency.record(Duration::ZERO);
        assert_eq!(latency.count(), 2);
        assert!(latency.max() >= Duration::from_secs(3_599));
    }

    #[test]
    fn a_curve_rises_and_ends_where_there_is_one_left() {
        let curve = of(1..=1_000).curve();
        assert!(curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{curve:?}");
        assert_eq!(curve.len(), 31);
    }
}
