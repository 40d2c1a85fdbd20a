//! Says things on stderr, and waits for nobody to read them.
//!
//! A pipe that nobody reads is full some day, and then to write to it takes for ever; so it does on a terminal after
//! Ctrl-S. But what a process has to do (end a command, keep a lease alive, give a lock back) is due when it is due.
//! So a thread of its own writes, and what does not fit into its queue is dropped; without a thread, so is what can't
//! be written at once. Nor does a terminal stop the process for it. Invariant: only `wait` waits, and not longer than
//! it is told to.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How many texts wait to be written. More than a command ever says at a time.
const QUEUED_MAX: usize = 64;

/// How much a pipe takes at once if it takes anything (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Writes what others say, in their order.
pub(super) struct Speaker {
    queue: SyncSender<String>,
    unsaid: Arc<Unsaid>,
}

/// How many texts were taken and are not written yet.
#[derive(Default)]
struct Unsaid {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl Unsaid {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().expect("nobody panics with it")
    }

    fn less_one(&self) {
        *self.count() -= 1;
        self.fewer.notify_all();
    }
}

impl Speaker {
    /// None if there can't be a thread for it.
    pub(super) fn start(to: impl Write + Send + 'static) -> Option<Speaker> {
        let (queue, texts) = sync_channel(QUEUED_MAX);
        let unsaid = Arc::<Unsaid>::default();
        let of_thread = Arc::clone(&unsaid);
        let thread = std::thread::Builder::new().name("speaker".to_owned());
        thread.spawn(move || write_all(&texts, to, &of_thread)).ok()?;
        Some(Speaker { queue, unsaid })
    }

    /// Takes a text to be written, unless too many are before it.
    pub(super) fn say(&self, text: String) {
        *self.unsaid.count() += 1;
        if self.queue.try_send(text).is_err() {
            self.unsaid.less_one();
        }
    }

    /// Waits until all that was taken is written, but not longer than this; whether it is.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let waited = self.unsaid.fewer.wait_timeout_while(self.unsaid.count(), patience, |count| *count > 0);
        *waited.expect("nobody panics with it").0 == 0
    }
}

fn write_all(texts: &Receiver<String>, mut to: impl Write, unsaid: &Unsaid) {
    let _ = block_stops();
    for text in texts {
        // Nobody may be there to read it.
        let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
        unsaid.less_one();
    }
}

/// From the background a terminal may stop whoever writes to it (`stty tostop`), the whole process and its group: but
/// not those who don't hear of it. Gives what was blocked before, for this thread.
fn block_stops() -> nix::Result<SigSet> {
    SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK)
}

/// Writes a text where there is no thread for it, as far as nobody has to be waited for; the rest is dropped.
pub(super) fn write_what_fits(to: &mut (impl Write + AsFd), text: &str) {
    let blocked_before = block_stops();
    for part in text.as_bytes().chunks(AT_ONCE) {
        // Nobody may be there to read it.
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
        // More than a pipe holds: it would wait for ever.
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
        // Each more than a pipe holds.
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
