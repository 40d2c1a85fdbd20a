//! Signals that ask the process to stop: the first asks, the second insists.

use crate::command::is_ignored;
use nix::sys::signal::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tollgate_server::planted::{Bug, planted};

/// What SIGHUP is to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hangup {
    /// Its terminal is gone, and so should it be.
    Ends,
    /// Nothing to a server: it has no terminal to lose, and nothing to reload. It says so, and goes on.
    Remarked,
}

/// SIGINT, SIGTERM, and SIGHUP.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where it was ignored when the process began (`nohup`): it stays so.
    hangup: Option<Signal>,
    on_hangup: Hangup,
}

impl Signals {
    /// For a command that somebody called: it ends with the terminal that it was called from.
    pub(crate) fn new() -> std::io::Result<Signals> {
        Signals::with(Hangup::Ends)
    }

    /// For a server, which a SIGHUP does not end.
    pub(crate) fn of_server() -> std::io::Result<Signals> {
        Signals::with(Hangup::Remarked)
    }

    fn with(on_hangup: Hangup) -> std::io::Result<Signals> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let hangup = if is_ignored(Number::SIGHUP) { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Signals { interrupt, terminate, hangup, on_hangup })
    }

    /// Waits for one that asks for an end; gives its number.
    pub(crate) async fn next(&mut self) -> i32 {
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.interrupt.recv() => return 2,
                _ = self.terminate.recv() => return 15,
                _ = hangup => match self.on_hangup {
                    Hangup::Ends => return 1,
                    Hangup::Remarked => {
                        tracing::info!("SIGHUP: there is nothing to reload, the server goes on; SIGTERM stops it");
                    }
                },
            }
        }
    }

    /// Has something stop, but not longer than until the next signal: whose number is the error then.
    pub(crate) async fn while_stopping(&mut self, stopping: impl Future<Output = ()>) -> Result<(), i32> {
        tokio::select! {
            () = stopping => Ok(()),
            number = self.next(), if !planted(Bug::SecondSignalIgnored) => {
                // Whoever hung up may have taken the terminal along.
                crate::output::say("stopping at once");
                Err(number)
            }
        }
    }
}
