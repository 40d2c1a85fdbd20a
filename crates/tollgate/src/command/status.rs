//! `tollgate status`: shows the state of all nodes and groups; the exit code says whether somebody should look.

use super::member::kind_text;
use super::redraw::Redraw;
use crate::exit::Exit;
use crate::globals::Globals;
use crate::output::{Look, Output, Table, cell};
use crate::span;
use crate::view::{ms, or_dash, text};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use tollgate_client::{
    Client, ClockComparison, Error, GroupId, Member, NodeId, NodeStatus, ReplicaStatus, Role,
};
use tollgate_types::escaped;

const HELP: &str = "\
Asks every node itself, so that one that does not answer is seen.

Exit codes: 0 all is well; 1 the cluster serves, but a node does not answer or has a warning; 69 a group has no \
leader, or no node could be reached.

Examples:
  tollgate status
  tollgate status --watch
  tollgate status -o json | jq -r '.warnings[]'
  tollgate status > /dev/null || page-somebody";

#[derive(Debug, Args)]
struct Arguments {
    #[command(flatten)]
    redraw: Redraw,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("status"))
        .about("Show how all nodes and groups are doing")
        .after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { redraw } = Arguments::from_arg_matches(matches)?;
    globals.with_client(async |client| {
        redraw
            .show(globals, async |output| {
                let status = ClusterStatus::ask(&client).await;
                output.one(status.text(output).trim_end(), &status.json())?;
                Ok(status.exit())
            })
            .await
    })
}

/// A node that was asked, and its answer.
struct Asked {
    endpoint: String,
    /// Node id of the member, if known.
    node: Option<NodeId>,
    /// Status from the node, or the reason why there is none.
    status: Result<NodeStatus, String>,
}

impl Asked {
    fn new(endpoint: String, status: Result<NodeStatus, Error>) -> Asked {
        let node = status.as_ref().ok().and_then(|status| status.node);
        Asked { endpoint, node, status: status.map_err(|error| error.to_string()) }
    }

    fn is(&self, member: &Member) -> bool {
        match self.node {
            Some(node) => node == member.node,
            None => address_of(&self.endpoint) == address_of(&member.client_address),
        }
    }
}

/// Returns the bare address of an endpoint, without scheme and trailing slash, which members' addresses don't have.
fn address_of(endpoint: &str) -> &str {
    endpoint.rsplit_once("://").map_or(endpoint, |(_, address)| address).trim_end_matches('/')
}

/// Status of the cluster: the nodes' answers, and warnings.
struct ClusterStatus {
    nodes: Vec<Asked>,
    warnings: Vec<String>,
}

impl ClusterStatus {
    async fn ask(client: &Client) -> ClusterStatus {
        let admin = client.admin();
        let asked = admin.status().await;
        let mut nodes: Vec<Asked> =
            asked.into_iter().map(|asked| Asked::new(asked.endpoint, asked.status)).collect();
        // A member that no endpoint leads to is only missed if another node knows of it.
        let members = admin.members().await.unwrap_or_default();
        for member in &members {
            if let Some(known) = nodes.iter_mut().find(|asked| asked.is(member)) {
                known.node = Some(member.node);
            } else if !member.client_address.is_empty() {
                let status = admin.status_of(&member.client_address).await;
                let asked = Asked::new(member.client_address.clone(), status);
                nodes.push(Asked { node: Some(member.node), ..asked });
            }
        }
        // With the member list, an endpoint that leads nowhere is another name of a member, or of nobody.
        nodes.retain(|asked| members.is_empty() || asked.node.is_some() || asked.status.is_ok());
        nodes.sort_by_key(|asked| (asked.node.map(NodeId::number), asked.status.is_err()));
        nodes.dedup_by(|a, b| a.node.is_some() && a.node == b.node);
        let mut status = ClusterStatus { nodes, warnings: Vec::new() };
        status.warnings = status.find_warnings();
        status
    }

