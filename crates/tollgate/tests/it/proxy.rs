//! A network between nodes that can be broken: a proxy for each way between two nodes, for peers and for forwarded
//! operations alike.
//!
//! A node that joins later has ways of its own to the others, but they reach it by one entrance, the address that
//! travels with the membership. Invariant: a connection that lost bytes is closed before bytes pass again, as TCP
//! would. Not here: connections of clients, which go to the nodes themselves.

use crate::cluster::NodePorts;
use crate::ports;
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a way does with connections that one node made to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Carries them.
    Open,
    /// Takes every byte and delivers none, without a word to anybody.
    Silent,
    /// Closes them, and new ones at once.
    Closed,
}

/// All ways between the nodes of a cluster.
pub(crate) struct Links {
    /// By who connects and to whom. Where one took another's place there are several, which are set alike: clients may
    /// still use those that the first one told them of.
    ways: BTreeMap<(usize, usize), Vec<Link>>,
    /// By whose they are.
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

    /// Where the peer port and the client port are found.
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

    /// Where `from` finds the peer port and the client port of `to`.
    pub(crate) fn ports(&self, from: usize, to: usize) -> (u16, u16) {
        self.ways[&(from, to)].last().expect("each way has a link").ports()
    }

    /// Another node takes a place: how it reaches the others, and how they reach it. All of it is open at first.
    pub(crate) fn add(&mut self, place: usize, entrance: Link, to_others: Vec<(usize, Link)>) {
        self.entrances.push((place, entrance));
        for (other, link) in to_others {
            self.ways.entry((place, other)).or_default().push(link);
        }
    }

    /// Sets what becomes of the connections that `from` makes to `to`.
    pub(crate) fn set(&self, from: usize, to: usize, way: Way) {
        for link in &self.ways[&(from, to)] {
            link.way.send_replace(way);
        }
    }

    /// Sets what becomes of the connections that others make to a node that joined later.
    pub(crate) fn set_entrance(&self, of: usize, way: Way) {
        for (_, link) in self.entrances.iter().filter(|(place, _)| *place == of) {
            link.way.send_replace(way);
        }
    }

    /// Sets both ways between a node and all others.
    pub(crate) fn isolate(&self, node: usize, way: Way) {
        for other in (0..self.nodes).filter(|other| *other != node) {
            self.set(node, other, way);
            self.set(other, node, way);
        }
    }

    /// Opens all ways.
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
    // One that begins while the way is silent never gets anywhere, even after.
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

/// Passes bytes one way until either end is gone, or until the connection has lost some and the way opens again.
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

/// Ends when the way is closed, or opens after silence.
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
