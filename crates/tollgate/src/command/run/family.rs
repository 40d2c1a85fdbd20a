//! A command and all the processes that it started, in its process group or out of it.
//!
//! `timeout`, `setsid`, a shell's jobs and the command of a nested `run` leave the group, and some leave their parents
//! too. `run` adopts such orphans (it is a subreaper), so that all processes below it are the command's. Should `run`
//! be gone, the guardian finds them by the run id in their environment. Invariants: no process that existed before the
//! command is signalled; the group, which takes no search, is signalled before any search begins; the family is
//! declared gone only after a search that missed no process. Some processes escape nonetheless: those that others start
//! on the command's behalf (systemd, docker, cron, sshd), those of another user, and, in the case of the guardian,
//! orphans whose environment is emptied or may not be read.

use super::boot_clock::boot_time;
use super::guardian;
use super::process::Process;
use super::process_group::ProcessGroup;
use super::run_id::RunId;
use super::search::Search;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getsid};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Pause between two looks at a family that is ending, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(25);

/// Default time limit of one search through environments.
const SEARCH_PATIENCE: Duration = Duration::from_millis(250);

/// Maximum time to find out whether processes that were reparented to this process belong to the run.
const COMER_PATIENCE: Duration = Duration::from_millis(100);

/// Maximum number of members that a message names.
const NAMED_MAX: usize = 5;

/// The processes that end with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All that the command started.
    All,
    /// The command's process group only: processes that have left it are not touched.
    Group,
}

impl Reach {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reach::All => "all",
            Reach::Group => "group",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Reach> {
        [Reach::All, Reach::Group].into_iter().find(|known| known.name() == name)
    }
}

/// A command and all the processes that it started.
#[derive(Debug)]
pub(crate) struct Family {
    group: ProcessGroup,
    /// The command itself; `None` if it can't be read.
    leader: Option<Process>,
    /// True once the group has been empty. A process that gets the group's number after that is a stranger; a guardian,
    /// which can't keep the number from being reused, would kill it.
    group_over: bool,
    known: Known,
    /// Members outside the group that were found once: a member stays one, even if its parents end.
    seen: BTreeSet<(Pid, u64)>,
    /// Members outside the group that were asked to end: no process is asked twice.
    asked: BTreeSet<(Pid, u64)>,
}

/// The way in which members outside the group are recognized.
#[derive(Debug)]
enum Known {
    /// Members outside the group are not tracked.
    Not,
    /// Only guardians of nested runs whose `run` was killed: each stands for what its run started, and ends with it.
    ByGuardians(Below),
    /// All descendants of `run`, but for those that are no part of the command.
    ByParents(Below),
    /// The descendants of the command, and the processes that have the run id in their environment.
    ByRunId(Search),
}

/// Recognizes the children of this process that belong to the command.
#[derive(Debug)]
struct Below {
    /// Processes that were below this process before there was a command.
    besides: Vec<Process>,
    /// Recognizes processes that those others start, and that are reparented to this process too.
    foreign: Option<Foreign>,
}

/// Recognizes processes that do not belong to the command.
#[derive(Debug)]
struct Foreign {
    /// Process groups of the others: the command has another.
    groups: BTreeSet<Pid>,
    /// Sessions of the others, except for the one that the command is in too.
    sessions: BTreeSet<Pid>,
    /// Reads the environment of processes in neither.
    search: Search,
    /// Processes that have turned out not to belong to the run.
    known: BTreeSet<(Pid, u64)>,
}

impl Foreign {
    fn has(&self, process: Process) -> bool {
        self.groups.contains(&process.group)
            || self.sessions.contains(&process.session)
            || self.known.contains(&process.identity())
    }
}

