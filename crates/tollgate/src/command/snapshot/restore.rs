//! `tollgate snapshot restore`: makes one node of a new cluster from a backup.

use super::refused;
use crate::exit::{Exit, WithExit};
use crate::globals::Globals;
use crate::span;
use crate::view::text;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate_replica::restore::{Restoration, Summary, inspect};
use tollgate_replica::{EngineConfig, MEMBERS_MAX, Members};
use tollgate_types::{ClusterId, DiskId, DurationMs, NodeId};

/// The longest grace: no limit lets a lease live longer.
const GRACE_MAX: Duration = Duration::from_hours(24);

#[derive(Debug, Args)]
pub(super) struct Restore {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The new cluster's name; not that of the old one
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    cluster_name: String,

    /// The ids of all first members of the new cluster
    #[arg(long, value_name = "ID,...", value_delimiter = ',', required = true, value_parser = node_id)]
    members: Vec<NodeId>,

    /// Those of them that vote without keeping locks
    #[arg(long, value_name = "ID,...", value_delimiter = ',', value_parser = node_id)]
    witnesses: Vec<NodeId>,

    /// The member whose data directory is made
    #[arg(long, value_name = "ID", value_parser = node_id)]
    node_id: NodeId,

    /// The data directory: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    /// Grant no lock for so long: a span or `none`. By default as long as a lease may live
    #[arg(long, value_name = "SPAN", value_parser = grace)]
    grace: Option<Duration>,

    /// Every token is to be above this one. By default far above what the old cluster can have reached since
    #[arg(long, value_name = "TOKEN")]
    above_token: Option<u64>,
}

fn cluster_name(given: &str) -> Result<String, String> {
    if given.is_empty() || given.chars().any(char::is_control) {
        return Err("give a name of printable text".to_owned());
    }
    Ok(given.to_owned())
}

fn node_id(given: &str) -> Result<NodeId, String> {
    let number = given.trim().parse().ok().and_then(NodeId::new);
    number.ok_or_else(|| format!("{given} is no node id: give a number from 1 on"))
}

fn grace(given: &str) -> Result<Duration, String> {
    if given == "none" {
        return Ok(Duration::ZERO);
    }
    let grace = span::parse(given)?;
    if grace > GRACE_MAX {
        return Err(format!("is longer than {}, which no lease lives", span::text(GRACE_MAX)));
    }
    Ok(grace)
}

pub(super) fn run(globals: &Globals, arguments: &Restore) -> anyhow::Result<Exit> {
    let members = first_members(arguments)?;
    let summary = inspect(&arguments.file).map_err(refused)?;
    let above_token = match arguments.above_token {
        Some(token) => token,
        None => summary.above_token(unix_ms()).map_err(refused)?,
    };
    let grace = arguments.grace.map_or(summary.grace(), |grace| {
        DurationMs::from_ms(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX))
    });
    let restoration = Restoration {
        file: arguments.file.clone(),
        cluster_name: arguments.cluster_name.clone(),
        members,
        above_token,
        grace,
        node: arguments.node_id,
        data_dir: arguments.data_dir.clone(),
    };
    let disk = DiskId::new(getrandom::u64().expect("the system has randomness"));
    let cluster = restoration.run(EngineConfig::default(), disk).map_err(refused)?;
    report(globals, &summary, &restoration, cluster)?;
    Ok(Exit::Done)
}

/// Turns the flags into the first members of a group. Input that would make a bootstrap panic is reported as a wrong
/// command line.
fn first_members(arguments: &Restore) -> anyhow::Result<Members> {
    let Restore { members, witnesses, node_id, .. } = arguments;
    let wrong = |says: String| Err(WithExit(Exit::Usage, says).into());
    let twice = members.iter().enumerate().find(|(at, member)| members[..*at].contains(member));
    if let Some((_, member)) = twice {
        return wrong(format!("--members names {member} twice: name each member once"));
    }
    if members.len() > MEMBERS_MAX {
        return wrong(format!("--members names {}: a group has at most {MEMBERS_MAX}", members.len()));
    }
    if let Some(other) = witnesses.iter().find(|witness| !members.contains(witness)) {
        return wrong(format!("--witnesses names {other}, which is not among --members: add it there"));
    }
    if members.iter().all(|member| witnesses.contains(member)) {
        return wrong("all members are witnesses: somebody must keep the locks".to_owned());
    }
    if !members.contains(node_id) {
        return wrong(format!(
            "--node-id {node_id} is not among --members: add it there, or give another id"
        ));
    }
    Ok(Members::first(members.iter().copied(), witnesses.iter().copied()))
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn report(
    globals: &Globals,
    summary: &Summary,
    restoration: &Restoration,
    cluster: ClusterId,
) -> anyhow::Result<()> {
    let Restoration { cluster_name, members, above_token, grace, node, data_dir, .. } = restoration;
    let waits = match grace.ms() {
        0 => "Locks are granted at once.".to_owned(),
        ms => format!(
            "No lock is granted for {} from when the cluster is up: a holder from after the backup may still believe.",
            span::text(Duration::from_millis(ms))
        ),
    };
    let groups = match summary.groups.len() {
        1 => String::new(),
        count => format!("\n  groups = {count}"),
    };
    let others = match members.voters.len() {
        1 => "Start it without --bootstrap.".to_owned(),
        _ => format!(
            "Restore the other nodes with the same file and flags, --node-id and --data-dir apart, and\n  \
             --above-token {above_token}\nThey get the same cluster id if all is the same. Then start them all, \
             without --bootstrap."
        ),
    };
    let for_people = format!(
        "node {node} of {cluster_name} is restored to {}\nEvery token is above {above_token}. {waits}\n\n\
         In the configuration of every node:\n  [cluster]\n  name = {cluster_name:?}\n  id = \"{cluster}\"{groups}\n\n\
         {others}",
        data_dir.display()
    );
    let ids = |nodes: &std::collections::BTreeSet<NodeId>| nodes.iter().map(text).collect::<Vec<_>>();
    let item = json!({
        "cluster_name": cluster_name,
        "cluster_id": text(cluster),
        "node_id": text(node),
        "data_dir": data_dir.display().to_string(),
        "members": ids(&members.voters),
        "witnesses": ids(&members.witnesses),
        "above_token": text(above_token),
        "grace_ms": grace.ms(),
        "groups": summary.groups.len(),
        "from_cluster_id": text(summary.head.cluster),
        "taken_unix_ms": summary.head.taken_unix_ms,
    });
    globals.output.one(&for_people, &item)
}
