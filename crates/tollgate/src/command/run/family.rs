//! A command and all that it started, in its process group or out of it.
//!
//! `timeout`, `setsid`, a shell's jobs and the command of a `run` inside leave the group, and some leave their parents
//! too. `run` adopts those (it is a subreaper), so that all that is below it is the command's; the guardian, should
//! `run` be gone, finds them by the name of the run in their environment. Invariants: nobody is signalled who was there
//! before the command; the group, which takes no search, is signalled before anybody is looked for; gone is said only
//! after a search that missed nobody. What escapes nonetheless: processes that others start on the command's behalf
//! (systemd, docker, cron, sshd), those of another user, and, to the guardian, orphans whose environment is emptied or
//! may not be read.

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

/// Between two looks at a family that is to be gone, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(25);

/// How long one search through environments may take where nothing else says so.
const SEARCH_PATIENCE: Duration = Duration::from_millis(250);

/// How long those who have come to this process may take to show whose they are.
const COMER_PATIENCE: Duration = Duration::from_millis(100);

/// How many members are named to people.
const NAMED_MAX: usize = 5;

/// Who ends with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All that it started.
    All,
    /// Its process group: who has left that is let be.
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

/// A command and all that it started.
#[derive(Debug)]
pub(crate) struct Family {
    group: ProcessGroup,
    /// The command itself; none where that can't be read.
    leader: Option<Process>,
    /// Whether nobody was left in it once. Whoever has its number since is a stranger; a guardian, who can't keep the
    /// number from being given away, would kill them.
    group_over: bool,
    known: Known,
    /// Those outside the group that were found once: a member stays one, even if its parents end.
    seen: BTreeSet<(Pid, u64)>,
    /// Those of them that were asked to end: nobody is asked twice.
    asked: BTreeSet<(Pid, u64)>,
}

/// How its members outside the group are known.
#[derive(Debug)]
enum Known {
    /// There are none.
    Not,
    /// Only the guardians of runs inside that were killed: each stands for what its run started, and ends with it.
    ByGuardians(Below),
    /// All below `run` are, but for those that are no part of the command.
    ByParents(Below),
    /// Those below the command, and those that have the run in their environment.
    ByRunId(Search),
}

/// Those who are, or come, directly below this process for a command.
#[derive(Debug)]
struct Below {
    /// Those who were below it before there was one.
    besides: Vec<Process>,
    /// What tells those that they start, and that come to this process too, from the command's.
    foreign: Option<Foreign>,
}

