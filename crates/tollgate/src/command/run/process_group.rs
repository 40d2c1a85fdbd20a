//! The process group that a command runs in, with all that it starts.
//!
//! Signals to it reach every member. Invariant: a group is signalled only while its leader has not been reaped: only
//! then is its number surely not another's.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Between two looks at a group that is to be gone.
const PAUSE: Duration = Duration::from_millis(2);

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
        Stat::of(self.0).is_some_and(|stat| !stat.is_dead())
    }

    /// Waits until nothing of it is left, but not for ever; whether it is gone.
    pub(crate) fn wait_gone(self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.lives() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

/// How many processes of the group are not zombies; none if that can't be read here.
fn members(group: Pid) -> Option<usize> {
    let processes = std::fs::read_dir("/proc").ok()?;
    let stats = processes.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        Stat::read(&entry.path().join("stat").to_string_lossy())
    });
    Some(stats.filter(|stat| stat.group == group && !stat.is_dead()).count())
}

/// What the system says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    state: char,
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    pub(crate) session: Pid,
}

impl Stat {
    /// That of one process; none if it is gone.
    pub(crate) fn of(pid: Pid) -> Option<Stat> {
        Stat::read(&format!("/proc/{pid}/stat"))
    }

    fn read(path: &str) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// A name in brackets comes second and may hold anything: the last bracket ends it.
    fn parse(text: &str) -> Option<Stat> {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        Some(Stat { state, parent: number()?, group: number()?, session: number()? })
    }

    fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = Stat::parse("42 (a ) b (c) S 7 8 9 34816 42 4194304").unwrap();
        let pid = Pid::from_raw;
        assert_eq!(stat, Stat { state: 'S', parent: pid(7), group: pid(8), session: pid(9) });
        assert!(Stat::of(Pid::this()).is_some_and(|own| own.parent == Pid::parent()));
    }

    #[test]
    fn a_group_that_is_not_there_does_not_live() {
        let group = ProcessGroup::of(i32::MAX - 1);
        assert!(!group.lives());
        assert_eq!(group.signal(Signal::SIGTERM), Ok(()));
    }
}
