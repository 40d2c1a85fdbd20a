//! Listens to peers: whoever says hello rightly is read from, frame by frame.
//!
//! Strangers have a limit of their own and a moment to say who they are. A peer has one connection: a new one takes the
//! place of the old. What has arrived and waits for the driver is bounded in bytes, and past that peers are read from
//! no further. All of it ends with the node.

use super::{FRAME_BYTES_MAX, hello};
use crate::driver::Input;
use crate::inbox::Inbox;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_types::{ClusterId, NodeId};

/// Connections that have not said who they are.
const STRANGERS_MAX: usize = 64;

/// Bytes of frames that wait for the driver, in kibibytes.
const WAITING_KIB_MAX: usize = 128 << 10;

/// Who listens, and what its connections share.
struct Ear {
    me: (ClusterId, NodeId),
    known: BTreeSet<NodeId>,
    inbox: Arc<Inbox<Input>>,
    room: Arc<Semaphore>,
    /// Ends the connection that a peer has now.
    present: Mutex<BTreeMap<NodeId, oneshot::Sender<()>>>,
}

pub(super) async fn listen(
    listener: TcpListener,
    cluster: ClusterId,
    node: NodeId,
    known: BTreeSet<NodeId>,
    inbox: Arc<Inbox<Input>>,
) {
    let (room, present) = (Arc::new(Semaphore::new(WAITING_KIB_MAX)), Mutex::default());
    let ear = Arc::new(Ear { me: (cluster, node), known, inbox, room, present });
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    // Connections end with this task, and so with the node.
    let mut connections = JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a peer's connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        // One too many is closed at once: its peer dials again.
        let Ok(stranger) = Arc::clone(&strangers).try_acquire_owned() else { continue };
        let ear = Arc::clone(&ear);
        connections.spawn(async move {
            if let Err(error) = ear.meet(stream, stranger).await {
                tracing::debug!(%error, "a peer's connection ended");
            }
        });
    }
}

impl Ear {
    async fn meet(
        &self,
        mut stream: TcpStream,
        stranger: tokio::sync::OwnedSemaphorePermit,
    ) -> io::Result<()> {
        super::tune(&stream)?;
        let is_known = |node| self.known.contains(&node);
        let met = timeout(hello::PATIENCE, hello::answer(&mut stream, self.me, is_known)).await;
        let from = match met.map_err(|_| io::ErrorKind::TimedOut)?? {
            Ok(from) => from,
            Err(refusal) => {
                tracing::warn!(reason = ?refusal, "a connection to the peer port was refused");
                return Ok(());
            }
        };
        drop(stranger);
        let (end, ended) = oneshot::channel();
        self.present.lock().expect("nobody panics with it").insert(from, end);
        tokio::select! {
            read = self.read(from, stream) => read,
            // A newer connection has its place.
            _ = ended => Ok(()),
        }
    }

    async fn read(&self, from: NodeId, stream: TcpStream) -> io::Result<()> {
        let mut stream = BufReader::with_capacity(64 << 10, stream);
        loop {
            let length = usize::try_from(stream.read_u32_le().await?).unwrap_or(usize::MAX);
            if length > FRAME_BYTES_MAX {
                tracing::warn!(%from, length, "a peer's frame is too long: its connection is cut");
                return Ok(());
            }
            let kib = u32::try_from(length / 1_024 + 1).expect("a few megabytes");
            let room = Arc::clone(&self.room).acquire_many_owned(kib).await.expect("never closed");
            let mut frame = vec![0; length];
            stream.read_exact(&mut frame).await?;
            self.inbox.put(Input::Frame(from, frame, room));
        }
    }
}
