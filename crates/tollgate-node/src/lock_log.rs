//! Logs the changes of locks and leases: a line each, with fields.
//!
//! Runs on a thread of its own, because the reader of the log may be slow. Invariant: the lines waiting to be written
//! are bounded, in number and in bytes; lines above the bound are left out, and their number is logged, at the latest
//! when all others are written. Names and other text chosen by clients are shown escaped. Not here: the choice of notes
//! (`tollgate_core::Noting`), and the destination of log lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use tollgate_core::{EndReason, Note, Noted};
use tollgate_types::{DurationMs, GroupId, Token, escaped};

/// Maximum number of lines that wait to be written.
const WAITING_MAX: usize = 65_536;

/// Approximate maximum of the bytes of the waiting lines: a line may name many locks, and contain text from clients.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Notes of one group.
type Happened = (GroupId, Vec<Note>);

/// The driver's end of the log.
pub(crate) struct LockLog {
    lines: Sender<Happened>,
    count: Arc<Count>,
}

/// Number and bytes of the waiting lines, and the number of lines left out.
#[derive(Default)]
struct Count {
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    left_out: AtomicU64,
}

impl LockLog {
    /// Returns a log, and the function that its thread runs until the log is dropped.
    pub(crate) fn new() -> (LockLog, impl FnOnce() + Send + 'static) {
        let (lines, written) = std::sync::mpsc::channel();
        let count = Arc::new(Count::default());
        (LockLog { lines, count: Arc::clone(&count) }, move || write_all(&written, &count))
    }

    /// Has lines written, unless too many wait.
    pub(crate) fn add(&self, group: GroupId, notes: Vec<Note>) {
        let (lines, bytes) = (notes.len(), notes.iter().map(bytes_of).sum::<usize>());
        let count = &self.count;
        // Only the driver's thread adds lines.
        let fits = count.waiting.load(Ordering::SeqCst) + lines <= WAITING_MAX
            && count.bytes.load(Ordering::SeqCst) + bytes <= WAITING_BYTES_MAX;
        let notes = if fits {
            count.waiting.fetch_add(lines, Ordering::SeqCst);
            count.bytes.fetch_add(bytes, Ordering::SeqCst);
            notes
        } else {
            count.left_out.fetch_add(lines as u64, Ordering::SeqCst);
            if count.waiting.load(Ordering::SeqCst) > 0 {
                return; // Whoever writes looks again when that is written.
            }
            Vec::new()
        };
        // Fails only if the log's thread has panicked, which stops the node.
        let _ = self.lines.send((group, notes));
    }
}

/// Estimates the memory that a note takes.
fn bytes_of(note: &Note) -> usize {
    let names: usize = note.names.iter().map(|name| size_of_val(name) + name.as_bytes().len()).sum();
    let texts = note.owner.as_bytes().len() + note.client_id.as_bytes().len() + note.note.as_bytes().len();
    size_of::<Note>() + names + texts
}

fn write_all(lines: &Receiver<Happened>, count: &Count) {
    let say = |left_out| {
        tracing::warn!(
            lines = left_out,
            "locks change hands faster than the log is written: lines were left out"
        );
    };
    while let Some((group, notes)) = next(lines, count, say) {
        for note in notes {
            count.bytes.fetch_sub(bytes_of(&note), Ordering::SeqCst);
            count.waiting.fetch_sub(1, Ordering::SeqCst);
            write(group, &note);
        }
    }
}

/// Waits for the next notes to write. Before that, reports the number of lines left out, if any.
fn next(lines: &Receiver<Happened>, count: &Count, say: impl FnOnce(u64)) -> Option<Happened> {
    let left_out = count.left_out.swap(0, Ordering::SeqCst);
    if left_out > 0 {
        say(left_out);
    }
    lines.recv().ok()
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
        reason = note.reason.map(tracing::field::display),
        note = shown(note.note.as_bytes()),
        "{}",
        sentence(note)
    );
}

/// Returns the event as a sentence that can be searched for.
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
    fn p16_what_waits_is_bounded_by_its_bytes_too() {
        let (log, _never_run) = LockLog::new();
        let group = GroupId::new(0);
        let wordy = Note { note: Reason::new("x".repeat(4_096)).unwrap(), ..note() };
        let fit = WAITING_BYTES_MAX / bytes_of(&wordy);
        assert!(fit < WAITING_MAX);
        for _ in 0..fit + 3 {
            log.add(group, vec![wordy.clone()]);
        }
        assert_eq!(log.count.waiting.load(Ordering::SeqCst), fit);
        assert_eq!(log.count.left_out.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn how_much_was_left_out_is_said_though_no_line_follows() {
        let (log, _never_run) = LockLog::new();
        let (saying, heard) = std::sync::mpsc::channel();
        let (lines, written) = std::sync::mpsc::channel();
        let log = LockLog { lines, ..log };
        let count = Arc::clone(&log.count);
        let group = GroupId::new(0);
        log.add(group, vec![note(); WAITING_MAX]);
        log.add(group, vec![note(); 2]);
        std::thread::spawn(move || {
            while let Some((_, notes)) = next(&written, &count, |left_out| saying.send(left_out).unwrap()) {
                count.bytes.fetch_sub(notes.iter().map(bytes_of).sum(), Ordering::SeqCst);
                count.waiting.fetch_sub(notes.len(), Ordering::SeqCst);
            }
        });
        let soon = std::time::Duration::from_secs(30);
        assert_eq!(heard.recv_timeout(soon), Ok(2), "while it was written");
        // More lines than fit at once, when nothing waits.
        log.add(group, vec![note(); WAITING_MAX + 1]);
        assert_eq!(heard.recv_timeout(soon), Ok(WAITING_MAX as u64 + 1), "when all was written");
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
