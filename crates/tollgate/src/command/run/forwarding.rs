//! Signals that are sent to `run` and meant for its command.
//!
//! A signal that was ignored when the process began stays ignored, here and in the command: so `nohup` works, and a
//! shell's background jobs don't hear Ctrl-C.

use crate::exit::{Exit, WithExit};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Those that ask for an end: they count from the start, since a wait for a lock must be possible to give up.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Those that only a command can do something with.
const OTHERS: [Signal; 5] =
    [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// The same signal once more within this time is a copy.
const COPY_WITHIN: Duration = Duration::from_millis(500);

/// Signals as they come.
pub(crate) struct Forwarding {
    incoming: mpsc::UnboundedReceiver<Signal>,
    listeners: mpsc::UnboundedSender<Signal>,
    ignored: u64,
    /// Whether there is, or was, a command that they are meant for.
    for_a_command: bool,
    /// Whether one came that was not to be waited after.
    insisted: bool,
    /// The last one, and when it came.
    last: Option<(Signal, Instant)>,
}

impl Forwarding {
    /// Begins to listen for those that ask for an end.
    pub(crate) fn start() -> std::io::Result<Forwarding> {
        let (listeners, incoming) = mpsc::unbounded_channel();
        let (for_a_command, insisted) = (false, false);
        let forwarding =
            Forwarding { incoming, listeners, ignored: ignored(), for_a_command, insisted, last: None };
        forwarding.listen(&ENDING)?;
        Ok(forwarding)
    }

    /// There is a command now: it gets the others as well.
    pub(crate) fn listen_to_all(&mut self) -> std::io::Result<()> {
        self.for_a_command = true;
        self.listen(&OTHERS)
    }

    fn listen(&self, signals: &[Signal]) -> std::io::Result<()> {
        for kind in signals.iter().copied().filter(|kind| !is_in(*kind, self.ignored)) {
            let mut stream = signal(SignalKind::from_raw(kind as i32))?;
            let listener = self.listeners.clone();
            tokio::spawn(
                async move { while stream.recv().await.is_some() && listener.send(kind).is_ok() {} },
            );
        }
        Ok(())
    }

    /// Does something unless a signal comes first: the process ends with that then, and without another word.
    pub(crate) async fn unless<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            signal = self.next() => Err(WithExit(Exit::signal(signal as i32), String::new()).into()),
        }
    }

    /// As above, with the last thing that is to be done: after a signal nothing more is waited for.
    pub(crate) async fn unless_insisted<T>(&mut self, work: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::select! {
            done = work => Ok(done),
            signal = self.next_of_another_mind() => {
                self.insisted = true;
                Err(WithExit(Exit::signal(signal as i32), String::new()).into())
            }
        }
    }

    pub(crate) fn has_insisted(&self) -> bool {
        self.insisted
    }

    pub(crate) fn are_for_a_command(&self) -> bool {
        self.for_a_command
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = self.incoming.recv().await.expect("it holds a sender itself");
        self.last = Some((signal, Instant::now()));
        signal
    }

    /// Waits for one that is not a copy of the last: a terminal that closes and the shell on it both say so, and
    /// wrappers pass on what their group was sent as well.
    pub(crate) async fn next_of_another_mind(&mut self) -> Signal {
        loop {
            let before = self.last;
            let signal = self.next().await;
            let copy = |(last, at): (Signal, Instant)| last == signal && at.elapsed() < COPY_WITHIN;
            if !before.is_some_and(copy) {
                return signal;
            }
            // However many there are, they count from the first.
            self.last = before;
        }
    }
}

fn is_in(signal: Signal, mask: u64) -> bool {
    mask & (1 << (signal as i32 - 1)) != 0
}

/// Whether this process ignores a signal: it does so from its beginning if whoever started it wanted that (`nohup`).
pub(crate) fn is_ignored(signal: Signal) -> bool {
    is_in(signal, ignored())
}

/// The signals that this process ignores, as a mask; none if that can't be read here.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        // The standard library ignores SIGPIPE in every program.
        assert!(is_in(Signal::SIGPIPE, ignored()));
        assert!(!is_in(Signal::SIGTERM, ignored()));
    }
}
