//! Callers, and the sinks that receive their answers.

use crate::ask::Look;
use std::fmt;
use std::sync::Arc;
use tollgate_replica::CallerKey;

/// Answer to a caller. Reads deliver their results themselves.
pub type Answer = tollgate_replica::Answer<Look>;

/// Receiver of answers. Called on the driver's thread: store the answers and return.
pub trait Sink: Send + Sync {
    /// Takes the answer to the operation with this number. Returns true if it is the first answer since the last flush.
    fn answer(&self, operation: u64, answer: Answer) -> bool;

    /// Takes many answers at once. Returns true if one of them is the first answer since the last flush.
    fn answer_all(&self, answers: std::vec::Drain<'_, (u64, Answer)>) -> bool {
        answers.fold(false, |first, (operation, answer)| self.answer(operation, answer) || first)
    }

    /// Returns the number of the stream of its operations ([`crate::NodeHandle::fresh_stream`]). 0 is fine if none of
    /// them waits in a queue.
    fn stream(&self) -> u64 {
        0
    }

    /// Called at the end of a turn: no more answers come before the next turn.
    fn flush(&self);
}

/// Origin of a request.
#[derive(Clone)]
pub enum Caller {
    /// No caller waits for an answer.
    Nobody,
    /// An operation of a sink, by its number.
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
