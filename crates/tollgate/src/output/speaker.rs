//! Writer of messages to stderr that never waits for a reader.
//!
//! A pipe that nobody reads is full some day, and then a write to it blocks for ever, as does a write to a terminal
//! after Ctrl-S. But the work of a process (ending a command, keeping a lease alive, releasing a lock) is due when it
//! is due. So a thread of its own writes, and text that does not fit into its queue is dropped; without a thread, text
//! that can't be written at once is dropped too. Nor does a terminal stop the process for writing. Invariant: only
//! `wait` waits, and not longer than its time limit.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use parking_lot::{Condvar, Mutex};
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Maximum number of texts in the queue: more than a command ever prints at a time.
const QUEUED_MAX: usize = 64;

/// Bytes that a pipe accepts at once if it accepts any (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Queue of texts for the thread that writes them in order.
pub(super) struct Speaker {
    queue: SyncSender<String>,
    unsaid: Arc<Unsaid>,
}

/// Number of texts that were accepted and are not written yet.
#[derive(Default)]
struct Unsaid {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl Unsaid {
    fn less_one(&self) {
        *self.count.lock() -= 1;
        self.fewer.notify_all();
    }
}

impl Speaker {
    /// Starts the thread; `None` if that fails.
    pub(super) fn start(to: impl Write + Send + 'static) -> Option<Speaker> {
        let (queue, texts) = sync_channel(QUEUED_MAX);
        let unsaid = Arc::<Unsaid>::default();
        let of_thread = Arc::clone(&unsaid);
        let thread = std::thread::Builder::new().name("speaker".to_owned());
        thread.spawn(move || write_all(&texts, to, &of_thread)).ok()?;
        Some(Speaker { queue, unsaid })
    }

    /// Queues a text, unless the queue is full.
    pub(super) fn say(&self, text: String) {
        *self.unsaid.count.lock() += 1;
        if self.queue.try_send(text).is_err() {
            self.unsaid.less_one();
        }
    }

    /// Waits until all accepted texts are written, for at most `patience`; returns true if they are.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let mut count = self.unsaid.count.lock();
        self.unsaid.fewer.wait_while_for(&mut count, |count| *count > 0, patience);
        *count == 0
    }
}

fn write_all(texts: &Receiver<String>, mut to: impl Write, unsaid: &Unsaid) {
    let _ = block_stops();
    for text in texts {
        // There may be nobody to read it.
        let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
        unsaid.less_one();
    }
}

/// Blocks SIGTTOU for this thread: a terminal may stop a background process that writes to it (`stty tostop`), with its
/// whole group, unless the signal is blocked. Returns the mask from before.
fn block_stops() -> nix::Result<SigSet> {
    SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK)
}

/// Writes a text without a thread, as far as that is possible without waiting; the rest is dropped.
pub(super) fn write_what_fits(to: &mut (impl Write + AsFd), text: &str) {
    let blocked_before = block_stops();
    for part in text.as_bytes().chunks(AT_ONCE) {
        // There may be nobody to read it.
        if !takes_some(to) || to.write_all(part).is_err() {
            break;
        }
    }
    if let Ok(before) = blocked_before {
        let _ = before.thread_set_mask();
    }
}

fn takes_some(to: &impl AsFd) -> bool {
    let mut one = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    let polled = poll(&mut one, PollTimeout::ZERO);
    polled.is_ok() && one[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn without_a_thread_what_nobody_reads_is_dropped() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        write_what_fits(&mut writer, "short\n");
        // More than a pipe holds: a plain write would block for ever.
        write_what_fits(&mut writer, &"x".repeat(1 << 21));
        drop(writer);
        let mut lines = BufReader::new(reader).lines().map(|line| line.unwrap());
        assert_eq!(lines.next().as_deref(), Some("short"));
        assert!(lines.next().is_some_and(|rest| rest.len() < 1 << 21));
    }

    #[test]
    fn what_nobody_reads_is_waited_for_within_bounds_and_dropped_if_it_is_too_much() {
        let (reader, writer) = std::io::pipe().unwrap();
        let speaker = Speaker::start(writer).unwrap();
        // Each text is more than a pipe holds.
        let long = "x".repeat(1 << 20);
        let said_max = 2 * QUEUED_MAX;
        for number in 0..said_max {
            speaker.say(format!("{number} {long}\n"));
        }
        assert!(!speaker.wait(Duration::from_millis(10)), "nobody has read it");
        let reading = std::thread::spawn(move || {
            let lines = BufReader::new(reader).lines().map(|line| line.unwrap());
            let numbers = lines.map(|line| line.split_once(' ').unwrap().0.parse().unwrap());
            numbers.collect::<Vec<usize>>()
        });
        assert!(speaker.wait(PATIENCE));
        speaker.say("1000 \n".to_owned());
        assert!(speaker.wait(PATIENCE), "there is room again");
        drop(speaker);
        let read = reading.join().unwrap();
        assert_eq!(read.last(), Some(&1000));
        assert!(read.is_sorted() && (QUEUED_MAX..said_max).contains(&read.len()), "{read:?}");
    }
}
