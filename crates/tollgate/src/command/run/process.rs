//! Processes, as the system tells of them.
//!
//! Invariant: a signal never reaches another process than the one that was looked at, whoever has its number by now.
//! Not here: which processes belong to a command (`family`).

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

/// What the system says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    state: char,
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    pub(crate) session: Pid,
    /// When it was started, in ticks since the machine was: tells it from a later one with its number.
    pub(crate) started: u64,
}

impl Process {
    /// None if it is gone.
    pub(crate) fn of(pid: Pid) -> Option<Process> {
        Process::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// All that this one may see; none if that can't be read here.
    pub(crate) fn all() -> Option<Vec<Process>> {
        let entries = std::fs::read_dir("/proc").ok()?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Some(pids.filter_map(|pid| Process::of(Pid::from_raw(pid))).collect())
    }

    /// A name in brackets comes second and may hold any bytes: the last bracket ends it.
    fn parse(bytes: &[u8]) -> Option<Process> {
        let text = String::from_utf8_lossy(bytes);
        let (pid, rest) = text.split_once(' ')?;
        let mut fields = rest.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        let (parent, group, session) = (number()?, number()?, number()?);
        let started = fields.nth(15)?.parse().ok()?;
        Some(Process { pid: Pid::from_raw(pid.parse().ok()?), state, parent, group, session, started })
    }

    /// Another one like it.
    #[cfg(test)]
    pub(crate) fn with_pid(self, pid: i32) -> Process {
        Process { pid: Pid::from_raw(pid), ..self }
    }

    /// What it calls itself, in a form that does nothing to a terminal; empty if it is gone.
    pub(crate) fn name(self) -> String {
        let name = std::fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end_matches('\n').escape_debug().to_string()
    }

    pub(crate) fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// What tells it from a later one with its number.
    pub(crate) fn identity(self) -> (Pid, u64) {
        (self.pid, self.started)
    }

    /// Whether both are one process, perhaps at different times.
    pub(crate) fn is(self, other: Process) -> bool {
        self.identity() == other.identity()
    }

    /// Sends it a signal. That it is gone is no failure.
    pub(crate) fn signal(self, signal: Signal) -> Result<(), Errno> {
        let is_still_there = || Process::of(self.pid).is_some_and(|now| now.is(self));
        let (Some(pid), Some(raw)) = (
            rustix::process::Pid::from_raw(self.pid.as_raw()),
            rustix::process::Signal::from_named_raw(signal as i32),
        ) else {
            return Err(Errno::EINVAL);
        };
        // Opened before the look: what it stands for can't be another after it.
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) if is_still_there() => {
                pidfd_send_signal(process, raw).map_err(|error| Errno::from_raw(error.raw_os_error()))
            }
            Err(rustix::io::Errno::NOSYS) if is_still_there() => kill(self.pid, signal),
            Err(error) if error != rustix::io::Errno::NOSYS => Err(Errno::from_raw(error.raw_os_error())),
            _ => Ok(()),
        };
        match sent {
            Err(Errno::ESRCH) => Ok(()),
            sent => sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let rest = b") S 7 8 9 34816 42 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 98";
        let pid = Pid::from_raw;
        let (parent, group, session) = (pid(7), pid(8), pid(9));
        for name in [&b"a ) b (c"[..], b"", b"\xff\xfe)", b"\xc3", b"a\nb"] {
            let read = Process::parse(&[b"42 (", name, rest].concat()).unwrap();
            assert_eq!(read, Process { pid: pid(42), state: 'S', parent, group, session, started: 12345 });
        }
        let own = Process::of(Pid::this()).unwrap();
        assert!(!own.name().is_empty());
        assert_eq!((own.pid, own.parent), (Pid::this(), Pid::parent()));
        assert!(Process::all().unwrap().iter().any(|process| process.is(own)));
    }

    #[test]
    fn a_signal_is_not_sent_to_one_that_took_over_a_number() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let process = Process::of(pid).unwrap();
        let another = Process { started: process.started - 1, ..process };
        assert_eq!(another.signal(Signal::SIGKILL), Ok(()));
        assert_eq!(child.try_wait().unwrap(), None);
        assert_eq!(process.signal(Signal::SIGKILL), Ok(()));
        child.wait().unwrap();
        assert_eq!(process.signal(Signal::SIGKILL), Ok(()));
    }
}