/// By what those are known who are of others than the command.
#[derive(Debug)]
struct Foreign {
    /// The groups of those others: the command has another.
    groups: BTreeSet<Pid>,
    /// Their sessions, but for the one that the command is in too.
    sessions: BTreeSet<Pid>,
    /// Asks who is in neither.
    search: Search,
    /// Those who have shown that they are not of the run.
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
    /// The guardian starts nobody.
    fn new(besides: Vec<Process>, guardian: Pid, id: &RunId) -> Below {
        let others = || besides.iter().filter(|other| other.pid != guardian);
        let own_session = getsid(None).ok();
        let foreign = others().next().map(|_| Foreign {
            groups: others().map(|other| other.group).collect(),
            sessions: others().map(|other| other.session).filter(|one| Some(*one) != own_session).collect(),
            // Whenever they began.
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

    /// Asks those of whom nothing is known yet whose they are. Who shows nothing in time, or may not be read, counts as
    /// the command's: what it started must not outlive the lock.
    fn ask(&mut self, comers: impl IntoIterator<Item = Process>) {
        let comers: Vec<Process> = comers.into_iter().filter(|comer| self.has(*comer)).collect();
        let Some(foreign) = self.foreign.as_mut().filter(|_| !comers.is_empty()) else { return };
        let until = Instant::now() + COMER_PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let unknown = comers.iter().copied().filter(|comer| !foreign.known.contains(&comer.identity()));
            let strangers = foreign.search.strangers_among(unknown.collect::<Vec<_>>(), left);
            foreign.known.extend(strangers.processes.iter().map(|stranger| stranger.identity()));
            // One that is just becoming another program shows nothing for a moment.
            if strangers.complete || left.is_zero() {
                return;
            }
            std::thread::sleep(PAUSE_MIN);
        }
    }
}

/// All below this process before there is a command: its guardian, and what a shell started that then became `run`.
/// Not only its children: the others come to it when their parents end.
pub(crate) fn descendants_so_far() -> Vec<Process> {
    let all = Process::all().unwrap_or_default();
    let children = all.iter().copied().filter(|process| process.parent == Pid::this());
    with_descendants(children.collect(), &all)
}

/// Processes and all below them.
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

    /// Of a command that this process started when these were below it, one of them its guardian.
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

    /// Of a command that another process started.
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

    /// Sends a signal to the command itself, and to nobody who has its number since.
    pub(crate) fn signal_leader(&self, signal: Signal) -> Result<(), Errno> {
        match self.leader {
            Some(leader) => leader.signal(signal),
            None => self.group.signal_leader(signal),
        }
    }

    /// Those that live, as far as they are known by group and parents or were found before; none if that can't be read
    /// here.
    fn members(&mut self) -> Option<Vec<Process>> {
        // First, or strangers could be listed as members.
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

    /// Finds out whose those are who have come to this process, if some may be another's.
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

    /// Whether a process is a member whoever its parent is.
    fn belongs_by_itself(&self, process: Process) -> bool {
        !self.is_outside(process)
            || self.seen.contains(&process.identity())
            || match &self.known {
                // It may have joined another group.
                Known::ByParents(below) => below.has(process) || process.pid == self.group.pid(),
                Known::ByGuardians(below) => below.has(process) && is_guardian(process.pid),
                Known::ByRunId(_) | Known::Not => false,
            }
    }

    fn is_outside(&self, process: Process) -> bool {
        Some(process.group) != self.own_number()
    }

    /// The number of the group, as long as it is not another's.
    fn own_number(&self) -> Option<Pid> {
        (!self.group_over).then_some(self.group.pid())
    }

    fn look_at_group(&mut self) {
        self.group_over |= self.group.is_over();
    }

    /// The group, if it is to be signalled: if it has not been over.
    fn group_to_signal(&mut self) -> Option<ProcessGroup> {
        self.look_at_group();
        (!self.group_over).then_some(self.group)
    }

    /// Finds those who are known by their environment alone; whether all could be asked. What that takes is bounded,
    /// and nothing that can be done without it should wait for it.
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

    /// Whether somebody is left of whom we know.
    pub(crate) fn lives(&mut self) -> bool {
        match self.members() {
            Some(members) => !members.is_empty(),
            None => !self.group_over && self.group.lives(),
        }
    }

    /// Whether nobody is left. It takes a search that is begun when nobody is known to live, and misses nobody: who was
    /// known may have started another after the last one.
    pub(crate) fn is_gone(&mut self, patience: Duration) -> bool {
        !self.lives() && self.search(patience) && !self.lives()
    }

    /// Who is left, for people.
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

    /// Whether some of those who are left have left the group.
    pub(crate) fn has_left_its_group(&mut self) -> bool {
        let members = self.members().unwrap_or_default();
        members.into_iter().any(|process| self.is_outside(process) && !is_guardian(process.pid))
    }

    /// Notes those outside the group while they can still be told by their parents.
    pub(crate) fn note(&mut self) {
        let _ = self.members();
    }

    /// Kills all: first the group, at once; then those whom parents tell; then those who have to be searched for. So
    /// the command of a `run` inside may hear from its guardian that that died, a moment before its own end.
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
            // They alone know whom to kill, and who is to be let be.
            Known::ByGuardians(_) => guardian::HURRY,
            _ => Signal::SIGKILL,
        };
        outside.map(|process| process.signal(signal)).fold(Ok(()), Result::and)
    }

