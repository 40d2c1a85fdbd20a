//! The numbers of a lease's requests, and the acknowledgements of their answers.
//!
//! A request carries only acknowledgements that are new since the last request to the same group, because each group
//! keeps its own set. It carries the numbers of all requests, of other groups' requests too, so that the set stays one
//! range. Invariant: a number is given out once; an answer is acknowledged only after it was received, and again if the
//! request that carried the acknowledgement was not answered.

use parking_lot::{Mutex, MutexGuard};
use tollgate_proto::{convert, v1};
use tollgate_types::{GroupId, SEQ_RANGES_MAX, Seq, SeqRanges};

/// Numbers of one lease's requests.
#[derive(Debug)]
pub(crate) struct Seqs {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    next: u64,
    /// All requests that were answered, for groups that have received no acknowledgements yet.
    answered: SeqRanges,
    /// Acknowledgements that each known group has not received yet.
    to_ack: Vec<(GroupId, SeqRanges)>,
}

impl Inner {
    /// Returns the acknowledgements that a group has not received yet: all of them, for a group that has received none.
    /// There are few groups.
    fn acks_for(&mut self, group: GroupId) -> &mut SeqRanges {
        let place = self.to_ack.iter().position(|(of, _)| *of == group).unwrap_or_else(|| {
            self.to_ack.push((group, self.answered.clone()));
            self.to_ack.len() - 1
        });
        &mut self.to_ack[place].1
    }
}

impl Seqs {
    /// Creates the numbers from `first` on.
    pub(crate) fn from(first: u64) -> Seqs {
        let inner = Inner { next: first, answered: SeqRanges::default(), to_ack: Vec::new() };
        Seqs { inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Returns a number that no request of the lease has.
    pub(crate) fn next(&self) -> Seq {
        let mut inner = self.lock();
        let seq = Seq::new(inner.next).expect("a session makes fewer than 2^52 requests");
        inner.next += 1;
        seq
    }

    /// Returns a number for a request that needs no cleanup once nobody waits for its answer.
    pub(crate) fn number(&self) -> Number<'_> {
        Number { of: self, seq: self.next() }
    }

    /// Records that the final answer to this request was received.
    pub(crate) fn answered(&self, seq: Seq) {
        let mut inner = self.lock();
        inner.answered.insert(seq);
        inner.to_ack.iter_mut().for_each(|(_, to_ack)| to_ack.insert(seq));
    }

    /// Makes the next requests carry all acknowledgements again, for all groups: a group has no room left, because
    /// acknowledgements for it went to other groups. This happens behind a gateway, and for requests over several
    /// groups, which carry acknowledgements for only one of them.
    pub(crate) fn tell_again(&self) {
        self.lock().to_ack.clear();
    }

    /// Returns the acknowledgements for the next request to this group.
    pub(crate) fn take(&self, group: GroupId) -> Acks<'_> {
        let mut inner = self.lock();
        let to_ack = inner.acks_for(group);
        let ranges = to_ack.ranges();
        let taken = if ranges.len() <= SEQ_RANGES_MAX {
            std::mem::take(to_ack)
        } else {
            let (now, later) = ranges.split_at(SEQ_RANGES_MAX);
            let (now, later) = (now.to_vec(), later.to_vec());
            *to_ack = SeqRanges::from_sorted(later).expect("part of a set is one");
            SeqRanges::new(now).expect("part of a set is one")
        };
        Acks { of: self, group, taken }
    }
}

/// Acknowledgements carried by a request in progress. If they are dropped before the request was answered, a later
/// request carries them.
#[derive(Debug)]
pub(crate) struct Acks<'a> {
    of: &'a Seqs,
    group: GroupId,
    taken: SeqRanges,
}

impl Acks<'_> {
    /// Returns the ranges for the wire.
    pub(crate) fn ranges(&self) -> Vec<v1::SeqRange> {
        convert::write_seq_ranges(&self.taken)
    }

    /// Records that the cluster has received the acknowledgements.
    pub(crate) fn done(mut self) {
        self.taken = SeqRanges::default();
    }
}

impl Drop for Acks<'_> {
    fn drop(&mut self) {
        if !self.taken.is_empty() {
            let mut inner = self.of.lock();
            inner.acks_for(self.group).merge(&self.taken);
        }
    }
}

/// Number of a request in progress. Once nobody waits for the answer, it counts as acknowledged and the cluster need
/// not keep it; a request that arrives later still is refused.
#[derive(Debug)]
pub(crate) struct Number<'a> {
    of: &'a Seqs,
    pub(crate) seq: Seq,
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.of.answered(self.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(acks: &Acks<'_>) -> Vec<(u64, u64)> {
        acks.ranges().iter().map(|range| (range.first, range.last)).collect()
    }

    #[test]
    fn what_was_answered_is_acknowledged_once_unless_that_got_lost() {
        let seqs = Seqs::from(1);
        let all: Vec<Seq> = (0..5).map(|_| seqs.next()).collect();
        assert_eq!(all[4].get(), 5);
        seqs.answered(all[0]);
        seqs.answered(all[2]);
        let acks = seqs.take(GroupId::MAP);
        assert_eq!(pairs(&acks), [(1, 1), (3, 3)]);
        assert!(seqs.take(GroupId::MAP).ranges().is_empty());
        drop(acks);
        seqs.answered(all[1]);
        let acks = seqs.take(GroupId::MAP);
        assert_eq!(pairs(&acks), [(1, 3)]);
        acks.done();
        assert!(seqs.take(GroupId::MAP).ranges().is_empty());
    }

    #[test]
    fn every_group_is_told_of_all_numbers_for_itself() {
        let (seqs, other) = (Seqs::from(1), GroupId::new(1));
        let all: Vec<Seq> = (0..4).map(|_| seqs.next()).collect();
        seqs.answered(all[0]);
        seqs.take(GroupId::MAP).done();
        seqs.answered(all[1]);
        assert_eq!(pairs(&seqs.take(other)), [(1, 2)], "asked for the first time, it hears of all");
        let acks = seqs.take(GroupId::MAP);
        assert_eq!(pairs(&acks), [(2, 2)]);
        acks.done();
        seqs.answered(all[2]);
        assert_eq!(pairs(&seqs.take(other)), [(1, 3)], "what got lost is told again");
        assert_eq!(pairs(&seqs.take(GroupId::MAP)), [(3, 3)]);
    }

    #[test]
    fn a_group_that_has_no_room_is_told_of_everything_again() {
        let seqs = Seqs::from(1);
        let all: Vec<Seq> = (0..3).map(|_| seqs.next()).collect();
        seqs.answered(all[0]);
        seqs.take(GroupId::MAP).done();
        seqs.answered(all[1]);
        let under_way = seqs.take(GroupId::MAP);
        seqs.tell_again();
        drop(under_way);
        assert_eq!(pairs(&seqs.take(GroupId::MAP)), [(1, 2)]);
    }

    #[test]
    fn no_more_ranges_are_sent_than_a_request_may_carry() {
        let seqs = Seqs::from(1);
        for number in 1..=100 {
            seqs.answered(Seq::new(number * 2).unwrap());
        }
        let (first, second) = (seqs.take(GroupId::MAP), seqs.take(GroupId::MAP));
        assert_eq!((first.ranges().len(), second.ranges().len()), (SEQ_RANGES_MAX, 36));
    }
}
