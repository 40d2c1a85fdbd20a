//! Dials one peer, again and again, and lets frames out to it while there is a connection.
//!
//! Invariant: an answer counts only if it comes from the disk by which the peer is known; a peer with another disk was
//! founded anew, and may know nothing of this node. Not here: the exchange (`hello`), the records of disks (`disks`),
//! writing (`peer_writer`).

use super::clock_link::FramesConnection;
use super::disks::Disks;
use super::hello::{self, Answer, Hello, Refusal};
use super::peer_writer::PeerWriter;
use crate::driver::Input;
use crate::fault::Fault;
use crate::inbox::Inbox;
use crate::planted::{Bug, planted};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tollgate_types::DiskId;

/// Pause between two attempts to dial: doubles from `PAUSE_MIN` to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time after which a connection counts as having worked.
const LIVED: Duration = Duration::from_millis(50);

pub(super) struct Dialler {
    pub(super) hello: Hello,
    pub(super) address: String,
    pub(super) disks: Disks,
    pub(super) peer_writer: Arc<PeerWriter>,
    pub(super) inbox: Arc<Inbox<Input>>,
    /// Tells the reader of the peer's clock about the connection for frames.
    pub(super) frames: watch::Sender<FramesConnection>,
    /// Refusal by the peer at the last attempt to dial.
    pub(super) refusal: Option<Refusal>,
}

impl Dialler {
    /// Runs until the node stops.
    pub(super) async fn run(mut self) {
        let peer = self.hello.to;
        let (mut pause, mut lost, mut connections) = (PAUSE_MIN, false, 0);
        let mut said = String::new();
        loop {
            match self.dial().await {
                Ok(stream) => {
                    tracing::info!(%peer, address = self.address, "connected");
                    if std::mem::take(&mut lost) {
                        self.inbox.put(Input::Regained(peer));
                    }
                    said.clear();
                    let began = Instant::now();
                    connections += 1;
                    self.frames.send_replace(Some(connections));
                    let error = self.serve(stream).await;
                    self.frames.send_replace(None);
                    tracing::info!(%peer, %error, "connection lost");
                    // Dialled again at once, because failover waits for the result; but not if the connection broke as
                    // soon as it was made, because that could repeat for ever.
                    if began.elapsed() >= LIVED {
                        pause = PAUSE_MIN;
                    } else {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
                Err(error) => {
                    match self.refusal.take() {
                        // Applies whether this node takes part already or not: if it was founded alone, no peer could
                        // have refused it before.
                        Some(Refusal::OtherDisk) => {
                            return self.inbox.put(Input::Fault(Fault::FoundedAnew { known_by: peer }));
                        }
                        Some(Refusal::Removed) => self.inbox.put(Input::Removed(peer)),
                        _ => {}
                    }
                    if !std::mem::replace(&mut lost, true) {
                        self.inbox.put(Input::Lost(peer));
                    }
                    let says = error.to_string();
                    if says != said {
                        tracing::warn!(%peer, address = self.address, error = says, "can't connect");
                        said = says;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn dial(&mut self) -> Result<TcpStream, Undialled> {
        let dialled = dial(&self.address, self.hello, &self.disks).await;
        match dialled {
            Ok(_) => self.disks.accepted_by(self.hello.to).await,
            Err(Undialled::Refused(refusal)) => self.refusal = Some(refusal),
            Err(Undialled::Failed(_)) => {}
        }
        dialled
    }

    /// Lets frames go out until the connection breaks.
    async fn serve(&self, stream: TcpStream) -> io::Error {
        let stream = Arc::new(stream);
        self.peer_writer.open(Arc::clone(&stream));
        let error = tokio::select! {
            error = self.peer_writer.carry_on(&stream) => error,
            error = until_closed(&stream) => error,
        };
        // Frames meant for this connection are stale once there is another.
        self.peer_writer.close();
        error
    }
}

/// Reason for the lack of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undialled {
    /// The peer refused this node, or is itself not accepted.
    #[error(transparent)]
    Refused(Refusal),
    /// The peer could not be reached.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Dials a peer and says hello, for any purpose.
pub(super) async fn dial(address: &str, hello: Hello, disks: &Disks) -> Result<TcpStream, Undialled> {
    let peer = hello.to;
    let hello = Hello { known: disks.disk_of(peer), ..hello };
    let dialled = async {
        let mut stream = TcpStream::connect(address).await?;
        super::tune(&stream)?;
        io::Result::Ok((hello::greet(&mut stream, hello).await?, stream))
    };
    let dialled = timeout(hello::PATIENCE, dialled).await;
    let (answer, stream) = dialled.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    // The peer may have come for the first time meanwhile.
    match weigh(answer, disks.disk_of(peer)) {
        Some(refusal) => Err(Undialled::Refused(refusal)),
        None => Ok(stream),
    }
}

/// Waits until the connection is closed. The peer never sends anything on it, so a read detects the end at once.
async fn until_closed(stream: &TcpStream) -> io::Error {
    loop {
        if let Err(error) = stream.readable().await {
            return error;
        }
        match stream.try_read(&mut [0; 1]) {
            Ok(0) => return io::Error::other("closed by the peer"),
            Ok(_) => return io::Error::other("the peer spoke out of turn"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return error,
        }
    }
}

/// Returns the reason not to talk to a peer that is known by the disk `known`, if there is one.
///
/// A removal ends this node's part in the cluster for good, so it is believed only if a known peer reports it: a node
/// that was founded anew, alone, reports it to every node with a lower id.
fn weigh(answer: Answer, known: Option<DiskId>) -> Option<Refusal> {
    if planted(Bug::RemovedByAnybody) && answer.refusal == Some(Refusal::Removed) {
        return answer.refusal;
    }
    match (answer.disk, known) {
        (Some(disk), Some(known)) if disk != known => Some(Refusal::FoundedAnew),
        (_, None) if answer.refusal == Some(Refusal::Removed) => Some(Refusal::UnknownPeer),
        _ => answer.refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_a_peer_is_believed_if_it_has_the_disk_that_it_is_known_by() {
        let (own, other) = (DiskId::new(5), DiskId::new(6));
        let said = |refusal, known| weigh(Answer { refusal, disk: Some(own) }, known);
        for refusal in [None, Some(Refusal::UnknownPeer), Some(Refusal::OtherDisk), Some(Refusal::Removed)] {
            assert_eq!(said(refusal, Some(own)), refusal);
            assert_eq!(said(refusal, Some(other)), Some(Refusal::FoundedAnew));
        }
        // A peer that never came: it may accept this node or refuse it, but not declare it removed.
        assert_eq!(said(None, None), None);
        assert_eq!(said(Some(Refusal::OtherDisk), None), Some(Refusal::OtherDisk));
        assert_eq!(said(Some(Refusal::Removed), None), Some(Refusal::UnknownPeer));
        // A server of another protocol has no disk to be known by.
        let foreign = Answer { refusal: Some(Refusal::OtherVersion), disk: None };
        assert_eq!(weigh(foreign, Some(own)), Some(Refusal::OtherVersion));
    }
}
