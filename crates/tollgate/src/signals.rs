//! Signals that ask the process to stop: the first asks, the second insists.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tollgate_server::planted::{Bug, planted};

/// SIGINT and SIGTERM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Signals> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Signals { interrupt, terminate })
    }

    /// Waits for one; gives its number.
    pub(crate) async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }

    /// Has something stop, but not longer than until the next signal.
    pub(crate) async fn while_stopping(&mut self, stopping: impl Future<Output = ()>) {
        tokio::select! {
            () = stopping => {}
            number = self.next(), if !planted(Bug::SecondSignalIgnored) => {
                eprintln!("stopping at once");
                std::process::exit(128 + number);
            }
        }
    }
}
