//! The actions on a command whose lock is lost.

use clap::ValueEnum;

/// Action on the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM, and SIGKILL when the grace is over
    Term,
    /// SIGKILL, at the last moment
    Kill,
    /// SIGUSR1 to the command itself, which then runs on: it must stop working by itself
    Notify,
}

impl OnLost {
    pub(crate) fn name(self) -> &'static str {
        match self {
            OnLost::Term => "term",
            OnLost::Kill => "kill",
            OnLost::Notify => "notify",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<OnLost> {
        [OnLost::Term, OnLost::Kill, OnLost::Notify].into_iter().find(|known| known.name() == name)
    }
}