impl Below {
    /// Describes the children of this process, given those from before the command. The guardian, one of them, starts
    /// no processes.
    fn new(besides: Vec<Process>, guardian: Pid, id: &RunId) -> Below {
        let others = || besides.iter().filter(|other| other.pid != guardian);
        let own_session = getsid(None).ok();
        let foreign = others().next().map(|_| Foreign {
            groups: others().map(|other| other.group).collect(),
            sessions: others().map(|other| other.session).filter(|one| Some(*one) != own_session).collect(),
            // The processes may have begun at any time.
            search: Search::new(id.clone(), 0),
            known: BTreeSet::new(),
        });
        Below { besides, foreign }
    }

    fn has(&self, process: Process) -> bool {
        process.parent == Pid::this()
            && !self.besides.iter().any(|other| other.is(process))
            && !self.foreign.as_ref().is_some_and(|foreign| foreign.has(process))
    }

    /// Finds out whether processes of unknown origin belong to the run. A process that shows nothing in time, or may
    /// not be read, counts as the command's: what the command started must not outlive the lock.
    fn ask(&mut self, comers: impl IntoIterator<Item = Process>) {
        let comers: Vec<Process> = comers.into_iter().filter(|comer| self.has(*comer)).collect();
        let Some(foreign) = self.foreign.as_mut().filter(|_| !comers.is_empty()) else { return };
        let until = Instant::now() + COMER_PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let unknown = comers.iter().copied().filter(|comer| !foreign.known.contains(&comer.identity()));
            let strangers = foreign.search.strangers_among(unknown.collect::<Vec<_>>(), left);
            foreign.known.extend(strangers.processes.iter().map(|stranger| stranger.identity()));
            // A process that is just executing another program shows nothing for a moment.
            if strangers.complete || left.is_zero() {
                return;
            }
            std::thread::sleep(PAUSE_MIN);
        }
    }
}

/// Returns all descendants of this process before there is a command: its guardian, and what a shell started that then
/// became `run`. Not only the children: deeper descendants are reparented to this process when their parents end.
pub(crate) fn descendants_so_far() -> Vec<Process> {
    let all = Process::all().unwrap_or_default();
    let children = all.iter().copied().filter(|process| process.parent == Pid::this());
    with_descendants(children.collect(), &all)
}

/// Returns processes and all their descendants.
fn with_descendants(mut next: Vec<Process>, all: &[Process]) -> Vec<Process> {
    let mut children: BTreeMap<Pid, Vec<Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found = BTreeMap::new();
    while let Some(process) = next.pop() {
        if found.insert(process.pid, process).is_none() {
            next.extend(children.get(&process.pid).into_iter().flatten());
        }
    }
    found.into_values().collect()
}

impl Family {
    fn new(group: ProcessGroup, known: Known) -> Family {
        let leader = Process::of(group.pid());
        Family { group, leader, group_over: false, known, seen: BTreeSet::new(), asked: BTreeSet::new() }
    }

    /// Family of a command that this process started. `besides` are the processes that were below this one before,
    /// among them the guardian.
    pub(crate) fn below_us(
        group: ProcessGroup,
        reach: Reach,
        besides: Vec<Process>,
        guardian: Pid,
        id: &RunId,
    ) -> Family {
        let below = Below::new(besides, guardian, id);
        let known = match reach {
            Reach::All => Known::ByParents(below),
            Reach::Group => Known::ByGuardians(below),
        };
        Family::new(group, known)
    }

    /// Family of a command that another process started.
    pub(crate) fn of_run(group: ProcessGroup, reach: Reach, id: RunId) -> Family {
        let since = Process::of(group.pid()).map_or(0, |leader| leader.started);
        let known = match reach {
            Reach::All => Known::ByRunId(Search::new(id, since)),
            Reach::Group => Known::Not,
        };
        Family::new(group, known)
    }

    pub(crate) fn group(&self) -> ProcessGroup {
        self.group
    }

