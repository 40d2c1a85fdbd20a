//! Assumptions of the judgement, and the slack that the promises themselves leave.
//!
//! Not here: anything that would let a broken promise pass. Slack is what a promise grants, never what a run needed.

use crate::at::At;

/// Numbers in the promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Maximum deviation of a trusted clock's rate, in parts per million.
    pub rho_ppm: u32,
    /// Maximum lateness of a lease's end in steady state, and the addition for each election, in milliseconds (P6).
    pub late_slack_ms: u64,
    /// Unit of log time, in milliseconds: a stamp may be off by this much.
    pub clock_grain_ms: u64,
    /// Time after [`crate::Event::Healed`] by which every waiter that can be answered must be, in milliseconds (P8).
    pub healed_within_ms: u64,
    /// True if every [`crate::Event::Received`] and [`crate::Event::LeaseEnded`] is in the history, as a simulator can
    /// ensure. Without these events, ends of leases are known by their bounds alone and lateness is not judged.
    pub server_side: bool,
    /// Maximum number of steps that the search may take for each name before it gives up.
    pub search_steps_max: u64,
}

impl Settings {
    /// Returns the settings of the published promises, for clocks trusted within `rho_ppm`.
    pub fn with_rho_ppm(rho_ppm: u32) -> Settings {
        assert!(rho_ppm < 500_000, "rho_ppm is {rho_ppm}: no lease can be kept with clocks off by a half");
        Settings {
            rho_ppm,
            late_slack_ms: 500,
            clock_grain_ms: 1,
            healed_within_ms: 10_000,
            server_side: true,
            search_steps_max: 500_000,
        }
    }

    /// Returns the first moment at which a trusted clock can have counted `ms` since `from`.
    pub(crate) fn at_least_after(&self, from: At, ms: u64) -> At {
        let ppm = 1_000_000 - u64::from(self.rho_ppm);
        from.after_us(scaled(ms, ppm).saturating_sub(self.clock_grain_ms * 1_000))
    }

    /// Returns the moment by which every trusted clock has counted `ms` since `from`.
    pub(crate) fn at_most_after(&self, from: At, ms: u64) -> At {
        let ppm = 1_000_000 + u64::from(self.rho_ppm);
        from.after_us(scaled(ms, ppm).saturating_add(self.clock_grain_ms * 1_000))
    }

    /// Returns the last moment at which a client may believe in a lease whose keepalive it sent at `sent` (P7): the
    /// client's own clock counts TTL x (1 - 2 rho), and may be slow by rho.
    pub(crate) fn believed_until(&self, sent: At, ttl_ms: u64) -> At {
        let rho = u64::from(self.rho_ppm);
        let counted = scaled(ttl_ms, 1_000_000 - 2 * rho);
        let us = u128::from(counted) * 1_000_000 / u128::from(1_000_000 - rho);
        sent.after_us(u64::try_from(us).unwrap_or(u64::MAX).saturating_add(self.clock_grain_ms * 1_000))
    }
}

/// Returns `ms` x `ppm` / 1,000,000, in microseconds.
fn scaled(ms: u64, ppm: u64) -> u64 {
    u64::try_from(u128::from(ms) * u128::from(ppm) / 1_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_allow_for_clocks_that_are_off_by_rho() {
        let settings = Settings { clock_grain_ms: 0, ..Settings::with_rho_ppm(10_000) };
        assert_eq!(settings.at_least_after(At::ZERO, 10_000), At::from_ms(9_900));
        assert_eq!(settings.at_most_after(At::ZERO, 10_000), At::from_ms(10_100));
        let believed = settings.believed_until(At::ZERO, 10_000);
        assert!(believed > At::from_ms(9_800) && believed < At::from_ms(9_900), "{believed}");
    }
}
