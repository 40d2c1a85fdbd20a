//! Signals that are sent to `run` and meant for its command.
//!
//! Invariant: a signal that was ignored when the process began stays ignored, here and in the command: so `nohup`
//! works, and a shell's background jobs don't hear Ctrl-C.

use crate::exit::{Exit, WithExit};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Signals that ask for an end. They count from the start, since the user must be able to give up a wait for a lock.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Signals that only a command can use.
const OTHERS: [Signal; 5] =
    [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGTSTP, Signal::SIGCONT];

/// The same signal repeated within this time is a copy.
const COPY_WITHIN: Duration = Duration::from_millis(500);

/// Stream of the signals that this process receives.
pub(crate) struct Forwarding {
    incoming: mpsc::UnboundedReceiver<Signal>,
    listeners: mpsc::UnboundedSender<Signal>,
    ignored: u64,
    /// True once there is a command that the signals are meant for.
    for_a_command: bool,
    /// True once a signal came after which nothing more is waited for.
    insisted: bool,
    /// The last signal, and its time.
    last: Option<(Signal, Instant)>,
}

impl Forwarding {
    /// Begins to listen for the signals that ask for an end.
    pub(crate) fn start() -> std::io::Result<Forwarding> {
        let (listeners, incoming) = mpsc::unbounded_channel();
        let (for_a_command, insisted) = (false, false);
        let forwarding =
            Forwarding { incoming, listeners, ignored: ignored(), for_a_command, insisted, last: None };
        forwarding.listen(&ENDING)?;
        Ok(forwarding)
    }

    /// Listens for the other signals as well: there is a command now that gets them.
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

    /// Runs `work` unless a signal comes first: then the process ends with that signal, without a message.
    pub(crate) async fn unless<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            signal = self.next() => Err(WithExit(Exit::signal(signal as i32), String::new()).into()),
        }
    }

    /// Runs `work`, the last step of a command, unless a signal comes first: after that signal nothing more is waited
    /// for.
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

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        let signal = self.incoming.recv().await.expect("it holds a sender itself");
        self.last = Some((signal, Instant::now()));
        signal
    }

    /// Waits for a signal that is not a copy of the last: a terminal that closes and the shell on it both send one, and
    /// wrappers pass on what their group was sent as well.
    pub(crate) async fn next_of_another_mind(&mut self) -> Signal {
        loop {
            let before = self.last;
            let signal = self.next().await;
            let copy = |(last, at): (Signal, Instant)| last == signal && at.elapsed() < COPY_WITHIN;
            if !before.is_some_and(copy) {
                return signal;
            }
            // However many copies come, their time counts from the first signal.
            self.last = before;
        }
    }
}

fn is_in(signal: Signal, mask: u64) -> bool {
    mask & (1 << (signal as i32 - 1)) != 0
}

/// True if this process ignores a signal, because its parent started it that way (`nohup`).
pub(crate) fn is_ignored(signal: Signal) -> bool {
    is_in(signal, ignored())
}

/// Returns the signals that this process ignores, as a mask; 0 if that can't be read here.
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
