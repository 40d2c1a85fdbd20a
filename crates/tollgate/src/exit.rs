//! How the process ends. The numbers are part of the interface.

use std::process::ExitCode;

/// Ways to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// The command line is wrong.
    Usage,
    /// The node could not go on: the disk failed, or an invariant broke.
    Fault,
    /// The configuration is wrong.
    Config,
    /// Anything else.
    Failed,
}

/// An error that knows how the process ends.
#[derive(Debug)]
pub(crate) struct WithExit(pub(crate) Exit, pub(crate) String);

impl std::fmt::Display for WithExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.1)
    }
}

impl std::error::Error for WithExit {}

impl Exit {
    /// How the process ends with this error.
    pub(crate) fn of(error: &anyhow::Error) -> Exit {
        error.downcast_ref::<WithExit>().map_or(Exit::Failed, |WithExit(exit, _)| *exit)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 64,
            Exit::Fault => 70,
            Exit::Config => 78,
        })
    }
}
