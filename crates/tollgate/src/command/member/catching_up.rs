//! The wait until a node has caught up enough for a vote, and its progress display.

use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::{Globals, stderr_is_terminal};
use crate::span;
use clap::Args;
use std::fmt;
use std::time::{Duration, Instant};
use tollgate_client::{Client, Group, GroupId, MemberProgress, NodeId};

/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(200);

/// Flag that makes a command wait until a node has caught up.
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
    /// True if the command is to wait at all.
    pub(super) fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// Waits, if asked to, until the node could be given a vote in all groups.
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

/// Progress of a node that can't get a vote yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lacks {
    /// No leader has heard from the node.
    Silent,
    /// The node lacks everything, and nothing is on its way yet.
    All,
    /// The node is receiving a snapshot.
    Snapshot { received_bytes: u64, bytes: u64 },
    /// The node lacks this many entries of the log.
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

/// True if the leader of group 0, which knows all members, does not know the node.
fn is_stranger(groups: &[Group], node: NodeId) -> bool {
    groups.iter().find(|group| group.id == GroupId::MAP).is_some_and(|first| {
        let told_by_leader =
            !first.progress.is_empty() || is_alone(first.leader, &first.voters, &first.learners);
        told_by_leader && !first.voters.contains(&node) && !first.learners.contains(&node)
    })
}

/// True if a leader has no other member whose progress it could report. A node that has just joined knows of no voter
/// at all, and reports nothing about anybody.
fn is_alone(leader: Option<NodeId>, voters: &[NodeId], learners: &[NodeId]) -> bool {
    learners.is_empty() && matches!(voters, [only] if Some(*only) == leader)
}

/// Returns the groups in which the node can't get a vote yet, and what it lacks in each.
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

/// The progress that was shown last. On a terminal the line is redrawn; elsewhere only changes are printed.
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
