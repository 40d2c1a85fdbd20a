//! Slots: the hash buckets by which names are distributed over groups.

use crate::invalid::{Invalid, in_range};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// Number of slots. Fixed for ever: the number is part of every assigned lease id and of the group map.
pub const SLOTS: u16 = 16_384;

/// A hash bucket of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// A slot by number, below [`SLOTS`].
    pub fn new(number: u16) -> Result<Slot, Invalid> {
        in_range("slot", u64::from(number), 0, u64::from(SLOTS) - 1).map(|_| Slot(number))
    }

    /// The slot of a name: xxh3 (64 bits, seed 0) of the text inside its first non-empty `{...}`, or else of the whole
    /// name.
    pub fn of(name: &[u8]) -> Slot {
        let bucket = xxh3_64(hash_tag(name)) % u64::from(SLOTS);
        Slot(u16::try_from(bucket).expect("below SLOTS"))
    }

    /// The slot's number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The hashed part of a name: the text inside the first non-empty `{...}`, or else the whole name.
fn hash_tag(name: &[u8]) -> &[u8] {
    let mut rest = name;
    while let Some(open) = rest.iter().position(|&b| b == b'{') {
        rest = &rest[open + 1..];
        match rest.iter().position(|&b| b == b'}') {
            Some(0) => rest = &rest[1..],
            Some(close) => return &rest[..close],
            None => break,
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_the_text_inside_the_first_non_empty_braces() {
        let cases = [
            ("a{b}c", "b"),
            ("a{}{b}c", "b"),
            ("{}", "{}"),
            ("a{b", "a{b"),
            ("a}b{c}", "c"),
            ("{{x}}", "{x"),
            ("plain", "plain"),
        ];
        for (name, tag) in cases {
            assert_eq!(hash_tag(name.as_bytes()), tag.as_bytes(), "{name}");
        }
    }
}