    /// Sends a signal to the command itself, and never to a process that has reused its number.
    pub(crate) fn signal_leader(&self, signal: Signal) -> Result<(), Errno> {
        match self.leader {
            Some(leader) => leader.signal(signal),
            None => self.group.signal_leader(signal),
        }
    }

    /// Returns the living members that are known by group or parents or were found before; `None` if processes can't be
    /// listed here.
    fn members(&mut self) -> Option<Vec<Process>> {
        // The group is looked at first, or strangers could be listed as members.
        self.look_at_group();
        let all = Process::all()?;
        self.ask_comers(&all);
        let of_themselves = all.iter().copied().filter(|process| self.belongs_by_itself(*process)).collect();
        let mut members = match self.known {
            Known::Not | Known::ByGuardians(_) => of_themselves,
            Known::ByParents(_) | Known::ByRunId(_) => with_descendants(of_themselves, &all),
        };
        members.retain(|process| !process.is_dead());
        let outside = members.iter().filter(|process| self.is_outside(**process));
        let outside: Vec<_> = outside.map(|process| process.identity()).collect();
        self.seen.extend(outside);
        Some(members)
    }

    /// Finds out whether processes that were reparented to this one belong to the run, if some may not.
    fn ask_comers(&mut self, all: &[Process]) {
        let (own_number, leader) = (self.own_number(), self.group.pid());
        let (Known::ByParents(below) | Known::ByGuardians(below)) = &mut self.known else { return };
        let is_known = |process: &Process| {
            Some(process.group) == own_number
                || process.pid == leader
                || self.seen.contains(&process.identity())
                || process.is_dead()
        };
        below.ask(all.iter().copied().filter(|process| !is_known(process)));
    }

    /// True if a process is a member whoever its parent is.
    fn belongs_by_itself(&self, process: Process) -> bool {
        !self.is_outside(process)
            || self.seen.contains(&process.identity())
            || match &self.known {
                // The command itself may have joined another group.
                Known::ByParents(below) => below.has(process) || process.pid == self.group.pid(),
                Known::ByGuardians(below) => below.has(process) && is_guardian(process.pid),
                Known::ByRunId(_) | Known::Not => false,
            }
    }

    fn is_outside(&self, process: Process) -> bool {
        Some(process.group) != self.own_number()
    }

    /// Returns the number of the group, as long as no other group can have it.
    fn own_number(&self) -> Option<Pid> {
        (!self.group_over).then_some(self.group.pid())
    }

    fn look_at_group(&mut self) {
        self.group_over |= self.group.is_over();
    }

    /// Returns the group if it may be signalled, which it may until it has been empty once.
    fn group_to_signal(&mut self) -> Option<ProcessGroup> {
        self.look_at_group();
        (!self.group_over).then_some(self.group)
    }

    /// Finds members that are known by their environment alone; returns true if all processes could be read. The time
    /// that a search takes is bounded, and work that needs no search should not wait for one.
    fn search(&mut self, patience: Duration) -> bool {
        let own_number = self.own_number();
        let Known::ByRunId(search) = &mut self.known else { return true };
        let Some(all) = Process::all() else { return false };
        let unknown = all.into_iter().filter(|process| {
            let known = Some(process.group) == own_number || self.seen.contains(&process.identity());
            !known && !process.is_dead()
        });
        let found = search.among(unknown.collect::<Vec<_>>(), patience);
        self.seen.extend(found.processes.iter().map(|process| process.identity()));
        found.complete
    }

    /// True if a member is left, as far as members are known.
    pub(crate) fn lives(&mut self) -> bool {
        match self.members() {
            Some(members) => !members.is_empty(),
            None => !self.group_over && self.group.lives(),
        }
    }

    /// True if no member is left. That takes a search which begins when no known member lives, and which misses no
    /// process: a known member may have started another after the last search.
    pub(crate) fn is_gone(&mut self, patience: Duration) -> bool {
        !self.lives() && self.search(patience) && !self.lives()
    }

