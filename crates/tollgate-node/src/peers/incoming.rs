//! Listens to peers: whoever says hello rightly is read from, frame by frame.

use super::{FRAME_BYTES_MAX, hello};
use crate::driver::Input;
use crate::inbox::Inbox;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tollgate_types::{ClusterId, NodeId};

/// Connections that are open at once, those of strangers included, who are cut off soon.
const CONNECTIONS_MAX: usize = 256;

/// How long a reader waits for the driver to make room.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) async fn listen(
    listener: TcpListener,
    cluster: ClusterId,
    node: NodeId,
    known: BTreeSet<NodeId>,
    inbox: Arc<Inbox<Input>>,
) {
    let known = Arc::new(known);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await.expect("never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a peer's connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (known, inbox) = (Arc::clone(&known), Arc::clone(&inbox));
        tokio::spawn(async move {
            let ended = receive(stream, (cluster, node), &known, &inbox).await;
            if let Err(error) = ended {
                tracing::debug!(%error, "a peer's connection ended");
            }
            drop(permit);
        });
    }
}

async fn receive(
    mut stream: TcpStream,
    me: (ClusterId, NodeId),
    known: &BTreeSet<NodeId>,
    inbox: &Inbox<Input>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let is_known = |node| known.contains(&node);
    let met = timeout(hello::PATIENCE, hello::answer(&mut stream, me, is_known)).await;
    let from = match met.map_err(|_| io::ErrorKind::TimedOut)?? {
        Ok(from) => from,
        Err(refusal) => {
            tracing::warn!(reason = ?refusal, "a connection to the peer port was refused");
            return Ok(());
        }
    };
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    loop {
        let length = usize::try_from(stream.read_u32_le().await?).unwrap_or(usize::MAX);
        if length > FRAME_BYTES_MAX {
            tracing::warn!(%from, length, "a peer's frame is too long: its connection is cut");
            return Ok(());
        }
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame).await?;
        let mut input = Some(Input::Frame(from, frame));
        // Past its limit the inbox holds the peer back, and through TCP its sender.
        while inbox.offer(|| input.take()).is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
