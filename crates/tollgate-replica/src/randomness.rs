//! Randomness, as an input to the host.

/// Source of election jitter and nonces: the system in a server, a seed in the simulator.
pub trait Randomness {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// A number from `low` up to, not including, `high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "there is no number from {low} up to {high}");
        low + self.next_u64() % (high - low)
    }
}
