//! Linearizable reads by `ReadIndex`: batched, retried, and timed out.
//!
//! Raft asks a quorum once per call and drops calls silently (no leader, no entry of its term committed, a lost
//! message). So the reads of a turn share one call, and a call without an answer is repeated. A call's context is
//! unique over nodes and restarts: an answer to a call from before a restart must not pass for an answer to a later
//! one.
//!
//! A read is answered when the index that a quorum confirmed has been applied on this node.

use crate::monotonic_time::MonotonicTime;
use crate::output::ReadId;
use std::collections::VecDeque;
use tollgate_types::NodeId;

/// The most calls in flight at a time; later reads join the next one.
const CALLS_MAX: usize = 8;

#[derive(Debug)]
struct Call {
    context: Vec<u8>,
    reads: Vec<Asked>,
    sent: MonotonicTime,
    /// Confirmed index: the reads wait until it is applied.
    index: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    read: ReadId,
    at: MonotonicTime,
}

#[derive(Debug)]
pub(crate) struct Reads {
    node: NodeId,
    boot: u64,
    counter: u64,
    waiting: Vec<Asked>,
    calls: VecDeque<Call>,
    count: usize,
}

impl Reads {
    pub(crate) fn new(node: NodeId, boot: u64) -> Reads {
        Reads { node, boot, counter: 0, waiting: Vec::new(), calls: VecDeque::new(), count: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn ask(&mut self, read: ReadId, now: MonotonicTime) {
        self.count += 1;
        self.waiting.push(Asked { read, at: now });
    }

    /// The context of a call to make now, if there is one. Reads of calls without a timely answer join it.
    pub(crate) fn next_call(&mut self, now: MonotonicTime, retry_ms: u64) -> Option<Vec<u8>> {
        let waiting = &mut self.waiting;
        self.calls.retain_mut(|call| {
            let silent = call.index.is_none() && now >= call.sent.after_ms(retry_ms);
            if silent {
                waiting.append(&mut call.reads);
            }
            !silent
        });
        if self.waiting.is_empty() || self.calls.len() >= CALLS_MAX {
            return None;
        }
        self.counter += 1;
        let mut context = Vec::with_capacity(24);
        for part in [self.node.number(), self.boot, self.counter] {
            context.extend_from_slice(&part.to_le_bytes());
        }
        let reads = std::mem::take(&mut self.waiting);
        self.calls.push_back(Call { context: context.clone(), reads, sent: now, index: None });
        Some(context)
    }

    /// Records that a quorum confirmed the leader after the call was made, and that `index` was committed by then.
    pub(crate) fn confirmed(&mut self, context: &[u8], index: u64) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.context == context) {
            call.index = Some(index);
        }
    }

    /// Takes the reads that can be answered, now that entries up to `applied` are applied.
    pub(crate) fn answered(&mut self, applied: u64, answer: &mut Vec<ReadId>) {
        self.calls.retain(|call| {
            let ready = call.index.is_some_and(|index| index <= applied);
            if ready {
                answer.extend(call.reads.iter().map(|asked| asked.read));
            }
            !ready
        });
        self.count -= answer.len();
    }

    /// Takes the reads that have waited too long.
    pub(crate) fn timed_out(&mut self, now: MonotonicTime, timeout_ms: u64, late: &mut Vec<ReadId>) {
        let mut keep = |asked: &Asked| {
            let ok = now < asked.at.after_ms(timeout_ms);
            if !ok {
                late.push(asked.read);
            }
            ok
        };
        self.waiting.retain(&mut keep);
        for call in &mut self.calls {
            call.reads.retain(&mut keep);
        }
        self.calls.retain(|call| !call.reads.is_empty());
        self.count -= late.len();
    }

    /// Time at which a call must be repeated. Reads that wait for a call join it.
    pub(crate) fn next_turn(&self, retry_ms: u64) -> MonotonicTime {
        let calls = self.calls.iter().filter(|call| call.index.is_none());
        calls.map(|call| call.sent).min().map_or(MonotonicTime::NEVER, |at| at.after_ms(retry_ms))
    }
}
