//! Linearizable reads by `ReadIndex`: batched, retried, and timed out.
//!
//! Raft asks a quorum once per call and drops calls silently (no leader, no entry of its term committed, a lost
//! message). So the reads of a turn share one call, and reads whose calls had no answer in time get another one. The
//! answer to any call confirms every read that was made before that call: where answers take longer than the retry, as
//! at a follower whose disk is slow, the late answer to an earlier call is as good. A call's context is unique over
//! nodes and restarts: an answer to a call from before a restart must not pass for an answer to a later one.
//!
//! A read is answered when the index that a quorum confirmed has been applied on this node.

use crate::monotonic_time::MonotonicTime;
use crate::output::ReadId;
use std::collections::VecDeque;
use tollgate_types::NodeId;

/// The most calls in flight at a time; later reads join the next one.
const CALLS_MAX: usize = 8;

/// Call that had no answer yet.
#[derive(Debug)]
struct Call {
    number: u64,
    sent: MonotonicTime,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    read: ReadId,
    at: MonotonicTime,
    /// Number of the first call that was made after the read was asked for.
    call: u64,
    /// Confirmed index: the read waits until it is applied.
    index: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Reads {
    node: NodeId,
    boot: u64,
    /// Number of the last call.
    counter: u64,
    /// Reads without an answer, in the order in which they were asked for. Those that are confirmed come first, for an
    /// answer to a call confirms all that were asked for before it.
    asked: VecDeque<Asked>,
    /// Number of confirmed reads in `asked`.
    confirmed: usize,
    /// Calls whose answers may still come, in order; without those that are overdue.
    calls: VecDeque<Call>,
}

impl Reads {
    pub(crate) fn new(node: NodeId, boot: u64) -> Reads {
        Reads { node, boot, counter: 0, asked: VecDeque::new(), confirmed: 0, calls: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.asked.len()
    }

    pub(crate) fn ask(&mut self, read: ReadId, now: MonotonicTime) {
        self.asked.push_back(Asked { read, at: now, call: self.counter + 1, index: None });
    }

    /// The context of a call to make now, if there is one: for reads that no call was made for yet, or none that had an
    /// answer in time.
    pub(crate) fn next_call(&mut self, now: MonotonicTime, retry_ms: u64) -> Option<Vec<u8>> {
        self.calls.retain(|call| now < call.sent.after_ms(retry_ms));
        let last = self.asked.back().filter(|last| last.index.is_none())?;
        let covered = self.calls.back().is_some_and(|call| call.number >= last.call);
        if covered || self.calls.len() >= CALLS_MAX {
            return None;
        }
        self.counter += 1;
        self.calls.push_back(Call { number: self.counter, sent: now });
        Some(self.context(self.counter))
    }

    fn context(&self, call: u64) -> Vec<u8> {
        [self.node.number(), self.boot, call].into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Returns the number of the call with this context, if this node has made it since it started.
    fn call_of(&self, context: &[u8]) -> Option<u64> {
        let number = context.last_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        (number <= self.counter && self.context(number) == context).then_some(number)
    }

    /// Records that a quorum confirmed the leader after the call was made, and that `index` was committed by then.
    pub(crate) fn confirmed(&mut self, context: &[u8], index: u64) {
        let Some(number) = self.call_of(context) else { return };
        self.calls.retain(|call| call.number > number);
        for asked in self.asked.iter_mut().skip(self.confirmed).take_while(|asked| asked.call <= number) {
            asked.index = Some(index);
            self.confirmed += 1;
        }
    }

    /// Takes the reads that can be answered, now that entries up to `applied` are applied.
    pub(crate) fn answered(&mut self, applied: u64, answer: &mut Vec<ReadId>) {
        while let Some(first) = self.asked.front().filter(|first| first.index.is_some_and(|at| at <= applied))
        {
            answer.push(first.read);
            self.asked.pop_front();
            self.confirmed -= 1;
        }
    }

    /// Takes the reads that have waited too long.
    pub(crate) fn timed_out(&mut self, now: MonotonicTime, timeout_ms: u64, late: &mut Vec<ReadId>) {
        while let Some(first) = self.asked.front().filter(|first| now >= first.at.after_ms(timeout_ms)) {
            late.push(first.read);
            self.confirmed -= usize::from(first.index.is_some());
            self.asked.pop_front();
        }
    }

    /// Time at which a call must be repeated. Reads that wait for a call join it.
    pub(crate) fn next_turn(&self, retry_ms: u64) -> MonotonicTime {
        let waits = self.asked.len() > self.confirmed;
        let first = self.calls.front().filter(|_| waits);
        first.map_or(MonotonicTime::NEVER, |call| call.sent.after_ms(retry_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads() -> Reads {
        Reads::new(NodeId::new(2).unwrap(), 9)
    }

    fn at(ms: u64) -> MonotonicTime {
        MonotonicTime::from_us(1_000 * ms)
    }

    fn answered(reads: &mut Reads, applied: u64) -> Vec<u64> {
        let mut answer = Vec::new();
        reads.answered(applied, &mut answer);
        answer.into_iter().map(|read| read.0).collect()
    }

    #[test]
    fn a_late_answer_confirms_what_was_asked_before_its_call_and_nothing_later() {
        let mut reads = reads();
        reads.ask(ReadId(1), at(0));
        let first = reads.next_call(at(0), 100).unwrap();
        reads.ask(ReadId(2), at(50));
        let second = reads.next_call(at(50), 100).unwrap();
        assert_eq!(reads.next_call(at(90), 100), None, "both are covered");
        let third = reads.next_call(at(150), 100).unwrap();
        reads.confirmed(&first, 7);
        assert_eq!(answered(&mut reads, 6), [0; 0], "not applied yet");
        assert_eq!(answered(&mut reads, 7), [1], "though its call was given up");
        reads.confirmed(&third, 8);
        assert_eq!(answered(&mut reads, 8), [2], "by the repeated call");
        reads.confirmed(&second, 9);
        assert_eq!((reads.len(), reads.next_turn(100)), (0, MonotonicTime::NEVER));
    }

    #[test]
    fn p13_a_read_is_not_confirmed_by_a_call_that_was_made_before_it() {
        let mut reads = reads();
        reads.ask(ReadId(1), at(0));
        let before = reads.next_call(at(0), 100).unwrap();
        reads.ask(ReadId(2), at(1));
        reads.confirmed(&before, 5);
        assert_eq!(answered(&mut reads, 5), [1]);
        assert_eq!(answered(&mut reads, u64::MAX), [0; 0]);
        assert!(reads.next_call(at(1), 100).is_some(), "it gets a call of its own");
    }

    #[test]
    fn an_answer_to_another_start_or_node_confirms_nothing() {
        let mut reads = reads();
        reads.ask(ReadId(1), at(0));
        let context = reads.next_call(at(0), 100).unwrap();
        for place in 0..context.len() {
            let mut other = context.clone();
            other[place] ^= 1;
            reads.confirmed(&other, 5);
        }
        reads.confirmed(b"", 5);
        assert_eq!(answered(&mut reads, u64::MAX), [0; 0]);
        reads.confirmed(&context, 5);
        assert_eq!(answered(&mut reads, 5), [1]);
    }

    #[test]
    fn p16_calls_without_an_answer_have_a_limit_until_they_are_overdue() {
        let mut reads = reads();
        for read in 0..20 {
            reads.ask(ReadId(read), at(0));
            let made = reads.next_call(at(0), 100).is_some();
            assert_eq!(made, read < CALLS_MAX as u64, "{read}");
        }
        assert_eq!(reads.next_turn(100), at(100));
        assert!(reads.next_call(at(100), 100).is_some());
        assert_eq!(reads.calls.len(), 1);
    }

    #[test]
    fn reads_that_waited_too_long_are_given_up_whether_confirmed_or_not() {
        let mut reads = reads();
        reads.ask(ReadId(1), at(0));
        let context = reads.next_call(at(0), 100).unwrap();
        reads.ask(ReadId(2), at(1));
        reads.ask(ReadId(3), at(400));
        reads.confirmed(&context, 50);
        let mut late = Vec::new();
        reads.timed_out(at(301), 300, &mut late);
        assert_eq!(late, [ReadId(1), ReadId(2)]);
        assert_eq!((reads.len(), reads.confirmed), (1, 0));
    }
}
