//! Lease ids, whose top bits name the slot where the lease lives.
//!
//! Lease ids are written as `L-` and sixteen hex digits, for people and command lines. Bare digits are refused because
//! they are ambiguous: they could be hex, as in the keys of holders, or decimal, as in JSON, and the length does not
//! tell which.

use crate::invalid::{Invalid, in_range};
use crate::slot::{SLOTS, Slot};
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// Bits below the slot: a counter in assigned ids, anything in chosen ones.
const COUNTER_BITS: u32 = 49;
const ID_END: u64 = 1 << 63;

/// Prefix of every written lease id.
const PREFIX: &str = "L-";
/// Hex digits of a written id, leading zeros included.
const DIGITS: usize = 16;

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

    /// The slot of the lease. The slot decides which group serves the lease.
    pub fn slot(self) -> Slot {
        let bits = (self.get() >> COUNTER_BITS) & (u64::from(SLOTS) - 1);
        Slot::new(u16::try_from(bits).expect("masked to 14 bits")).expect("masked below SLOTS")
    }

    /// The id as a number.
    #[inline]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// Writes `L-` and sixteen hex digits.
///
/// ```
/// use tollgate_types::LeaseId;
/// let id = LeaseId::new(0x666_6c05_6fc0_de30)?;
/// assert_eq!(id.to_string(), "L-06666c056fc0de30");
/// assert_eq!("L-06666c056fc0de30".parse::<LeaseId>()?, id);
/// # Ok::<(), tollgate_types::Invalid>(())
/// ```
impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{self:016x}")
    }
}

/// Writes the number alone: `{:016x}` is the form in the keys of holders and waiters.
impl fmt::LowerHex for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.get(), f)
    }
}

/// Reads only the form that `Display` writes. The error for bare digits lists the ids that the digits may stand for.
impl FromStr for LeaseId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<LeaseId, Invalid> {
        let digits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == DIGITS);
        match digits.and_then(|digits| number(digits, 16)) {
            Some(id) => LeaseId::new(id),
            None => Err(Invalid::NotLeaseId { instead: instead(text) }),
        }
    }
}

/// Suggests the lease ids that a refused text may stand for.
fn instead(text: &str) -> String {
    let marked = text.strip_prefix("0x");
    let id = |digits, radix| number(digits, radix).and_then(|id| LeaseId::new(id).ok());
    let decimal = if marked.is_none() { id(text, 10) } else { None };
    match (id(marked.unwrap_or(text), 16), decimal) {
        (Some(hex), Some(decimal)) if hex != decimal => {
            format!("{hex} if these are hex digits, {decimal} if they are decimal, as in JSON")
        }
        (Some(id), _) | (None, Some(id)) => id.to_string(),
        (None, None) => format!("it as `tollgate lease ls` shows it, such as {PREFIX}06666c056fc0de30"),
    }
}

/// Parses a number that consists of digits only, without a sign.
fn number(digits: &str, radix: u32) -> Option<u64> {
    let all_digits = digits.chars().all(|digit| digit.is_digit(radix));
    u64::from_str_radix(digits, radix).ok().filter(|_| all_digits)
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

    #[test]
    fn an_id_is_read_as_it_is_written() {
        for number in [1, 0x1234, 0x1234_5678_9012_3456, ID_END - 1] {
            let id = LeaseId::new(number).unwrap();
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.to_string().len(), PREFIX.len() + DIGITS);
        }
        assert_eq!("L-000000000000ABCD".parse(), LeaseId::new(0xabcd));
        assert_eq!(format!("{:016x}", LeaseId::new(0x2a).unwrap()), "000000000000002a");
    }

    #[test]
    fn digits_that_may_mean_two_ids_are_refused_with_both() {
        let says = |text: &str| text.parse::<LeaseId>().unwrap_err().to_string();
        assert_eq!(
            says("0000000000001234"),
            "a lease id is written as L- and 16 hex digits: write L-0000000000001234 if these are hex digits, \
             L-00000000000004d2 if they are decimal, as in JSON"
        );
        for (text, instead) in [
            ("06666c056fc0de30", "write L-06666c056fc0de30"),
            ("0x1f", "write L-000000000000001f"),
            ("461211709160782384", "write L-06668d9b1ac77a30"),
            ("7", "write L-0000000000000007"),
        ] {
            assert!(says(text).ends_with(instead), "{text}: {}", says(text));
        }
        for text in [
            "",
            "L-",
            "L-06666c05",
            "jobs",
            "-1",
            "+7",
            "L-+000000000000007",
            "L-06666c056fc0de300",
            "\u{661}",
        ] {
            assert!(says(text).contains("tollgate lease ls"), "{text}: {}", says(text));
        }
        for number in ["L-0000000000000000", "L-8000000000000000"] {
            assert!(says(number).contains("must be from 1"), "{number}: {}", says(number));
        }
    }
}
