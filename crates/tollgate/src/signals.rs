//! Signals that ask the process to stop: the first one asks, the second one insists.

use crate::command::is_ignored;
use nix::sys::signal::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tollgate_server::planted::{Bug, planted};

/// Effect of SIGHUP on the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hangup {
    /// The process ends with its terminal.
    Ends,
    /// A server has no terminal to lose, and nothing to reload: it logs the signal, and goes on.
    Remarked,
}

/// Streams of SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if SIGHUP was ignored when the process began (`nohup`): then it stays ignored.
    hangup: Option<Signal>,
    on_hangup: Hangup,
}

impl Signals {
    /// Makes the signals of a command: it ends with the terminal from which it was called.
    pub(crate) fn new() -> std::io::Result<Signals> {
        Signals::with(Hangup::Ends)
    }

    /// Makes the signals of a server, which a SIGHUP does not end.
    pub(crate) fn of_server() -> std::io::Result<Signals> {
        Signals::with(Hangup::Remarked)
    }

    fn with(on_hangup: Hangup) -> std::io::Result<Signals> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let hangup = if is_ignored(Number::SIGHUP) { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Signals { interrupt, terminate, hangup, on_hangup })
    }

    /// Waits for a signal that asks for an end, and returns its number.
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

    /// Waits for `stopping`, but not longer than until the next signal, whose number is then the error.
    pub(crate) async fn while_stopping(&mut self, stopping: impl Future<Output = ()>) -> Result<(), i32> {
        tokio::select! {
            () = stopping => Ok(()),
            number = self.next(), if !planted(Bug::SecondSignalIgnored) => {
                // After a hangup the terminal may be gone, too.
                crate::output::say("stopping at once");
                Err(number)
            }
        }
    }
}
