//! `tollgate member add`: adds a node, and prints the command that starts it.

use super::catching_up::Patience;
use super::node_id;
use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::view::text;
use crate::words::quoted;
use clap::Args;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use tollgate_client::{AddedMember, Member, MemberKind, NewMember, NodeId};
use tollgate_server::config::cluster_id_of;

/// Arguments of `member add`: the address, id and kind of the new node.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// Address at which the other nodes will reach it
    #[arg(long, value_name = "HOST:PORT")]
    peer: String,

    /// Address at which clients will reach it
    #[arg(long, value_name = "HOST:PORT")]
    client: String,

    /// Its id, one that was never used [default: the next]
    #[arg(long, value_name = "NODE", value_parser = node_id)]
    id: Option<NodeId>,

    /// Location of the node, as a label: a rack, a building, a region
    #[arg(long, value_name = "LABEL", default_value = "", hide_default_value = true)]
    zone: String,

    /// Directory in which it will keep its data: for the command that starts it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tollgate")]
    data_dir: String,

    /// It is to vote without keeping locks
    #[arg(long)]
    witness: bool,

    #[command(flatten)]
    patience: Patience,
}

pub(super) fn run(globals: &Globals, add: &Add) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let member = NewMember {
            node: add.id,
            peer_address: add.peer.clone(),
            client_address: add.client.clone(),
            zone: add.zone.clone(),
            witness: add.witness,
        };
        let added = client.admin().add_member(&member).await.map_err(failed)?;
        let members = client.admin().members().await.map_err(failed)?;
        let join = addresses(&members, added.node);
        let command = server_command(&added, &member, &add.data_dir, &join);
        let node = added.node;
        let item = json!({
            "node_id": text(node.number()),
            "cluster_id": format!("{:016x}", added.cluster.number()),
            "cluster_name": added.cluster_name,
            "join": join,
            "command": command,
        });
        let next = if add.patience.waits() {
            String::new()
        } else {
            format!(
                "\n\nThen give it a vote, once it has caught up:\n\n  tollgate member promote {node} --wait"
            )
        };
        let says =
            format!("node {node} is added, and does not vote yet. Start it with:\n\n  {command}{next}");
        globals.output.one(&says, &item)?;
        add.patience.until_caught_up(globals, &client, node).await?;
        Ok(Exit::Done)
    })
}

/// Returns the addresses of the nodes that the new node can ask: all other members but witnesses.
fn addresses(members: &[Member], new: NodeId) -> Vec<String> {
    let others = members.iter().filter(|member| member.node != new && member.kind != MemberKind::Witness);
    others.map(|member| member.client_address.clone()).filter(|address| !address.is_empty()).collect()
}

/// Returns the complete command that starts the node, ready to be pasted. The node listens on the address at which
/// others reach it if that is an IP address; a name is only good for dialling, so then it listens on all addresses.
fn server_command(added: &AddedMember, member: &NewMember, data_dir: &str, join: &[String]) -> String {
    let AddedMember { node, cluster, cluster_name, .. } = added;
    let mut words = vec![format!("tollgate server --node-id {node}")];
    let mut flag = |name: &str, value: &str| words.push(format!("{name} {}", quoted(value)));
    flag("--node-data-dir", data_dir);
    if !member.zone.is_empty() {
        flag("--node-zone", &member.zone);
    }
    flag("--cluster-name", cluster_name);
    if *cluster != cluster_id_of(cluster_name) {
        flag("--cluster-id", &format!("{:016x}", cluster.number()));
    }
    flag("--cluster-join", &join.join(","));
    let (client, peer) = (listen(&member.client_address), listen(&member.peer_address));
    // The HTTP port is as far from the client port as by default.
    let http = client.and_then(|client| Some(SocketAddr::new(client.ip(), client.port().checked_add(2)?)));
    let ports = [("--listen-client", client), ("--listen-peer", peer), ("--listen-http", http)];
    let mut beyond_loopback = false;
    for (name, address) in ports.iter().filter_map(|(name, address)| Some((name, (*address)?))) {
        flag(name, &address.to_string());
        beyond_loopback |= !address.ip().is_loopback();
    }
    if beyond_loopback {
        words.push("--insecure".to_owned());
    }
    words.join(" ")
}

/// Returns the address to listen on for a node that is reached at `address`.
fn listen(address: &str) -> Option<SocketAddr> {
    let address = address.strip_prefix("http://").unwrap_or(address);
    let everywhere = || {
        let port = address.rsplit_once(':')?.1.parse().ok()?;
        Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
    };
    address.parse().ok().or_else(everywhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_listens_where_it_is_reached_and_everywhere_if_that_is_a_name() {
        let listens = |address| listen(address).map(|address| address.to_string());
        assert_eq!(listens("http://10.0.0.4:7400").as_deref(), Some("10.0.0.4:7400"));
        assert_eq!(listens("[::1]:7400").as_deref(), Some("[::1]:7400"));
        assert_eq!(listens("db4.example:7400").as_deref(), Some("0.0.0.0:7400"));
        assert_eq!(listens("nowhere"), None);
    }
}
