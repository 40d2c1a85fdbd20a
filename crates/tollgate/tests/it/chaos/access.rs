//! Endpoints of the cluster for clients: some know of nodes only, some of gateways only, some of both.
//!
//! Invariant: raw clients find the current endpoints here; the client library is given those that were right when it
//! began, and must follow the cluster by itself. Not here: the choice for each client (`clients`, `load`).

use crate::cluster::Cluster;
use crate::doors::Doors;

#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) nodes: Doors,
    /// Endpoints of gateways, or of the nodes if there are no gateways.
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

    /// Returns the three sets of endpoints: nodes, gateways, both.
    pub(crate) fn all(&self) -> [Doors; 3] {
        [self.nodes.clone(), self.gateways.clone(), self.both.clone()]
    }

    /// Records that a node took another's place.
    pub(crate) fn moved(&self, old: &str, new: &str) {
        for doors in [&self.nodes, &self.both] {
            doors.replace(old, new);
        }
    }
}
