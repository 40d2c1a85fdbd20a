//! Waiting until a node has what it needs for a vote, and showing how far it is.

use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::{Globals, stderr_is_terminal};
use crate::span;
use clap::Args;
use std::fmt;
use std::time::{Duration, Instant};
use tollgate_client::{Client, Group, GroupId, MemberProgress, NodeId};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// How long to wait.
#[derive(Debug, Args)]
pub(super) struct Patience {
    /// Wait until the node has caught up, and show how far it is; at most for SPAN
    #[arg(
        long,
        value_name = "SPAN",
        value_parser = span::parse,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10m"
    )]
    wait: Option<Duration>,
}

impl Patience {
    /// Whether to wait at all.
    pub(super) fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// Waits, if that was asked for, until the node could be given a vote in all groups.
    pub(super) async fn until_caught_up(
        &self,
        globals: &Globals,
        client: &Client,
        node: NodeId,
    ) -> anyhow::Result<()> {
        let Some(patience) = self.wait else { return Ok(()) };
        let until = Instant::now() + patience;
        let mut shown = Shown::default();
        loop {
            let groups = client.admin().progress().await.map_err(failed)?;
            if is_stranger(&groups, node) {
                shown.end(globals);
                let says = format!(
                    "node {node} is not a member: add it first, or check the id (`tollgate member ls` lists those \
                     that are)"
                );
                return Err(WithExit(Exit::Failed, says).into());
            }
            let lacks = lacking(&groups, node);
            shown.show(globals, &says(node, &lacks));
            if lacks.is_empty() {
                shown.end(globals);
                return Ok(());
            }
            if Instant::now() >= until {
                shown.end(globals);
                let silent = lacks.iter().any(|(_, lacks)| matches!(lacks, Lacks::Silent));
                let next = if silent {
                    "is the node started, and do the others reach it? (its log says what it waits for)"
                } else {
                    "it is on its way; run it again to go on waiting"
                };
                let says = format!("{} after {}: {next}", says(node, &lacks), span::text(patience));
                return Err(WithExit(Exit::Busy, says).into());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What a node needs before it can get a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lacks {
    /// Nobody has heard from it.
    Silent,
    /// Everything, and nothing is on its way yet.
    All,
    /// The rest of a snapshot.
    Snapshot { received_bytes: u64, bytes: u64 },
    /// Entries of the log.
    Entries(u64),
}

impl Lacks {
    fn of(told: &MemberProgress) -> Lacks {
        let (received_bytes, bytes) = (told.snapshot_received_bytes, told.snapshot_bytes);
        match (told.active, told.connected) {
            (true, _) => Lacks::Entries(told.behind),
            (false, true) if bytes > 0 => Lacks::Snapshot { received_bytes, bytes },
            (false, true) => Lacks::All,
            (false, false) => Lacks::Silent,
        }
    }
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Lacks::Silent => f.write_str("not heard from yet"),
            Lacks::All => f.write_str("connected, and waiting for a snapshot"),
            Lacks::Snapshot { received_bytes, bytes } => {
                let (unit, size) = if bytes < 1 << 20 { ("KiB", 1 << 10) } else { ("MiB", 1 << 20) };
                let (received, all) = (received_bytes / size, bytes.div_ceil(size));
                write!(f, "receiving the snapshot, {received} of {all} {unit}")
            }
            Lacks::Entries(behind) => write!(f, "{behind} entries behind"),
        }
    }
}

/// Whether the leader of group 0, which knows of everybody, does not know the node.
fn is_stranger(groups: &[Group], node: NodeId) -> bool {
    groups.iter().find(|group| group.id == GroupId::MAP).is_some_and(|first| {
        let told_by_leader =
            !first.progress.is_empty() || is_alone(first.leader, &first.voters, &first.learners);
        told_by_leader && !first.voters.contains(&node) && !first.learners.contains(&node)
    })
}

/// Whether a leader has nobody else of whom it could tell how far they are. A node that has just joined knows of no
/// voter at all, and says nothing about anybody.
fn is_alone(leader: Option<NodeId>, voters: &[NodeId], learners: &[NodeId]) -> bool {
    learners.is_empty() && matches!(voters, [only] if Some(*only) == leader)
}

/// Groups in which the node can't get a vote yet, and what it lacks there.
fn lacking(groups: &[Group], node: NodeId) -> Vec<(u32, Lacks)> {
    let learns = |group: &&Group| !group.voters.contains(&node);
    let lacks = |group: &Group| match group.progress.iter().find(|progress| progress.node == node) {
        Some(told) if told.caught_up => None,
        Some(told) => Some((group.id.number(), Lacks::of(told))),
        None => Some((group.id.number(), Lacks::Silent)),
    };
    groups.iter().filter(learns).filter_map(lacks).collect()
}

fn says(node: NodeId, lacks: &[(u32, Lacks)]) -> String {
    if lacks.is_empty() {
        return format!("node {node} has caught up");
    }
    let each = lacks.iter().map(|(group, lacks)| format!("group {group}: {lacks}"));
    format!("node {node}: {}", each.collect::<Vec<_>>().join(", "))
}

/// What was last said: on a terminal it is drawn over, elsewhere only news is said.
#[derive(Debug, Default)]
struct Shown {
    last: String,
}

impl Shown {
    fn show(&mut self, globals: &Globals, says: &str) {
        if globals.quiet || self.last == says {
            return;
        }
        if stderr_is_terminal() {
            eprint!("\r\u{1b}[2K{says}");
        } else {
            globals.remark(says);
        }
        says.clone_into(&mut self.last);
    }

    fn end(&self, globals: &Globals) {
        if !globals.quiet && !self.last.is_empty() && stderr_is_terminal() {
            eprintln!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_leader_is_alone_and_not_one_that_has_just_joined() {
        let [one, two] = [1, 2].map(|number| NodeId::new(number).unwrap());
        assert!(is_alone(Some(one), &[one], &[]));
        assert!(!is_alone(None, &[], &[]), "it knows nobody yet");
        assert!(!is_alone(None, &[one], &[]) && !is_alone(Some(two), &[one], &[]));
        assert!(!is_alone(Some(one), &[one, two], &[]) && !is_alone(Some(one), &[one], &[two]));
    }

    #[test]
    fn what_a_node_lacks_is_said_in_units_that_show_that_it_moves() {
        let snapshot = |received_bytes, bytes| Lacks::Snapshot { received_bytes, bytes }.to_string();
        assert_eq!(snapshot(120 << 20, 800 << 20), "receiving the snapshot, 120 of 800 MiB");
        assert_eq!(snapshot(0, 1), "receiving the snapshot, 0 of 1 KiB");
        assert_eq!(Lacks::Entries(7).to_string(), "7 entries behind");
        let node = NodeId::new(4).unwrap();
        let lacks = [(0, Lacks::Entries(7)), (2, Lacks::Silent)];
        assert_eq!(says(node, &lacks), "node 4: group 0: 7 entries behind, group 2: not heard from yet");
        assert_eq!(says(node, &[]), "node 4 has caught up");
    }
}
