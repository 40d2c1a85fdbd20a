//! The books about peers' disks, for tasks that must not wait for a disk.
//!
//! Invariant: whoever is accepted is in the books, durably. Not here: the books themselves (`tollgate_replica`).

use crate::driver::Input;
use crate::inbox::Inbox;
use std::sync::{Arc, Mutex};
use tollgate_replica::{Meeting, PeerDisks, StorageError};
use tollgate_types::{DiskId, NodeId};

/// The books, shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct Disks {
    books: Arc<Mutex<PeerDisks>>,
    inbox: Arc<Inbox<Input>>,
}

impl Disks {
    pub(super) fn new(books: PeerDisks, inbox: Arc<Inbox<Input>>) -> Disks {
        Disks { books: Arc::new(Mutex::new(books)), inbox }
    }

    /// A peer came with this disk. None if that could not be written down: then it is not listened to either.
    pub(super) async fn meet(&self, peer: NodeId, disk: DiskId) -> Option<Meeting> {
        self.write(move |books| books.meet(peer, disk)).await
    }

    /// A peer has this node's disk in its books. The last of them lets the node take part.
    pub(super) async fn accepted_by(&self, peer: NodeId) {
        if self.write(move |books| books.accepted_by(peer)).await == Some(true) {
            tracing::info!("every first member knows this node's disk: it takes part from now on");
            self.inbox.put(Input::TakePart);
        }
    }

    /// By which disk a peer is known, if it ever came.
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
