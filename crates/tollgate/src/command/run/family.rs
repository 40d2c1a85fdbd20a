//! A command and all that it started, in its process group or out of it.
//!
//! `timeout`, `setsid`, a shell's jobs and the command of a `run` inside leave the group, and some leave their parents
//! too. `run` adopts those (it is a subreaper), so that all that is below it is the command's; the guardian, should
//! `run` be gone, finds them by the name of the run in their environment. Invariant: nobody is signalled who was there
//! before the command. What escapes nonetheless: processes that others start on the command's behalf (systemd, docker,
//! cron, sshd), and those of another user.

use super::process::Process;
use super::process_group::ProcessGroup;
use super::run_id::RunId;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Between two looks at a family that is to be gone, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(25);

/// A command and all that it started.
#[derive(Debug)]
pub(crate) struct Family {
    group: ProcessGroup,
    /// The `run` that started it.
    run: Pid,
    known: Known,
    /// Those outside the group that were asked to end, by number and start: nobody is asked twice.
    asked: BTreeSet<(Pid, u64)>,
}

/// How its members outside the group are known.
#[derive(Debug)]
enum Known {
    /// All below `run` are, but for those that are no part of the command.
    ByParents { besides: Vec<Process> },
    /// Those below the command, and those that have the run in their environment.
    ByRunId(RunId),
}

/// What is below this process before there is a command: its guardian, and what a shell started that then became `run`.
pub(crate) fn children_so_far() -> Vec<Process> {
    let all = Process::all().unwrap_or_default();
    all.into_iter().filter(|process| process.parent == Pid::this()).collect()
}

impl Family {
    /// Of a command that this process started when it had these children.
    pub(crate) fn below_us(group: ProcessGroup, besides: Vec<Process>) -> Family {
        Family { group, run: Pid::this(), known: Known::ByParents { besides }, asked: BTreeSet::new() }
    }

    /// Of a command that another process started.
    pub(crate) fn of_run(group: ProcessGroup, run: Pid, id: RunId) -> Family {
        Family { group, run, known: Known::ByRunId(id), asked: BTreeSet::new() }
    }

    pub(crate) fn group(&self) -> ProcessGroup {
        self.group
    }

    /// Whether a child of this process came to it from the command, and is not the command itself.
    pub(crate) fn is_orphan(&self, pid: Pid) -> bool {
        let Known::ByParents { besides } = &self.known else { return false };
        pid != self.group.pid() && !besides.iter().any(|other| other.pid == pid)
    }

    /// Those that live; none if that can't be read here.
    fn members(&self) -> Option<Vec<Process>> {
        let all = Process::all()?;
        let mut children: BTreeMap<Pid, Vec<Process>> = BTreeMap::new();
        for process in &all {
            children.entry(process.parent).or_default().push(*process);
        }
        let mut next: Vec<Process> =
            all.iter().copied().filter(|process| self.belongs_by_itself(*process)).collect();
        let mut found = BTreeMap::new();
        while let Some(process) = next.pop() {
            if found.insert(process.pid, process).is_none() {
                next.extend(children.get(&process.pid).into_iter().flatten());
            }
        }
        Some(found.into_values().filter(|process| !process.is_dead()).collect())
    }

    /// Whether a process is a member whoever its parent is.
    fn belongs_by_itself(&self, process: Process) -> bool {
        process.group == self.group.pid()
            || match &self.known {
                Known::ByParents { besides } => {
                    process.parent == self.run && !besides.iter().any(|other| other.is(process))
                }
                Known::ByRunId(id) => id.is_around(process.pid),
            }
    }

    fn outside(&self) -> Vec<Process> {
        let members = self.members().unwrap_or_default();
        members.into_iter().filter(|process| process.group != self.group.pid()).collect()
    }

    /// Whether somebody is left.
    pub(crate) fn lives(&self) -> bool {
        self.members().map_or_else(|| self.group.lives(), |members| !members.is_empty())
    }

