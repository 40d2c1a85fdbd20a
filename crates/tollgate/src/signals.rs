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

    /// Has something stop, but not longer than until the next signal: whose number is the error then.
    pub(crate) async fn while_stopping(&mut self, stopping: impl Future<Output = ()>) -> Result<(), i32> {
        tokio::select! {
            () = stopping => Ok(()),
            number = self.next(), if !planted(Bug::SecondSignalIgnored) => {
                eprintln!("stopping at once");
                Err(number)
            }
        }
    }
}
