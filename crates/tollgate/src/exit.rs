//! The exit codes of the process. The numbers are part of the interface.

use std::process::ExitCode;

/// Ways in which the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// Any other failure.
    Failed,
    /// The command line is wrong.
    Usage,
    /// No node of the cluster could be reached, or none answered.
    Unreachable,
    /// The node could not go on: the disk failed, or an invariant broke.
    Fault,
    /// The lock is held by others, and the wait, if there was one, is over.
    Busy,
    /// The cluster does not let this caller do that.
    Denied,
    /// The configuration is wrong.
    Config,
    /// The lock was lost before the command had ended.
    Lost,
    /// There is such a command, but it can't be run.
    NotExecutable,
    /// There is no such command.
    NotFound,
    /// The exit code of a command that was run.
    Code(u8),
}

/// An error with the exit code of the process.
#[derive(Debug)]
pub(crate) struct WithExit(pub(crate) Exit, pub(crate) String);

impl std::fmt::Display for WithExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.1)
    }
}

impl std::error::Error for WithExit {}

impl Exit {
    /// Returns the exit code that a shell reports for a process ended by a signal.
    pub(crate) fn signal(number: i32) -> Exit {
        Exit::Code(u8::try_from(128 + number).unwrap_or(u8::MAX))
    }

    /// Returns the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 64,
            Exit::Unreachable => 69,
            Exit::Fault => 70,
            Exit::Busy => 75,
            Exit::Denied => 77,
            Exit::Config => 78,
            Exit::Lost => 79,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
            Exit::Code(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
