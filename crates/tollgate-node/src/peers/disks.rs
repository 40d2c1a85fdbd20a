//! Records of the peers' disks, for tasks that must not block on disk IO.
//!
//! Invariant: a peer that is accepted has been recorded durably. Not here: the records themselves (`tollgate_replica`).

use crate::driver::Input;
use crate::inbox::Inbox;
use std::sync::{Arc, Mutex};
use tollgate_replica::{Meeting, PeerDisks, StorageError};
use tollgate_types::{DiskId, NodeId};

/// The records, shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct Disks {
    books: Arc<Mutex<PeerDisks>>,
    inbox: Arc<Inbox<Input>>,
}

impl Disks {
    pub(super) fn new(books: PeerDisks, inbox: Arc<Inbox<Input>>) -> Disks {
        Disks { books: Arc::new(Mutex::new(books)), inbox }
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
        self.books.lock().expect("nobody panics with it").disk_of(peer)
    }

    async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut PeerDisks) -> Result<T, StorageError> + Send + 'static,
    ) -> Option<T> {
        let books = Arc::clone(&self.books);
        let write = move || write(&mut books.lock().expect("nobody panics with it"));
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
            // The runtime ends, and the node with it.
            Err(_) => None,
        }
    }
}
