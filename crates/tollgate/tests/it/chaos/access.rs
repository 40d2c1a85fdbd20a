//! Ways into the cluster: some clients know of nodes only, some of gateways only, some of both.
//!
//! Invariant: raw clients find here where everybody is now; the client library is given what was true when it began,
//! and must follow the cluster by itself. Not here: who uses which (`clients`, `load`).

use crate::cluster::Cluster;
use crate::doors::Doors;

#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) nodes: Doors,
    /// Those of the nodes if there are no gateways.
    pub(crate) gateways: Doors,
    pub(crate) both: Doors,
}

impl Access {
    pub(crate) fn to(cluster: &Cluster) -> Access {
        let (nodes, gateways) = (cluster.endpoints(), cluster.gateway_endpoints());
        let both = Doors::new(nodes.iter().chain(&gateways).cloned().collect());
        let nodes = Doors::new(nodes);
        let gateways = if gateways.is_empty() { nodes.clone() } else { Doors::new(gateways) };
        Access { nodes, gateways, both }
    }

    /// One of them for each number: nodes, gateways, both, and again.
    pub(crate) fn all(&self) -> [Doors; 3] {
        [self.nodes.clone(), self.gateways.clone(), self.both.clone()]
    }

    /// A node took another's place.
    pub(crate) fn moved(&self, old: &str, new: &str) {
        for doors in [&self.nodes, &self.both] {
            doors.replace(old, new);
        }
    }
}
