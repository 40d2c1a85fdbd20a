//! Search for processes by the id of a run in their environment, which never waits for one of them.
//!
//! The system shows an environment only while nobody works on the memory of its process: to read that of a stuck
//! process may take for ever. So other threads read, a stuck process is left behind, and its answer counts whenever it
//! comes. Invariant: a search counts as complete only if all processes have answered. A process that ended first may
//! have started another, which was not read, and a process in the middle of an `execve` shows nothing for a moment. Not
//! here: the use of the results (`family`).

use super::process::Process;
use super::run_id::RunId;
use nix::unistd::Pid;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// Time without news after which another thread begins to read.
const STUCK_AFTER: Duration = Duration::from_millis(20);
/// Maximum number of stuck processes: with more, no further processes are read.
const STUCK_MAX: usize = 64;

/// Bytes of an environment that are read at first; most are far smaller.
const READ_FIRST: usize = 256 * 1024;

/// Number and start time of a process, which distinguish it from a later one with the same number.
type Identity = (Pid, u64);

/// Function that reads the environment of a process.
type Read = fn(Pid) -> io::Result<Vec<u8>>;

/// Processes that are still to be read.
type Queue = Arc<Mutex<VecDeque<Process>>>;

/// Result of reading the environment of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The process was started under the run.
    Under,
    /// The process shows an environment without the run in it.
    NotUnder,
    /// The process will never tell: it was given no environment, or one that we may not read.
    Silent,
    /// The process ended before it could be read, or shows nothing yet.
    Unknown,
}

/// Result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The processes that were looked for, as far as is known by now.
    pub(crate) processes: Vec<Process>,
    /// True if no other process among the given ones can be a match.
    pub(crate) complete: bool,
}

/// A search for the processes of one run.
#[derive(Debug)]
pub(crate) struct Search {
    id: RunId,
    /// Start time of the command: no process of its run is older.
    since: u64,
    read: Read,
    answers: Sender<(Process, Answer)>,
    incoming: Receiver<(Process, Answer)>,
    /// Processes that are being read and have not answered in time.
    stuck: BTreeSet<Identity>,
}

impl Search {
    pub(crate) fn new(id: RunId, since: u64) -> Search {
        let (answers, incoming) = mpsc::channel();
        Search { id, since, read: environment, answers, incoming, stuck: BTreeSet::new() }
    }

    /// Replaces the function that reads environments.
    #[cfg(test)]
    pub(crate) fn reading(self, read: Read) -> Search {
        Search { read, ..self }
    }

    /// Finds the processes that were started under the run, as far as they answer in time, and those of an earlier
    /// search that answered late.
    pub(crate) fn among(
        &mut self,
        processes: impl IntoIterator<Item = Process>,
        patience: Duration,
    ) -> Found {
        self.with_answer(Answer::Under, processes, patience)
    }

    /// Finds the processes that were not started under the run. Silent processes are not among them.
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
        // These have answered, if late.
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
            let over = readers > 0 && (left.is_zero() || queue.lock().is_empty());
            let enough = self.stuck.len() + readers >= STUCK_MAX;
            if over || enough || !self.start_reader(&queue) {
                break;
            }
            readers += 1;
        }
        found.complete &= unanswered.is_empty();
        // Processes that nobody began to read get another chance; the others are being read already.
        for process in queue.lock().drain(..) {
            unanswered.remove(&process.identity());
        }
        self.stuck.extend(unanswered.into_keys());
        found
    }

    /// Returns the matches of earlier searches that answered late.
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
                // The queue is not locked during a read.
                let next = queue.lock().pop_front();
                let Some(process) = next else { return };
                if answers.send((process, ask(&id, process, read))).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("environments".to_owned()).spawn(reader).is_ok()
    }
}

/// Reads the environment that a process began with.
fn environment(pid: Pid) -> io::Result<Vec<u8>> {
    read_at_once(&format!("/proc/{pid}/environ"))
}

/// Reads a file of the system in one call: if the process executes another program between two calls, the second shows
/// nothing of the old environment, and a part would pass for the whole.
fn read_at_once(path: &str) -> io::Result<Vec<u8>> {
    let mut size = READ_FIRST;
    loop {
        let mut bytes = vec![0; size];
        match File::open(path)?.read(&mut bytes) {
            Ok(read) if read < size => {
                bytes.truncate(read);
                return Ok(bytes);
            }
            // The file may be longer.
            Ok(_) => size *= 2,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Decides whether a process was started under the run.
fn ask(id: &RunId, process: Process, read: Read) -> Answer {
    let answer = match read(process.pid) {
        Ok(shown) if id.is_in(&shown) => return Answer::Under,
        Ok(shown) if !shown.is_empty() => Answer::NotUnder,
        // An environment that we may not read will never be known. Kernel threads have none.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Answer::Silent,
        _ if process.has_no_environment() => Answer::Silent,
        _ => return ask_threads(id, process),
    };
    // Checked afterwards: nothing can be read of a process that ends.
    if process.runs_on() { answer } else { Answer::Unknown }
}

/// Like `ask`, for a process that shows nothing: its first thread may have ended, and then the other threads show its
/// environment.
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

    /// As a process does in the middle of an `execve`.
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

    /// The environment of the process is whole in every read, or is not shown.
    #[test]
    fn one_that_becomes_another_program_again_and_again_is_never_taken_for_a_stranger() {
        let script = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(script.path(), "exec sh $0").unwrap();
        let id = RunId::new();
        let mut command = std::process::Command::new("sh");
        // Wherever the variable stands among the others, there is something before it.
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

    /// The process may have started another, after the processes were listed.
    #[test]
    fn a_search_in_which_one_ended_unasked_is_not_complete() {
        let own = Process::of(Pid::this()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::of(Pid::from_raw(i32::try_from(child.id()).unwrap())).unwrap();
        let mut search = Search::new(RunId::new(), 0);
        // The process may not have become `sleep` yet.
        let until = Instant::now() + PATIENCE;
        while search.among([own, process], PATIENCE) != (Found { processes: vec![], complete: true }) {
            assert!(Instant::now() < until, "it does not answer");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(search.among([own, process], PATIENCE), Found { processes: vec![], complete: false });
    }
}
