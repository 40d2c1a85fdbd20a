//! Ownership of the terminal: the command's while it runs, ours before and after.
//!
//! A process group in the background is stopped when it reads the terminal, and gets no Ctrl-C. So the command's group
//! becomes the foreground group, if ours was, and the terminal is taken back when the command has stopped or ended. A
//! command that is a shell gives the terminal on to its jobs. If it is killed together with a job, no living process
//! has the terminal, and it goes to the `run` that had it before (and ends) or to one whose stopped command waits for
//! it.

use super::process::Process;
use super::process_group::ProcessGroup;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

/// Time without a living owner after which the terminal may be taken: a shell whose job died takes it back sooner.
const ABANDONED_AFTER: Duration = Duration::from_millis(100);

/// The controlling terminal of this session.
#[derive(Debug)]
pub(crate) struct Terminal {
    file: File,
    /// True if the terminal was given to the command, and was not taken back since.
    handed: bool,
    /// Time since which the terminal has no living owner, as far as was checked.
    abandoned_since: Option<Instant>,
}

impl Terminal {
    /// Opens the terminal; `None` where there is none: cron, a service, a pipe.
    pub(crate) fn open() -> Option<Terminal> {
        let file = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { file, handed: false, abandoned_since: None })
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.file).ok()
    }

    /// True if our own group has the terminal.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(getpgrp())
    }

    /// True if the command has the terminal.
    pub(crate) fn is_of(&self, group: ProcessGroup) -> bool {
        self.foreground() == Some(group.pid())
    }

    /// True if the terminal was given to the command: then its present owner has it from the command.
    pub(crate) fn was_handed(&self) -> bool {
        self.handed
    }

    /// True if no living process has the terminal.
    fn is_abandoned(&self) -> bool {
        // Zero stands for a group outside this pid namespace.
        let group = self.foreground().filter(|group| group.as_raw() > 0);
        group.is_some_and(|group| !ProcessGroup::of(group.as_raw()).lives())
    }

    /// Gives the terminal to the command.
    pub(crate) fn hand_to(&mut self, group: ProcessGroup) {
        self.set(group.pid());
        self.handed = true;
    }

    /// Takes the terminal back, if the command has it, or had it and gave it to a process that is dead.
    pub(crate) fn take_from(&mut self, group: ProcessGroup) {
        let was_handed = std::mem::take(&mut self.handed);
        if self.is_of(group) || was_handed && self.is_abandoned() {
            self.set(getpgrp());
        }
    }

    /// Takes the terminal, if it has had no living owner for a while. To be called repeatedly by a `run` that waits for
    /// the terminal.
    pub(crate) fn take_if_abandoned(&mut self) {
        if !self.is_abandoned() {
            self.abandoned_since = None;
        } else if self.abandoned_since.get_or_insert_with(Instant::now).elapsed() >= ABANDONED_AFTER {
            self.abandoned_since = None;
            self.set(getpgrp());
        }
    }

    /// Sets the foreground group. Failures are ignored: nothing can be done about a terminal that was hung up.
    fn set(&self, group: Pid) {
        // From the background the system would stop us for this call, unless the signal is blocked.
        let blocked = SigSet::from(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(&self.file, group);
            let _ = blocked.thread_unblock();
        }
    }
}

/// True if other processes read the output of the command: then they share our group, and may need the terminal as
/// `less` does.
pub(crate) fn in_a_pipeline() -> bool {
    std::fs::metadata("/dev/stdout").is_ok_and(|stdout| stdout.file_type().is_fifo())
}

/// True if a shell would notice that our group has stopped, and could continue it. Where none would, the system ignores
/// Ctrl-Z, and so do we.
pub(crate) fn a_shell_would_notice_a_stop() -> bool {
    let mut next = Process::of(Pid::this());
    let own = next;
    while let (Some(process), Some(own)) = (next, own) {
        if process.group != own.group {
            return process.session == own.session;
        }
        next = if process.parent.as_raw() > 0 { Process::of(process.parent) } else { None };
    }
    false
}