    /// Asks all to end, and searches for them no longer than this. What is stopped is woken, or it would not hear.
    pub(crate) fn ask(&mut self, patience: Duration) -> Result<(), Errno> {
        let group = self.group_to_signal().map_or(Ok(()), ProcessGroup::ask);
        group.and(self.ask_outside(patience))
    }

    /// Asks those outside the group who were not asked.
    pub(crate) fn ask_outside(&mut self, patience: Duration) -> Result<(), Errno> {
        let near = self.ask_seen();
        self.search(patience);
        near.and(self.ask_seen())
    }

    /// Asks those whom nobody asks on our behalf: a parent outside the group is asked in their place (`timeout` passes
    /// it on; if it does not, they are ours when it is gone), and so does a `run` inside. A second SIGTERM would have
    /// some programs end in disorder.
    fn ask_seen(&mut self) -> Result<(), Errno> {
        let members = self.members().unwrap_or_default();
        let by_pid: BTreeMap<Pid, Process> = members.iter().map(|process| (process.pid, *process)).collect();
        let mut sent = Ok(());
        for process in members {
            // Of the `run`s around this one none asks for us: they are no members.
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

    /// Does something until nobody is left, but not for ever; whether all are gone. What it does says whether to go on.
    fn until_gone(&mut self, patience: Duration, mut act: impl FnMut(&mut Family, Duration) -> bool) -> bool {
        // Deadlines are counted by this clock: a pause of the machine does not make them later.
        let (until, mut pause) = (boot_time() + patience, PAUSE_MIN);
        loop {
            // First, since who can't be seen can be signalled nonetheless.
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

    /// Waits for the end of those who were asked to, and asks those who turn up; not once there is no time for it.
    pub(crate) fn wait_asked(&mut self, patience: Duration, is_hurried: impl Fn() -> bool) -> bool {
        self.until_gone(patience, |family, left| {
            // Who can't be signalled is told of if it does not end.
            let _ = family.ask_outside(left.min(SEARCH_PATIENCE));
            !is_hurried()
        })
    }

    /// That some could not be ended, for people.
    pub(crate) fn tell_of_survivors(&self) -> String {
        let group = self.group.pid();
        format!("warning: processes that the command (process group {group}) started could not be ended")
    }

    /// Kills all, and whoever is born meanwhile; whether they are gone.
    pub(crate) fn wait_killed(&mut self, patience: Duration) -> bool {
        self.until_gone(patience, |family, _| {
            // As above.
            let _ = family.kill();
            true
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
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_ascii_end() == guardian::PROCESS_NAME.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::sync::Mutex;
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

    /// A family as a guardian knows it: all of it, whoever left what, and nobody else.
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

    /// They lose their parents, and have nothing in their environment by which they could be found.
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

    /// As if its number had been given to another group since.
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
        // Who has left the group, and will be found when it can be.
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

    /// As if an orphan had started it a moment before its own end.
    #[test]
    fn who_is_born_during_a_search_is_found_before_a_family_is_gone() {
        static BORN: Mutex<Option<(RunId, Option<Child>)>> = Mutex::new(None);
        let id = RunId::new();
        let (mut child, group) = start("exec sleep 1000", &id);
        *BORN.lock().unwrap() = Some((id.clone(), None));
        let bearing = |pid| {
            let mut born = BORN.lock().unwrap();
            let (id, born) = born.as_mut().unwrap();
            born.get_or_insert_with(|| start("exec sleep 1000", id).0);
            std::fs::read(format!("/proc/{pid}/environ"))
        };
        let search = Search::new(id, 0).reading(bearing);
        let mut family = Family::new(group, Known::ByRunId(search));
        assert!(family.wait_killed(PATIENCE));
        child.wait().unwrap();
        let (_, born) = BORN.lock().unwrap().take().unwrap();
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
