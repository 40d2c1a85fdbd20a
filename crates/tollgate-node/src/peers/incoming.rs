//! Accepts connections from peers: a member with a valid hello, and with the disk that it always had, is read from,
//! frame by frame, or told the clock's reading, according to the connection's purpose.
//!
//! Invariant: a frame comes from the peer of its connection; a frame that names another sender cuts the connection.
//! Unidentified connections have a limit of their own and limited time for their hello. A peer has one connection for
//! each purpose: a new one replaces the old. Frames that wait for the driver are bounded in bytes; above the bound,
//! reading from peers pauses. All connections end with the node.

use super::FRAME_BYTES_MAX;
use super::clock_link;
use super::disks::Disks;
use super::hello::{self, Hello, Purpose, Refusal};
use crate::clock_monitor::ClockMonitor;
use crate::driver::Input;
use crate::fault::Fault;
use crate::inbox::Inbox;
use crate::peer_registry::Roster;
use crate::planted::{Bug, planted};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_replica::{Identity, Meeting};
use tollgate_types::{DiskId, NodeId};

/// Maximum number of connections without a hello yet.
const STRANGERS_MAX: usize = 64;

/// Maximum of the frames that wait for the driver, in kibibytes.
const WAITING_KIB_MAX: usize = 128 << 10;

/// Number of peers for which the last logged problem is remembered; above it, a problem may be logged again.
const TOLD_MAX: usize = 1_024;

/// Listener, and the state that its connections share.
pub(super) struct Ear {
    own: Identity,
    /// Peers that are accepted now.
    roster: Mutex<Roster>,
    disks: Disks,
    inbox: Arc<Inbox<Input>>,
    monitor: Arc<ClockMonitor>,
    room: Arc<Semaphore>,
    /// Ends the current connection of a peer.
    present: Mutex<BTreeMap<(NodeId, Purpose), oneshot::Sender<()>>>,
    /// Last wrong disk of each peer: the peer dials again and again, and its disk is logged once.
    wrong: Mutex<BTreeMap<NodeId, DiskId>>,
    /// Last refusal of each node that is not a member, which is likewise logged once.
    refused: Mutex<BTreeMap<NodeId, Refusal>>,
}

