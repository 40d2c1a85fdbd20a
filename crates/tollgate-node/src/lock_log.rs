//! Writes into the log what happens to locks and leases: a line each, with fields.
//!
//! On a thread of its own, for whoever reads the log may be slow. Invariant: what waits to be written has a bound; what
//! is past it is left out, and how much that was is said. Names and what else clients choose are shown escaped. Not
//! here: what is noted (`tollgate_core::Noting`), and where log lines go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use tollgate_core::{EndReason, Note, Noted};
use tollgate_types::{DurationMs, GroupId, Token, escaped};

/// Lines that may wait to be written.
const WAITING_MAX: usize = 65_536;

/// What happened in one group.
type Happened = (GroupId, Vec<Note>);

/// Where the driver leaves what is to be written.
pub(crate) struct LockLog {
    lines: Sender<Happened>,
    count: Arc<Count>,
}

/// How many lines wait, and how many were left out.
#[derive(Default)]
struct Count {
    waiting: AtomicUsize,
    left_out: AtomicU64,
}

impl LockLog {
    /// A log, and what its thread runs until the log is dropped.
    pub(crate) fn new() -> (LockLog, impl FnOnce() + Send + 'static) {
        let (lines, written) = std::sync::mpsc::channel();
        let count = Arc::new(Count::default());
        (LockLog { lines, count: Arc::clone(&count) }, move || write_all(&written, &count))
    }

    /// Has lines written, if not too many wait.
    pub(crate) fn add(&self, group: GroupId, notes: Vec<Note>) {
        let count = notes.len();
        // Only this thread adds.
        if self.count.waiting.load(Ordering::Relaxed) + count > WAITING_MAX {
            self.count.left_out.fetch_add(count as u64, Ordering::Relaxed);
            return;
        }
        self.count.waiting.fetch_add(count, Ordering::Relaxed);
        // Gone only if its thread has panicked, which stops the node.
        let _ = self.lines.send((group, notes));
    }
}

fn write_all(lines: &Receiver<Happened>, count: &Count) {
    for (group, notes) in lines {
        let left_out = count.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            tracing::warn!(
                lines = left_out,
                "locks change hands faster than the log is written: lines were left out"
            );
        }
        for note in notes {
            count.waiting.fetch_sub(1, Ordering::Relaxed);
            write(group, &note);
        }
    }
}

fn write(group: GroupId, note: &Note) {
    let names = note.names.iter().map(|name| escaped(name.as_bytes()).to_string());
    let lock = (!note.names.is_empty()).then(|| names.collect::<Vec<_>>().join(","));
    let shown = |text: &[u8]| (!text.is_empty()).then(|| escaped(text).to_string());
    tracing::info!(
        target: "tollgate::locks",
        %group,
        lock,
        lease = %note.lease,
        owner = shown(note.owner.as_bytes()),
        client = shown(note.client_id.as_bytes()),
        token = note.token.map(Token::get),
        mode = note.mode.map(|mode| mode.to_string()),
        waited_ms = note.waited.map(DurationMs::ms),
        held_ms = note.held.map(DurationMs::ms),
        reason = note.reason.map(word),
        note = shown(note.note.as_bytes()),
        "{}",
        sentence(note)
    );
}

/// What happened, in words that can be searched for.
fn sentence(note: &Note) -> &'static str {
    match note.what {
        Noted::Waits => "waits for a lock",
        Noted::Granted => "lock granted",
        Noted::Converted => "lock held in another mode",
        Noted::Ended if note.reason.is_some_and(EndReason::is_involuntary) => "lock lost",
        Noted::Ended => "lock released",
        Noted::Left => "wait ended without the lock",
        Noted::Refused => "wait refused: it would be part of a deadlock",
        Noted::LeaseEnded => "lease ended",
    }
}

const fn word(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Released => "released",
        EndReason::LeaseExpired => "lease expired",
        EndReason::LeaseRevoked => "lease revoked",
        EndReason::Disconnected => "disconnected",
        EndReason::Forced => "forced",
        EndReason::MaxHold => "max hold",
        EndReason::TimedOut => "timed out",
        EndReason::Cancelled => "cancelled",
        EndReason::Deadlock => "deadlock",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{ClientId, LeaseId, Owner, Reason};

    fn note() -> Note {
        Note {
            what: Noted::LeaseEnded,
            names: Vec::new(),
            lease: LeaseId::new(1).unwrap(),
            owner: Owner::LEASE,
            client_id: ClientId::NONE,
            mode: None,
            token: None,
            waited: None,
            held: None,
            reason: None,
            note: Reason::NONE,
        }
    }

    #[test]
    fn p16_lines_that_nobody_writes_wait_up_to_a_bound_and_the_rest_is_counted() {
        let (log, _never_run) = LockLog::new();
        let group = GroupId::new(0);
        log.add(group, vec![note(); WAITING_MAX - 1]);
        log.add(group, vec![note(); 2]);
        log.add(group, vec![note()]);
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        assert_eq!(count(&log.count.waiting), WAITING_MAX);
        assert_eq!(log.count.left_out.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_released_lock_is_not_lost_and_a_taken_one_is() {
        let ended = |reason| sentence(&Note { what: Noted::Ended, reason: Some(reason), ..note() });
        assert_eq!(ended(EndReason::Released), "lock released");
        for reason in [EndReason::LeaseExpired, EndReason::Forced, EndReason::MaxHold] {
            assert_eq!(ended(reason), "lock lost");
        }
    }
}
