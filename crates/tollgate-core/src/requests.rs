//! The memory of a lease's requests, by which a repeat has one effect and one answer (P10).
//!
//! Bounded by the operations in flight and, apart from them, by the requests that had to wait: an acknowledged request
//! leaves only its number behind, and consecutive numbers collapse into one range.

use crate::claim::Claim;
use crate::fingerprint::Subject;
use crate::reply::{EndReason, RejectionCode};
use crate::slab::Id;
use smallvec::SmallVec;
use tollgate_types::{Mode, Revision, SEQ_RANGES_MAX, Seq, SeqRanges, Token};

#[derive(Clone, Default)]
pub(crate) struct Requests {
    seen: SeqRanges,
    /// Sorted by seq: requests that were seen and not acknowledged.
    kept: SmallVec<[KeptFor; 1]>,
    /// Number of requests in `kept` that had to wait.
    waited: u32,
}

/// A request that was seen and is not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFor {
    pub(crate) seq: Seq,
    pub(crate) kept: Kept,
    /// Content of the request, kept whatever its outcome is.
    pub(crate) subject: Subject,
    /// True if the request had to wait, once: it counts among the waits until it is acknowledged, so that the waits
    /// that end at the same time, however many, leave room for other requests.
    pub(crate) waited: bool,
}

/// The answer to a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The claim that the request made or changed: the answer is its state at the time of the repeat.
    Claim { claim: Id<Claim>, part: Part },
    /// The outcome, of fixed size.
    Outcome(Outcome),
}

/// Effect of a request on its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Made the claim, or waits for it.
    Acquire,
    /// Changed the claim's mode.
    Convert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acquired { token: Token, create_revision: Revision, mode: Mode },
    Busy,
    Released { revision: Revision },
    Ended { token: Option<Token>, reason: EndReason },
    TxnDone { succeeded: bool, revision: Revision },
    Proclaimed { revision: Revision },
    Rejected(RejectionCode),
}

impl Requests {
    pub(crate) fn from_parts(seen: SeqRanges) -> Requests {
        Requests { seen, kept: SmallVec::new(), waited: 0 }
    }

    pub(crate) fn seen(&self) -> &SeqRanges {
        &self.seen
    }

    pub(crate) fn kept(&self) -> &[KeptFor] {
        &self.kept
    }

    /// Number of kept requests that never waited, for the bound of the operations in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.kept.len() as u64 - self.waits()
    }

    /// Number of kept requests that wait, or did.
    pub(crate) fn waits(&self) -> u64 {
        u64::from(self.waited)
    }

    /// Number of ranges left after taking in `acked`, if that is more than before and more than a client with
    /// `open_max` open requests can need; none if `acked` is acceptable.
    pub(crate) fn too_scattered(&self, acked: &SeqRanges, open_max: u64) -> Option<u64> {
        let most = usize::try_from(open_max).expect("limits fit in memory") + SEQ_RANGES_MAX + 1;
        let before = self.seen.ranges().len();
        if before + acked.ranges().len() <= most {
            return None;
        }
        let mut merged = self.seen.clone();
        merged.merge(acked);
        let after = merged.ranges().len();
        (after > most && after > before).then_some(after as u64)
    }

    pub(crate) fn is_seen(&self, seq: Seq) -> bool {
        self.seen.contains(seq)
    }

    pub(crate) fn get(&self, seq: Seq) -> Option<Kept> {
        self.place(seq).ok().map(|at| self.kept[at].kept)
    }

    /// Content of a kept request.
    pub(crate) fn subject(&self, seq: Seq) -> Option<&Subject> {
        self.place(seq).ok().map(|at| &self.kept[at].subject)
    }

    /// The highest seq that was seen or acknowledged; 0 if there is none.
    pub(crate) fn highest(&self) -> u64 {
        self.seen.ranges().last().map_or(0, |(_, to)| *to)
    }

    /// True if a kept request had to wait.
    pub(crate) fn has_waited(&self, seq: Seq) -> bool {
        self.place(seq).is_ok_and(|at| self.kept[at].waited)
    }

    /// Changes the answer to a request. A request that is not kept yet is kept with unknown content.
    pub(crate) fn keep(&mut self, seq: Seq, kept: Kept) {
        self.keep_for(KeptFor { seq, kept, subject: Subject::UNKNOWN, waited: false });
    }

    /// Keeps a request, or changes the answer to it; the content of a kept request, and whether it waited, stay
    /// unchanged.
    pub(crate) fn keep_for(&mut self, new: KeptFor) {
        self.seen.insert(new.seq);
        match self.place(new.seq) {
            Ok(at) => self.kept[at].kept = new.kept,
            Err(at) => {
                self.waited += u32::from(new.waited);
                self.kept.insert(at, new);
            }
        }
    }

    /// Drops the answers that the client has; calls `forget_claim` for each claim that loses a seq.
    pub(crate) fn acknowledge(&mut self, acked: &SeqRanges, mut forget_claim: impl FnMut(Id<Claim>, Seq)) {
        if acked.is_empty() {
            return;
        }
        self.seen.merge(acked);
        for &(from, to) in acked.ranges() {
            let first = self.kept.partition_point(|kept| kept.seq.get() < from);
            let end = self.kept.partition_point(|kept| kept.seq.get() <= to);
            for acked in &self.kept[first..end] {
                self.waited -= u32::from(acked.waited);
                if let Kept::Claim { claim, .. } = acked.kept {
                    forget_claim(claim, acked.seq);
                }
            }
            if end - first == self.kept.len() {
                self.kept.clear();
            } else {
                self.kept.drain(first..end);
            }
        }
    }

    fn place(&self, seq: Seq) -> Result<usize, usize> {
        // Most requests are newer than all that are kept.
        match self.kept.last() {
            None => Err(0),
            Some(last) if last.seq < seq => Err(self.kept.len()),
            _ => self.kept.binary_search_by_key(&seq, |kept| kept.seq),
        }
    }
}
