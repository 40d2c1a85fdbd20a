//! Demo: the leader is killed while locks are held and awaited; nobody loses anything, and soon locks are granted
//! again.

use super::stage::Stage;
use super::verdict::Verdict;
use anyhow::Context;
use std::time::Duration;
use tollgate_client::{EndpointStatus, Guard};

const LOCKS: [&str; 4] = ["job/1", "job/2", "job/3", "job/4"];
const TTL: Duration = Duration::from_secs(10);
/// An election takes some tenths of a second when the leader's process died; the rest is for a busy machine.
const GRANT_PATIENCE: Duration = Duration::from_secs(8);

/// Everything that the play saw.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    old_leader: usize,
    new_leader: usize,
    /// Time from the kill to the next grant.
    next_grant_after: Duration,
    /// For each lock: the token before the kill, the holder's token after it, and the cluster's token after it.
    tokens: Vec<(u64, Option<u64>, Option<u64>)>,
    /// True if the waiter kept its place in line, and got the lock when the holder released it.
    waiter_served: bool,
    /// True if the killed node came back and caught up.
    came_back: bool,
}

pub(super) async fn play(stage: &mut Stage) -> anyhow::Result<Verdict> {
    let tell = stage.tell;
    let ann = stage.person("ann", TTL).await?;
    let mut guards: Vec<Guard> = Vec::new();
    for lock in LOCKS {
        guards.push(ann.lock(lock).acquire().await?);
    }
    let before = tokens(&guards);
    tell.who("ann", &format!("has {}, tokens {}", LOCKS.join(", "), list(&before)))?;
    let (bob, cid) = (stage.person("bob", TTL).await?, stage.person("cid", TTL).await?);
    let waiting = tokio::spawn(async move { bob.lock(LOCKS[0]).acquire().await });
    stage.until_waiting(LOCKS[0], 1).await?;
    tell.who("bob", &format!("waits in line for {}", LOCKS[0]))?;

    let old_leader = stage.leader().await.context("nobody leads")?;
    let killed = tell.now();
    let pid = stage.cluster.kill(old_leader)?;
    tell.say(&format!("kill -9 {pid}: node {old_leader}, the leader, is gone"))?;
    let fresh = cid.lock("job/5").acquire().await?;
    let next_grant_after = tell.now().saturating_sub(killed);
    let ms = next_grant_after.as_millis();
    tell.who("cid", &format!("has job/5, token {}: {ms} ms after the kill", fresh.token()?))?;
    let new_leader = until_leader(stage).await?;
    tell.say(&format!("node {new_leader} leads"))?;

    let mut seen = Vec::new();
    for ((lock, guard), token) in LOCKS.iter().zip(&guards).zip(&before) {
        let holders = stage.client.get_lock(lock).await?.holders;
        let in_cluster = holders.first().map(|holder| holder.token.get());
        seen.push((*token, guard.token().ok().map(tollgate_client::Token::get), in_cluster));
    }
    tell.who("ann", &format!("still has all four, tokens {}", list(&tokens(&guards))))?;
    guards.remove(0).release().await?;
    tell.who("ann", &format!("gives {} back", LOCKS[0]))?;
    let passed_on = waiting.await?.context("bob did not get the lock")?;
    tell.who("bob", &format!("has {}, token {}: the line survived too", LOCKS[0], passed_on.token()?))?;
    let waiter_served = passed_on.token()?.get() > before[0];

    stage.cluster.restart(old_leader)?;
    let came_back = until_caught_up(stage, old_leader).await;
    tell.say(&format!("node {old_leader} was started again, and has caught up"))?;
    Ok(judge(&Seen { old_leader, new_leader, next_grant_after, tokens: seen, waiter_served, came_back }))
}

fn tokens(guards: &[Guard]) -> Vec<u64> {
    guards.iter().filter_map(|guard| guard.token().ok()).map(tollgate_client::Token::get).collect()
}

fn list(tokens: &[u64]) -> String {
    tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

async fn until_leader(stage: &Stage) -> anyhow::Result<usize> {
    let look = async {
        loop {
            if let Some(leader) = stage.leader().await {
                return leader;
            }
        }
    };
    tokio::time::timeout(GRANT_PATIENCE, look).await.context("nobody leads")
}

/// Returns the applied index of each node that answers and knows a leader.
async fn applied(stage: &Stage) -> Vec<Option<u64>> {
    let of_node = |node: &EndpointStatus| {
        let replica = node.status.as_ref().ok()?.replicas.first()?;
        replica.leader.map(|_| replica.applied_index)
    };
    stage.client.admin().status().await.iter().map(of_node).collect()
}

/// Waits until a node has applied what the others had applied at the time of the call; false if it does not in time.
async fn until_caught_up(stage: &Stage, number: usize) -> bool {
    let goal = applied(stage).await.into_iter().flatten().max();
    let look = async {
        while goal.is_none() || applied(stage).await[number - 1] < goal {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(GRANT_PATIENCE, look).await.is_ok()
}

fn judge(seen: &Seen) -> Verdict {
    let kept = seen
        .tokens
        .iter()
        .all(|(before, of_holder, in_cluster)| (*of_holder, *in_cluster) == (Some(*before), Some(*before)));
    let ms = seen.next_grant_after.as_millis();
    Verdict::new()
        .claim(kept && seen.tokens.len() == LOCKS.len(), "every lock is held as before, with the same token")
        .claim(seen.waiter_served, "who stood in line still did, and got the lock")
        .claim(seen.next_grant_after <= GRANT_PATIENCE, format!("the next grant came {ms} ms after the kill"))
        .claim(seen.old_leader != seen.new_leader, "another node leads")
        .claim(seen.came_back, "the node that was killed came back")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        Seen {
            old_leader: 1,
            new_leader: 3,
            next_grant_after: Duration::from_millis(200),
            tokens: [2, 3, 4, 5].map(|token| (token, Some(token), Some(token))).to_vec(),
            waiter_served: true,
            came_back: true,
        }
    }

    #[test]
    fn a_loss_that_cost_nothing_is_believed() {
        assert!(judge(&seen()).holds());
    }

    #[test]
    fn a_lost_lock_another_token_or_a_lost_place_is_noticed() {
        let mut lost = seen();
        lost.tokens[2].1 = None;
        assert_eq!(judge(&lost).missing(), ["every lock is held as before, with the same token"]);
        let mut another = seen();
        another.tokens[0].2 = Some(9);
        assert!(!judge(&another).holds());
        let mut fewer = seen();
        fewer.tokens.pop();
        assert!(!judge(&fewer).holds());
        assert!(!judge(&Seen { waiter_served: false, ..seen() }).holds());
        assert!(!judge(&Seen { new_leader: 1, ..seen() }).holds());
        assert!(!judge(&Seen { next_grant_after: Duration::from_secs(9), ..seen() }).holds());
        assert!(!judge(&Seen { came_back: false, ..seen() }).holds());
    }
}
