//! Finds processes by the name of a run in their environment, and never waits for one of them.
//!
//! The system shows an environment only while nobody works on the memory of its process: to read that of one that is
//! stuck may take for ever. So other threads read, a stuck one is left behind, and what it has to say counts whenever
//! it comes. Not here: what is done with those who are found (`family`).

use super::process::Process;
use super::run_id::RunId;
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// After this long without news, a thread more reads.
const STUCK_AFTER: Duration = Duration::from_millis(20);
/// How many processes may be stuck before no more are read.
const STUCK_MAX: usize = 64;

/// What tells a process from a later one with its number.
type Identity = (Pid, u64);

/// Those that are still to be read.
type Queue = Arc<Mutex<VecDeque<Process>>>;

fn lock(queue: &Queue) -> MutexGuard<'_, VecDeque<Process>> {
    queue.lock().expect("nobody panics with it")
}

/// A search for those of one run.
#[derive(Debug)]
pub(crate) struct Search {
    id: RunId,
    /// When the command was started: nobody is older who is of its run.
    since: u64,
    read: fn(Pid) -> Vec<u8>,
    answers: Sender<(Process, bool)>,
    incoming: Receiver<(Process, bool)>,
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
    pub(crate) fn reading(self, read: fn(Pid) -> Vec<u8>) -> Search {
        Search { read, ..self }
    }

    /// Those that were started under the run, as far as that can be known in time, with those of an earlier search who
    /// answered late.
    pub(crate) fn among(
        &mut self,
        processes: impl IntoIterator<Item = Process>,
        patience: Duration,
    ) -> Vec<Process> {
        let until = Instant::now() + patience;
        let asked = processes.into_iter().filter(|process| process.started >= self.since);
        let mut unanswered: BTreeMap<Identity, Process> =
            asked.map(|process| (process.identity(), process)).collect();
        unanswered.retain(|identity, _| !self.stuck.contains(identity));
        let queue: Queue = Arc::new(Mutex::new(unanswered.values().copied().collect()));
        let mut found = self.late();
        if unanswered.is_empty() || !self.start_reader(&queue) {
            return found;
        }
        let mut readers = 1;
        while !unanswered.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok((process, is_under)) = self.incoming.recv_timeout(left.min(STUCK_AFTER)) {
                self.stuck.remove(&process.identity());
                unanswered.remove(&process.identity());
                found.extend(is_under.then_some(process));
                continue;
            }
            let enough = self.stuck.len() + readers >= STUCK_MAX;
            if left.is_zero() || enough || lock(&queue).is_empty() || !self.start_reader(&queue) {
                break;
            }
            readers += 1;
        }
        // Whoever was not even begun with has another chance; the others are read already.
        for process in lock(&queue).drain(..) {
            unanswered.remove(&process.identity());
        }
        self.stuck.extend(unanswered.into_keys());
        found
    }

    /// Those of whom it was known only after the search for them.
    fn late(&mut self) -> Vec<Process> {
        let answers: Vec<_> = self.incoming.try_iter().collect();
        self.stuck.retain(|stuck| !answers.iter().any(|(process, _)| process.identity() == *stuck));
        answers.into_iter().filter_map(|(process, is_under)| is_under.then_some(process)).collect()
    }

    fn start_reader(&self, queue: &Queue) -> bool {
        let (id, read, answers, queue) =
            (self.id.clone(), self.read, self.answers.clone(), Arc::clone(queue));
        let reader = move || {
            loop {
                // Not held while one reads.
                let next = lock(&queue).pop_front();
                let Some(process) = next else { return };
                let is_under = id.is_in(&read(process.pid));
                if answers.send((process, is_under)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("environments".to_owned()).spawn(reader).is_ok()
    }
}

/// As it was when the process began; of those whose environment can't be read, nobody knows.
fn environment(pid: Pid) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const PATIENCE: Duration = Duration::from_secs(30);
    static STUCK: AtomicBool = AtomicBool::new(true);

    /// Every process is of the run; every third is stuck.
    fn read(pid: Pid) -> Vec<u8> {
        while pid.as_raw() % 3 == 0 && STUCK.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        b"TOLLGATE_RUNS=a1".to_vec()
    }

    fn pids(found: &[Process]) -> Vec<i32> {
        let mut pids: Vec<i32> = found.iter().map(|process| process.pid.as_raw()).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn those_that_are_stuck_keep_nobody_from_being_found_and_are_found_when_they_answer() {
        let own = Process::of(Pid::this()).unwrap();
        let processes: Vec<Process> = (1..=9).map(|pid| own.with_pid(pid)).collect();
        let mut search = Search::new(RunId::from_text("a1"), own.started).reading(read);
        let mut found = search.among(processes.iter().copied(), PATIENCE);
        let until = Instant::now() + PATIENCE;
        while found.len() < 6 && Instant::now() < until {
            found
                .extend(search.among(processes.iter().copied().filter(|one| !found.contains(one)), PATIENCE));
        }
        assert_eq!(pids(&found), [1, 2, 4, 5, 7, 8]);
        STUCK.store(false, Ordering::Relaxed);
        while found.len() < 9 && Instant::now() < until {
            found.extend(search.among([], PATIENCE));
        }
        assert_eq!(pids(&found), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn those_that_are_older_than_the_command_are_not_read() {
        let own = Process::of(Pid::this()).unwrap();
        let mut search = Search::new(RunId::new(), own.started + 1).reading(|_| panic!("it was read"));
        assert_eq!(search.among([own], PATIENCE), []);
    }
}
