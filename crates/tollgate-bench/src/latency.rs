//! Latency histogram with a precision of three digits at every magnitude, so that the longest durations are as precise
//! as the shortest.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Maximum that is recorded: one hour. Longer durations count as this long.
const NANOS_MAX: u64 = 3_600_000_000_000;

const DIGITS: u8 = 3;

/// Histogram of durations.
#[derive(Debug, Clone)]
pub struct Latency {
    nanos: Histogram<u64>,
}

impl Latency {
    /// Quantiles that reports contain, with their names.
    pub const QUANTILES: [(&'static str, f64); 4] =
        [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)];

    /// Creates an empty histogram.
    pub fn new() -> Latency {
        let nanos = Histogram::new_with_bounds(1, NANOS_MAX, DIGITS).expect("the bounds are constants");
        Latency { nanos }
    }

    /// Adds one duration.
    pub fn record(&mut self, took: Duration) {
        self.nanos.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(NANOS_MAX).max(1));
    }

    /// Adds all durations of another histogram.
    pub fn merge(&mut self, other: &Latency) {
        self.nanos.add(&other.nanos).expect("all have the same bounds");
    }

    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// Returns the duration that the given part of all recorded durations did not exceed; zero if there are none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(if self.nanos.is_empty() { 0 } else { self.nanos.value_at_quantile(quantile) })
    }

    /// Returns the longest recorded duration.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.nanos.max())
    }

    /// Returns the shortest recorded duration; zero if there are none.
    pub fn min(&self) -> Duration {
        Duration::from_nanos(if self.nanos.is_empty() { 0 } else { self.nanos.min() })
    }

    /// Returns the average duration.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.nanos.mean() / 1e9)
    }

    /// Returns quantiles for a plot, ever closer to 1, as far as there are enough durations to tell.
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
