//! Lease ids, whose top bits name the slot where the lease lives.

use crate::invalid::{Invalid, in_range};
use crate::slot::{SLOTS, Slot};
use std::fmt;
use std::num::NonZeroU64;

/// Bits below the slot: a counter in assigned ids, anything in chosen ones.
const COUNTER_BITS: u32 = 49;
const ID_END: u64 = 1 << 63;

/// A lease's id: 1 to 2^63 - 1, so that it fits a signed 64-bit integer. Bits 49 to 62 are its slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroU64);

impl LeaseId {
    /// An id chosen by a client.
    pub fn new(id: u64) -> Result<LeaseId, Invalid> {
        in_range("lease id", id, 1, ID_END - 1)?;
        Ok(LeaseId(NonZeroU64::new(id).expect("at least 1")))
    }

    /// An id in `slot`; `counter` is cut to the 49 bits below it, and 0 becomes 1.
    pub fn assigned(slot: Slot, counter: u64) -> LeaseId {
        let counter = (counter & ((1 << COUNTER_BITS) - 1)).max(1);
        let id = (u64::from(slot.number()) << COUNTER_BITS) | counter;
        LeaseId(NonZeroU64::new(id).expect("counter is at least 1"))
    }

    /// The slot, and so the group, where this lease lives.
    pub fn slot(self) -> Slot {
        let bits = (self.get() >> COUNTER_BITS) & (u64::from(SLOTS) - 1);
        Slot::new(u16::try_from(bits).expect("masked to 14 bits")).expect("masked below SLOTS")
    }

    /// The number.
    #[inline]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// Sixteen hex digits, as in the keys of holders and waiters.
impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.get())
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assigned_id_carries_its_slot() {
        for number in [0, 1, 5461, SLOTS - 1] {
            let slot = Slot::new(number).unwrap();
            for counter in [0, 1, 77, u64::MAX] {
                let id = LeaseId::assigned(slot, counter);
                assert_eq!(id.slot(), slot);
                assert_eq!(LeaseId::new(id.get()).unwrap(), id);
            }
        }
    }

    #[test]
    fn ids_fit_a_signed_integer() {
        assert!(LeaseId::new(0).is_err());
        assert!(LeaseId::new(ID_END).is_err());
        assert_eq!(LeaseId::new(ID_END - 1).unwrap().slot().number(), SLOTS - 1);
    }
}
