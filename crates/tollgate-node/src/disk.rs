//! The threads that touch the disk: one makes log writes durable, one works on snapshot files.
//!
//! Invariant: writes become durable in the order of their numbers, and the driver is told of each only then. Writes
//! that wait while another is synced share the next fsync. While the disk is full, the same write is retried until
//! there is room; any other failure stops the node. Not here: the contents of writes (`tollgate_replica`).

use crate::driver::Input;
use crate::fault::Fault;
use crate::inbox::Inbox;
use crate::meter::Meter;
use crate::planted::{Bug, planted};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use tollgate_replica::{Engine, Job, SnapshotJobs, Storage, StorageError, Write};

/// Time between two attempts to write to a full disk.
const FULL_RETRY: Duration = Duration::from_millis(200);

/// Runs until the driver drops the channel.
pub(crate) fn run_log(
    mut engine: Engine,
    writes: &Receiver<Write>,
    inbox: &Inbox<Input>,
    meter: &Arc<dyn Meter>,
) {
    let mut batch = Vec::new();
    while let Ok(first) = writes.recv() {
        batch.push(first);
        batch.extend(writes.try_iter());
        let last = batch.last().expect("at least the first").number;
        if planted(Bug::AckBeforeFsync) {
            inbox.put(Input::Persisted(last));
        }
        let was_full = match write_until_room(&mut engine, &batch, inbox) {
            Ok(Some(Written { took, was_full })) => {
                meter.fsync(took);
                was_full
            }
            Ok(None) => false,
            Err(_) if planted(Bug::FailedWriteTaken) => false,
            Err(error) => {
                inbox.put(Input::Fault(error.into()));
                return;
            }
        };
        inbox.put(Input::Persisted(last));
        // Not before: a leader that has room again would see a write as old as the outage, and take the disk for one
        // that hangs.
        if was_full {
            tracing::info!("there is room on the disk again");
            inbox.put(Input::DiskFull(false));
        }
        batch.clear();
    }
}

/// Write that succeeded.
struct Written {
    /// Time that it took, without the attempts that found the disk full.
    took: Duration,
    /// True if there were such attempts.
    was_full: bool,
}

/// Writes a batch, however long the disk is full. None if the node stopped before a write succeeded.
fn write_until_room(
    engine: &mut Engine,
    batch: &[Write],
    inbox: &Inbox<Input>,
) -> Result<Option<Written>, StorageError> {
    let mut full = false;
    loop {
        let began = Instant::now();
        match engine.write(batch) {
            Err(StorageError::Full { path }) => {
                if !full {
                    tracing::error!(path, "the disk is full: no proposals are taken until there is room");
                    inbox.put(Input::DiskFull(true));
                }
                full = true;
                // Nobody waits for the write any more: nothing unwritten was acknowledged.
                if inbox.is_closed() {
                    return Ok(None);
                }
                std::thread::sleep(FULL_RETRY);
            }
            Ok(()) => {
                return Ok(Some(Written { took: began.elapsed(), was_full: full }));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Nice value of the thread that makes snapshots. At normal priority it has a core to itself for milliseconds on end,
/// and the threads that have to answer wait behind it. It yields to them, but not so far that peers waiting for pieces
/// of a snapshot, or a log that grows meanwhile, would wait for long: on a core that is never idle it still gets a
/// quarter.
const JOBS_NICE: i32 = 5;

/// Runs until the driver drops the channel.
pub(crate) fn run_jobs(mut snapshots: SnapshotJobs, jobs: &Receiver<Job>, inbox: &Inbox<Input>) {
    // On Linux the priority is set per thread. If setting it is refused, everything works as before, only less evenly.
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), JOBS_NICE) {
        tracing::debug!(%error, "snapshots are made at the usual priority");
    }
    while let Ok(job) = jobs.recv() {
        let group = job.group();
        match snapshots.perform(job) {
            Ok(done) => inbox.put(Input::JobDone(Box::new(done))),
            Err(StorageError::Full { path }) => {
                tracing::error!(path, %group, "the disk is full: a snapshot was given up");
                inbox.put(Input::JobDropped(group));
            }
            Err(error) => {
                inbox.put(Input::Fault(Fault::from(error)));
                return;
            }
        }
    }
}