    /// Names the members that are left, for messages.
    pub(crate) fn names(&mut self) -> String {
        let Some(members) = self.members() else { return format!("process group {}", self.group.pid()) };
        let name = |one: &Process| {
            if is_guardian(one.pid) { "the guardian of a run inside".to_owned() } else { one.name() }
        };
        let named = members.iter().take(NAMED_MAX).map(|one| format!("{} ({})", one.pid, name(one)));
        let named = named.collect::<Vec<_>>().join(", ");
        match members.len().saturating_sub(NAMED_MAX) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }

    /// True if some of the living members have left the group.
    pub(crate) fn has_left_its_group(&mut self) -> bool {
        let members = self.members().unwrap_or_default();
        members.into_iter().any(|process| self.is_outside(process) && !is_guardian(process.pid))
    }

    /// Records the members outside the group while their parents still identify them.
    pub(crate) fn note(&mut self) {
        let _ = self.members();
    }

    /// Kills all members: first the group, at once; then the members known by their parents; then those that a search
    /// finds. So the command of a nested `run` may hear from its guardian that the run died, a moment before its own
    /// end.
    pub(crate) fn kill(&mut self) -> Result<(), Errno> {
        let group = self.group_to_signal().map_or(Ok(()), |group| group.signal(Signal::SIGKILL));
        let near = self.kill_outside();
        self.search(SEARCH_PATIENCE);
        group.and(near).and(self.kill_outside())
    }

    fn kill_outside(&mut self) -> Result<(), Errno> {
        let members = self.members().unwrap_or_default().into_iter();
        let outside = members.filter(|process| self.is_outside(*process));
        let signal = match self.known {
            // The guardians alone know which processes to kill, and which not to touch.
            Known::ByGuardians(_) => guardian::HURRY,
            _ => Signal::SIGKILL,
        };
        outside.map(|process| process.signal(signal)).fold(Ok(()), Result::and)
    }

    /// Asks all members to end, with a search of at most `patience`. A stopped process is woken, or it would not
    /// notice.
    pub(crate) fn ask(&mut self, patience: Duration) -> Result<(), Errno> {
        let group = self.group_to_signal().map_or(Ok(()), ProcessGroup::ask);
        group.and(self.ask_outside(patience))
    }

    /// Asks the members outside the group that have not been asked yet.
    pub(crate) fn ask_outside(&mut self, patience: Duration) -> Result<(), Errno> {
        let near = self.ask_seen();
        self.search(patience);
        near.and(self.ask_seen())
    }

    /// Asks the members that no other process asks on our behalf. A parent outside the group is asked in place of its
    /// children (`timeout` passes the signal on; if it does not, the children are asked when it is gone), and a nested
    /// `run` asks its own. A second SIGTERM would make some programs end in disorder.
    fn ask_seen(&mut self) -> Result<(), Errno> {
        let members = self.members().unwrap_or_default();
        let by_pid: BTreeMap<Pid, Process> = members.iter().map(|process| (process.pid, *process)).collect();
        let mut sent = Ok(());
        for process in members {
            // The `run`s around this one ask nobody for us: they are no members.
            let parent = by_pid.get(&process.parent);
            let by_parent = parent.is_some_and(|parent| self.is_outside(*parent) || is_tollgate(parent.pid));
            let known = self.asked.contains(&process.identity());
            if !self.is_outside(process) || known || by_parent || is_guardian(process.pid) {
                continue;
            }
            self.asked.insert(process.identity());
            sent = sent.and(process.signal(Signal::SIGTERM)).and(process.signal(Signal::SIGCONT));
        }
        sent
    }

