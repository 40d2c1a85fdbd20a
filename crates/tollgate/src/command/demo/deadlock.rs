//! Demo: two clients wait for each other. The request that closes the cycle is refused, with the cycle; the other
//! client goes on.

use super::stage::Stage;
use super::verdict::Verdict;
use anyhow::{Context, bail};
use std::time::Duration;
use tollgate_client::AcquireError;

const LEFT: &str = "account/left";
const RIGHT: &str = "account/right";
const TTL: Duration = Duration::from_secs(10);

/// One step of the cycle: the waiter, the lock that it waits for, and the holder that blocks it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    waiter: String,
    lock: String,
    blocker: String,
}

/// Everything that the play saw.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// The cycle that the victim's error names.
    circle: Vec<Step>,
    /// Time from the request to its refusal.
    told_after: Duration,
    /// True if the other client got its second lock once the victim had let go.
    other_went_on: bool,
}

pub(super) async fn play(stage: &Stage) -> anyhow::Result<Verdict> {
    let tell = stage.tell;
    let (ann, bob) = (stage.person("ann", TTL).await?, stage.person("bob", TTL).await?);
    // One owner for both locks of each client: that is how the cluster knows that they belong together.
    let left = ann.owner("ann").lock(LEFT).acquire().await?;
    tell.who("ann", &format!("has {LEFT}, token {}", left.token()?))?;
    let right = bob.owner("bob").lock(RIGHT).acquire().await?;
    tell.who("bob", &format!("has {RIGHT}, token {}", right.token()?))?;
    let ann_waits = {
        let owner = ann.owner("ann");
        tokio::spawn(async move { owner.lock(RIGHT).acquire().await })
    };
    stage.until_waiting(RIGHT, 1).await?;
    tell.who("ann", &format!("wants {RIGHT} too, and waits for bob"))?;
    tell.who("bob", &format!("wants {LEFT} too"))?;
    let asked = tell.now();
    let refused = bob.owner("bob").lock(LEFT).acquire().await;
    let told_after = tell.now().saturating_sub(asked);
    let circle = match refused {
        Err(AcquireError::Deadlock { cycle }) => cycle,
        Err(other) => bail!("bob was refused, but not for a deadlock: {other}"),
        Ok(_) => bail!("bob got a lock that ann holds"),
    };
    tell.who("bob", &format!("is told after {:.1} ms: deadlock", told_after.as_secs_f64() * 1_000.0))?;
    let step = |step: &tollgate_client::DeadlockStep| Step {
        waiter: step.owner.clone(),
        lock: step.name.clone(),
        blocker: step.blocker_owner.clone(),
    };
    let circle: Vec<Step> = circle.iter().map(step).collect();
    for step in &circle {
        tell.say(&format!("    {} waits for {}, which {} holds", step.waiter, step.lock, step.blocker))?;
    }
    right.release().await?;
    tell.who("bob", &format!("lets {RIGHT} go, and will start again"))?;
    let both = ann_waits.await?.context("ann did not get her second lock")?;
    tell.who("ann", &format!("has {RIGHT} as well, token {}", both.token()?))?;
    let seen = Seen { circle, told_after, other_went_on: left.token().is_ok() };
    both.release().await?;
    left.release().await?;
    Ok(judge(&seen))
}

fn judge(seen: &Seen) -> Verdict {
    let step = |waiter: &str, lock: &str, blocker: &str| Step {
        waiter: waiter.into(),
        lock: lock.into(),
        blocker: blocker.into(),
    };
    let expected = [step("bob", LEFT, "ann"), step("ann", RIGHT, "bob")];
    Verdict::new()
        .claim(
            seen.told_after < Duration::from_secs(2),
            "the one who would close the circle was told at once",
        )
        .claim(seen.circle == expected, "and was told the circle: bob waits for ann, ann waits for bob")
        .claim(seen.other_went_on, "the other went on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let step = |waiter: &str, lock: &str, blocker: &str| Step {
            waiter: waiter.into(),
            lock: lock.into(),
            blocker: blocker.into(),
        };
        Seen {
            circle: vec![step("bob", LEFT, "ann"), step("ann", RIGHT, "bob")],
            told_after: Duration::from_millis(3),
            other_went_on: true,
        }
    }

    #[test]
    fn a_circle_that_is_told_at_once_is_believed() {
        assert!(judge(&seen()).holds());
    }

    #[test]
    fn no_circle_half_a_circle_a_late_word_or_two_victims_are_not() {
        assert!(!judge(&Seen { circle: Vec::new(), ..seen() }).holds());
        let mut half = seen();
        half.circle.pop();
        assert!(!judge(&half).holds());
        assert!(!judge(&Seen { told_after: Duration::from_secs(9), ..seen() }).holds());
        assert_eq!(judge(&Seen { other_went_on: false, ..seen() }).missing(), ["the other went on"]);
    }
}
