//! Waiting until a node has what it needs for a vote, and showing how far it is.

use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::{Globals, stderr_is_terminal};
use crate::span;
use clap::Args;
use std::time::{Duration, Instant};
use tollgate_client::{Client, Group, NodeId};

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
            let lacks = lacking(&groups, node);
            shown.show(globals, &says(node, &lacks));
            if lacks.is_empty() {
                shown.end(globals);
                return Ok(());
            }
            if Instant::now() >= until {
                shown.end(globals);
                let says = format!(
                    "{} after {}: is the node started, and do the others reach it? (its log says what it waits for)",
                    says(node, &lacks),
                    span::text(patience)
                );
                return Err(WithExit(Exit::Busy, says).into());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Groups in which the node can't get a vote yet, and what it lacks there, if somebody knows.
fn lacking(groups: &[Group], node: NodeId) -> Vec<(u32, Option<u64>)> {
    let votes = |group: &&Group| !group.voters.contains(&node);
    let lacks = |group: &Group| {
        let told = group.progress.iter().find(|progress| progress.node == node);
        let behind = told.filter(|told| told.active).map(|told| told.behind);
        let caught_up = told.is_some_and(|told| told.caught_up);
        (!caught_up).then_some((group.id.number(), behind))
    };
    groups.iter().filter(votes).filter_map(lacks).collect()
}

fn says(node: NodeId, lacks: &[(u32, Option<u64>)]) -> String {
    if lacks.is_empty() {
        return format!("node {node} has caught up");
    }
    let each = lacks.iter().map(|(group, behind)| match behind {
        Some(behind) => format!("group {group}: {behind} entries behind"),
        None => format!("group {group}: not heard from yet"),
    });
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
