//! The sizes at which structures change their shape, small in tests that mean to cross them.

/// The usual size or, with the feature `small-sizes`, a size that short histories cross.
pub(crate) const fn threshold(usual: usize, small: usize) -> usize {
    if cfg!(feature = "small-sizes") { small } else { usual }
}
