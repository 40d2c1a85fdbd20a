//! `tollgate member add`: a new node, and what to start it with.

use super::catching_up::Patience;
use super::node_id;
use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::view::text;
use clap::Args;
use serde_json::json;
use std::net::SocketAddr;
use tollgate_client::{AddedMember, Member, MemberKind, NewMember, NodeId};
use tollgate_server::config::cluster_id_of;

/// What the node will be.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// Where the other nodes will reach it
    #[arg(long, value_name = "HOST:PORT")]
    peer: String,

    /// Where clients will reach it
    #[arg(long, value_name = "HOST:PORT")]
    client: String,

    /// Its id, one that was never used [default: the next]
    #[arg(long, value_name = "NODE", value_parser = node_id)]
    id: Option<NodeId>,

    /// Where it stands, as a label: a rack, a building, a region
    #[arg(long, value_name = "LABEL", default_value = "", hide_default_value = true)]
    zone: String,

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
        let command = server_command(&added, &member, &join);
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

/// Whom the new node can ask: those who keep locks.
fn addresses(members: &[Member], new: NodeId) -> Vec<String> {
    let others = members.iter().filter(|member| member.node != new && member.kind != MemberKind::Witness);
    others.map(|member| member.client_address.clone()).filter(|address| !address.is_empty()).collect()
}

/// What starts the node. It listens where others reach it, as far as that is an address and not a name.
fn server_command(added: &AddedMember, member: &NewMember, join: &[String]) -> String {
    let AddedMember { node, cluster, cluster_name, .. } = added;
    let mut words = vec![format!("tollgate server --node-id {node} --node-data-dir DIR")];
    let mut flag = |name: &str, value: &str| words.push(format!("{name} {}", quoted(value)));
    if !member.zone.is_empty() {
        flag("--node-zone", &member.zone);
    }
    flag("--cluster-name", cluster_name);
    if *cluster != cluster_id_of(cluster_name) {
        flag("--cluster-id", &format!("{:016x}", cluster.number()));
    }
    flag("--cluster-join", &join.join(","));
    let mut beyond_loopback = false;
    for (name, address) in
        [("--listen-client", &member.client_address), ("--listen-peer", &member.peer_address)]
    {
        let address = address.strip_prefix("http://").unwrap_or(address);
        match address.parse::<SocketAddr>() {
            Ok(parsed) => {
                flag(name, address);
                beyond_loopback |= !parsed.ip().is_loopback();
            }
            // A name is for those who dial; what to listen on is for the machine to know.
            Err(_) => flag(name, &format!("IP:{}", address.rsplit(':').next().unwrap_or_default())),
        }
    }
    if beyond_loopback {
        words.push("--insecure".to_owned());
    }
    words.join(" ")
}

/// For a shell.
fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,[]".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell_where_they_need_it() {
        assert_eq!((quoted("10.0.0.1:7400,b:1").as_str(), quoted("").as_str()), ("10.0.0.1:7400,b:1", "''"));
        assert_eq!(quoted("it's a cluster"), "'it'\\''s a cluster'");
    }
}