    fn find_warnings(&self) -> Vec<String> {
        // A warning that several nodes give in the same words is printed once.
        let mut said: Vec<(&str, Vec<String>)> = Vec::new();
        for (asked, status) in self.answered() {
            let name =
                status.node.map_or_else(|| asked.endpoint.clone(), |node| format!("node {}", node.number()));
            for warning in &status.warnings {
                match said.iter_mut().find(|(known, _)| known == warning) {
                    Some((_, names)) => names.push(name.clone()),
                    None => said.push((warning, vec![name.clone()])),
                }
            }
        }
        let line = |(warning, names): &(&str, Vec<String>)| format!("{}: {warning}", names.join(", "));
        let mut warnings: Vec<String> = said.iter().map(line).collect();
        for asked in &self.nodes {
            if let Err(error) = &asked.status {
                warnings.push(format!("{} does not answer: {error}", asked.endpoint));
            }
        }
        for (group, replicas) in self.groups() {
            if !replicas.iter().any(|replica| replica.serves) {
                warnings.push(format!("group {} has no leader that serves", group.number()));
            }
        }
        warnings
    }

    fn answered(&self) -> impl Iterator<Item = (&Asked, &NodeStatus)> {
        self.nodes.iter().filter_map(|asked| Some((asked, asked.status.as_ref().ok()?)))
    }

    /// Returns the replicas of each group.
    fn groups(&self) -> BTreeMap<GroupId, Vec<&ReplicaStatus>> {
        let mut groups: BTreeMap<GroupId, Vec<&ReplicaStatus>> = BTreeMap::new();
        for replica in self.answered().flat_map(|(_, status)| &status.replicas) {
            groups.entry(replica.group).or_default().push(replica);
        }
        groups
    }

    fn exit(&self) -> Exit {
        let groups = self.groups();
        let led = !groups.is_empty() && groups.values().all(|replicas| replicas.iter().any(|it| it.serves));
        match (led, self.warnings.is_empty()) {
            (false, _) => Exit::Unreachable,
            (true, false) => Exit::Failed,
            (true, true) => Exit::Done,
        }
    }

    fn health(&self) -> (&'static str, Look) {
        match self.exit() {
            Exit::Done => ("healthy", Look::Good),
            Exit::Failed => ("serving, but look at the warnings", Look::Warning),
            _ => ("not serving", Look::Bad),
        }
    }

    fn text(&self, output: Output) -> String {
        let paint = output.paint;
        let (health, look) = self.health();
        let health = match look {
            Look::Good => paint.good(health),
            Look::Warning => paint.warning(health),
            _ => paint.bad(health),
        };
        let cluster = self
            .answered()
            .next()
            .map_or_else(String::new, |(_, status)| format!(" {:016x}", status.cluster.number()));
        let (up, all) = (self.answered().count(), self.nodes.len());
        let mut text = format!("cluster{cluster}: {health}; {up} of {all} nodes answer\n\n");
        text.push_str(&output.render(&self.node_table()));
        text.push('\n');
        text.push_str(&output.render(&self.group_table()));
        if !self.warnings.is_empty() {
            let warnings = self.warnings.iter().map(|warning| {
                // An error may have lines of its own.
                let lines = warning.lines().map(|line| output.wrap(&format!("  {}", escaped(line)), "    "));
                lines.collect::<Vec<_>>().join("\n")
            });
            let warnings = warnings.collect::<Vec<_>>().join("\n");
            // Writing to a string can't fail.
            let _ = writeln!(text, "\n{}\n{warnings}", paint.warning("Warnings:"));
        }
        text
    }

    fn node_table(&self) -> Table {
        let mut table =
            Table::new(&["NODE", "NAME", "ADDRESS", "STATE", "LEADS", "UP", "DATA", "ZONE", "VERSION"]);
        for asked in &self.nodes {
            table.row(node_row(asked));
        }
        table
    }

