//! Randomness: for ids that nobody else has, and for pauses that no other client makes at the same time.

use std::time::Duration;

/// Returns a random number.
pub(crate) fn number() -> u64 {
    getrandom::u64().expect("the system has randomness")
}

/// Returns a random pause between half of `pause` and all of it.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_nanos(number() % nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jittered_pause_is_between_half_and_whole() {
        for _ in 0..100 {
            let pause = jittered(Duration::from_millis(10));
            assert!((Duration::from_millis(5)..=Duration::from_millis(10)).contains(&pause), "{pause:?}");
        }
        assert_eq!(jittered(Duration::ZERO), Duration::ZERO);
    }
}
