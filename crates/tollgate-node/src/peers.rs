//! Frames between nodes: one connection for each direction, dialled by the sender; and beside each of them another
//! connection, over which the same node reads the other's clock.
//!
//! Invariant: frames to one peer are sent in order, whole or not at all; they may be lost. A queue to a peer has a
//! limit, above which frames are dropped: Raft sends again. A broken connection is dialled again at once; if that fails
//! the host is told, which may then campaign. The set of peers that are dialled and accepted follows the members. Not
//! here: the contents of a frame (`tollgate_replica`), the members (`peer_registry`).

mod clock_link;
mod disks;
mod hello;
mod incoming;
mod outgoing;
mod peer_writer;

use crate::clock_monitor::ClockMonitor;
use crate::driver::Input;
use crate::inbox::Inbox;
use crate::peer_registry::Roster;
use crate::planted::{Bug, planted};
use clock_link::ClockLink;
use disks::Disks;
use hello::{Hello, Purpose};
use incoming::Ear;
use peer_writer::PeerWriter;
use socket2::{SockRef, TcpKeepalive};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tollgate_replica::{COMMAND_BYTES_MAX, Identity, PeerDisks};
use tollgate_types::NodeId;

/// Maximum length of a frame that is read. Far above what a host sends: a small overhead, and one message, or one entry
/// if that is longer.
const FRAME_BYTES_MAX: usize = 32 << 20;
const _: () = assert!(FRAME_BYTES_MAX >= 2 * COMMAND_BYTES_MAX);

/// A connection that has been silent for this long is broken, even if TCP still retransmits.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Sends small frames without delay, and detects connections that broke silently.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(SILENCE_MAX))?;
    let probes = TcpKeepalive::new().with_time(SILENCE_MAX / 2).with_interval(SILENCE_MAX / 5);
    socket.set_tcp_keepalive(&probes)
}

/// The connections to and from peers, which change with the members.
pub(crate) struct Peers {
    own: Identity,
    outboxes: BTreeMap<NodeId, Outbox>,
    ear: Arc<Ear>,
    disks: Disks,
    inbox: Arc<Inbox<Input>>,
    monitor: Arc<ClockMonitor>,
    runtime: tokio::runtime::Handle,
    /// Tasks that dial; they end when this set is dropped.
    diallers: JoinSet<()>,
    begun: bool,
}

struct Outbox {
    address: String,
    peer_writer: Arc<PeerWriter>,
    dialler: AbortHandle,
    clock_link: AbortHandle,
}

/// Identity of a node towards its peers, and its records of them.
pub(crate) struct Acquainted {
    pub(crate) own: Identity,
    pub(crate) books: PeerDisks,
    pub(crate) roster: Roster,
    pub(crate) monitor: Arc<ClockMonitor>,
}

impl Peers {
    /// Begins to listen and to dial. Listening ends when `tasks` is dropped.
    pub(crate) fn start(
        Acquainted { own, books, roster, monitor }: Acquainted,
        listener: tokio::net::TcpListener,
        inbox: &Arc<Inbox<Input>>,
        tasks: &mut JoinSet<()>,
        runtime: &tokio::runtime::Handle,
    ) -> Peers {
        let disks = Disks::new(books, Arc::clone(inbox));
        let ear = Arc::new(Ear::new(own, disks.clone(), Arc::clone(inbox), Arc::clone(&monitor)));
        let mut peers = Peers {
            own,
            outboxes: BTreeMap::new(),
            ear: Arc::clone(&ear),
            disks,
            inbox: Arc::clone(inbox),
            monitor: Arc::clone(&monitor),
            runtime: runtime.clone(),
            diallers: JoinSet::new(),
            begun: false,
        };
        // Done before connections are accepted: a peer that is refused waits a while before it dials again.
        peers.renew(roster);
        tasks.spawn_on(incoming::listen(listener, ear), runtime);
        tasks.spawn_on(monitor.run(), runtime);
        peers
    }

    /// Replaces the peers: newcomers are dialled and accepted, former peers no longer are.
    pub(crate) fn renew(&mut self, roster: Roster) {
        while self.diallers.try_join_next().is_some() {}
        let wanted = |node: &NodeId, outbox: &mut Outbox| {
            let stays =
                roster.peers.get(node).is_some_and(|address| address.as_ref() == Some(&outbox.address));
            if !stays {
                tracing::info!(peer = %node, address = outbox.address, "no longer dialled");
                outbox.dialler.abort();
                outbox.clock_link.abort();
                self.monitor.forget(*node);
                outbox.peer_writer.close();
            }
            stays
        };
        self.outboxes.retain(wanted);
        let newcomers_ignored = self.begun && planted(Bug::NewcomerNotDialled);
        let own = self.own.node;
        for (peer, address) in roster.peers.iter().filter(|(peer, _)| **peer != own) {
            match address {
                Some(address) if !self.outboxes.contains_key(peer) && !newcomers_ignored => {
                    self.dial(*peer, address.clone());
                }
                Some(_) => {}
                None => tracing::warn!(
                    %peer,
                    "nobody has said where this member is found: give its address in cluster.members"
                ),
            }
        }
        self.begun = true;
        self.ear.renew(roster);
    }

    fn dial(&mut self, peer: NodeId, address: String) {
        let Identity { cluster, node, disk, .. } = self.own;
        let peer_writer = Arc::new(PeerWriter::default());
        let hello = Hello { cluster, from: node, to: peer, disk, known: None, purpose: Purpose::Frames };
        let (frames, frames_told) = watch::channel(None);
        self.monitor.begin(peer);
        let clock_link = ClockLink {
            hello: Hello { purpose: Purpose::ClockReadings, ..hello },
            address: address.clone(),
            disks: self.disks.clone(),
            monitor: Arc::clone(&self.monitor),
            frames: frames_told,
        };
        let dialler = outgoing::Dialler {
            hello,
            address: address.clone(),
            disks: self.disks.clone(),
            peer_writer: Arc::clone(&peer_writer),
            inbox: Arc::clone(&self.inbox),
            frames,
            refusal: None,
        };
        let dialler = self.diallers.spawn_on(dialler.run(), &self.runtime);
        let clock_link = self.diallers.spawn_on(clock_link.run(), &self.runtime);
        self.outboxes.insert(peer, Outbox { address, peer_writer, dialler, clock_link });
    }

    /// Sends a frame, or drops it.
    pub(crate) fn send(&self, to: NodeId, frame: &[u8]) {
        let Some(outbox) = self.outboxes.get(&to) else {
            tracing::debug!(%to, "a frame for a node that is no member, or whose address is not known");
            return;
        };
        outbox.peer_writer.send(frame);
    }
}
