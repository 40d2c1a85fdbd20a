//! `tollgate group`: lists the Raft groups, and transfers their leadership.

use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::output::{Look, Table, cell};
use crate::view::{or_dash, text};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::{Value, json};
use tollgate_client::{Group, GroupId, NodeId};

#[derive(Debug, Subcommand)]
enum Action {
    /// List the groups: who leads, which slots each serves
    #[command(after_help = "Examples:\n  tollgate group ls\n  tollgate group ls -o json")]
    Ls,
    /// Hand the leadership of a group to another node
    #[command(after_help = "\
Clients notice a pause of some milliseconds. No lock and no place in a queue is lost.

Examples:
  # to whichever node the leader chooses
  tollgate group transfer 0
  tollgate group transfer 0 --to 3")]
    Transfer(Transfer),
}

#[derive(Debug, Args)]
struct Transfer {
    /// The group
    #[arg(value_name = "GROUP")]
    group: u32,

    /// The node that is to lead [default: the present leader's choice]
    #[arg(long, value_name = "NODE", value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
}

pub(crate) fn command() -> Command {
    let command = Command::new("group").about("The Raft groups, and who leads them");
    Action::augment_subcommands(command).subcommand_required(true).arg_required_else_help(true)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    match Action::from_arg_matches(matches)? {
        Action::Ls => ls(globals),
        Action::Transfer(transfer) => hand_on(globals, &transfer),
    }
}

fn ls(globals: &Globals) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let groups = client.admin().groups().await.map_err(failed)?;
        let mut table =
            Table::new(&["GROUP", "LEADER", "ADDRESS", "SLOTS", "VOTERS", "LEARNERS", "WITNESSES"]);
        for group in &groups.groups {
            let leader = group.leader.map_or(("none".to_owned(), Look::Bad), |node| cell(node.number()));
            table.row(vec![
                cell(group.id.number()),
                leader,
                cell(or_dash(&group.leader_address)),
                cell(slots(group)),
                cell(nodes(&group.voters)),
                cell(nodes(&group.learners)),
                cell(nodes(&group.witnesses)),
            ]);
        }
        globals.output.list(&table, groups.groups.iter().map(group_json).collect())?;
        Ok(Exit::Done)
    })
}

fn slots(group: &Group) -> String {
    let ranges = group.slots.iter().map(|(first, last)| format!("{first}-{last}"));
    or_dash(&ranges.collect::<Vec<_>>().join(",")).to_owned()
}

fn nodes(nodes: &[NodeId]) -> String {
    let numbers = nodes.iter().map(|node| node.number().to_string());
    or_dash(&numbers.collect::<Vec<_>>().join(",")).to_owned()
}

fn group_json(group: &Group) -> Value {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| text(node.number())).collect::<Vec<_>>();
    json!({
        "group_id": group.id.number(),
        "leader_id": group.leader.map(|node| text(node.number())),
        "leader_address": group.leader_address,
        "slots": group.slots.iter().map(|(first, last)| json!({"first": first, "last": last})).collect::<Vec<_>>(),
        "voters": ids(&group.voters),
        "learners": ids(&group.learners),
        "witnesses": ids(&group.witnesses),
    })
}

fn hand_on(globals: &Globals, transfer: &Transfer) -> anyhow::Result<Exit> {
    let to = transfer.to.and_then(NodeId::new);
    globals.with_client(async |client| {
        let leader = client.admin().transfer(GroupId::new(transfer.group), to).await.map_err(failed)?;
        let item = json!({"group_id": transfer.group, "leader_id": leader.map(|node| text(node.number()))});
        let leader = leader
            .map_or_else(|| "a node not known yet".to_owned(), |node| format!("node {}", node.number()));
        globals.output.one(&format!("group {} is led by {leader}", transfer.group), &item)?;
        Ok(Exit::Done)
    })
}
