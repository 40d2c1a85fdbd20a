//! `tollgate member`: lists, adds, promotes, removes and replaces the nodes of the cluster.

mod adding;
mod catching_up;

use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::output::{Look, Table, cell};
use crate::view::{or_dash, text};
use adding::Add;
use catching_up::Patience;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use tollgate_client::{Client, Group, Member, MemberKind, NodeId};

/// Maximum time that a node may take to answer with its version.
const VERSION_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
enum Action {
    /// List the nodes of the cluster
    #[command(after_help = "\
BEHIND is how many entries of the log a node lacks, over all groups, as their leaders know it. Where the groups differ \
about a node, a change was interrupted: VOTES says in how many it votes, KIND in how many it is at all. Run the change \
again.

Examples:
  tollgate member ls
  tollgate member ls -o jsonl | jq -r .client_address")]
    Ls,
    /// Add a node: it receives everything and does not vote yet
    #[command(after_help = "\
Prints the id of the node, and how to start it. It may be run again: the same addresses get the same id until the node \
votes. A witness votes and keeps the log, but no locks.

Examples:
  tollgate member add --peer 10.0.0.4:7401 --client 10.0.0.4:7400 --zone west
  tollgate member add --peer 10.0.0.5:7401 --client 10.0.0.5:7400 --witness
  tollgate member add --peer 10.0.0.4:7401 --client 10.0.0.4:7400 --wait")]
    Add(Add),
    /// Give a node a vote, once it has caught up
    #[command(after_help = "\
Examples:
  tollgate member promote 4
  tollgate member promote 4 --wait")]
    Promote(Promote),
    /// Remove a node, for good
    #[command(after_help = "\
Refused if those who remain and answer would be no majority. A node that leads hands leadership on first. Its id is \
never used again: to bring the machine back, wipe its data directory and add it as a new node.

Examples:
  tollgate member remove 3")]
    Remove(Remove),
    /// Replace a node by another that was added and has caught up, in one step
    #[command(after_help = "\
Between the two there is no moment with a vote less. For a node that is dead for good:

Examples:
  tollgate member add --peer 10.0.0.4:7401 --client 10.0.0.4:7400 --wait
  tollgate member replace 3 --by 4")]
    Replace(Replace),
}

/// Arguments of `member promote`.
#[derive(Debug, Args)]
struct Promote {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_id)]
    node: NodeId,

    #[command(flatten)]
    patience: Patience,
}

/// Arguments of `member remove`.
#[derive(Debug, Args)]
struct Remove {
    /// The node
    #[arg(value_name = "NODE", value_parser = node_id)]
    node: NodeId,
}

/// Arguments of `member replace`.
#[derive(Debug, Args)]
struct Replace {
    /// The node that goes
    #[arg(value_name = "NODE", value_parser = node_id)]
    out: NodeId,

    /// The node that takes its place
    #[arg(long, value_name = "NODE", value_parser = node_id)]
    by: NodeId,

    #[command(flatten)]
    patience: Patience,
}

pub(crate) fn node_id(text: &str) -> Result<NodeId, String> {
    let number = text.parse().ok().and_then(NodeId::new);
    number.ok_or_else(|| "is no node: give its number, as `tollgate member ls` shows it".to_owned())
}

pub(crate) fn command() -> Command {
    let command = Command::new("member").about("The nodes of the cluster, and how they come and go");
    Action::augment_subcommands(command).subcommand_required(true).arg_required_else_help(true)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    match Action::from_arg_matches(matches)? {
        Action::Ls => ls(globals),
        Action::Add(add) => adding::run(globals, &add),
        Action::Promote(promote) => globals.with_client(async |client| {
            promote.patience.until_caught_up(globals, &client, promote.node).await?;
            client.admin().promote_member(promote.node).await.map_err(failed)?;
            done(globals, promote.node, "votes", "voter")
        }),
        Action::Remove(remove) => globals.with_client(async |client| {
            client.admin().remove_member(remove.node).await.map_err(failed)?;
            done(globals, remove.node, "is removed; stop it, and wipe its data directory", "removed")
        }),
        Action::Replace(replace) => globals.with_client(async |client| {
            replace.patience.until_caught_up(globals, &client, replace.by).await?;
            client.admin().replace_member(replace.out, replace.by).await.map_err(failed)?;
            let says = format!("votes in the place of node {}, which is removed", replace.out);
            done(globals, replace.by, &says, "voter")
        }),
    }
}

fn done(globals: &Globals, node: NodeId, says: &str, state: &str) -> anyhow::Result<Exit> {
    let item = json!({"node_id": text(node.number()), "state": state});
    globals.output.one(&format!("node {node} {says}"), &item)?;
    Ok(Exit::Done)
}