pub(super) async fn listen(listener: TcpListener, ear: Arc<Ear>) {
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
        // A connection above the limit is closed at once: its peer dials again.
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
    pub(super) fn new(
        own: Identity,
        disks: Disks,
        inbox: Arc<Inbox<Input>>,
        monitor: Arc<ClockMonitor>,
    ) -> Ear {
        let room = Arc::new(Semaphore::new(WAITING_KIB_MAX));
        let (roster, present) = (Mutex::default(), Mutex::default());
        let (wrong, refused) = (Mutex::default(), Mutex::default());
        Ear { own, roster, disks, inbox, monitor, room, present, wrong, refused }
    }

    /// Replaces the accepted peers. Connections of other nodes are cut; such a node is told the reason when it dials
    /// again.
    pub(super) fn renew(&self, roster: Roster) {
        let mut present = self.present.lock();
        present.retain(|(node, _), _| roster.contains(*node) || planted(Bug::RemovedHeard));
        *self.roster.lock() = roster;
    }

    async fn meet(
        &self,
        mut stream: TcpStream,
        stranger: tokio::sync::OwnedSemaphorePermit,
    ) -> io::Result<()> {
        super::tune(&stream)?;
        let met = timeout(hello::PATIENCE, self.greeted(&mut stream)).await;
        let Some((from, purpose)) = met.map_err(|_| io::ErrorKind::TimedOut)?? else { return Ok(()) };
        drop(stranger);
        let (end, ended) = oneshot::channel();
        {
            let mut present = self.present.lock();
            // The peer may have been removed since its hello; nothing would cut it off later.
            if self.refusal_by_roster(from).is_some() {
                return Ok(());
            }
            present.insert((from, purpose), end);
        }
        let serve = async {
            match purpose {
                Purpose::Frames => self.read(from, stream).await,
                Purpose::ClockReadings => clock_link::answer(&mut stream, &self.monitor).await,
            }
        };
        tokio::select! {
            served = serve => served,
            // A newer connection has replaced this one.
            _ = ended => Ok(()),
        }
    }

    /// Reads a hello and answers it; returns the peer and the purpose, unless it was refused.
    async fn greeted(&self, stream: &mut TcpStream) -> io::Result<Option<(NodeId, Purpose)>> {
        let (from, refusal) = match hello::hear(stream).await? {
            Ok(hello) => (Some((hello.from, hello.purpose)), self.refusal(&hello).await?),
            Err(refusal) => (None, Some(refusal)),
        };
        if let Some(refusal) = refusal.filter(|refusal| *refusal != Refusal::OtherDisk) {
            self.tell_of_refusal(from.map(|(node, _)| node), refusal);
        }
        hello::answer(stream, refusal, self.own.disk).await?;
        Ok(from.filter(|_| refusal.is_none()))
    }

    async fn refusal(&self, hello: &Hello) -> io::Result<Option<Refusal>> {
        let refusal = hello.refusal(&self.own, &self.roster.lock());
        match refusal {
            Some(Refusal::FoundedAnew) => return Ok(Some(self.known_by_another_disk(hello))),
            Some(_) => return Ok(refusal),
            None => {}
        }
        match self.disks.meet(hello.from, hello.disk).await {
            Some(Meeting::First | Meeting::Again) => Ok(None),
            Some(Meeting::OtherDisk(_)) if planted(Bug::OtherDiskAccepted) => Ok(None),
            Some(Meeting::OtherDisk(known)) => {
                self.tell_of_wrong_disk(hello, known);
                Ok(Some(Refusal::OtherDisk))
            }
            // The reason has been logged. The peer dials again.
            None => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// Handles a peer that knows this node by a disk that it does not have. One of the two was founded anew: the peer,
    /// if it comes with another disk than before; otherwise this node, which must not go on.
    fn known_by_another_disk(&self, hello: &Hello) -> Refusal {
        match self.disks.disk_of(hello.from) {
            Some(known) if known != hello.disk => {
                self.tell_of_wrong_disk(hello, known);
                Refusal::OtherDisk
            }
            _ => {
                self.inbox.put(Input::Fault(Fault::FoundedAnew { known_by: hello.from }));
                Refusal::FoundedAnew
            }
        }
    }

    fn refusal_by_roster(&self, from: NodeId) -> Option<Refusal> {
        let Identity { cluster, node: to, .. } = self.own;
        let (disk, known, purpose) = (DiskId::new(0), None, Purpose::Frames);
        let hello = Hello { cluster, from, to, disk, known, purpose };
        hello.refusal(&self.own, &self.roster.lock())
    }

    /// Logs a refusal once, because a refused node dials again and again.
    fn tell_of_refusal(&self, from: Option<NodeId>, refusal: Refusal) {
        let mut refused = self.refused.lock();
        if refused.len() >= TOLD_MAX {
            refused.clear();
        }
        if from.is_none_or(|from| refused.insert(from, refusal) != Some(refusal)) {
            let node = from.map_or(0, NodeId::number);
            tracing::warn!(node, reason = %refusal, "a connection to the peer port was refused");
        }
    }

    fn tell_of_wrong_disk(&self, Hello { from, disk, .. }: &Hello, known: DiskId) {
        let mut wrong = self.wrong.lock();
        if wrong.len() >= TOLD_MAX {
            wrong.clear();
        }
        let last = wrong.insert(*from, *disk);
        if last != Some(*disk) {
            tracing::error!(
                node = %from, %disk, %known,
                "a node came back with another disk and is not listened to: what it voted for and acknowledged is gone \
                 with the disk that is known; remove it, and let it join under a new id"
            );
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
            let says = tollgate_replica::sender(&frame);
            if says != Ok(from) && !planted(Bug::FrameSenderUnchecked) {
                let says = says.map_or_else(|error| error.to_string(), |node| node.to_string());
                tracing::error!(
                    %from, says,
                    "a peer's frame says that it is from another node: its connection is cut; check that no two nodes \
                     share an address or a proxy"
                );
                return Ok(());
            }
            self.inbox.put(Input::Frame(from, frame, room));
        }
    }
}
