//! Demo: a holder is killed; its lease ends, and the next in line gets the lock.

use super::holder::Holder;
use super::stage::Stage;
use super::verdict::Verdict;
use anyhow::Context;
use nix::sys::signal::Signal;
use std::time::Duration;
use tollgate_client::{Guard, Session};

const LOCK: &str = "printer";
/// TTL of the lease whose holder is killed.
const TTL: Duration = Duration::from_secs(2);
/// Keepalives are sent every third of the TTL, so at least this much is left of a lease at any time.
const LEFT_AT_LEAST: Duration = Duration::from_secs(1);
/// A lease ends within half a second after its TTL; the rest is for a machine that is busy with other things.
const LATE_AT_MOST: Duration = Duration::from_secs(5);

/// Everything that the play saw.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    dead_token: u64,
    killed: Duration,
    /// The clients that got the lock after the kill, in order, with the time and the token.
    next: Vec<(&'static str, Duration, u64)>,
}

pub(super) async fn play(stage: &Stage) -> anyhow::Result<Verdict> {
    let tell = stage.tell;
    let (ann, token) = Holder::start(&stage.cluster.endpoints(), "ann", LOCK, TTL).await?;
    tell.who("ann", &format!("(process {}) has the lock, token {token}, on a lease of 2 s", ann.pid()))?;
    let (bob, cid) = (
        stage.person("bob", Duration::from_secs(10)).await?,
        stage.person("cid", Duration::from_secs(10)).await?,
    );
    let first = tokio::spawn(take(bob));
    stage.until_waiting(LOCK, 1).await?;
    tell.who("bob", "is first in line")?;
    let second = tokio::spawn(take(cid));
    stage.until_waiting(LOCK, 2).await?;
    tell.who("cid", "is second in line")?;
    // Long enough for keepalives to matter: without them the lease would be over by then.
    tokio::time::sleep(TTL + TTL / 4).await;
    tell.say("two seconds and more: ann's client has kept its lease alive")?;

    ann.signal(Signal::SIGKILL)?;
    let mut seen = Seen { dead_token: token.get(), killed: tell.now(), next: Vec::new() };
    tell.say(&format!("kill -9 {}: ann is gone, and nobody told the cluster", ann.pid()))?;
    for (who, waiting) in [("bob", first), ("cid", second)] {
        let guard = waiting.await?.with_context(|| format!("{who} did not get the lock"))?;
        let (at, token) = (tell.now(), guard.token()?);
        seen.next.push((who, at, token.get()));
        let after = at.saturating_sub(seen.killed).as_secs_f64();
        tell.who(who, &format!("has the lock, token {token}, {after:.2} s after the kill"))?;
        guard.release().await?;
    }
    Ok(judge(&seen))
}

async fn take(session: Session) -> anyhow::Result<Guard> {
    Ok(session.lock(LOCK).acquire().await?)
}

fn judge(seen: &Seen) -> Verdict {
    let order: Vec<&str> = seen.next.iter().map(|(who, _, _)| *who).collect();
    let after = seen.next.first().map_or(Duration::ZERO, |(_, at, _)| at.saturating_sub(seen.killed));
    let tokens: Vec<u64> =
        [seen.dead_token].into_iter().chain(seen.next.iter().map(|(_, _, token)| *token)).collect();
    let seconds = after.as_secs_f64();
    Verdict::new()
        .claim(order == ["bob", "cid"], "the next in line got the lock, then the one after")
        .claim(
            after >= LEFT_AT_LEAST,
            format!("not before ann's lease could be over ({seconds:.2} s after the kill)"),
        )
        .claim(after <= LATE_AT_MOST, "nobody had to clean up")
        .claim(
            tokens.windows(2).all(|pair| pair[0] < pair[1]),
            format!(
                "each with a higher token: {}",
                tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
            ),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let at = Duration::from_millis;
        Seen { dead_token: 3, killed: at(5_000), next: vec![("bob", at(6_900), 7), ("cid", at(6_910), 9)] }
    }

    #[test]
    fn a_lock_that_passes_on_when_the_lease_is_over_is_believed() {
        assert!(judge(&seen()).holds());
    }

    #[test]
    fn a_lock_that_passes_on_too_soon_too_late_out_of_order_or_with_an_old_token_is_not() {
        let mut early = seen();
        early.next[0].1 = early.killed + Duration::from_millis(50);
        assert_eq!(judge(&early).missing().len(), 1);
        let mut late = seen();
        late.next[0].1 = late.killed + Duration::from_secs(8);
        assert_eq!(judge(&late).missing(), ["nobody had to clean up"]);
        let mut jumped = seen();
        jumped.next.swap(0, 1);
        assert!(!judge(&jumped).holds());
        let mut stale = seen();
        stale.next[0].2 = stale.dead_token;
        assert!(!judge(&stale).holds());
        let never = Seen { next: Vec::new(), ..seen() };
        assert!(!judge(&never).holds());
    }
}
