//! Who asked, and where the answer goes.

use crate::ask::Look;
use std::fmt;
use std::sync::Arc;
use tollgate_replica::CallerKey;

/// What a caller is told. Reads answer by themselves.
pub type Answer = tollgate_replica::Answer<Look>;

/// Where answers go. Called on the driver's thread: put them away and return.
pub trait Sink: Send + Sync {
    /// One answer, to the operation that the asker numbered so. Returns whether it is the first since the last flush.
    fn answer(&self, operation: u64, answer: Answer) -> bool;

    /// Likewise, of many at once.
    fn answer_all(&self, answers: std::vec::Drain<'_, (u64, Answer)>) -> bool {
        answers.fold(false, |first, (operation, answer)| self.answer(operation, answer) || first)
    }

    /// By which stream its operations came ([`crate::NodeHandle::fresh_stream`]). 0 will do where none of them waits in
    /// a queue.
    fn stream(&self) -> u64 {
        0
    }

    /// A turn is over: no more answers come before the next.
    fn flush(&self);
}

/// Who asked.
#[derive(Clone)]
pub enum Caller {
    /// Nobody waits for an answer.
    Nobody,
    /// An operation of a sink.
    Of(Arc<dyn Sink>, u64),
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Nobody => f.write_str("nobody"),
            Caller::Of(_, operation) => write!(f, "operation {operation}"),
        }
    }
}

impl tollgate_replica::Caller for Caller {
    fn key(&self) -> CallerKey {
        match self {
            Caller::Nobody => CallerKey { stream: 0, call: 0 },
            Caller::Of(sink, operation) => CallerKey { stream: sink.stream(), call: *operation },
        }
    }
}