    fn group_table(&self) -> Table {
        let headings =
            ["GROUP", "LEADER", "TERM", "REVISION", "LOCKS", "CLAIMS", "LEASES", "REGISTERS", "BEHIND"];
        let mut table = Table::new(&headings);
        for (group, replicas) in self.groups() {
            // The leader's replica counts; without a leader, the one that has applied the most.
            let Some(best) = replicas.iter().max_by_key(|replica| (replica.serves, replica.applied_index))
            else {
                continue;
            };
            let leader = if best.serves { best.leader } else { None };
            let leader = leader.map_or(("none".to_owned(), Look::Bad), |node| cell(node.number()));
            let behind =
                replicas.iter().map(|replica| best.applied_index.saturating_sub(replica.applied_index)).max();
            table.row(vec![
                cell(group.number()),
                leader,
                cell(best.raft_term),
                cell(best.revision),
                cell(best.locks),
                cell(best.claims),
                cell(best.leases),
                cell(best.registers),
                cell(behind.unwrap_or(0)),
            ]);
        }
        table
    }

    fn json(&self) -> Value {
        json!({
            "healthy": self.exit() == Exit::Done,
            "serves": self.exit() != Exit::Unreachable,
            "nodes": self.nodes.iter().map(node_json).collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }
}

pub(crate) fn bytes_text(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{}.{} GB", bytes / 1_000_000_000, bytes % 1_000_000_000 / 100_000_000),
    }
}

fn node_row(asked: &Asked) -> Vec<(String, Look)> {
    let address = cell(address_of(&asked.endpoint));
    let Ok(status) = &asked.status else {
        let node = asked.node.map_or_else(|| "-".to_owned(), |node| node.number().to_string());
        let mut row = vec![cell(node), cell("-"), address, ("no answer".to_owned(), Look::Bad)];
        row.extend(["-"; 5].map(cell));
        return row;
    };
    let leads = status.replicas.iter().filter(|replica| replica.role == Role::Leader).count();
    vec![
        cell(status.node.map_or_else(|| "-".to_owned(), |node| node.number().to_string())),
        cell(or_dash(&status.name)),
        address,
        ("up".to_owned(), Look::Good),
        cell(if leads > 0 { leads.to_string() } else { "-".to_owned() }),
        cell(span::text(status.uptime)),
        cell(bytes_text(status.data_dir_bytes)),
        cell(or_dash(&status.zone)),
        cell(&status.version),
    ]
}

fn node_json(asked: &Asked) -> Value {
    match &asked.status {
        Err(error) => json!({
            "address": asked.endpoint,
            "answers": false,
            "node_id": asked.node.map(|node| text(node.number())),
            "error": error,
        }),
        Ok(status) => json!({
            "address": asked.endpoint,
            "answers": true,
            "node_id": status.node.map(|node| text(node.number())),
            "cluster_id": text(status.cluster.number()),
            "lineage": status.lineage.map(text),
            "name": status.name,
            "zone": status.zone,
            "version": status.version,
            "uptime_ms": ms(status.uptime),
            "data_dir_bytes": text(status.data_dir_bytes),
            "warnings": status.warnings,
            "clocks": status.clocks.iter().map(clock_json).collect::<Vec<_>>(),
            "replicas": status.replicas.iter().map(replica_json).collect::<Vec<_>>(),
        }),
    }
}

fn clock_json(clock: &ClockComparison) -> Value {
    json!({ "node_id": text(clock.node.number()), "rate_difference_ppm": clock.rate_difference_ppm })
}

fn role_text(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        _ => "unknown",
    }
}

fn replica_json(replica: &ReplicaStatus) -> Value {
    json!({
        "group_id": replica.group.number(),
        "role": role_text(replica.role),
        "kind": kind_text(replica.kind),
        "serves": replica.serves,
        "leader_id": replica.leader.map(|node| text(node.number())),
        "raft_term": text(replica.raft_term),
        "applied_index": text(replica.applied_index),
        "committed_index": text(replica.committed_index),
        "first_index": text(replica.first_index),
        "last_index": text(replica.last_index),
        "snapshot_index": text(replica.snapshot_index),
        "revision": text(replica.revision),
        "min_revision": text(replica.min_revision),
        "locks": replica.locks,
        "claims": replica.claims,
        "leases": replica.leases,
        "registers": replica.registers,
    })
}
