//! Sequence numbers of a lease's requests, and sets of them.

use crate::invalid::{Invalid, in_range};
use smallvec::SmallVec;
use std::fmt;

/// The number of a request within its lease, from 1. A retry carries the number of the first attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(u64);

impl Seq {
    /// A number from 1 to 2^53 - 1.
    pub fn new(number: u64) -> Result<Seq, Invalid> {
        in_range("seq", number, 1, crate::REVISION_END - 1).map(Seq)
    }

    /// The seq as a number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The most ranges that one request may carry.
pub const SEQ_RANGES_MAX: usize = 64;

/// A set of seqs as sorted inclusive ranges with gaps between them. Numbers given out in order make one range.
///
/// ```
/// use tollgate_types::{Seq, SeqRanges};
/// let mut seen = SeqRanges::new(vec![(1, 4), (6, 9)])?;
/// seen.insert(Seq::new(5)?);
/// assert_eq!(seen.ranges(), [(1, 9)]);
/// # Ok::<(), tollgate_types::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SeqRanges(SmallVec<[(u64, u64); 1]>);

impl SeqRanges {
    /// A set from inclusive ranges that are sorted and leave gaps; at most [`SEQ_RANGES_MAX`], the bound of a request.
    pub fn new(ranges: Vec<(u64, u64)>) -> Result<SeqRanges, Invalid> {
        in_range("number of seq ranges", ranges.len() as u64, 0, SEQ_RANGES_MAX as u64)?;
        SeqRanges::from_sorted(ranges)
    }

    /// Like [`SeqRanges::new`], without a bound on the number of ranges: for a set that grew range by range.
    pub fn from_sorted(ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<SeqRanges, Invalid> {
        let mut all = SeqRanges::default();
        for (from, to) in ranges {
            all.append(from, to)?;
        }
        Ok(all)
    }

    /// Adds a range after all others; a gap must separate it from the last one.
    #[inline]
    pub fn append(&mut self, from: u64, to: u64) -> Result<(), Invalid> {
        let from_min = self.0.last().map_or(1, |last| last.1 + 2);
        if from < from_min || to < from {
            return Err(Invalid::Ranges { what: "seqs", from, to });
        }
        Seq::new(to)?;
        self.0.push((from, to));
        Ok(())
    }

    /// The ranges, sorted.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// True if the set has no seq.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `seq` is in the set.
    #[inline]
    pub fn contains(&self, seq: Seq) -> bool {
        let after = self.0.partition_point(|&(from, _)| from <= seq.0);
        after > 0 && seq.0 <= self.0[after - 1].1
    }

    /// Adds one seq.
    pub fn insert(&mut self, seq: Seq) {
        self.insert_range(seq.0, seq.0);
    }

    /// Adds all seqs of `other`.
    pub fn merge(&mut self, other: &SeqRanges) {
        for &(from, to) in &other.0 {
            self.insert_range(from, to);
        }
    }

    #[inline]
    fn insert_range(&mut self, from: u64, to: u64) {
        // Numbers given out in order only ever extend the last range.
        match self.0.last_mut() {
            Some(last) if last.0 <= from && from <= last.1 + 1 => last.1 = last.1.max(to),
            _ => self.insert_anywhere(from, to),
        }
    }

    fn insert_anywhere(&mut self, from: u64, to: u64) {
        // All ranges that overlap or touch from..=to are merged with it.
        let first = self.0.partition_point(|&(_, end)| end + 1 < from);
        let last = self.0.partition_point(|&(start, _)| start <= to + 1);
        if first == last {
            self.0.insert(first, (from, to));
            return;
        }
        let merged = (from.min(self.0[first].0), to.max(self.0[last - 1].1));
        self.0[first] = merged;
        if last - first > 1 {
            self.0.drain(first + 1..last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn any_order_of_inserts_gives_the_same_ranges_as_a_set() {
        // A small generator is enough: every interleaving of 1..=40 by steps coprime to 41.
        for step in 1..41u64 {
            let (mut ranges, mut set) = (SeqRanges::default(), BTreeSet::new());
            for i in 1..=40 {
                let seq = i * step % 41;
                if seq % 3 == 0 {
                    ranges.merge(&SeqRanges::new(vec![(seq, seq + 1)]).unwrap());
                    set.extend([seq, seq + 1]);
                } else {
                    ranges.insert(Seq(seq));
                    set.insert(seq);
                }
                for probe in 1..=43 {
                    assert_eq!(ranges.contains(Seq(probe)), set.contains(&probe), "{ranges:?} {probe}");
                }
                assert!(SeqRanges::from_sorted(ranges.ranges().to_vec()).is_ok(), "{ranges:?}");
            }
        }
    }

    #[test]
    fn ranges_must_be_sorted_with_gaps() {
        for bad in [vec![(0, 1)], vec![(2, 1)], vec![(1, 2), (3, 4)], vec![(5, 6), (1, 2)]] {
            assert!(SeqRanges::new(bad).is_err());
        }
        assert!(SeqRanges::new((1..=65).map(|i| (i * 2, i * 2)).collect()).is_err());
    }
}