fn ls(globals: &Globals) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let members = client.admin().members().await.map_err(failed)?;
        // The leaders may not answer; the rest is worth showing all the same.
        let groups = client.admin().progress().await.unwrap_or_default();
        let versions = versions(&client, &members).await;
        let mut table = Table::new(&[
            "NODE",
            "NAME",
            "KIND",
            "VOTES",
            "CONNECTED",
            "LEADS",
            "BEHIND",
            "VERSION",
            "CLIENTS",
            "PEERS",
            "ZONE",
        ]);
        for member in &members {
            let connected =
                if is_connected(member, &groups) { ("yes", Look::Good) } else { ("no", Look::Bad) };
            let behind = behind(member, &groups);
            table.row(vec![
                cell(member.node.number()),
                cell(or_dash(&member.name)),
                cell(kind_cell(member, &groups)),
                cell(votes_cell(member, &groups)),
                (connected.0.to_owned(), connected.1),
                cell(member.groups_led),
                cell(behind.map_or_else(|| "-".to_owned(), |behind| behind.to_string())),
                cell(versions.get(&member.node).map_or("-", String::as_str)),
                cell(or_dash(&member.client_address)),
                cell(or_dash(&member.peer_address)),
                cell(or_dash(&member.zone)),
            ]);
        }
        let version = |member: &Member| versions.get(&member.node).cloned().unwrap_or_default();
        let items = members.iter().map(|member| member_json(member, &groups, &version(member))).collect();
        globals.output.list(&table, items)?;
        Ok(Exit::Done)
    })
}

/// Asks each node for its version, which nobody else knows. A node that does not answer soon is left out.
async fn versions(client: &Client, members: &[Member]) -> BTreeMap<NodeId, String> {
    let mut asked = JoinSet::new();
    for member in members.iter().filter(|member| !member.client_address.is_empty()) {
        let (admin, member) = (client.admin(), member.clone());
        asked.spawn(async move {
            let status = tokio::time::timeout(VERSION_PATIENCE, admin.status_of_member(&member)).await;
            Some((member.node, status.ok()?.ok()?.version))
        });
    }
    asked.join_all().await.into_iter().flatten().collect()
}

/// True if the node is connected. Followers hear little of each other, so the leaders' view counts too.
fn is_connected(member: &Member, groups: &[Group]) -> bool {
    let mut told = groups.iter().flat_map(|group| &group.progress).filter(|told| told.node == member.node);
    member.connected || told.any(|told| told.active)
}

/// Returns the number of entries that a member lacks over all groups, or `None` if no leader reports it.
fn behind(member: &Member, groups: &[Group]) -> Option<u64> {
    let of = |group: &Group| {
        let leads = group.leader == Some(member.node);
        let told = group.progress.iter().find(|progress| progress.node == member.node);
        if leads { Some(0) } else { told.map(|progress| progress.behind) }
    };
    let told: Vec<u64> = groups.iter().filter_map(of).collect();
    (!told.is_empty()).then(|| told.iter().sum())
}

/// Describes in how many of the groups `is_so` holds, or returns `None` if it holds in all or in none of them.
fn partly(groups: &[Group], is_so: impl Fn(&Group) -> bool) -> Option<String> {
    let count = groups.iter().filter(|group| is_so(group)).count();
    (count > 0 && count < groups.len()).then(|| format!("{count} of {} groups", groups.len()))
}

/// Describes the kind of a member, as group 0 knows it; the other groups may not know the member yet, or no longer.
fn kind_cell(member: &Member, groups: &[Group]) -> String {
    let belongs =
        |group: &Group| group.voters.contains(&member.node) || group.learners.contains(&member.node);
    match partly(groups, belongs) {
        Some(partly) => format!("{} (in {partly})", kind_text(member.kind)),
        None => kind_text(member.kind).to_owned(),
    }
}

fn votes_cell(member: &Member, groups: &[Group]) -> String {
    match partly(groups, |group| group.voters.contains(&member.node)) {
        Some(partly) => format!("partly ({partly})"),
        None if member.votes => "yes".to_owned(),
        None => "no".to_owned(),
    }
}

pub(crate) fn kind_text(kind: MemberKind) -> &'static str {
    match kind {
        MemberKind::Voter => "voter",
        MemberKind::Learner => "learner",
        MemberKind::Witness => "witness",
        _ => "unknown",
    }
}

fn member_json(member: &Member, groups: &[Group], version: &str) -> Value {
    let of_group = |group: &Group| {
        let told = group.progress.iter().find(|progress| progress.node == member.node)?;
        let (behind, index) = (text(told.behind), text(told.match_index));
        let caught_up = told.caught_up;
        Some(
            json!({"group_id": group.id.number(), "behind": behind, "match_index": index, "caught_up": caught_up}),
        )
    };
    let in_which = |is_so: &dyn Fn(&Group) -> bool| -> Vec<u32> {
        groups.iter().filter(|group| is_so(group)).map(|group| group.id.number()).collect()
    };
    json!({
        "node_id": text(member.node.number()),
        "name": member.name,
        "zone": member.zone,
        "kind": kind_text(member.kind),
        "votes": member.votes,
        "votes_in_groups": in_which(&|group| group.voters.contains(&member.node)),
        "learns_in_groups": in_which(&|group| group.learners.contains(&member.node)),
        "client_address": member.client_address,
        "peer_address": member.peer_address,
        "connected": is_connected(member, groups),
        "groups_led": member.groups_led,
        "version": version,
        "progress": groups.iter().filter_map(of_group).collect::<Vec<_>>(),
    })
}
