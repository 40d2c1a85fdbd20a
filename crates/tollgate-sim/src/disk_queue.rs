//! Operations under way to a node's disk, and the time that they take.
//!
//! Writes are made durable in order; those that wait while an fsync runs share the next one. Jobs don't wait for
//! writes, and run one after the other; a job that finds no room is forgotten, and the host is told. After a crash a
//! prefix of the writes in doubt may be on the disk: whole writes, because a torn one is found by its checksum and
//! dropped (`tests/storage` of `tollgate-replica` tears real bytes). Not here: the effect of a write (`disk`).

use crate::disk::SimDisk;
use crate::rng::Rng;
use crate::types::At;
use std::collections::VecDeque;
use tollgate_replica::{Done, Job, Storage, StorageError, Write, WriteNumber};
use tollgate_types::GroupId;

/// Time that a write waits for room before it is tried again.
const FULL_RETRY_US: u64 = 20_000;

/// Speed of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpeed {
    /// Time of the fastest fsync.
    pub fsync_us_min: u64,
    /// Time of the slowest fsync, except in a stall.
    pub fsync_us_max: u64,
    /// Time of the slowest job on a snapshot file.
    pub job_us_max: u64,
}

/// News from a disk for its host.
#[derive(Debug)]
pub(crate) enum DiskNews {
    /// All writes up to this one are durable.
    Persisted(WriteNumber),
    /// A job is done.
    Done(Box<Done>),
    /// A job of this group found no room, and is forgotten.
    Dropped(GroupId),
    /// There is no room on the disk, or there is room again.
    Full(bool),
    /// The disk failed: the process stops.
    Failed,
}

/// Operations under way to one disk.
pub(crate) struct DiskQueue {
    rng: Rng,
    speed: DiskSpeed,
    waiting: Vec<Write>,
    syncing: Vec<Write>,
    sync_done: Option<At>,
    jobs: VecDeque<Job>,
    job_done: Option<At>,
    /// Time before which nothing gets done.
    stalled_until: At,
    /// True if the next fsync fails.
    fails: bool,
    /// True if the host was told that there is no room.
    full: bool,
    pub(crate) fsyncs: u64,
}

impl DiskQueue {
    pub(crate) fn new(rng: Rng, speed: DiskSpeed) -> DiskQueue {
        DiskQueue {
            rng,
            speed,
            waiting: Vec::new(),
            syncing: Vec::new(),
            sync_done: None,
            jobs: VecDeque::new(),
            job_done: None,
            stalled_until: 0,
            fails: false,
            full: false,
            fsyncs: 0,
        }
    }

    pub(crate) fn push_write(&mut self, write: Write) {
        self.waiting.push(write);
    }

    pub(crate) fn push_jobs(&mut self, jobs: Vec<Job>) {
        self.jobs.extend(jobs);
    }

    /// Begins the operations that can begin; returns the moment at which the next one will be done.
    pub(crate) fn start(&mut self, now: At) -> Option<At> {
        if self.syncing.is_empty() && !self.waiting.is_empty() {
            std::mem::swap(&mut self.syncing, &mut self.waiting);
            let takes = self.rng.range(self.speed.fsync_us_min, self.speed.fsync_us_max);
            self.sync_done = Some((now + takes).max(self.stalled_until));
        }
        if self.job_done.is_none() && !self.jobs.is_empty() {
            let takes = self.rng.range(self.speed.fsync_us_min, self.speed.job_us_max);
            self.job_done = Some((now + takes).max(self.stalled_until));
        }
        self.next()
    }

    /// Returns the moment at which the next operation will be done.
    pub(crate) fn next(&self) -> Option<At> {
        match (self.sync_done, self.job_done) {
            (Some(sync), Some(job)) => Some(sync.min(job)),
            (sync, job) => sync.or(job),
        }
    }

    /// Completes the operations that are due.
    pub(crate) fn run(&mut self, now: At, disk: &mut SimDisk, news: &mut Vec<DiskNews>) {
        if self.sync_done.is_some_and(|at| at <= now) {
            self.finish_sync(now, disk, news);
        }
        if self.job_done.is_some_and(|at| at <= now) {
            self.finish_job(disk, news);
        }
    }

    fn finish_sync(&mut self, now: At, disk: &mut SimDisk, news: &mut Vec<DiskNews>) {
        if std::mem::take(&mut self.fails) {
            news.push(DiskNews::Failed);
            return;
        }
        match disk.write(&self.syncing) {
            Ok(()) => {
                self.fsyncs += 1;
                let last = self.syncing.last().expect("an fsync is for writes").number;
                self.syncing.clear();
                self.sync_done = None;
                news.push(DiskNews::Persisted(last));
                self.tell_full(false, news);
            }
            Err(StorageError::Full { .. }) => {
                self.sync_done = Some(now + FULL_RETRY_US);
                self.tell_full(true, news);
            }
            Err(error) => unreachable!("a simulated disk fails on request only: {error}"),
        }
    }

    fn finish_job(&mut self, disk: &mut SimDisk, news: &mut Vec<DiskNews>) {
        let job = self.jobs.pop_front().expect("a job is under way");
        self.job_done = None;
        let group = group_of_job(&job);
        news.push(match disk.perform(job) {
            Ok(done) => DiskNews::Done(Box::new(done)),
            Err(StorageError::Full { .. }) => DiskNews::Dropped(group),
            Err(error) => unreachable!("a simulated disk fails on request only: {error}"),
        });
    }

