//! Listens to peers: a member that says hello rightly, and with the disk it always had, is read from, frame by frame,
//! or told what the clock shows, if that is what it came for.
//!
//! Invariant: a frame is from whom its connection is from; one that says otherwise cuts it. Strangers have a limit of
//! their own and a moment to say who they are. A peer has one connection for each purpose: a new one takes the place of
//! the old. What has arrived and waits for the driver is bounded in bytes, and past that peers are read from no
//! further. All of it ends with the node.

use super::FRAME_BYTES_MAX;
use super::clock_link;
use super::disks::Disks;
use super::hello::{self, Hello, Purpose, Refusal};
use crate::circle::Roster;
use crate::clock_monitor::ClockMonitor;
use crate::driver::Input;
use crate::fault::Fault;
use crate::inbox::Inbox;
use crate::planted::{Bug, planted};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_replica::{Identity, Meeting};
use tollgate_types::{DiskId, NodeId};

/// Connections that have not said who they are.
const STRANGERS_MAX: usize = 64;

/// Bytes of frames that wait for the driver, in kibibytes.
const WAITING_KIB_MAX: usize = 128 << 10;

/// Peers that something was last said about; past this it may be said again.
const TOLD_MAX: usize = 1_024;

/// Who listens, and what its connections share.
pub(super) struct Ear {
    own: Identity,
    /// Who is listened to now.
    roster: Mutex<Roster>,
    disks: Disks,
    inbox: Arc<Inbox<Input>>,
    monitor: Arc<ClockMonitor>,
    room: Arc<Semaphore>,
    /// Ends the connection that a peer has now.
    present: Mutex<BTreeMap<(NodeId, Purpose), oneshot::Sender<()>>>,
    /// With which wrong disk each peer came last: it comes again and again, and is told of once.
    wrong: Mutex<BTreeMap<NodeId, DiskId>>,
    /// Likewise who is no member, and why it was refused.
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

    /// These are listened to from now on. Whoever is none of them is cut off, and hears why when it dials again.
    pub(super) fn renew(&self, roster: Roster) {
        let mut present = self.present.lock().expect("nobody panics with it");
        present.retain(|(node, _), _| roster.contains(*node) || planted(Bug::RemovedHeard));
        *self.roster.lock().expect("nobody panics with it") = roster;
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
            let mut present = self.present.lock().expect("nobody panics with it");
            // It may have been removed since it was greeted, and then nobody would cut it off.
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
            // A newer connection has its place.
            _ = ended => Ok(()),
        }
    }

    /// Hears a hello and answers it: who it is and what for, unless it was refused.
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
        let refusal = hello.refusal(&self.own, &self.roster.lock().expect("nobody panics with it"));
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
            // It has been said why. The peer dials again.
            None => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// A peer knows this node by another disk than it has. One of the two was founded anew: the peer, if it comes with
    /// another disk than it had; otherwise this node, which must not go on.
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
        hello.refusal(&self.own, &self.roster.lock().expect("nobody panics with it"))
    }

    /// Whoever is refused dials again and again.
    fn tell_of_refusal(&self, from: Option<NodeId>, refusal: Refusal) {
        let mut refused = self.refused.lock().expect("nobody panics with it");
        if refused.len() >= TOLD_MAX {
            refused.clear();
        }
        if from.is_none_or(|from| refused.insert(from, refusal) != Some(refusal)) {
            let node = from.map_or(0, NodeId::number);
            tracing::warn!(node, reason = %refusal, "a connection to the peer port was refused");
        }
    }

    fn tell_of_wrong_disk(&self, Hello { from, disk, .. }: &Hello, known: DiskId) {
        let mut wrong = self.wrong.lock().expect("nobody panics with it");
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
