//! Limits on sizes and counts, such as the number of locks or the bytes in a name.
//!
//! Limits are part of the replicated state, so that every replica refuses the same request, and a command changes them
//! while the group runs. The table below gives each limit its name, default and range.

use crate::invalid::{Invalid, in_range};
use std::fmt;

macro_rules! limits {
    ($($(#[$doc:meta])* $field:ident, $variant:ident, $default:literal, $min:literal..=$max:literal;)*) => {
        /// Every limit with the value in force.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $($(#[$doc])* pub $field: u64,)*
        }

        /// The identity of one limit, for rejections and tools.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Limit {
            $($(#[$doc])* $variant,)*
        }

        impl Limit {
            /// All limits, in the order of the log format. New limits go at the end.
            pub const ALL: &'static [Limit] = &[$(Limit::$variant,)*];

            /// The name that configuration and error messages use.
            pub const fn name(self) -> &'static str {
                match self { $(Limit::$variant => stringify!($field),)* }
            }

            /// The least and the greatest value that the limit can be set to.
            pub const fn range(self) -> (u64, u64) {
                match self { $(Limit::$variant => ($min, $max),)* }
            }
        }

        impl Limits {
            /// The limits of a new group.
            pub const DEFAULT: Limits = Limits { $($field: $default,)* };

            /// The value of the limit that is in force.
            pub const fn get(&self, limit: Limit) -> u64 {
                match limit { $(Limit::$variant => self.$field,)* }
            }

            /// Changes one limit; [`Limits::validate`] says whether the resulting set is allowed.
            pub const fn set(&mut self, limit: Limit, value: u64) {
                match limit { $(Limit::$variant => self.$field = value,)* }
            }
        }
    };
}

limits! {
    /// Bytes in a lock's name.
    name_bytes_max, NameBytes, 512, 16..=512;
    /// Bytes of metadata (`why`) of a claim, in any encoding, and of the reason of a forced release.
    metadata_bytes_max, MetadataBytes, 4_096, 0..=4_096;
    /// Locks that are held, waited for or closed by a lock-delay.
    locks_max, Locks, 10_000_000, 1..=1_000_000_000;
    /// Leases.
    leases_max, Leases, 1_000_000, 1..=100_000_000;
    /// Holders and waiters of one lease.
    claims_per_lease_max, ClaimsPerLease, 2_000_000, 1..=100_000_000;
    /// Holders of one lock.
    holders_per_lock_max, HoldersPerLock, 10_000, 1..=100_000;
    /// Waiters of one lock.
    waiters_per_lock_max, WaitersPerLock, 10_000, 0..=100_000;
    /// Names in one request.
    names_per_request_max, NamesPerRequest, 16, 1..=64;
    /// Requests of one lease that never waited and whose outcome the client has not acknowledged.
    ops_in_flight_per_lease_max, OpsInFlightPerLease, 1_024, 1..=65_536;
    /// The shortest time to live of a lease.
    ttl_ms_min, TtlMin, 100, 1..=86_400_000;
    /// The longest time to live of a lease.
    ttl_ms_max, TtlMax, 600_000, 1..=86_400_000;
    /// The longest lock-delay.
    lock_delay_ms_max, LockDelay, 60_000, 0..=86_400_000;
    /// Renewals in one entry.
    renewals_per_entry_max, RenewalsPerEntry, 10_000, 1..=100_000;
    /// Registers.
    registers_max, Registers, 1_000_000, 0..=100_000_000;
    /// Bytes in a register's value, and in the value that a holder publishes about itself.
    value_bytes_max, ValueBytes, 65_536, 0..=65_536;
    /// Compares, and operations of either branch, in one transaction.
    txn_ops_max, TxnOps, 128, 1..=1_024;
    /// Registers that one range returns or one delete ends.
    range_max, Range, 10_000, 1..=100_000;
    /// Bytes of history kept for watches.
    ring_bytes_max, RingBytes, 67_108_864, 4_096..=4_294_967_296;
    /// Ends and grants that the passing of time causes in one entry, besides the entry's own command.
    reaps_per_entry_max, ReapsPerEntry, 1_000, 1..=100_000;
    /// Waiters and holders visited by one search for a deadlock; beyond that the request queues without a complete
    /// search.
    deadlock_visits_max, DeadlockVisits, 20_000, 1..=1_000_000;
    /// Requests of one lease that wait, or have waited, and whose outcome the client has not acknowledged.
    waits_per_lease_max, WaitsPerLease, 10_000, 1..=65_536;
    /// Holders that publish a value about themselves, and waiters that will.
    claim_values_max, ClaimValues, 100_000, 0..=100_000_000;
}

impl Limits {
    /// Checks the range of every limit, and that `ttl_ms_min` is at most `ttl_ms_max`; returns the first rule that is
    /// broken.
    pub fn validate(&self) -> Result<(), Invalid> {
        for &limit in Limit::ALL {
            let (min, max) = limit.range();
            in_range(limit.name(), self.get(limit), min, max)?;
        }
        in_range("ttl_ms_min", self.ttl_ms_min, 1, self.ttl_ms_max)?;
        Ok(())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Limits::DEFAULT.validate(), Ok(()));
    }

    #[test]
    fn a_broken_limit_is_named_with_its_range() {
        let mut limits = Limits::DEFAULT;
        limits.set(Limit::NameBytes, 4_000);
        let says = limits.validate().unwrap_err().to_string();
        assert_eq!(says, "name_bytes_max is 4000: it must be from 16 to 512");
        let limits = Limits { ttl_ms_min: 20, ttl_ms_max: 10, ..Limits::DEFAULT };
        assert_eq!(limits.validate().unwrap_err().to_string(), "ttl_ms_min is 20: it must be from 1 to 10");
    }
}
