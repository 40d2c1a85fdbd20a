//! The loop body of a caller, for each workload: one file each.

mod contended;
mod keepalive;
mod leases;
mod mix;
mod semaphore;
mod uncontended;

pub(crate) use contended::Contended;
pub(crate) use keepalive::Keepalive;
pub(crate) use leases::Leases;
pub(crate) use mix::Mix;
pub(crate) use semaphore::Semaphore;
pub(crate) use uncontended::Uncontended;

use crate::board::Board;
use crate::failure::Failure;
use crate::peer::Caller;
use crate::plan::Plan;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// One workload, as a single caller performs it.
pub(crate) trait Work<C: Caller>: Sized + Send + 'static {
    /// Names of the measured series; the first series is the one that counts as operations.
    const SERIES: &'static [&'static str];

    /// Prepares a caller.
    fn prepare(
        caller: C,
        number: usize,
        scene: Arc<Scene>,
    ) -> impl Future<Output = Result<Self, Failure>> + Send + 'static;

    /// Performs the operation once, and records it on the board.
    fn once(&mut self, board: &Board) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Returns the caller, once all operations are done.
    fn caller(self) -> C;
}

/// State that all callers of a run share.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) plan: Plan,
    names: Vec<String>,
    /// Last release of each lock: its time in nanoseconds since `began` (0 for never), and the number of the caller.
    released: Vec<(AtomicU64, AtomicUsize)>,
    began: Instant,
}

impl Scene {
    pub(crate) fn new(plan: &Plan) -> Scene {
        let prefix = fresh_prefix();
        let names = (0..plan.keys()).map(|key| format!("{prefix}/{key}")).collect();
        let released = (0..plan.keys()).map(|_| (AtomicU64::new(0), AtomicUsize::new(0))).collect();
        Scene { plan: plan.clone(), names, released, began: Instant::now() }
    }

    /// Returns the names of all locks.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the lock that a caller takes first: its own, or the lock that it shares with others.
    pub(crate) fn name_of(&self, number: usize) -> &str {
        &self.names[number % self.names.len()]
    }

    /// Returns the indexes, out of `of` things, that belong to one caller: every n-th, for n callers.
    pub(crate) fn own(&self, number: usize, of: usize) -> impl Iterator<Item = usize> + use<> {
        (number..of).step_by(self.plan.clients)
    }

    /// Records that a caller is about to release a lock.
    fn releases(&self, key: usize, caller: usize) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.released[key].1.store(caller, Ordering::Relaxed);
        self.released[key].0.store(nanos, Ordering::Release);
    }

    /// Returns the time at which another caller released the lock, if another caller had it last. Only the holder may
    /// ask.
    fn handed_on_at(&self, key: usize, to: usize) -> Option<Instant> {
        let (nanos, by) = &self.released[key];
        let nanos = nanos.load(Ordering::Acquire);
        let handed_on = nanos > 0 && by.load(Ordering::Relaxed) != to;
        handed_on.then(|| self.began + Duration::from_nanos(nanos))
    }
}

/// Returns a prefix for lock names that no other run uses.
pub(crate) fn fresh_prefix() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("bench/{:x}-{:x}", std::process::id(), now.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn a_lock_that_its_last_holder_takes_again_was_not_handed_on() {
        let scene = Scene::new(&Plan::new(Workload::Contended, 4));
        assert_eq!(scene.handed_on_at(0, 1), None);
        scene.releases(0, 1);
        assert_eq!(scene.handed_on_at(0, 1), None);
        assert!(scene.handed_on_at(0, 2).is_some());
    }

    #[test]
    fn what_is_shared_out_is_each_callers_own() {
        let scene = Scene::new(&Plan::new(Workload::Uncontended, 4));
        let all: Vec<Vec<usize>> = (0..4).map(|number| scene.own(number, 6).collect()).collect();
        assert_eq!(all, [vec![0, 4], vec![1, 5], vec![2], vec![3]]);
    }
}
