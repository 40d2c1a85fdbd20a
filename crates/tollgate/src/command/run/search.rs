//! Finds processes by the name of a run in their environment, and never waits for one of them.
//!
//! The system shows an environment only while nobody works on the memory of its process: to read that of one that is
//! stuck may take for ever. So other threads read, a stuck one is left behind, and what it has to say counts whenever
//! it comes. Invariant: a search counts as complete only if all have answered; one that ended first may have started
//! another, who was not asked, and one that is just becoming another program shows nothing for a moment. Not here: what
//! is done with those who are found (`family`).

use super::process::Process;
use super::run_id::RunId;
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// After this long without news, a thread more reads.
const STUCK_AFTER: Duration = Duration::from_millis(20);
/// How many processes may be stuck before no more are read.
const STUCK_MAX: usize = 64;

/// How much of an environment is read at first; most are far smaller.
const READ_FIRST: usize = 256 * 1024;

/// What tells a process from a later one with its number.
type Identity = (Pid, u64);

/// Reads the environment of a process.
type Read = fn(Pid) -> io::Result<Vec<u8>>;

/// Those that are still to be read.
type Queue = Arc<Mutex<VecDeque<Process>>>;

fn lock(queue: &Queue) -> MutexGuard<'_, VecDeque<Process>> {
    queue.lock().expect("nobody panics with it")
}

/// What a process had to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It was started under the run.
    Under,
    /// It shows an environment, and not the run in it.
    NotUnder,
    /// It will never tell: it was given no environment, or one that we may not read.
    Silent,
    /// It ended before it could be asked, or shows nothing yet.
    Unknown,
}

/// What a search came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Those that were looked for, as far as is known by now.
    pub(crate) processes: Vec<Process>,
    /// Whether there is nobody else among those that were asked.
    pub(crate) complete: bool,
}

/// A search for those of one run.
#[derive(Debug)]
pub(crate) struct Search {
    id: RunId,
    /// When the command was started: nobody is older who is of its run.
    since: u64,
    read: Read,
    answers: Sender<(Process, Answer)>,
    incoming: Receiver<(Process, Answer)>,
    /// Those that are being read and have not answered in time.
    stuck: BTreeSet<Identity>,
}

impl Search {
    pub(crate) fn new(id: RunId, since: u64) -> Search {
        let (answers, incoming) = mpsc::channel();
        Search { id, since, read: environment, answers, incoming, stuck: BTreeSet::new() }
    }

    /// One that reads environments so.
    #[cfg(test)]
    pub(crate) fn reading(self, read: Read) -> Search {
        Search { read, ..self }
    }

    /// Those that were started under the run, as far as that can be known in time, with those of an earlier search who
    /// answered late.
    pub(crate) fn among(
        &mut self,
        processes: impl IntoIterator<Item = Process>,
        patience: Duration,
    ) -> Found {
        self.with_answer(Answer::Under, processes, patience)
    }

    /// As above, those that show that they were not. Who is silent is not among them.
    pub(crate) fn strangers_among(
        &mut self,
        processes: impl IntoIterator<Item = Process>,
        patience: Duration,
    ) -> Found {
        self.with_answer(Answer::NotUnder, processes, patience)
    }

