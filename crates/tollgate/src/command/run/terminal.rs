//! Whose the terminal is: the command's while it runs, ours before and after.
//!
//! A process group in the background is stopped when it reads the terminal, and gets no Ctrl-C. So the command's group
//! becomes the foreground one, if we were that, and the terminal is taken back when the command has stopped or ended. A
//! command that is a shell gives it on to its jobs; if it is killed together with one, nobody living has the terminal,
//! and it goes to whoever had it before (a `run` that ends) or wants it (one whose command stands still for it).

use super::process::Process;
use super::process_group::ProcessGroup;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

/// For how long nobody living has had it when it may be taken: a shell whose job died takes it back sooner than that.
const ABANDONED_AFTER: Duration = Duration::from_millis(100);

/// The terminal that controls this session.
#[derive(Debug)]
pub(crate) struct Terminal {
    file: File,
    /// Whether the command was given it, and it was not taken back since.
    handed: bool,
    /// Since when nobody living has it, as far as was looked.
    abandoned_since: Option<Instant>,
}

impl Terminal {
    /// None where there is none: cron, a service, a pipe.
    pub(crate) fn open() -> Option<Terminal> {
        let file = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { file, handed: false, abandoned_since: None })
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.file).ok()
    }

    /// Whether our own group has it.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(getpgrp())
    }

    /// Whether the command has it.
    pub(crate) fn is_of(&self, group: ProcessGroup) -> bool {
        self.foreground() == Some(group.pid())
    }

    /// Whether the command was given it: then whoever has it now has it from the command.
    pub(crate) fn was_handed(&self) -> bool {
        self.handed
    }

    /// Whether nobody living has it.
    fn is_abandoned(&self) -> bool {
        // Zero stands for a group that is not of this namespace.
        let group = self.foreground().filter(|group| group.as_raw() > 0);
        group.is_some_and(|group| !ProcessGroup::of(group.as_raw()).lives())
    }

    /// Gives it to the command.
    pub(crate) fn hand_to(&mut self, group: ProcessGroup) {
        self.set(group.pid());
        self.handed = true;
    }

    /// Takes it back, if the command has it, or had it and gave it to somebody who is dead.
    pub(crate) fn take_from(&mut self, group: ProcessGroup) {
        let was_handed = std::mem::take(&mut self.handed);
        if self.is_of(group) || was_handed && self.is_abandoned() {
            self.set(getpgrp());
        }
    }

    /// Takes it, if nobody living has it for a while. To be called again and again by who waits for it.
    pub(crate) fn take_if_abandoned(&mut self) {
        if !self.is_abandoned() {
            self.abandoned_since = None;
        } else if self.abandoned_since.get_or_insert_with(Instant::now).elapsed() >= ABANDONED_AFTER {
            self.abandoned_since = None;
            self.set(getpgrp());
        }
    }

    /// A terminal that was hung up can't be had; there is nothing to do about it.
    fn set(&self, group: Pid) {
        // From the background the system would stop us for this, unless we don't hear of it.
        let blocked = SigSet::from(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(&self.file, group);
            let _ = blocked.thread_unblock();
        }
    }
}

/// Whether others read what the command prints: then they share our group, and may need the terminal as `less` does.
pub(crate) fn in_a_pipeline() -> bool {
    std::fs::metadata("/dev/stdout").is_ok_and(|stdout| stdout.file_type().is_fifo())
}

/// Whether some shell would notice that our group has stopped, and could wake it. Where nobody would, the system
/// ignores Ctrl-Z, and so do we.
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