    /// Repeats an action until no member is left, for at most `patience`; returns true if all are gone. The action
    /// returns false to stop early.
    fn until_gone(&mut self, patience: Duration, mut act: impl FnMut(&mut Family, Duration) -> bool) -> bool {
        // Deadlines are counted by this clock: a suspended machine does not make them later.
        let (until, mut pause) = (boot_time() + patience, PAUSE_MIN);
        loop {
            // The action comes first, since a member that can't be listed can still be signalled.
            if !act(self, until.saturating_sub(boot_time())) {
                return false;
            }
            let left = until.saturating_sub(boot_time());
            if self.is_gone(left.min(SEARCH_PATIENCE)) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits for the end of members that were asked, and asks members that turn up; stops waiting once the time is
    /// short.
    pub(crate) fn wait_asked(&mut self, patience: Duration, is_hurried: impl Fn() -> bool) -> bool {
        self.until_gone(patience, |family, left| {
            // A member that can't be signalled is reported if it does not end.
            let _ = family.ask_outside(left.min(SEARCH_PATIENCE));
            !is_hurried()
        })
    }

    /// Returns a warning that some processes could not be ended.
    pub(crate) fn tell_of_survivors(&self) -> String {
        let group = self.group.pid();
        format!("warning: processes that the command (process group {group}) started could not be ended")
    }

    /// Kills all members, and those that are born meanwhile; returns true if all are gone.
    pub(crate) fn wait_killed(&mut self, patience: Duration) -> bool {
        self.until_gone(patience, |family, _| {
            // A member that can't be signalled is reported if it does not end.
            let _ = family.kill();
            true
        })
    }
}

/// True if a process runs this program: a `run`, which passes signals on.
fn is_tollgate(pid: Pid) -> bool {
    let file = |of: &str| std::fs::metadata(format!("/proc/{of}/exe")).ok().map(|exe| (exe.dev(), exe.ino()));
    let theirs = file(&pid.to_string());
    theirs.is_some() && theirs == file("self")
}

/// True if a process is a guardian, which ends other processes and then itself.
fn is_guardian(pid: Pid) -> bool {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_ascii_end() == guardian::PROCESS_NAME.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicBool, Ordering};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn start(script: &str, id: &RunId) -> (Child, ProcessGroup) {
        let mut command = Command::new("sh");
        let child = command.args(["-c", script]).env(super::super::run_id::VARIABLE, id.as_str());
        let child = child.process_group(0).spawn().unwrap();
        let group = ProcessGroup::of(i32::try_from(child.id()).unwrap());
        (child, group)
    }

    #[track_caller]
    fn until(family: &mut Family, holds: impl Fn(&mut Family) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(family) {
            assert!(Instant::now() < until, "{:?}", family.members());
            std::thread::sleep(PAUSE_MIN);
        }
    }

    /// A family as a guardian knows it: all that was started, whatever group or parent it left, and no other process.
    #[test]
    fn those_who_left_group_and_parents_are_found_by_the_name_of_the_run() {
        let id = RunId::new();
        let (mut bystander, _) = start("exec sleep 1000", &RunId::new());
        let (mut child, group) = start("setsid sh -c 'sleep 1000 & sleep 1000' & exit 0", &id);
        child.wait().unwrap();
        let mut family = Family::of_run(group, Reach::All, id.clone());
        until(&mut family, |family| {
            family.search(PATIENCE);
            family.members().unwrap().len() == 3
        });
        assert!(family.lives() && !family.group().lives());
        let mut of_group = Family::of_run(group, Reach::Group, id);
        assert!(of_group.wait_killed(PATIENCE), "who has left the group is none of it");
        assert!(family.lives(), "and is let be");
        assert!(family.wait_killed(PATIENCE));
        assert_eq!(bystander.try_wait().unwrap(), None);
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }

    /// The processes lose their parents, and have nothing in their environment by which they could be found.
    #[test]
    fn those_who_were_seen_once_are_known_when_their_parents_are_gone() {
        let id = RunId::new();
        let (mut child, group) = start("setsid env -i sleep 1000 & wait", &id);
        let mut family = Family::of_run(group, Reach::All, id);
        until(&mut family, |family| {
            let members = family.members().unwrap();
            members.iter().any(|process| family.is_outside(*process) && process.name() == "sleep")
        });
        group.signal(Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(family.lives(), "it has left its group");
        assert!(family.wait_killed(PATIENCE));
    }

    /// As if the group's number had been given to another group since.
    #[test]
    fn a_group_that_was_over_once_is_another_when_it_is_there_again() {
        let (mut child, group) = start("exec sleep 1000", &RunId::new());
        let mut family = Family::of_run(group, Reach::All, RunId::new());
        assert!(family.lives() && !family.group_over);
        family.group_over = true;
        assert!(!family.lives());
        assert_eq!(family.ask(Duration::ZERO), Ok(()));
        assert!(family.wait_killed(PATIENCE), "it is none of it");
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut late = Family::of_run(group, Reach::Group, RunId::new());
        assert!(!late.lives() && late.group_over);
    }

    #[test]
    fn those_whose_environment_can_not_be_read_delay_no_kill_and_keep_a_family_from_being_gone() {
        static STUCK: AtomicBool = AtomicBool::new(true);
        let id = RunId::new();
        let (mut child, group) = start("setsid sh -c 'exec sleep 1000' & exec sleep 1000", &id);
        let stuck = |pid| {
            while STUCK.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE_MIN);
            }
            std::fs::read(format!("/proc/{pid}/environ"))
        };
        // A member that has left the group, and will be found once environments can be read.
        let mut by_parents = Family::of_run(group, Reach::All, id.clone());
        until(&mut by_parents, Family::has_left_its_group);
        let since = Process::of(group.pid()).unwrap().started;
        let mut family = Family::new(group, Known::ByRunId(Search::new(id, since).reading(stuck)));
        group.signal(Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!family.wait_killed(SEARCH_PATIENCE), "one is left that nobody could ask");
        assert!(by_parents.lives());
        STUCK.store(false, Ordering::Relaxed);
        assert!(family.wait_killed(PATIENCE));
        assert!(!by_parents.lives());
    }

