//! What a lease remembers of its requests, so that a repeat has one effect and one answer (P10).
//!
//! Bounded by the operations in flight and, apart from them, by the requests that had to wait: an acknowledged request
//! leaves only its number behind, and numbers given out in order collapse into one range.

use crate::claim::Claim;
use crate::fingerprint::Subject;
use crate::reply::{EndReason, RejectionCode};
use crate::slab::Id;
use smallvec::SmallVec;
use tollgate_types::{Mode, Revision, SEQ_RANGES_MAX, Seq, SeqRanges, Token};

#[derive(Clone, Default)]
pub(crate) struct Requests {
    seen: SeqRanges,
    /// Sorted by seq: those seen and not acknowledged.
    kept: SmallVec<[KeptFor; 1]>,
    /// How many of them had to wait.
    waited: u32,
}

/// A request seen and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFor {
    pub(crate) seq: Seq,
    pub(crate) kept: Kept,
    /// What it was about, whatever becomes of that.
    pub(crate) subject: Subject,
    /// Whether it had to wait, once: it counts among the waits until it is acknowledged, so that however many end at
    /// once they leave room for other requests.
    pub(crate) waited: bool,
}

/// What answers a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The claim that the request made or changed, as it is by then.
    Claim { claim: Id<Claim>, part: Part },
    /// The outcome, of fixed size.
    Outcome(Outcome),
}

/// What a request did to its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Made it, or waits for it.
    Acquire,
    /// Changed its mode.
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

    /// Those that never waited: what bounds the operations in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.kept.len() as u64 - self.waits()
    }

    /// Those that wait, or did.
    pub(crate) fn waits(&self) -> u64 {
        u64::from(self.waited)
    }

    /// How many ranges taking in `acked` would leave, if that is more than before and more than a client with so many
    /// open requests can need.
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

    /// What a request that is kept was about.
    pub(crate) fn subject(&self, seq: Seq) -> Option<&Subject> {
        self.place(seq).ok().map(|at| &self.kept[at].subject)
    }

    /// The highest seq that was seen or acknowledged; 0 if none was.
    pub(crate) fn highest(&self) -> u64 {
        self.seen.ranges().last().map_or(0, |(_, to)| *to)
    }

    /// Whether a request that is kept had to wait.
    pub(crate) fn has_waited(&self, seq: Seq) -> bool {
        self.place(seq).is_ok_and(|at| self.kept[at].waited)
    }

    /// Changes what answers a request. One of which nobody knows what it is about is remembered by it.
    pub(crate) fn keep(&mut self, seq: Seq, kept: Kept) {
        self.keep_for(KeptFor { seq, kept, subject: Subject::UNKNOWN, waited: false });
    }

    /// Remembers a request, or changes what answers it; what it was about and whether it waited stay as they were.
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

    /// Forgets the answers that the client has; tells `forget_claim` which claims lose a seq.
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
        // Most requests are the newest.
        match self.kept.last() {
            None => Err(0),
            Some(last) if last.seq < seq => Err(self.kept.len()),
            _ => self.kept.binary_search_by_key(&seq, |kept| kept.seq),
        }
    }
}
