//! The process group that a command runs in, with all that it starts and that stays in it.
//!
//! Signals to it reach every member. Invariant: `run` signals a group only while its leader has not been reaped: only
//! then is its number surely not another's. Not here: what left it (`family`).

use super::process::Process;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// A process group, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessGroup(Pid);

impl ProcessGroup {
    /// That of a process that leads one.
    pub(crate) fn of(leader: i32) -> ProcessGroup {
        ProcessGroup(Pid::from_raw(leader))
    }

    pub(crate) fn pid(self) -> Pid {
        self.0
    }

    /// Sends a signal to all members. That they are gone is no failure.
    pub(crate) fn signal(self, signal: Signal) -> Result<(), Errno> {
        match killpg(self.0, signal) {
            Err(Errno::ESRCH) => Ok(()),
            sent => sent,
        }
    }

    /// Sends a signal to the leader alone.
    pub(crate) fn signal_leader(self, signal: Signal) -> Result<(), Errno> {
        match kill(self.0, signal) {
            Err(Errno::ESRCH) => Ok(()),
            sent => sent,
        }
    }

    /// Asks it to end. What is stopped is woken, or it would not hear.
    pub(crate) fn ask(self) -> Result<(), Errno> {
        self.signal(Signal::SIGTERM)?;
        self.signal(Signal::SIGCONT)
    }

    /// Whether a member is left that is not dead already.
    pub(crate) fn lives(self) -> bool {
        killpg(self.0, None) != Err(Errno::ESRCH) && members(self.0).is_none_or(|members| members > 0)
    }

    /// Whether its leader, the command itself, is not dead.
    pub(crate) fn leader_lives(self) -> bool {
        Process::of(self.0).is_some_and(|leader| !leader.is_dead())
    }
}

/// How many processes of the group are not zombies; none if that can't be read here.
fn members(group: Pid) -> Option<usize> {
    let all = Process::all()?;
    Some(all.iter().filter(|process| process.group == group && !process.is_dead()).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_not_there_does_not_live() {
        let group = ProcessGroup::of(i32::MAX - 1);
        assert!(!group.lives());
        assert_eq!(group.signal(Signal::SIGTERM), Ok(()));
    }
}
