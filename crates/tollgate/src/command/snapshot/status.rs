//! `tollgate snapshot status`: what is in a backup, once every byte of it is checked.

use super::refused;
use crate::command::status::bytes_text;
use crate::exit::Exit;
use crate::globals::Globals;
use crate::output::{Table, cell};
use crate::utc;
use crate::view::text;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use tollgate_replica::restore::{GroupSummary, Summary, inspect};
use tollgate_types::NodeId;

#[derive(Debug, Args)]
pub(super) struct Status {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(globals: &Globals, arguments: &Status) -> anyhow::Result<Exit> {
    let summary = inspect(&arguments.file).map_err(refused)?;
    let mut table = Table::new(&[
        "GROUP",
        "REVISION",
        "INDEX",
        "LOCKS",
        "LEASES",
        "REGISTERS",
        "APPLY VERSION",
        "STATE",
        "CRC-32",
    ]);
    for GroupSummary { group, locks, leases, registers, .. } in &summary.groups {
        table.row(vec![
            cell(group.group),
            cell(group.revision),
            cell(group.index),
            cell(locks),
            cell(leases),
            cell(registers),
            cell(group.apply_version),
            cell(bytes_text(group.bytes)),
            cell(format!("{:08x}", group.checksum)),
        ]);
    }
    let head = &summary.head;
    let members: Vec<String> = head.members.all().iter().map(NodeId::to_string).collect();
    let lineage = summary.lineage().map_or_else(String::new, |lineage| format!(", lineage {lineage}"));
    let for_people = format!(
        "{} is whole: cluster {} (id {}{lineage}), saved {} by version {}, members {}\n{}",
        arguments.file.display(),
        head.cluster_name,
        head.cluster,
        utc::text(head.taken_unix_ms),
        head.version,
        members.join(", "),
        globals.output.render(&table).trim_end()
    );
    globals.output.one(&for_people, &summary_json(&summary))?;
    Ok(Exit::Done)
}

pub(super) fn summary_json(summary: &Summary) -> Value {
    let head = &summary.head;
    json!({
        "cluster_id": text(head.cluster),
        "cluster_name": head.cluster_name,
        "lineage": summary.lineage().map(text),
        "taken": utc::text(head.taken_unix_ms),
        "taken_unix_ms": head.taken_unix_ms,
        "version": head.version,
        "members": head.members.all().iter().map(text).collect::<Vec<_>>(),
        "groups": summary.groups.iter().map(group_json).collect::<Vec<_>>(),
    })
}

fn group_json(summary: &GroupSummary) -> Value {
    let GroupSummary { group, locks, leases, registers, .. } = summary;
    json!({
        "group_id": group.group.number(),
        "revision": text(group.revision),
        "applied_index": text(group.index),
        "log_time_ms": group.log_time.ms(),
        "apply_version": group.apply_version,
        "bytes": group.bytes,
        "crc32": format!("{:08x}", group.checksum),
        "locks": locks,
        "leases": leases,
        "registers": registers,
    })
}
