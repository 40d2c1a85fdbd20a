//! Backups: the states of all groups, made and sent piece by piece.
//!
//! The snapshot of a group is taken when the group's turn comes, by a linearizable read, so any node that keeps state
//! can make a backup. A snapshot is a few pointers, and is encoded on a thread where slow work is allowed. Only a few
//! pieces wait in memory: a client that reads slowly slows the encoding down, and a client that does not read at all is
//! given up, because a live snapshot makes later writes copy the data they change. Not here: the format
//! (`tollgate_replica::backup`).

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tollgate_core::Snapshot;
use tollgate_gateway::Router;
use tollgate_gateway::operation;
use tollgate_node::{Consistency, Sight};
use tollgate_proto::v1::{BackupResponse, Error, ErrorReason};
use tollgate_replica::Members;
use tollgate_replica::backup::{BackupHead, BackupWriter};
use tollgate_types::GroupId;
use tonic::Status;

/// Bytes of one message.
const PIECE_BYTES: usize = 64 << 10;

/// Maximum number of messages that wait for the client.
const PIECES_AHEAD: usize = 8;

/// Maximum time that a client may read nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Stream of the pieces of a backup.
pub(super) type BackupStream = ReceiverStream<Result<BackupResponse, Status>>;

type Pieces = mpsc::Sender<Result<BackupResponse, Status>>;

/// Makes backups, one at a time.
pub(super) struct Backups {
    cluster_name: String,
    one: Arc<Semaphore>,
}

impl Backups {
    pub(super) fn new(cluster_name: String) -> Backups {
        Backups { cluster_name, one: Arc::new(Semaphore::new(1)) }
    }

    /// Begins a backup, which proceeds while the client reads it.
    pub(super) fn begin(&self, router: Router, members: Members) -> Result<BackupStream, Status> {
        let Ok(alone) = Arc::clone(&self.one).try_acquire_owned() else {
            let says = "this node is making a backup for somebody else: ask another node, or again later";
            return Err(Error::new(ErrorReason::Overloaded, says).into());
        };
        let head = BackupHead {
            cluster: router.cluster(),
            cluster_name: self.cluster_name.clone(),
            // Taken before anything is read, so that nothing in the backup is older than this time.
            taken_unix_ms: unix_ms(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            members,
            groups: u32::try_from(router.map().groups().len()).unwrap_or(u32::MAX),
            disks: BTreeSet::new(),
        };
        let (pieces, stream) = mpsc::channel(PIECES_AHEAD);
        tokio::spawn(make(router, head, pieces, alone));
        Ok(ReceiverStream::new(stream))
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

async fn make(router: Router, head: BackupHead, pieces: Pieces, alone: OwnedSemaphorePermit) {
    if let Err(error) = make_or_fail(&router, head, &pieces).await {
        // A client that does not read the error sees the stream end without its last part, and knows.
        let _ = pieces.send_timeout(Err(error.into()), PATIENCE).await;
    }
    drop(alone);
}

async fn make_or_fail(router: &Router, head: BackupHead, pieces: &Pieces) -> Result<(), Error> {
    let (first, groups) = (router.header(GroupId::new(0), None), head.groups);
    let outgoing = Outgoing {
        pieces: pieces.clone(),
        runtime: Handle::current(),
        next: BackupResponse { header: first.at(first.revision), groups, ..BackupResponse::default() },
    };
    let mut backup = aside(move || BackupWriter::new(outgoing, &head)).await?;
    for group in (0..groups).map(GroupId::new) {
        let look = |sight: Sight<'_>| (sight.applied, sight.state.snapshot());
        let read = router.look(group, Consistency::Linearizable, look).await;
        let (_, (applied, snapshot)): (_, (u64, Snapshot)) =
            read.map_err(|error| operation::error_of_read(&error))?;
        backup = aside(move || {
            backup.group(group, applied, None, &snapshot)?;
            backup.out_mut().next.groups_done += 1;
            Ok(backup)
        })
        .await?;
    }
    aside(move || backup.finish().map(drop)).await
}

/// Runs slow work on a thread where it holds up nobody.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(ErrorReason::TimedOut, format!("the backup was given up: {error}; ask for it again"))
    };
    done.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

/// Gathers bytes into pieces, and waits while the client has enough of them to read. Used on a thread that may block.
struct Outgoing {
    pieces: Pieces,
    runtime: Handle,
    next: BackupResponse,
}

impl Outgoing {
    fn send(&mut self) -> io::Result<()> {
        let (groups, groups_done) = (self.next.groups, self.next.groups_done);
        let after = BackupResponse { groups, groups_done, ..BackupResponse::default() };
        let piece = std::mem::replace(&mut self.next, after);
        let sent = self.runtime.block_on(self.pieces.send_timeout(Ok(piece), PATIENCE));
        sent.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => {
                io::Error::new(io::ErrorKind::TimedOut, format!("nobody read it for {PATIENCE:?}"))
            }
            mpsc::error::SendTimeoutError::Closed(_) => io::Error::other("whoever asked for it is gone"),
        })
    }
}

impl io::Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES - self.next.data.len();
        let taken = bytes.len().min(room);
        self.next.data.extend_from_slice(&bytes[..taken]);
        if taken == room {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.next.data.is_empty() { Ok(()) } else { self.send() }
    }
}
