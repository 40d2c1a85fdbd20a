//! Processes, as `/proc` describes them.
//!
//! Invariant: a signal never reaches a process other than the one that was looked at, even if its number was reused.
//! Not here: which processes belong to a command (`family`).

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

/// Kernel flag of a process that has begun to end.
const PF_EXITING: u32 = 0x4;

/// Kernel flag of a kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Number of the first field after the process name in `/proc/PID/stat`. Fields are counted from one.
const FIRST_AFTER_NAME: usize = 3;

/// A process, as `/proc/PID/stat` described it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    state: char,
    /// True once the process has begun to end: then it shows nothing of itself, and its children are reparented soon.
    ending: bool,
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    pub(crate) session: Pid,
    /// Number of threads left, including the first, which stays to the end even if it has ended.
    threads: u32,
    /// Start time in ticks since boot: distinguishes the process from a later one with the same number.
    pub(crate) started: u64,
}

impl Process {
    /// Reads a process; `None` if it is gone.
    pub(crate) fn of(pid: Pid) -> Option<Process> {
        Process::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads all processes that this one may see; `None` if `/proc` can't be read.
    pub(crate) fn all() -> Option<Vec<Process>> {
        let entries = std::fs::read_dir("/proc").ok()?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Some(pids.filter_map(|pid| Process::of(Pid::from_raw(pid))).collect())
    }

    /// Parses a stat line. The second field is a name in brackets that may hold any bytes: the last bracket ends it.
    fn parse(bytes: &[u8]) -> Option<Process> {
        let text = String::from_utf8_lossy(bytes);
        let (pid, rest) = text.split_once(' ')?;
        let mut fields = rest.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
        let (parent, group, session) = (number()?, number()?, number()?);
        let flags: u32 = fields.nth(2)?.parse().ok()?;
        let threads = fields.nth(10)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        let (pid, ending) = (Pid::from_raw(pid.parse().ok()?), flags & PF_EXITING != 0);
        Some(Process { pid, state, ending, parent, group, session, threads, started })
    }

    /// Returns a copy of the process with another number.
    #[cfg(test)]
    pub(crate) fn with_pid(self, pid: i32) -> Process {
        Process { pid: Pid::from_raw(pid), ..self }
    }

    /// Returns the command name of the process, escaped for terminals; empty if the process is gone.
    pub(crate) fn name(self) -> String {
        let name = std::fs::read(format!("/proc/{}/comm", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end_matches('\n').escape_debug().to_string()
    }

    /// True if no thread of the process runs, and its children have other parents. The state is that of its first
    /// thread only: other threads may run on, and keep its children until they end.
    pub(crate) fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }

    /// True while the process is stopped by a signal or a tracer.
    pub(crate) fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Number and start time, which distinguish the process from a later one with the same number.
    pub(crate) fn identity(self) -> (Pid, u64) {
        (self.pid, self.started)
    }

    /// True if the process still runs, and has not even begun to end.
    pub(crate) fn runs_on(self) -> bool {
        Process::of(self.pid).is_some_and(|now| now.is(self) && !now.ending && !now.is_dead())
    }

    /// True if the process was given no environment when it began. A process in the middle of an `execve` shows none
    /// either, and does not count: so this must be called after its environment was read, and not before.
    pub(crate) fn has_no_environment(self) -> bool {
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        tells_of_no_environment(&stat).unwrap_or(false)
    }

    /// Like `has_no_environment`, but reads one of the process's threads: a first thread that has ended shows nothing.
    pub(crate) fn thread_has_no_environment(self, thread: Pid) -> bool {
        let stat = std::fs::read(format!("/proc/{}/task/{thread}/stat", self.pid)).unwrap_or_default();
        tells_of_no_environment(&stat).unwrap_or(false)
    }

    /// Returns the threads of the process but for the first.
    pub(crate) fn other_threads(self) -> Vec<Pid> {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return Vec::new() };
        let threads = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        threads.map(Pid::from_raw).filter(|thread| *thread != self.pid).collect()
    }

    /// Like `runs_on`, for one of the process's threads.
    pub(crate) fn thread_runs_on(self, thread: Pid) -> bool {
        let stat = std::fs::read(format!("/proc/{}/task/{thread}/stat", self.pid)).unwrap_or_default();
        let runs = Process::parse(&stat).is_some_and(|now| !now.ending);
        // Checked afterwards: if this is still the process now, it was when its thread was looked at.
        runs && Process::of(self.pid).is_some_and(|now| now.is(self))
    }

    /// True if both describe the same process, perhaps at different times.
    pub(crate) fn is(self, other: Process) -> bool {
        self.identity() == other.identity()
    }

    /// Sends a signal to the process. A process that is gone is no failure.
    pub(crate) fn signal(self, signal: Signal) -> Result<(), Errno> {
        let is_still_there = || Process::of(self.pid).is_some_and(|now| now.is(self));
        let (Some(pid), Some(raw)) = (
            rustix::process::Pid::from_raw(self.pid.as_raw()),
            rustix::process::Signal::from_named_raw(signal as i32),
        ) else {
            return Err(Errno::EINVAL);
        };
        // Opened before the check: the handle can't refer to another process after it.
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) if is_still_there() => {
                pidfd_send_signal(process, raw).map_err(|error| Errno::from_raw(error.raw_os_error()))
            }
            Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => self.signal_by_number(signal, Errno::from_raw(error.raw_os_error())),
        };
        match sent {
            Err(Errno::ESRCH) => Ok(()),
            sent => sent,
        }
    }

    /// Sends a signal by number, where `reason` leaves no better way: an old kernel, a filter on system calls. Between
    /// the check and the signal the number could become another process's, but only if the numbers wrapped around.
    fn signal_by_number(self, signal: Signal, reason: Errno) -> Result<(), Errno> {
        match Process::of(self.pid) {
            Some(now) if now.is(self) => kill(self.pid, signal),
            Some(_) => Ok(()),
            // The process is gone, or can't be looked at.
            None if kill(self.pid, None) == Err(Errno::ESRCH) => Ok(()),
            None => Err(reason),
        }
    }
}