    fn tell_full(&mut self, full: bool, news: &mut Vec<DiskNews>) {
        if self.full != full {
            self.full = full;
            news.push(DiskNews::Full(full));
        }
    }

    /// Stalls the disk: nothing gets done before `until`.
    pub(crate) fn stall(&mut self, until: At) {
        self.stalled_until = until;
        for done in [&mut self.sync_done, &mut self.job_done].into_iter().flatten() {
            *done = until.max(*done);
        }
    }

    /// Ends a stall, and lets no fsync fail.
    pub(crate) fn heal(&mut self, now: At) {
        self.fails = false;
        self.stalled_until = now;
        for done in [&mut self.sync_done, &mut self.job_done].into_iter().flatten() {
            *done = now.min(*done);
        }
    }

    /// Makes the next fsync fail.
    pub(crate) fn fail_next(&mut self) {
        self.fails = true;
    }

    /// Returns true if the disk is full or stalled.
    pub(crate) fn is_troubled(&self, now: At) -> bool {
        self.full || self.stalled_until > now
    }

    /// Handles the end of the process. A prefix of the writes in doubt may have reached the disk. Returns the number of
    /// lost writes.
    pub(crate) fn crash(&mut self, disk: &mut SimDisk) -> usize {
        let mut in_doubt = std::mem::take(&mut self.syncing);
        in_doubt.append(&mut self.waiting);
        // Often no write reached the disk: that is the hardest case for a host that promised too early.
        let reached = if self.rng.percent(50) { 0 } else { self.rng.index(in_doubt.len() + 1) };
        let reached = if disk.write(&in_doubt[..reached]).is_ok() { reached } else { 0 };
        self.jobs.clear();
        (self.sync_done, self.job_done, self.fails, self.full) = (None, None, false, false);
        disk.crash();
        in_doubt.len() - reached
    }
}

fn group_of_job(job: &Job) -> GroupId {
    match job {
        Job::Save { group, .. }
        | Job::Read { group, .. }
        | Job::Receive { group, .. }
        | Job::Complete { group, .. }
        | Job::Hash { group, .. }
        | Job::Remove { group, .. } => *group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tollgate_replica::{EntryKind, GroupWrite, LogEntry, ReplicaKind};

    const SPEED: DiskSpeed = DiskSpeed { fsync_us_min: 100, fsync_us_max: 100, job_us_max: 100 };

    fn write(number: u64) -> Write {
        let mut group = GroupWrite::new(GroupId::MAP);
        group.create = (number == 1).then_some(ReplicaKind::Full);
        group.entries =
            vec![LogEntry { index: number, term: 1, kind: EntryKind::Commands, data: Bytes::new() }];
        Write { number: WriteNumber(number), groups: vec![group] }
    }

    fn entries(disk: &mut SimDisk) -> usize {
        disk.load().unwrap().first().map_or(0, |group| group.entries.len())
    }

    #[test]
    fn writes_that_wait_share_the_next_fsync() {
        let (mut queue, mut disk, mut news) =
            (DiskQueue::new(Rng::new(1), SPEED), SimDisk::new(None), Vec::new());
        queue.push_write(write(1));
        assert_eq!(queue.start(0), Some(100));
        queue.push_write(write(2));
        queue.push_write(write(3));
        queue.run(100, &mut disk, &mut news);
        assert_eq!(entries(&mut disk), 1);
        assert_eq!(queue.start(100), Some(200));
        queue.run(200, &mut disk, &mut news);
        assert_eq!(entries(&mut disk), 3);
        assert!(matches!(
            news[..],
            [DiskNews::Persisted(WriteNumber(1)), DiskNews::Persisted(WriteNumber(3))]
        ));
    }

    #[test]
    fn a_crash_leaves_a_prefix_of_the_writes_in_doubt() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let (mut queue, mut disk) = (DiskQueue::new(Rng::new(seed), SPEED), SimDisk::new(None));
            queue.push_write(write(1));
            queue.start(0);
            queue.push_write(write(2));
            let lost = queue.crash(&mut disk);
            assert_eq!(entries(&mut disk), 2 - lost);
            seen.insert(lost);
        }
        assert_eq!(seen.len(), 3, "none, one or both may be there");
    }

    #[test]
    fn a_full_disk_says_so_once_and_goes_on_when_there_is_room() {
        let (mut queue, mut disk, mut news) =
            (DiskQueue::new(Rng::new(1), SPEED), SimDisk::new(None), Vec::new());
        disk.set_full(true);
        queue.push_write(write(1));
        queue.start(0);
        queue.run(100, &mut disk, &mut news);
        queue.run(100 + FULL_RETRY_US, &mut disk, &mut news);
        assert!(matches!(news[..], [DiskNews::Full(true)]));
        disk.set_full(false);
        queue.run(100 + 2 * FULL_RETRY_US, &mut disk, &mut news);
        assert!(matches!(news[1..], [DiskNews::Persisted(WriteNumber(1)), DiskNews::Full(false)]));
    }

    #[test]
    fn nothing_gets_done_during_a_stall() {
        let mut queue = DiskQueue::new(Rng::new(1), SPEED);
        queue.push_write(write(1));
        queue.start(0);
        queue.stall(5_000);
        assert_eq!(queue.next(), Some(5_000));
        queue.heal(300);
        assert_eq!(queue.next(), Some(300));
    }
}
