//! Records of the peers' disks, for tasks that must not block on disk IO.
//!
//! Invariant: a peer that is accepted has been recorded durably. Not here: the records themselves (`tollgate_replica`).

use crate::driver::Input;
use crate::inbox::Inbox;
use parking_lot::Mutex;
use std::sync::Arc;
use tollgate_replica::{Meeting, PeerDisks, StorageError};
use tollgate_types::{DiskId, NodeId};

/// Invariant of the records in memory.
const INTACT: &str = "no write of the records has panicked";

/// The records, shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct Disks {
    /// None once a write has panicked, because it may have left a disk here that was not recorded. Whoever asks for the
    /// records then panics too.
    books: Arc<Mutex<Option<PeerDisks>>>,
    inbox: Arc<Inbox<Input>>,
}

impl Disks {
    pub(super) fn new(books: PeerDisks, inbox: Arc<Inbox<Input>>) -> Disks {
        Disks { books: Arc::new(Mutex::new(Some(books))), inbox }
    }

    /// Checks the disk with which a peer came. None if the disk could not be recorded: then the peer is not accepted.
    pub(super) async fn meet(&self, peer: NodeId, disk: DiskId) -> Option<Meeting> {
        self.write(move |books| books.meet(peer, disk)).await
    }

    /// Records that a peer has this node's disk in its records. Once all first members have, the node may take part.
    pub(super) async fn accepted_by(&self, peer: NodeId) {
        if self.write(move |books| books.accepted_by(peer)).await == Some(true) {
            tracing::info!("every first member knows this node's disk: it takes part from now on");
            self.inbox.put(Input::TakePart);
        }
    }

    /// Returns the disk by which a peer is known, if it ever came.
    pub(super) fn disk_of(&self, peer: NodeId) -> Option<DiskId> {
        self.books.lock().as_ref().expect(INTACT).disk_of(peer)
    }

    async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut PeerDisks) -> Result<T, StorageError> + Send + 'static,
    ) -> Option<T> {
        let books = Arc::clone(&self.books);
        let write = move || {
            let mut place = books.lock();
            let mut books = place.take().expect(INTACT);
            let written = write(&mut books);
            *place = Some(books);
            written
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(written)) => Some(written),
            Ok(Err(StorageError::Full { path })) => {
                tracing::error!(path, "the disk is full: a peer's disk could not be written down");
                None
            }
            Ok(Err(error)) => {
                self.inbox.put(Input::Fault(error.into()));
                None
            }
            // The runtime ends, and the node with it; or a write has panicked, and no peer is accepted any more.
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tollgate_replica::DataDir;
    use tollgate_types::ClusterId;

    #[tokio::test]
    async fn no_peer_is_accepted_after_a_write_that_panicked() {
        let (dir, node) = (tempfile::tempdir().unwrap(), |number| NodeId::new(number).unwrap());
        let founding = DataDir::create(dir.path(), ClusterId::new(1), node(1), DiskId::new(1)).unwrap();
        let books = PeerDisks::open(&founding.finish(BTreeSet::new()).unwrap()).unwrap();
        let disks = Disks::new(books, Arc::new(Inbox::new(1)));
        assert_eq!(disks.meet(node(2), DiskId::new(2)).await, Some(Meeting::First));
        assert_eq!(disks.write::<()>(|_| panic!("as if on the way to the disk")).await, None);
        assert_eq!(disks.meet(node(2), DiskId::new(2)).await, None);
        assert_eq!(disks.meet(node(3), DiskId::new(3)).await, None);
    }
}
