//! A byte string that is cheap to clone: short ones live inline, long ones behind a shared pointer.
//!
//! One lock operation clones its name into the lock, the claim and the event. Up to 22 bytes that is a copy of three
//! words; beyond, it is one reference count.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

const INLINE_BYTES: usize = 22;

#[derive(Clone)]
pub(crate) enum ShortBytes {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Shared(Arc<[u8]>),
}

impl ShortBytes {
    pub(crate) const EMPTY: ShortBytes = ShortBytes::Inline { len: 0, bytes: [0; INLINE_BYTES] };

    pub(crate) fn new(from: &[u8]) -> ShortBytes {
        if from.len() > INLINE_BYTES {
            return ShortBytes::Shared(from.into());
        }
        let mut bytes = [0; INLINE_BYTES];
        bytes[..from.len()].copy_from_slice(from);
        let len = u8::try_from(from.len()).expect("at most INLINE_BYTES");
        ShortBytes::Inline { len, bytes }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            ShortBytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            ShortBytes::Shared(shared) => shared,
        }
    }
}

impl PartialEq for ShortBytes {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for ShortBytes {}

impl PartialOrd for ShortBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ShortBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl Hash for ShortBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_and_shared_strings_compare_by_content() {
        let lengths = [0, 1, 21, 22, 23, 100];
        for left in lengths {
            for right in lengths {
                let (a, b) = (vec![7u8; left], vec![7u8; right]);
                assert_eq!(ShortBytes::new(&a).cmp(&ShortBytes::new(&b)), a.cmp(&b));
                assert_eq!(ShortBytes::new(&a) == ShortBytes::new(&b), a == b);
            }
            assert_eq!(ShortBytes::new(&vec![9; left]).as_slice(), vec![9; left]);
        }
        assert_eq!(size_of::<ShortBytes>(), 24);
    }
}
