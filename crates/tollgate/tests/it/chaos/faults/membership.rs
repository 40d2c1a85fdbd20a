//! A node takes another's place, by the commands that operators use: because the old node is lost with its disk, or by
//! adding the new node first and removing the old one after.
//!
//! Only one change is under way at a time; other faults go on meanwhile, at other nodes.

use super::{Draw, FaultKind};
use crate::chaos::arena::{Arena, RECOVERY};
use crate::chaos::operator::carry_out;
use crate::cluster::Node;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Flag with the time that a command waits for a new node to catch up, before the command is repeated.
const WAIT: &str = "--wait=30s";

/// Message of a node that has learnt of its removal.
const REMOVED: &str = "this node was removed from the cluster";

pub(super) async fn run(arena: &Arena, draw: Draw) -> Result<(), String> {
    let _alone = arena.membership.lock().await;
    let (index, mut node) = arena.pick(&draw).await;
    let title = arena.title(index).await;
    let (number, newcomer) = if draw.kind == FaultKind::Replace {
        let number = arena.begin(draw.kind, &format!("{title} is lost with its disk, and replaced"));
        (number, replace(arena, index, &mut node).await)
    } else {
        let number = arena.begin(draw.kind, &format!("another node is added, and {title} removed"));
        (number, grow_and_shrink(arena, index, &mut node).await)
    };
    let done = match newcomer {
        Ok(newcomer) => {
            arena.seat(index, &mut node, newcomer);
            arena.recovered(&mut node).await
        }
        Err(why) => Err(why),
    };
    arena.end(number);
    done
}

/// Replaces a node that is gone for good. Returns the node in its place.
async fn replace(arena: &Arena, index: usize, node: &mut Node) -> Result<Node, String> {
    node.kill();
    std::fs::remove_dir_all(&node.data_dir).unwrap();
    let newcomer = add(arena, index).await?;
    let (old, new) = (node.id.to_string(), newcomer.id.to_string());
    carry_out(arena, &["member", "replace", &old, "--by", &new, WAIT]).await?;
    Ok(newcomer)
}

/// Removes the node once a new one votes. Returns the new one.
async fn grow_and_shrink(arena: &Arena, index: usize, node: &mut Node) -> Result<Node, String> {
    let newcomer = add(arena, index).await?;
    let (old, new) = (node.id.to_string(), newcomer.id.to_string());
    carry_out(arena, &["member", "promote", &new, WAIT]).await?;
    carry_out(arena, &["member", "remove", &old]).await?;
    let until = Instant::now() + RECOVERY;
    while !node.log().contains(REMOVED) {
        if Instant::now() > until {
            return Err(format!("{RECOVERY:?} after its removal {} does not know of it", node.title()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    node.kill();
    Ok(newcomer)
}

/// Adds a member that runs and does not vote.
async fn add(arena: &Arena, index: usize) -> Result<Node, String> {
    let arrival = arena.prepare_arrival(index).await;
    let (peer, client) = arrival.addresses();
    let said =
        carry_out(arena, &["member", "add", "--peer", &peer, "--client", &client, "-o", "json"]).await?;
    let added: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
    let id = added["node_id"].as_str().and_then(|id| id.parse().ok());
    let mut node = arrival.node(id.ok_or_else(|| format!("no id was given: {said}"))?);
    node.start(&[]);
    Ok(node)
}
