//! Frames between nodes: one connection for each direction, dialled by the sender.
//!
//! Invariant: frames to one peer go out in order, whole or not at all; they may be lost. A queue to a peer has a limit,
//! and past it frames are dropped: Raft sends again. A broken connection is dialled again at once; if that fails the
//! host is told, which may campaign then. Not here: what is in a frame (`tollgate_replica`).

mod disks;
mod hello;
mod incoming;
mod outgoing;

use crate::driver::Input;
use crate::inbox::Inbox;
use disks::Disks;
use hello::Hello;
use socket2::{SockRef, TcpKeepalive};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tollgate_replica::{COMMAND_BYTES_MAX, Identity, PeerDisks};
use tollgate_types::NodeId;

/// The longest frame that is read. Far above what a host sends: a little, and one message, or one entry if that is
/// longer.
const FRAME_BYTES_MAX: usize = 32 << 20;
const _: () = assert!(FRAME_BYTES_MAX >= 2 * COMMAND_BYTES_MAX);

/// A connection over which nothing has come through for so long is broken, whatever TCP still hopes for.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Small frames don't wait for more, and a connection that silently broke is noticed.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    let probes = TcpKeepalive::new().with_time(SILENCE_MAX / 2).with_interval(SILENCE_MAX / 5);
    socket.set_tcp_keepalive(&probes)
}

/// Bytes that wait for one peer; past this, frames are dropped.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Where frames for peers go.
pub(crate) struct Outboxes {
    peers: BTreeMap<NodeId, Outbox>,
}

struct Outbox {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

impl Outboxes {
    /// Sends a frame, now or never.
    pub(crate) fn send(&self, to: NodeId, frame: Vec<u8>) {
        let Some(outbox) = self.peers.get(&to) else {
            tracing::debug!(%to, "a frame for a node whose address is not known");
            return;
        };
        if outbox.queued.load(Ordering::Relaxed) + frame.len() <= QUEUE_BYTES_MAX {
            outbox.queued.fetch_add(frame.len(), Ordering::Relaxed);
            // Gone only when the node stops.
            let _ = outbox.frames.send(frame);
        }
    }
}

/// Begins to listen to peers and to dial them. The tasks end when the set is dropped.
pub(crate) fn start(
    Identity { cluster, node, disk, .. }: Identity,
    books: PeerDisks,
    addresses: &BTreeMap<NodeId, String>,
    listener: tokio::net::TcpListener,
    inbox: &Arc<Inbox<Input>>,
    tasks: &mut JoinSet<()>,
    runtime: &tokio::runtime::Handle,
) -> Outboxes {
    let known = addresses.keys().copied().collect();
    let disks = Disks::new(books, Arc::clone(inbox));
    let ear = incoming::listen(listener, (cluster, node), known, disks.clone(), Arc::clone(inbox));
    tasks.spawn_on(ear, runtime);
    let mut peers = BTreeMap::new();
    for (peer, address) in addresses.iter().filter(|(peer, _)| **peer != node) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let hello = Hello { cluster, from: node, to: *peer, disk };
        let dialler = outgoing::Dialler {
            hello,
            address: address.clone(),
            disks: disks.clone(),
            frames: receiver,
            queued: Arc::clone(&queued),
            inbox: Arc::clone(inbox),
            founded_anew: false,
        };
        tasks.spawn_on(dialler.run(), runtime);
        peers.insert(*peer, Outbox { frames: sender, queued });
    }
    Outboxes { peers }
}
