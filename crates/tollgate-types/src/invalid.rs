//! Reasons for which a constructor refuses a value.

/// The rule that a value breaks. The text says what to do instead, so it can be shown to a user unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// An empty text or byte string where at least one byte is required.
    #[error("{what} is empty: give it at least one byte")]
    Empty {
        /// Name of the refused value.
        what: &'static str,
    },
    /// More bytes than any configuration allows.
    #[error("{what} has {bytes} bytes: at most {max} are allowed")]
    TooLong {
        /// Name of the refused value.
        what: &'static str,
        /// Length of the refused value, in bytes.
        bytes: usize,
        /// The name of the limit.
        limit: &'static str,
        /// The greatest length that any limit can allow.
        max: usize,
    },
    /// Text that is not UTF-8.
    #[error("{what} is not UTF-8 from byte {at} on")]
    NotUtf8 {
        /// Name of the refused value.
        what: &'static str,
        /// Offset of the first bad byte.
        at: usize,
    },
    /// A control character, which would garble terminals and logs.
    #[error("{what} has the control character {code:#04x} at byte {at}: use printable text")]
    Control {
        /// Name of the refused value.
        what: &'static str,
        /// The character's code point.
        code: u32,
        /// Offset of the character, in bytes.
        at: usize,
    },
    /// A text that is not the address of a node.
    #[error("{what} is not a host and a port: write it such as 10.0.0.1:7401")]
    NotHostPort {
        /// Name of the refused value.
        what: &'static str,
    },
    /// A text that is not a lease id.
    #[error("a lease id is written as L- and 16 hex digits: write {instead}")]
    NotLeaseId {
        /// The ids that may have been meant.
        instead: String,
    },
    /// A number outside its range.
    #[error("{what} is {value}: it must be from {min} to {max}")]
    OutOfRange {
        /// Name of the refused value.
        what: &'static str,
        /// The number given.
        value: u64,
        /// The least value allowed.
        min: u64,
        /// The greatest value allowed.
        max: u64,
    },
    /// A repeated element in a list whose elements must be unique.
    #[error("{what} has {element:?} twice: name each once")]
    Twice {
        /// Name of the list.
        what: &'static str,
        /// The repeated element.
        element: String,
    },
    /// Ranges that are empty, unsorted, overlapping or touching.
    #[error("{what} must be sorted ranges with a gap between them; {from}..={to} is not")]
    Ranges {
        /// Name of the list.
        what: &'static str,
        /// First element of the offending range.
        from: u64,
        /// Last element of the offending range.
        to: u64,
    },
    /// A group map that does not serve every slot exactly once.
    #[error("the group map can't be: {says}")]
    GroupMap {
        /// Rule that every group map must follow.
        says: &'static str,
    },
}

/// Refuses a number outside `min..=max`.
pub(crate) fn in_range(what: &'static str, value: u64, min: u64, max: u64) -> Result<u64, Invalid> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(Invalid::OutOfRange { what, value, min, max }) }
}
