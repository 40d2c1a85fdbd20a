//! `tollgate member ls`: the nodes of the cluster.

use crate::exit::Exit;
use crate::failure::failed;
use crate::globals::Globals;
use crate::output::{Look, Table, cell};
use crate::view::{or_dash, text};
use clap::{ArgMatches, Command};
use serde_json::{Value, json};
use tollgate_client::{Member, MemberKind};

pub(crate) fn command() -> Command {
    let ls = Command::new("ls")
        .about("List the nodes of the cluster")
        .after_help("Examples:\n  tollgate member ls\n  tollgate member ls -o jsonl | jq -r .client_address");
    Command::new("member")
        .about("The nodes of the cluster")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(ls)
}

pub(crate) fn run(globals: &Globals, _matches: &ArgMatches) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let members = client.admin().members().await.map_err(failed)?;
        let mut table = Table::new(&[
            "NODE",
            "NAME",
            "KIND",
            "CONNECTED",
            "LEADS",
            "CLIENTS",
            "PEERS",
            "ZONE",
            "VERSION",
        ]);
        for member in &members {
            let connected = if member.connected { ("yes", Look::Good) } else { ("no", Look::Bad) };
            table.row(vec![
                cell(member.node.number()),
                cell(or_dash(&member.name)),
                cell(kind_text(member.kind)),
                (connected.0.to_owned(), connected.1),
                cell(member.groups_led),
                cell(&member.client_address),
                cell(&member.peer_address),
                cell(or_dash(&member.zone)),
                cell(or_dash(&member.version)),
            ]);
        }
        globals.output.list(&table, members.iter().map(member_json).collect())?;
        Ok(Exit::Done)
    })
}

pub(crate) fn kind_text(kind: MemberKind) -> &'static str {
    match kind {
        MemberKind::Voter => "voter",
        MemberKind::Learner => "learner",
        MemberKind::Witness => "witness",
        _ => "unknown",
    }
}

fn member_json(member: &Member) -> Value {
    json!({
        "node_id": text(member.node.number()),
        "name": member.name,
        "zone": member.zone,
        "kind": kind_text(member.kind),
        "client_address": member.client_address,
        "peer_address": member.peer_address,
        "connected": member.connected,
        "groups_led": member.groups_led,
        "version": member.version,
    })
}