    fn with_answer(
        &mut self,
        wanted: Answer,
        processes: impl IntoIterator<Item = Process>,
        patience: Duration,
    ) -> Found {
        let until = Instant::now() + patience;
        let mut found = Found { processes: self.late(wanted), complete: true };
        let asked = processes.into_iter().filter(|process| process.started >= self.since);
        let mut unanswered: BTreeMap<Identity, Process> =
            asked.map(|process| (process.identity(), process)).collect();
        // They have answered, if late.
        unanswered.retain(|_, process| !found.processes.iter().any(|known| known.is(*process)));
        let all = unanswered.len();
        unanswered.retain(|identity, _| !self.stuck.contains(identity));
        found.complete &= unanswered.len() == all;
        let queue: Queue = Arc::new(Mutex::new(unanswered.values().copied().collect()));
        let mut readers = 0;
        while !unanswered.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if readers > 0
                && let Ok((process, answer)) = self.incoming.recv_timeout(left.min(STUCK_AFTER))
            {
                self.stuck.remove(&process.identity());
                let in_time = unanswered.remove(&process.identity()).is_some();
                found.complete &= !(in_time && answer == Answer::Unknown);
                found.processes.extend((answer == wanted).then_some(process));
                continue;
            }
            let over = readers > 0 && (left.is_zero() || lock(&queue).is_empty());
            let enough = self.stuck.len() + readers >= STUCK_MAX;
            if over || enough || !self.start_reader(&queue) {
                break;
            }
            readers += 1;
        }
        found.complete &= unanswered.is_empty();
        // Whoever was not even begun with has another chance; the others are read already.
        for process in lock(&queue).drain(..) {
            unanswered.remove(&process.identity());
        }
        self.stuck.extend(unanswered.into_keys());
        found
    }

    /// Those of whom it was known only after the search for them.
    fn late(&mut self, wanted: Answer) -> Vec<Process> {
        let answers: Vec<_> = self.incoming.try_iter().collect();
        self.stuck.retain(|stuck| !answers.iter().any(|(process, _)| process.identity() == *stuck));
        let wanted = answers.into_iter().filter(|(_, answer)| *answer == wanted);
        wanted.map(|(process, _)| process).collect()
    }

    fn start_reader(&self, queue: &Queue) -> bool {
        let (id, read, answers, queue) =
            (self.id.clone(), self.read, self.answers.clone(), Arc::clone(queue));
        let reader = move || {
            loop {
                // Not held while one reads.
                let next = lock(&queue).pop_front();
                let Some(process) = next else { return };
                if answers.send((process, ask(&id, process, read))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("environments".to_owned()).spawn(reader).is_ok()
    }
}

/// As it was when the process began.
fn environment(pid: Pid) -> io::Result<Vec<u8>> {
    read_at_once(&format!("/proc/{pid}/environ"))
}

/// Reads a file of the system in one look: a process that becomes another program between two shows nothing more of
/// what it was, and a part would pass for the whole.
fn read_at_once(path: &str) -> io::Result<Vec<u8>> {
    let mut size = READ_FIRST;
    loop {
        let mut bytes = vec![0; size];
        match File::open(path)?.read(&mut bytes) {
            Ok(read) if read < size => {
                bytes.truncate(read);
                return Ok(bytes);
            }
            // There may be more.
            Ok(_) => size *= 2,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a process was started under the run.
fn ask(id: &RunId, process: Process, read: Read) -> Answer {
    let answer = match read(process.pid) {
        Ok(shown) if id.is_in(&shown) => return Answer::Under,
        Ok(shown) if !shown.is_empty() => Answer::NotUnder,
        // Of those whose environment we may not read nobody will ever know. The kernel's own have none.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Answer::Silent,
        _ if process.has_no_environment() => Answer::Silent,
        _ => return ask_threads(id, process),
    };
    // Only then: of one that ends, nothing can be read.
    if process.runs_on() { answer } else { Answer::Unknown }
}

/// As above, of one that shows nothing: its first thread may have ended, and then the others show it.
fn ask_threads(id: &RunId, process: Process) -> Answer {
    for thread in process.other_threads() {
        let shown = read_at_once(&format!("/proc/{}/task/{thread}/environ", process.pid)).unwrap_or_default();
        let answer = match shown {
            shown if id.is_in(&shown) => return Answer::Under,
            shown if !shown.is_empty() => Answer::NotUnder,
            _ if process.thread_has_no_environment(thread) => Answer::Silent,
            _ => continue,
        };
        if process.thread_runs_on(thread) {
            return answer;
        }
    }
    Answer::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const PATIENCE: Duration = Duration::from_secs(30);
    static STUCK: AtomicBool = AtomicBool::new(true);

    fn pids(found: &[Process]) -> Vec<i32> {
        let mut pids: Vec<i32> = found.iter().map(|process| process.pid.as_raw()).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn those_that_are_stuck_keep_nobody_from_being_found_and_are_found_when_they_answer() {
        let own = Process::of(Pid::this()).unwrap();
        let processes: Vec<Process> = (1..=9).map(|pid| own.with_pid(pid)).collect();
        // Every process is of the run; every third is stuck.
        let mut search = Search::new(RunId::from_text("a1"), own.started).reading(|pid| {
            while pid.as_raw() % 3 == 0 && STUCK.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(b"TOLLGATE_RUNS=a1".to_vec())
        });
        let until = Instant::now() + PATIENCE;
        let mut found: Vec<Process> = Vec::new();
        let mut look = |found: &mut Vec<Process>| {
            let unknown = processes.iter().copied().filter(|one| !found.contains(one));
            let now = search.among(unknown.collect::<Vec<_>>(), PATIENCE);
            found.extend(now.processes);
            now.complete
        };
        while found.len() < 6 && Instant::now() < until {
            assert!(!look(&mut found), "three have not answered");
        }
        assert_eq!(pids(&found), [1, 2, 4, 5, 7, 8]);
        assert!(!look(&mut found), "they still have not");
        STUCK.store(false, Ordering::Relaxed);
        while !look(&mut found) && Instant::now() < until {}
        assert_eq!(pids(&found), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn those_that_are_older_than_the_command_are_not_read() {
        let own = Process::of(Pid::this()).unwrap();
        let mut search = Search::new(RunId::new(), own.started + 1).reading(|_| panic!("it was read"));
        assert_eq!(search.among([own], PATIENCE), Found { processes: vec![], complete: true });
    }

    /// As one does in the middle of an `execve`.
    #[test]
    fn a_search_in_which_one_shows_nothing_that_has_an_environment_is_not_complete() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(Pid::from_raw(i32::try_from(child.id()).unwrap())).unwrap();
        let mut search = Search::new(RunId::new(), 0).reading(|_| Ok(Vec::new()));
        assert_eq!(search.among([process], PATIENCE), Found { processes: vec![], complete: false });
        let mut search = Search::new(RunId::new(), 0).reading(|_| Err(ErrorKind::PermissionDenied.into()));
        assert_eq!(search.among([process], PATIENCE), Found { processes: vec![], complete: true });
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn one_whose_first_thread_shows_nothing_answers_by_another() {
        let own = Process::of(Pid::this()).unwrap();
        let (end, ended) = mpsc::channel::<()>();
        let another = std::thread::spawn(move || ended.recv());
        assert_eq!(ask(&RunId::new(), own, |_| Err(ErrorKind::NotFound.into())), Answer::NotUnder);
        drop(end);
        assert!(another.join().unwrap().is_err());
    }

    /// Its environment is whole in every look, or is not shown.
    #[test]
    fn one_that_becomes_another_program_again_and_again_is_never_taken_for_a_stranger() {
        let script = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(script.path(), "exec sh $0").unwrap();
        let id = RunId::new();
        let mut command = std::process::Command::new("sh");
        // Wherever it stands among the others, there is something before it.
        command.arg(script.path()).env_clear().env(crate::command::run::run_id::VARIABLE, id.as_str());
        for number in 0..200 {
            command.env(format!("A{number}"), "x".repeat(100));
        }
        let mut child = command.spawn().unwrap();
        let process = Process::of(Pid::from_raw(i32::try_from(child.id()).unwrap())).unwrap();
        let until = Instant::now() + Duration::from_secs(2);
        let mut asked = 0;
        while Instant::now() < until {
            let answer = ask(&id, process, environment);
            assert!(matches!(answer, Answer::Under | Answer::Unknown), "{answer:?} after {asked}");
            asked += usize::from(answer == Answer::Under);
        }
        assert!(asked > 0, "it was never seen");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn an_environment_of_any_size_is_read_as_a_whole() {
        let id = RunId::new();
        let mut command = std::process::Command::new("sleep");
        command.arg("1000").env(crate::command::run::run_id::VARIABLE, id.as_str());
        for number in 0..6 {
            command.env(format!("A{number}"), "x".repeat(100_000));
        }
        let mut child = command.spawn().unwrap();
        let process = Process::of(Pid::from_raw(i32::try_from(child.id()).unwrap())).unwrap();
        let until = Instant::now() + PATIENCE;
        while ask(&id, process, environment) != Answer::Under {
            assert!(Instant::now() < until, "it is not found");
        }
        assert!(environment(process.pid).unwrap().len() > 600_000);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// It may have started another, after they were listed.
    #[test]
    fn a_search_in_which_one_ended_unasked_is_not_complete() {
        let own = Process::of(Pid::this()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(Pid::from_raw(i32::try_from(child.id()).unwrap())).unwrap();
        let mut search = Search::new(RunId::new(), 0);
        // It may be becoming `sleep` still.
        let until = Instant::now() + PATIENCE;
        while search.among([own, process], PATIENCE) != (Found { processes: vec![], complete: true }) {
            assert!(Instant::now() < until, "it does not answer");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(search.among([own, process], PATIENCE), Found { processes: vec![], complete: false });
    }
}
