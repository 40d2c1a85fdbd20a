//! Startup of a node with an empty data directory that joins a running cluster.
//!
//! The node asks the addresses in `cluster.join` until one answers, and then the leader of group 0, which knows best.
//! Invariant: a node joins only a cluster that it was added to, and never in the place of a node that has voted. Not
//! here: creating the data directory (`tollgate_node`), adding a member (`grpc::admin`).

use crate::config::Config;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tollgate_node::{Join, StartError, has_data};
use tollgate_proto::v1;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_replica::{MEMBERS_MAX, Members, NodeAddresses};
use tollgate_types::{ClusterId, GroupId, HostPort, NodeId, Zone};
use tonic::transport::Endpoint;

/// Time limit for one node to answer.
const CALL_PATIENCE: Duration = Duration::from_secs(3);

/// Pause between two rounds: doubles from the minimum to the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Reason why a cluster would not let this node join. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The address belongs to another cluster.
    #[error(
        "{address} is a node of cluster {found}, and this node is configured for {expected}: check cluster.name (or \
             cluster.id) and the addresses in cluster.join"
    )]
    OtherCluster {
        /// Address that was asked.
        address: String,
        /// Cluster id found at the address.
        found: ClusterId,
        /// Cluster id in this node's configuration.
        expected: ClusterId,
    },
    /// This node was never added to the cluster.
    #[error(
        "the cluster has no node {node}: run `tollgate member add --id {node} --peer HOST:PORT --client HOST:PORT` \
             first"
    )]
    UnknownNode {
        /// Id of this node.
        node: NodeId,
    },
    /// The id is used up.
    #[error(
        "node id {node} was removed from the cluster, or passed over, and is never used again: run `tollgate member \
             add`, and start with the id that it prints"
    )]
    PastNode {
        /// Id of this node.
        node: NodeId,
    },
    /// The node has a vote, so it must have had a disk.
    #[error(
        "node {node} votes in the cluster already, and {} is empty: its disk is gone, and with it what it voted for. \
             Add the machine under a new id (`tollgate member add`) and then replace this one (`tollgate member \
             replace {node} --by NEW`)", data_dir.display()
    )]
    LostDisk {
        /// Id of this node.
        node: NodeId,
        /// Data directory, which is empty.
        data_dir: PathBuf,
    },
}

