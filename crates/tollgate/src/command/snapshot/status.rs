//! `tollgate snapshot status`: describes a backup, after checking every byte of it.

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
use tollgate_replica::backup::{GroupOrigin, TimeSource};
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
    let members = listed(head.members.all().iter());
    let lineage = summary.lineage().map_or_else(String::new, |lineage| format!(", lineage {lineage}"));
    let file = arguments.file.display();
    let (cluster, version, taken) = (head.cluster, &head.version, utc::text(head.taken_unix_ms));
    let mut for_people = if head.disks.is_empty() {
        let name = &head.cluster_name;
        format!(
            "{file} is whole: cluster {name} (id {cluster}{lineage}), saved {taken} by version {version}, members \
             {members}\n"
        )
    } else {
        let disks = listed(head.disks.iter());
        format!(
            "{file} is whole: made from the disks of {disks} by version {version}, cluster {cluster}{lineage}, current \
             up to {taken}, members {members}\n"
        )
    };
    for_people.push_str(globals.output.render(&table).trim_end());
    if !head.disks.is_empty() {
        for_people.push_str("\n\n");
        for_people.push_str(globals.output.render(&origins(&summary)).trim_end());
    }
    globals.output.one(&for_people, &summary_json(&summary))?;
    Ok(Exit::Done)
}

fn listed<'a>(nodes: impl Iterator<Item = &'a NodeId>) -> String {
    nodes.map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

/// Table of the origin of each group, in a backup that was made from disks.
pub(super) fn origins(summary: &Summary) -> Table {
    let mut table = Table::new(&[
        "GROUP",
        "FROM NODE",
        "LAST ENTRY",
        "TERM",
        "KNOWN COMMIT",
        "TAKEN BEHIND IT",
        "CURRENT UP TO",
        "MAY LACK WRITES",
    ]);
    for GroupSummary { group, .. } in &summary.groups {
        let Some(origin) = &group.origin else { continue };
        let by = if origin.time_source == TimeSource::Entry { "" } else { " (file time)" };
        table.row(vec![
            cell(group.group),
            cell(origin.node),
            cell(group.index),
            cell(origin.term),
            cell(origin.committed),
            cell(group.index.saturating_sub(origin.committed)),
            cell(format!("{}{by}", utc::text(origin.current_unix_ms))),
            cell(if origin.complete { "no" } else { "yes" }),
        ]);
    }
    table
}

pub(super) fn summary_json(summary: &Summary) -> Value {
    let head = &summary.head;
    json!({
        "cluster_id": text(head.cluster),
        "cluster_name": Some(&head.cluster_name).filter(|name| !name.is_empty()),
        "lineage": summary.lineage().map(text),
        "taken": utc::text(head.taken_unix_ms),
        "taken_unix_ms": head.taken_unix_ms,
        "version": head.version,
        "members": head.members.all().iter().map(text).collect::<Vec<_>>(),
        "from_disks_of": head.disks.iter().map(text).collect::<Vec<_>>(),
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
        "origin": group.origin.as_ref().map(|origin| origin_json(group.index, origin)),
    })
}

fn origin_json(index: u64, origin: &GroupOrigin) -> Value {
    json!({
        "node_id": text(origin.node),
        "last_term": text(origin.term),
        "known_commit_index": text(origin.committed),
        "taken_behind_commit": index.saturating_sub(origin.committed),
        "current_up_to": utc::text(origin.current_unix_ms),
        "current_up_to_unix_ms": origin.current_unix_ms,
        "time_source": match origin.time_source {
            TimeSource::Entry => "entry",
            TimeSource::SnapshotFile => "snapshot_file",
        },
        "complete": origin.complete,
    })
}