/// Compares the begin and end of the environment in the process's memory; `None` if the kernel does not show them.
fn tells_of_no_environment(told: &[u8]) -> Option<bool> {
    let text = String::from_utf8_lossy(told);
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| -> Option<u64> { fields.get(number - FIRST_AFTER_NAME)?.parse().ok() };
    let (flags, code_end, begin, end) = (field(9)?, field(27)?, field(50)?, field(51)?);
    // During an `execve` there is no end yet; then, for a moment, the end equals the begin of the environment. The end
    // of the code is set last.
    let is_there = end != 0 && code_end != 0;
    Some(flags & PF_KTHREAD != 0 || (is_there && begin == end))
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
            let (pid, state, ending, threads, started) = (pid(42), 'S', false, 1, 12345);
            assert_eq!(read, Process { pid, state, ending, parent, group, session, threads, started });
        }
        let own = Process::of(Pid::this()).unwrap();
        assert!(!own.name().is_empty());
        assert_eq!((own.pid, own.parent), (Pid::this(), Pid::parent()));
        assert!(own.runs_on());
        assert!(Process::all().unwrap().iter().any(|process| process.is(own)));
    }

    #[test]
    fn a_process_is_dead_when_all_its_threads_are() {
        let read = |state, threads| {
            let rest = format!("7 8 9 34816 42 4194308 1 2 3 4 5 6 7 8 20 0 {threads} 0 12345 99 98");
            Process::parse(format!("42 (name) {state} {rest}").as_bytes()).unwrap()
        };
        assert!(read('Z', 1).is_dead() && read('X', 0).is_dead());
        assert!(!read('Z', 2).is_dead() && !read('S', 1).is_dead());
        assert!(read('Z', 2).ending);
    }

    #[test]
    fn no_environment_is_told_from_one_that_is_not_there_yet() {
        let tells = |flags: u64, code_end: u64, start: u64, end: u64| {
            let (before, between) = ("0 ".repeat(17), "0 ".repeat(22));
            let stat =
                format!("42 (a ) b) S 7 8 9 34816 42 {flags} {before}{code_end} {between}{start} {end} 0");
            tells_of_no_environment(stat.as_bytes())
        };
        assert_eq!(tells(0, 64, 4096, 4096), Some(true), "it was given none");
        assert_eq!(tells(0, 64, 4096, 5000), Some(false));
        assert_eq!(tells(0, 0, 0, 0), Some(false), "it is not there yet");
        assert_eq!(tells(0, 0, 4096, 0), Some(false), "nor here");
        assert_eq!(tells(0, 0, 4096, 4096), Some(false), "its end is not found yet");
        assert_eq!(tells(PF_KTHREAD, 0, 0, 0), Some(true));
        assert_eq!(tells_of_no_environment(b""), None);
        assert!(!Process::of(Pid::this()).unwrap().has_no_environment());
    }

    #[test]
    fn where_processes_can_not_be_held_on_to_signals_go_by_number() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(Pid::from_raw(i32::try_from(child.id()).unwrap())).unwrap();
        assert_eq!(process.signal_by_number(Signal::SIGKILL, Errno::EPERM), Ok(()));
        child.wait().unwrap();
        assert_eq!(process.signal_by_number(Signal::SIGKILL, Errno::EPERM), Ok(()), "it is gone");
    }

    #[test]
    fn a_signal_is_not_sent_to_one_that_took_over_a_number() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let process = Process::of(pid).unwrap();
        let another = Process { started: process.started - 1, ..process };
        assert_eq!(another.signal(Signal::SIGKILL), Ok(()));
        assert_eq!(another.signal_by_number(Signal::SIGKILL, Errno::EPERM), Ok(()));
        assert_eq!(child.try_wait().unwrap(), None);
        assert_eq!(process.signal(Signal::SIGKILL), Ok(()));
        // The process has not been reaped yet.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while process.runs_on() {
            assert!(std::time::Instant::now() < until, "it still runs");
        }
        child.wait().unwrap();
        assert!(!process.runs_on());
        assert_eq!(process.signal(Signal::SIGKILL), Ok(()));
    }
}