/// Asks the cluster that this node is to join, however long it takes until a node answers. Returns none if there is
/// nothing to join: the node has data already, or has no `cluster.join`.
pub async fn join(config: &Config) -> Result<Option<Join>, crate::ServeError> {
    let addresses: Vec<String> = config.cluster.join.iter().map(ToString::to_string).collect();
    if addresses.is_empty() || founded(&config.node.data_dir).await? {
        return Ok(None);
    }
    let (mut pause, mut said) = (PAUSE_MIN, String::new());
    loop {
        let mut troubles = Vec::new();
        for address in &addresses {
            match ask_best(address).await.map(|told| judge(config, &told)) {
                Ok(Ok(join)) => {
                    tracing::info!(%address, groups = join.groups.len(), "joining the cluster");
                    return Ok(Some(join));
                }
                Ok(Err(NotNow::Never(refusal))) => return Err(refusal.into()),
                Ok(Err(NotNow::Later(why))) => troubles.push(format!("{address}: {why}")),
                Err(why) => troubles.push(format!("{address}: {why}")),
            }
        }
        let says = troubles.join("; ");
        if says != said {
            tracing::warn!(troubles = says, "waiting for a node of the cluster to say how to join it");
            said = says;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn founded(data_dir: &std::path::Path) -> Result<bool, StartError> {
    let path = data_dir.to_path_buf();
    let looked = tokio::task::spawn_blocking(move || has_data(&path)).await;
    looked.unwrap_or(Ok(false))
}

/// A node's description of its cluster.
#[derive(Debug, Clone, Default)]
struct Told {
    address: String,
    groups: v1::GroupsResponse,
    members: v1::MembersResponse,
}

impl Told {
    /// True if the node leads group 0: then it knows of every member that was added.
    fn leads(&self) -> bool {
        let own = self.groups.header.as_ref().map_or(0, |header| header.member_id);
        own != 0 && self.map_group().is_some_and(|group| group.leader_id == own)
    }

    fn map_group(&self) -> Option<&v1::Group> {
        self.groups.groups.iter().find(|group| group.group_id == GroupId::MAP.number())
    }
}

enum NotNow {
    Never(JoinError),
    Later(&'static str),
}

/// Asks a node, and then the leader that it names.
async fn ask_best(address: &str) -> Result<Told, String> {
    let told = ask(address).await?;
    let leader = told.map_group().map_or("", |group| group.leader_address.as_str());
    if told.leads() || leader.is_empty() {
        return Ok(told);
    }
    Ok(ask(leader).await.unwrap_or(told))
}

async fn ask(address: &str) -> Result<Told, String> {
    let asked = async {
        let address = address.strip_prefix("http://").unwrap_or(address);
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
        let channel = endpoint.connect().await.map_err(|_| "it can't be reached".to_owned())?;
        let mut admin = AdminServiceClient::new(channel);
        let groups = admin.groups(v1::GroupsRequest::default()).await;
        let members = admin.members(v1::MembersRequest::default()).await;
        let says = |status: tonic::Status| status.message().to_owned();
        let (groups, members) = (groups.map_err(says)?.into_inner(), members.map_err(says)?.into_inner());
        Ok(Told { address: address.to_owned(), groups, members })
    };
    tokio::time::timeout(CALL_PATIENCE, asked).await.unwrap_or_else(|_| Err("it does not answer".to_owned()))
}

/// Decides whether this node may join the cluster that a node described.
fn judge(config: &Config, told: &Told) -> Result<Join, NotNow> {
    let node = config.node.id;
    let found = ClusterId::new(told.groups.header.as_ref().map_or(0, |header| header.cluster_id));
    if found != config.cluster.id {
        let (address, expected) = (told.address.clone(), config.cluster.id);
        return Err(NotNow::Never(JoinError::OtherCluster { address, found, expected }));
    }
    let Some(map_group) = told.map_group().filter(|_| told.leads()) else {
        // A follower may be behind, and take a voter for a learner.
        return Err(NotNow::Later("it does not lead group 0, and knows of nobody in reach who does"));
    };
    if told.groups.groups.iter().any(|group| group.voters.contains(&node.number())) {
        let data_dir = config.node.data_dir.clone();
        return Err(NotNow::Never(JoinError::LostDisk { node, data_dir }));
    }
    if !map_group.learners.contains(&node.number()) {
        let past = node.number() < told.members.next_node_id;
        let refusal = if past { JoinError::PastNode { node } } else { JoinError::UnknownNode { node } };
        return Err(NotNow::Never(refusal));
    }
    let groups = told.groups.groups.iter().map(|group| GroupId::new(group.group_id)).collect();
    Ok(Join { groups, members: members_of(map_group, &told.members) })
}

/// Returns the members as described. An invalid address is left out: other nodes will know better.
fn members_of(group: &v1::Group, told: &v1::MembersResponse) -> Members {
    let nodes = |numbers: &[u64]| -> BTreeSet<NodeId> {
        numbers.iter().copied().filter_map(NodeId::new).take(MEMBERS_MAX).collect()
    };
    let members = Members {
        voters: nodes(&group.voters),
        learners: nodes(&group.learners),
        witnesses: nodes(&group.witnesses),
        next_node: told.next_node_id,
        ..Members::default()
    };
    let node_addresses = told.members.iter().filter_map(|member| {
        let address = |text: &str| HostPort::new(text).unwrap_or(HostPort::NONE);
        let zone = Zone::new(&member.zone).unwrap_or(Zone::NONE);
        let (peer, client) = (address(&member.peer_address), address(&member.client_address));
        Some((NodeId::new(member.node_id)?, NodeAddresses { peer, client, zone }))
    });
    members.found_at(node_addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn config(node: u64) -> Config {
        let flags = [
            ("node.id", node.to_string()),
            ("node.data_dir", "/var/lib/tollgate".to_owned()),
            ("cluster.name", "test".to_owned()),
            ("cluster.join", "10.0.0.1:7400".to_owned()),
        ];
        let flags = flags.map(|(key, text)| (key.to_owned(), text)).to_vec();
        Config::load(&Sources { file: None, env: Vec::new(), flags }).unwrap().config
    }

    /// Description by node 1, the leader: 1 and 2 vote, 5 is a learner, 3 and 4 were members.
    fn told() -> Told {
        let header =
            v1::Header { cluster_id: config(5).cluster.id.number(), member_id: 1, ..Default::default() };
        let group = |group_id| v1::Group {
            group_id,
            leader_id: 1,
            voters: vec![1, 2],
            learners: vec![5],
            ..Default::default()
        };
        let groups = v1::GroupsResponse {
            header: Some(header),
            groups: vec![group(0), group(7)],
            ..Default::default()
        };
        let member = |node_id: u64| v1::Member {
            node_id,
            peer_address: format!("10.0.0.{node_id}:7401"),
            client_address: "no address".to_owned(),
            ..Default::default()
        };
        let members = vec![member(1), member(2), member(5)];
        let members = v1::MembersResponse { members, next_node_id: 6, ..Default::default() };
        Told { address: "10.0.0.1:7400".to_owned(), groups, members }
    }

    fn refusal(node: u64, told: &Told) -> String {
        match judge(&config(node), told) {
            Ok(join) => format!("{join:?}"),
            Err(NotNow::Never(refusal)) => refusal.to_string(),
            Err(NotNow::Later(why)) => format!("later: {why}"),
        }
    }

    #[test]
    fn a_node_that_was_added_is_told_groups_and_members() {
        let Ok(Join { groups, members }) = judge(&config(5), &told()) else { panic!("it may join") };
        assert_eq!(groups, [GroupId::new(0), GroupId::new(7)]);
        assert_eq!((members.voters.len(), members.learners.len(), members.next_node), (2, 1, 6));
        let first = members.addresses_of(NodeId::new(1).unwrap());
        assert_eq!((first.peer.to_string().as_str(), &first.client), ("10.0.0.1:7401", &HostPort::NONE));
    }

    #[test]
    fn whoever_may_not_join_is_told_why_and_what_to_do() {
        assert!(refusal(6, &told()).contains("run `tollgate member add --id 6"), "{}", refusal(6, &told()));
        assert!(refusal(4, &told()).contains("never used again"), "{}", refusal(4, &told()));
        let voter = refusal(2, &told());
        assert!(
            voter.contains("votes") && voter.contains("is empty") && voter.contains("member replace 2"),
            "{voter}"
        );
        let mut other = told();
        other.groups.header.as_mut().unwrap().cluster_id = 9;
        assert!(refusal(5, &other).contains("check cluster.name"), "{}", refusal(5, &other));
    }

    #[test]
    fn only_the_leader_is_believed() {
        let mut follower = told();
        follower.groups.header.as_mut().unwrap().member_id = 2;
        for node in [2, 5, 6] {
            assert!(refusal(node, &follower).starts_with("later: "), "{}", refusal(node, &follower));
        }
        follower.groups.groups.clear();
        assert!(refusal(5, &follower).starts_with("later: "), "{}", refusal(5, &follower));
    }
}
