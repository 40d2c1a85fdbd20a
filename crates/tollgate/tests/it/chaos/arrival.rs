//! A node that is about to join: its ports, and its connections in the network.
//!
//! It reaches each of the others through a separate proxy, listed in its `cluster.members`; all of them reach it at one
//! entrance, the address that it is added with. Not here: adding it (`faults/membership`).

use crate::cluster::{Node, NodePorts, member};
use crate::proxy::Link;
use std::path::PathBuf;

/// Id and ports of the node in a place of the arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) id: u64,
    pub(crate) ports: NodePorts,
}

/// Settings that every joining node gets.
#[derive(Debug, Clone)]
pub(crate) struct Cradle {
    pub(crate) cluster: String,
    pub(crate) dir: PathBuf,
    pub(crate) flags: Vec<String>,
}

pub(crate) struct Arrival {
    cradle: Cradle,
    ports: NodePorts,
    entrance: (u16, u16),
    /// The other nodes as this one sees them: ids, peer ports and client ports.
    others: Vec<(u64, (u16, u16))>,
}

/// The proxies of an arrival: its entrance, and its links to the others by their places.
pub(crate) type Proxies = (Link, Vec<(usize, Link)>);

impl Arrival {
    pub(crate) async fn prepare(cradle: Cradle, others: &[(usize, Seat)]) -> (Arrival, Proxies) {
        let ports = NodePorts::take();
        let entrance = Link::start(ports).await;
        let (mut links, mut known) = (Vec::new(), Vec::new());
        for (place, seat) in others {
            let link = Link::start(seat.ports).await;
            known.push((seat.id, link.ports()));
            links.push((*place, link));
        }
        let arrival = Arrival { cradle, ports, entrance: entrance.ports(), others: known };
        (arrival, (entrance, links))
    }

    /// Returns the peer address and the client address at which others will reach the node.
    pub(crate) fn addresses(&self) -> (String, String) {
        let (peer, client) = self.entrance;
        (format!("127.0.0.1:{peer}"), format!("127.0.0.1:{client}"))
    }

    /// Returns the node, under the id that it was given.
    pub(crate) fn node(&self, id: u64) -> Node {
        let own = member(id, self.ports.peer, self.ports.client);
        let others = self.others.iter().map(|(id, (peer, client))| member(*id, *peer, *client));
        let members: Vec<String> = others.chain([own]).collect();
        let join: Vec<String> =
            self.others.iter().map(|(_, (_, client))| format!("127.0.0.1:{client}")).collect();
        let mut flags = vec!["--cluster-members".to_owned(), format!("[{}]", members.join(", "))];
        flags.extend(["--cluster-join".to_owned(), join.join(",")]);
        flags.extend_from_slice(&self.cradle.flags);
        Node::newcomer(&self.cradle.cluster, id, self.ports, &self.cradle.dir, &flags)
    }
}
