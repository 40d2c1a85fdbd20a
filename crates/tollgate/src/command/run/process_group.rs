//! The process group of a command: the command and all the processes it started that stay in the group.
//!
//! Signals to the group reach every member. Invariant: `run` signals a group only while its leader has not been reaped:
//! only then is its number surely not another group's. Not here: processes that left the group, and guardians, which
//! reap no process (`family`).

use super::process::Process;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// A process group, identified by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessGroup(Pid);

impl ProcessGroup {
    /// Returns the group that a process leads.
    pub(crate) fn of(leader: i32) -> ProcessGroup {
        ProcessGroup(Pid::from_raw(leader))
    }

    pub(crate) fn pid(self) -> Pid {
        self.0
    }

    /// Sends a signal to all members. An empty group is no failure.
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

    /// Asks the group to end. Stopped members are woken, or they would not notice.
    pub(crate) fn ask(self) -> Result<(), Errno> {
        self.signal(Signal::SIGTERM)?;
        self.signal(Signal::SIGCONT)
    }

    /// True if no member is left, not even a zombie: from then on the group's number may be reused.
    pub(crate) fn is_over(self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }

    /// True if a member is left that is not dead.
    pub(crate) fn lives(self) -> bool {
        if self.is_over() {
            return false;
        }
        // Most groups have a leader, and then the other members need not be looked for.
        let is_led = Process::of(self.0).is_some_and(|leader| leader.group == self.0 && !leader.is_dead());
        // A group that exists but shows no members is another user's, and hidden.
        is_led || members(self.0).is_none_or(|members| members.is_empty() || members.contains(&true))
    }

    /// True if the group's leader, the command itself, is not dead.
    pub(crate) fn leader_lives(self) -> bool {
        Process::of(self.0).is_some_and(|leader| !leader.is_dead())
    }
}

/// Returns, for each visible process of the group, true if it is no zombie; `None` if `/proc` can't be read.
fn members(group: Pid) -> Option<Vec<bool>> {
    let all = Process::all()?.into_iter();
    Some(all.filter(|process| process.group == group).map(|process| !process.is_dead()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::time::{Duration, Instant};

    #[test]
    fn a_group_that_is_not_there_does_not_live() {
        let group = ProcessGroup::of(i32::MAX - 1);
        assert!(!group.lives() && group.is_over());
        assert_eq!(group.signal(Signal::SIGTERM), Ok(()));
    }

    #[test]
    fn a_group_lives_without_its_leader_and_not_when_all_are_zombies() {
        let mut command = std::process::Command::new("sh");
        let mut child = command.args(["-c", "sleep 1000 & exit 0"]).process_group(0).spawn().unwrap();
        let group = ProcessGroup::of(i32::try_from(child.id()).unwrap());
        let until = Instant::now() + Duration::from_secs(30);
        while group.leader_lives() {
            assert!(Instant::now() < until, "it has not ended");
        }
        assert!(group.lives(), "one is left");
        group.signal(Signal::SIGKILL).unwrap();
        while group.lives() {
            assert!(Instant::now() < until, "they live");
        }
        assert!(!group.is_over(), "nobody has buried the leader");
        child.wait().unwrap();
    }
}