    /// As if an orphan had started the process a moment before its own end.
    #[test]
    fn who_is_born_during_a_search_is_found_before_a_family_is_gone() {
        static BORN: Mutex<Option<(RunId, Option<Child>)>> = Mutex::new(None);
        let id = RunId::new();
        let (mut child, group) = start("exec sleep 1000", &id);
        *BORN.lock() = Some((id.clone(), None));
        let bearing = |pid| {
            let mut born = BORN.lock();
            let (id, born) = born.as_mut().unwrap();
            born.get_or_insert_with(|| start("exec sleep 1000", id).0);
            std::fs::read(format!("/proc/{pid}/environ"))
        };
        let search = Search::new(id, 0).reading(bearing);
        let mut family = Family::new(group, Known::ByRunId(search));
        assert!(family.wait_killed(PATIENCE));
        child.wait().unwrap();
        let (_, born) = BORN.lock().take().unwrap();
        let mut born = born.unwrap();
        let process = Process::of(Pid::from_raw(i32::try_from(born.id()).unwrap()));
        assert!(process.is_some_and(Process::is_dead), "it has outlived its family");
        born.wait().unwrap();
    }

    #[test]
    fn who_is_left_is_named_within_bounds() {
        let id = RunId::new();
        let (mut child, group) =
            start("for n in 1 2 3 4 5 6; do sleep 1000 & done; printf '\\377' > /proc/$$/comm; wait", &id);
        let mut family = Family::of_run(group, Reach::Group, id);
        let first = format!("{} (\u{fffd}), ", group.pid());
        until(&mut family, |family| {
            let names = family.names();
            names.starts_with(&first)
                && names.matches("(sleep)").count() == 4
                && names.ends_with(" and 2 more")
        });
        assert!(family.wait_killed(PATIENCE));
        child.wait().unwrap();
    }
}