    /// Kills all. First those outside the group: the command of a `run` inside is told by the system when that dies,
    /// and would get to do something about it.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        let outside = self.outside().into_iter().map(|process| process.signal(Signal::SIGKILL));
        let killed = outside.fold(Ok(()), Result::and);
        self.group.signal(Signal::SIGKILL).and(killed)
    }

    /// Asks all to end. What is stopped is woken, or it would not hear.
    pub(crate) fn ask(&mut self) -> Result<(), Errno> {
        let group = self.group.ask();
        group.and(self.ask_outside())
    }

    /// Asks those outside the group who were not asked, and whom nobody asks on our behalf: a parent outside the group
    /// is asked in their place (`timeout` passes it on; if it does not, they are ours when it is gone), and so does a
    /// `run` inside. A second SIGTERM would have some programs end in disorder.
    pub(crate) fn ask_outside(&mut self) -> Result<(), Errno> {
        let outside = self.outside();
        let pids: BTreeSet<Pid> = outside.iter().map(|process| process.pid).collect();
        let mut sent = Ok(());
        for process in outside {
            let by_parent =
                pids.contains(&process.parent) || process.parent != self.run && is_tollgate(process.parent);
            let known = (process.pid, process.started);
            if by_parent || is_guardian(process.pid) || self.asked.contains(&known) {
                continue;
            }
            self.asked.insert(known);
            sent = sent.and(process.signal(Signal::SIGTERM)).and(process.signal(Signal::SIGCONT));
        }
        sent
    }

    /// Waits until nobody is left, but not for ever, and does something with those who are meanwhile; whether all are
    /// gone.
    fn wait_gone(&mut self, patience: Duration, mut meanwhile: impl FnMut(&mut Family)) -> bool {
        let (until, mut pause) = (Instant::now() + patience, PAUSE_MIN);
        while self.lives() {
            meanwhile(self);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
        true
    }

    /// Waits for the end of those who were asked to, and asks those who turn up.
    pub(crate) fn wait_asked(&mut self, patience: Duration) -> bool {
        self.wait_gone(patience, |family| {
            // Who can't be signalled is told of if it does not end.
            let _ = family.ask_outside();
        })
    }

    /// Kills all, and whoever is born meanwhile; whether they are gone.
    pub(crate) fn wait_killed(&mut self, patience: Duration) -> bool {
        self.wait_gone(patience, |family| {
            // As above.
            let _ = family.kill();
        })
    }
}

/// Whether a process is one of this program: a `run`, which passes signals on.
fn is_tollgate(pid: Pid) -> bool {
    let file = |of: &str| std::fs::metadata(format!("/proc/{of}/exe")).ok().map(|exe| (exe.dev(), exe.ino()));
    let theirs = file(&pid.to_string());
    theirs.is_some() && theirs == file("self")
}

/// Whether a process sees to the end of others, and then ends itself.
fn is_guardian(pid: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end() == super::guardian::PROCESS_NAME && is_tollgate(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn start(script: &str, id: &RunId) -> (Child, ProcessGroup) {
        let mut command = Command::new("sh");
        let child = command.args(["-c", script]).env(super::super::run_id::VARIABLE, id.as_str());
        let child = child.process_group(0).spawn().unwrap();
        let group = ProcessGroup::of(i32::try_from(child.id()).unwrap());
        (child, group)
    }

    /// A family as a guardian knows it: all of it, whoever left what, and nobody else.
    #[test]
    fn those_who_left_group_and_parents_are_found_by_the_name_of_the_run() {
        let id = RunId::new();
        let (mut bystander, _) = start("exec sleep 1000", &RunId::new());
        let (mut child, group) = start("setsid sh -c 'sleep 1000 & sleep 1000' & exit 0", &id);
        child.wait().unwrap();
        let mut family = Family::of_run(group, Pid::from_raw(1), id);
        let until = Instant::now() + Duration::from_secs(30);
        while family.members().unwrap().len() < 3 {
            assert!(Instant::now() < until, "{:?}", family.members());
            std::thread::sleep(PAUSE_MIN);
        }
        assert!(family.lives() && !family.group().lives());
        assert!(family.wait_killed(Duration::from_secs(30)));
        assert_eq!(bystander.try_wait().unwrap(), None);
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}
