//! A network between nodes that can be broken: a proxy for each direction between two nodes, for peers and for
//! forwarded operations alike.
//!
//! A node that joins later has links of its own to the others, but they reach it at one entrance, the address that is
//! stored with the membership. Invariant: a connection that lost bytes is closed before bytes pass again, as TCP would
//! do. Not here: connections of clients, which go to the nodes themselves.

use crate::cluster::NodePorts;
use crate::ports;
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// State of the connections that one node made to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Bytes are carried.
    Open,
    /// Every byte is accepted and none is delivered, and no side is told.
    Silent,
    /// Connections are closed, new ones at once.
    Closed,
}

/// All links between the nodes of a cluster.
pub(crate) struct Links {
    /// Links by connecting node and target. If a node took another's place there are several, which are set alike:
    /// clients may still use the addresses that the first node gave them.
    ways: BTreeMap<(usize, usize), Vec<Link>>,
    /// Links to nodes that joined later, by place.
    entrances: Vec<(usize, Link)>,
    nodes: usize,
}

/// A proxy for the peer port and the client port of a node.
pub(crate) struct Link {
    peer: u16,
    client: u16,
    way: watch::Sender<Way>,
    _tasks: JoinSet<()>,
}

impl Link {
    pub(crate) async fn start(target: NodePorts) -> Link {
        let (mut tasks, (way, state)) = (JoinSet::new(), watch::channel(Way::Open));
        let peer = listen(target.peer, state.clone(), &mut tasks).await;
        let client = listen(target.client, state, &mut tasks).await;
        Link { peer, client, way, _tasks: tasks }
    }

    /// Returns the proxy's addresses of the peer port and the client port.
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.peer, self.client)
    }
}

impl Links {
    pub(crate) async fn start(targets: &[NodePorts]) -> Links {
        let mut ways = BTreeMap::new();
        for from in 0..targets.len() {
            for (to, target) in targets.iter().enumerate().filter(|(to, _)| *to != from) {
                ways.insert((from, to), vec![Link::start(*target).await]);
            }
        }
        Links { ways, entrances: Vec::new(), nodes: targets.len() }
    }

    /// Returns the ports at which `from` reaches the peer port and the client port of `to`.
    pub(crate) fn ports(&self, from: usize, to: usize) -> (u16, u16) {
        self.ways[&(from, to)].last().expect("each way has a link").ports()
    }

    /// Adds the links of a new node in a place: its entrance, and its links to the others. All are open at first.
    pub(crate) fn add(&mut self, place: usize, entrance: Link, to_others: Vec<(usize, Link)>) {
        self.entrances.push((place, entrance));
        for (other, link) in to_others {
            self.ways.entry((place, other)).or_default().push(link);
        }
    }

    /// Sets the state of the connections that `from` makes to `to`.
    pub(crate) fn set(&self, from: usize, to: usize, way: Way) {
        for link in &self.ways[&(from, to)] {
            link.way.send_replace(way);
        }
    }

    /// Sets the state of the connections that others make to a node that joined later.
    pub(crate) fn set_entrance(&self, of: usize, way: Way) {
        for (_, link) in self.entrances.iter().filter(|(place, _)| *place == of) {
            link.way.send_replace(way);
        }
    }

    /// Sets both directions between a node and all others.
    pub(crate) fn isolate(&self, node: usize, way: Way) {
        for other in (0..self.nodes).filter(|other| *other != node) {
            self.set(node, other, way);
            self.set(other, node, way);
        }
    }

    /// Opens all links.
    pub(crate) fn heal(&self) {
        let entrances = self.entrances.iter().map(|(_, link)| link);
        for link in self.ways.values().flatten().chain(entrances) {
            link.way.send_replace(Way::Open);
        }
    }
}

async fn listen(target: u16, way: watch::Receiver<Way>, tasks: &mut JoinSet<()>) -> u16 {
    let (port, listener) = loop {
        let port = ports::take();
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
            break (port, listener);
        }
    };
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok((near, _)) = listener.accept().await else { continue };
            connections.spawn(carry(near, target, way.clone()));
        }
    });
    port
}

async fn carry(near: TcpStream, target: u16, mut way: watch::Receiver<Way>) {
    // A connection that begins while the link is silent never carries anything, even after the silence.
    let at_first = *way.borrow_and_update();
    match at_first {
        Way::Closed => return,
        Way::Silent => {
            let _ = way.changed().await;
            return;
        }
        Way::Open => {}
    }
    let Ok(far) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let (Ok(()), Ok(())) = (near.set_nodelay(true), far.set_nodelay(true)) else { return };
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = pass(near_in, far_out, way.clone()) => {}
        () = pass(far_in, near_out, way.clone()) => {}
        () = until_closed(way) => {}
    }
}

/// Passes bytes in one direction until either end is gone, or until the connection has lost some and the link opens
/// again.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: watch::Receiver<Way>) {
    let mut bytes = vec![0; 64 << 10];
    let mut lost = false;
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        match *way.borrow() {
            Way::Open if lost => return,
            Way::Open => {}
            Way::Silent => {
                lost = true;
                continue;
            }
            Way::Closed => return,
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Completes when the link is closed, or opens after silence.
async fn until_closed(mut way: watch::Receiver<Way>) {
    let mut silent = false;
    loop {
        let now = *way.borrow_and_update();
        match now {
            Way::Closed => return,
            Way::Open if silent => return,
            Way::Open => {}
            Way::Silent => silent = true,
        }
        if way.changed().await.is_err() {
            return;
        }
    }
}
